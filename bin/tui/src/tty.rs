//! The terminal while the monitor uses it: alternate screen, raw keys, hidden cursor.
//!
//! Invariant: the terminal is restored however the monitor ends: by closing it, a panic, Ctrl-Z or
//! a signal. Elsewhere: what is drawn (`monitor/draw.rs`).

use std::{
    io::{self, BufWriter, Stderr, Write},
    sync::{
        Mutex, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    buffer::Buffer,
    crossterm::{
        cursor::{Hide, Show},
        event::{DisableBracketedPaste, EnableBracketedPaste},
        execute,
        terminal::{
            DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
            disable_raw_mode, enable_raw_mode,
        },
    },
    layout::Rect,
};

/// Whether the monitor has taken the terminal.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Held while a frame is drawn, so that no part of it is written after the terminal was restored.
static DRAWING: Mutex<()> = Mutex::new(());
/// Maximum time to wait for a frame that is being drawn. A thread that panics while drawing holds
/// the lock while it restores the terminal, so the wait is limited.
const DRAW_TIMEOUT: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Restores the terminal if the monitor has taken it.
pub fn restore() {
    let begun = Instant::now();
    let _drawn = loop {
        match DRAWING.try_lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() < DRAW_TIMEOUT => {
                std::thread::sleep(POLL_INTERVAL)
            }
            drawn => break drawn.ok(),
        }
    };
    if IS_TAKEN.swap(false, Ordering::AcqRel) {
        let mut out = io::stderr();
        let _ = execute!(
            out,
            DisableBracketedPaste,
            EnableLineWrap,
            LeaveAlternateScreen,
            Show
        );
        let _ = disable_raw_mode();
    }
}

/// Returns whether the monitor has taken the terminal.
pub fn is_taken() -> bool {
    IS_TAKEN.load(Ordering::Acquire)
}

/// The terminal, taken by the monitor.
pub struct Tty {
    terminal: Terminal<CrosstermBackend<BufWriter<Stderr>>>,
}

impl Tty {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub fn take() -> io::Result<Self> {
        let backend = CrosstermBackend::new(BufWriter::with_capacity(64 * 1_024, io::stderr()));
        let mut tty = Self {
            terminal: Terminal::new(backend)?,
        };
        tty.retake()?;
        Ok(tty)
    }

    /// Takes the terminal, possibly again after it was restored. The next frame is drawn
    /// completely.
    pub fn retake(&mut self) -> io::Result<()> {
        if !IS_TAKEN.swap(true, Ordering::AcqRel) {
            enable_raw_mode()?;
            execute!(
                io::stderr(),
                EnterAlternateScreen,
                DisableLineWrap,
                EnableBracketedPaste,
                Hide
            )?;
        }
        self.redraw()
    }

    /// Makes the next frame be drawn completely.
    pub fn redraw(&mut self) -> io::Result<()> {
        // `resize` also clears the screen, and does not query the cursor position, which some
        // terminals do not answer.
        let size = self.terminal.size()?;
        self.terminal
            .resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Draws a frame, unless the terminal was restored meanwhile.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        let _drawing = DRAWING.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_taken() {
            return Ok(());
        }
        self.terminal.draw(|frame| picture(frame.buffer_mut()))?;
        self.terminal.backend_mut().flush()
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        restore();
    }
}
