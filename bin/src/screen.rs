//! The screen: a picture of the running session on standard error, redrawn in place.
//!
//! It owns the lines that it has drawn and the cursor, which is hidden meanwhile and comes back on
//! drop, panic and Ctrl-C. Not here: what is in the picture (`board`), how it is laid out (`lines`).

pub(crate) mod board;
pub(crate) mod lines;

use std::{
    io::Write,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use crossterm::{
    cursor::{Hide, MoveToColumn, MoveUp, Show},
    queue,
    terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate},
};
use soong::protocol::Timestamp;

use self::{board::Board, lines::Frame};
use crate::{
    line::Line,
    terminal::{Hue, Terminal},
    text,
};

/// Whether a screen has hidden the cursor.
static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Whether the process was stopped since the last picture, so that what stands there is not ours.
static CAME_BACK: AtomicBool = AtomicBool::new(false);

/// Has the next picture begin below whatever stands there: the process was stopped meanwhile.
pub(crate) fn came_back() {
    CAME_BACK.store(true, Ordering::Release);
}

/// Shows the cursor again if a screen has hidden it.
pub(crate) fn restore_cursor() {
    if HIDDEN.swap(false, Ordering::AcqRel) {
        let mut out = std::io::stderr();
        let _ = queue!(out, Show);
        let _ = out.flush();
    }
}

/// Has a panic show the cursor first, and begin on a line of its own.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore_cursor();
            before(info);
        }));
    });
}

/// Returns the time now.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A picture on standard error.
pub(crate) struct Screen {
    terminal: Terminal,
    /// Widths of the lines that stand there, from the top.
    drawn: Vec<usize>,
    /// The line below the runs.
    foot: String,
}

impl Screen {
    pub(crate) fn open(terminal: Terminal, foot: String) -> Self {
        restore_on_panic();
        HIDDEN.store(true, Ordering::Release);
        Self { terminal, drawn: Vec::new(), foot }
    }

    /// Changes the line below the runs.
    pub(crate) fn foot(&mut self, foot: &str) {
        foot.clone_into(&mut self.foot);
    }

    /// Draws the board over what was drawn before.
    pub(crate) fn draw(&mut self, board: &Board) {
        let (columns, rows) = crossterm::terminal::size().unwrap_or((80, 24));
        // The last column stays free: some terminals wrap when it is written.
        let width = usize::from(columns).saturating_sub(1);
        let height = usize::from(rows).saturating_sub(1);
        let room = height.saturating_sub(usize::from(!self.foot.is_empty()));
        let frame = Frame { width, height: room, unicode: self.terminal.unicode, now: now() };
        let mut lines = lines::lines(board, &frame);
        if !self.foot.is_empty() && height > 0 {
            lines.push(Line::of(Hue::Dim, text::cut(&self.foot, width, self.terminal.ellipsis())));
        }
        let _ = self.put(&lines, usize::from(columns).max(1));
    }

    fn put(&mut self, lines: &[Line], columns: usize) -> std::io::Result<()> {
        if CAME_BACK.swap(false, Ordering::AcqRel) {
            HIDDEN.store(true, Ordering::Release);
            self.drawn.clear();
        }
        // A terminal that became narrower has broken the old lines into several.
        let up: usize = self.drawn.iter().map(|width| width.div_ceil(columns).max(1)).sum();
        let mut picture = Vec::new();
        queue!(picture, BeginSynchronizedUpdate, Hide, MoveToColumn(0))?;
        if up > 0 {
            queue!(picture, MoveUp(u16::try_from(up).unwrap_or(u16::MAX)))?;
        }
        for line in lines {
            write!(picture, "{}", line.painted(self.terminal.stderr))?;
            queue!(picture, Clear(ClearType::UntilNewLine))?;
            picture.extend_from_slice(b"\r\n");
        }
        queue!(picture, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        self.drawn = lines.iter().map(Line::width).collect();
        let mut out = std::io::stderr().lock();
        out.write_all(&picture)?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore_cursor();
    }
}
