//! The screen: a picture of the running session on standard error, redrawn in place, with permanent
//! lines above it.
//!
//! The screen owns the picture and the cursor, which is hidden while the picture is shown and
//! restored on drop, panic and Ctrl-C. Elsewhere: the state of the runs (`run_table`), the content
//! of the picture (`frame`, `lines`, `totals`), the output that draws it (`painter`).

mod frame;
pub mod lines;
mod painter;
pub mod run_table;
pub mod totals;

use std::{
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use crossterm::{cursor::Show, queue, terminal::EnableLineWrap};
use soong_protocol::Timestamp;

use self::{
    frame::Parts,
    lines::PictureFormat,
    painter::{Painter, Size},
    run_table::RunTable,
};
use crate::{
    keyboard::{self, EchoOff},
    styled_line::StyledLine,
    terminal::Terminal,
    tty,
};

/// Whether a screen has hidden the cursor.
static CURSOR_HIDDEN: AtomicBool = AtomicBool::new(false);

/// Whether a screen has ever hidden the cursor.
static HAS_HIDDEN_CURSOR: AtomicBool = AtomicBool::new(false);

/// Whether the process or its display was suspended since the last picture, so that the cursor is
/// below other output.
static WAS_SUSPENDED: AtomicBool = AtomicBool::new(false);

/// Returns whether [`mark_suspended`] was called since the last call, and resets that.
pub fn take_suspended() -> bool {
    WAS_SUSPENDED.swap(false, Ordering::AcqRel)
}

/// Makes the next picture start below everything that is shown, because other output may have been
/// written since the last one: the process was suspended, or a prompt was shown.
pub fn mark_suspended() {
    WAS_SUSPENDED.store(true, Ordering::Release);
}

/// Restores the terminal before the process exits or is suspended.
pub fn restore_terminal() {
    tty::restore();
    keyboard::restore_mode();
    show_cursor();
}

/// Restores the terminal once more at the end of the process. When Ctrl-C is typed, the system
/// discards output that the terminal has not read yet, which may be what restored it.
pub fn restore_at_exit() {
    keyboard::end_paste_marks_at_exit();
    if HAS_HIDDEN_CURSOR.load(Ordering::Acquire) && keyboard::is_foreground() {
        CURSOR_HIDDEN.store(true, Ordering::Release);
        show_cursor();
    }
}

/// Shows the cursor again if a screen has hidden it.
fn show_cursor() {
    if CURSOR_HIDDEN.swap(false, Ordering::AcqRel) {
        let mut out = std::io::stderr();
        let _ = queue!(out, EnableLineWrap, Show);
        let _ = out.flush();
    }
}

/// Returns the current time.
pub fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Returns the size of the window. Default: 80 columns and 24 rows.
fn size() -> Size {
    let (columns, rows) = crossterm::terminal::size().unwrap_or_default();
    let size_or = |n: u16, usual: usize| if n == 0 { usual } else { usize::from(n) };
    Size {
        columns: size_or(columns, 80),
        rows: size_or(rows, 24),
    }
}

/// A picture on standard error.
pub struct Screen {
    terminal: Terminal,
    painter: Painter,
    /// Parts of the line below the runs.
    footer: Vec<String>,
    /// Text that the user types, below the footer.
    typed: Vec<StyledLine>,
    _echo_off: EchoOff,
}

impl Screen {
    /// Takes control of the terminal: keys are not echoed until the screen is dropped.
    pub fn open(terminal: Terminal) -> Self {
        let painter = Painter::new(terminal.stderr);
        Self {
            terminal,
            painter,
            footer: Vec::new(),
            typed: Vec::new(),
            _echo_off: EchoOff::begin(),
        }
    }

    /// Sets the parts of the line below the runs. The last parts are dropped if there is no room.
    pub fn set_footer(&mut self, foot: Vec<String>) {
        self.footer = foot;
    }

    /// Sets the lines below the footer, which show what the user types. They are made for the width
    /// of the screen minus 1.
    pub fn set_typed(&mut self, typed: Vec<StyledLine>) {
        self.typed = typed;
    }

    /// Draws a picture over the last one: the runs, and above them `tail`, the end of a text that
    /// is still being streamed.
    pub fn draw(&mut self, runs: &RunTable, tail: &[StyledLine]) {
        if !self.may_draw() {
            return;
        }
        let size = size();
        let (width, height) = size.picture_size();
        let format = PictureFormat {
            width,
            height,
            unicode: self.terminal.unicode,
            now: now(),
        };
        let parts = Parts {
            tail,
            foot: &self.footer,
            typed: &self.typed,
        };
        let picture = frame::picture(runs, parts, &format);
        let update = self.painter.paint(&[], &picture, size);
        self.send(&update);
    }

    /// Prints lines permanently above the picture.
    pub fn print_above(&mut self, lines: &[StyledLine]) {
        if lines.is_empty() {
            return;
        }
        if !self.may_draw() {
            // The lines above the cursor belong to the shell.
            self.painter.keep_picture();
        }
        let picture = self.painter.drawn().to_vec();
        let update = self.painter.paint(lines, &picture, size());
        self.send(&update);
    }

    /// Releases the terminal below the picture, for other output. Call [`mark_suspended`] before
    /// the next picture.
    pub fn pause(&mut self) {
        let _ = writeln!(std::io::stderr());
        show_cursor();
    }

    /// Returns whether a picture may be drawn: not while the process is in the background of its
    /// terminal.
    fn may_draw(&mut self) -> bool {
        let is_ours = keyboard::is_foreground();
        if is_ours && take_suspended() {
            keyboard::reapply_echo_off();
            self.painter.keep_picture();
        }
        is_ours
    }

    /// Sends an update in one write. Errors are ignored, since the terminal may be closed.
    fn send(&self, update: &str) {
        if update.is_empty() {
            return;
        }
        if self.painter.is_cursor_hidden() {
            CURSOR_HIDDEN.store(true, Ordering::Release);
            HAS_HIDDEN_CURSOR.store(true, Ordering::Release);
        }
        let mut out = std::io::stderr().lock();
        let _ = out.write_all(update.as_bytes()).and_then(|()| out.flush());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        show_cursor();
    }
}
