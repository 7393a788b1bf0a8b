//! The terminal while the monitor has it: the other screen, raw keys, no cursor.
//!
//! Invariant: it is given back whatever ends the monitor: leaving, a panic, Ctrl-Z, a signal. Not here: what is drawn.

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
            DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
            enable_raw_mode,
        },
    },
    layout::Rect,
};

/// Whether the monitor has the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Held while a picture is drawn: nothing of it comes behind what gives the terminal back.
static DRAWING: Mutex<()> = Mutex::new(());
/// How long a picture is waited for. Who panics while it is drawn holds it for ever.
const PATIENCE: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(1);

/// Gives the terminal back, if the monitor has it.
pub(crate) fn give_back() {
    let begun = Instant::now();
    let _drawn = loop {
        match DRAWING.try_lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => std::thread::sleep(LOOK),
            drawn => break drawn.ok(),
        }
    };
    if TAKEN.swap(false, Ordering::AcqRel) {
        let mut out = io::stderr();
        let _ = execute!(out, DisableBracketedPaste, EnableLineWrap, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Returns whether the monitor has the terminal.
pub(crate) fn is_taken() -> bool {
    TAKEN.load(Ordering::Acquire)
}

/// The terminal, taken.
pub(crate) struct Tty {
    terminal: Terminal<CrosstermBackend<BufWriter<Stderr>>>,
}

impl Tty {
    pub(crate) fn take() -> io::Result<Self> {
        let backend = CrosstermBackend::new(BufWriter::with_capacity(64 * 1_024, io::stderr()));
        let mut tty = Self { terminal: Terminal::new(backend)? };
        tty.again()?;
        Ok(tty)
    }

    /// Takes the terminal, also where it was given back meanwhile; the next picture is drawn as a whole.
    pub(crate) fn again(&mut self) -> io::Result<()> {
        if !TAKEN.swap(true, Ordering::AcqRel) {
            enable_raw_mode()?;
            execute!(io::stderr(), EnterAlternateScreen, DisableLineWrap, EnableBracketedPaste, Hide)?;
        }
        self.redraw()
    }

    /// Has the next picture drawn as a whole.
    pub(crate) fn redraw(&mut self) -> io::Result<()> {
        // It is cleared with that, and its cursor is not asked for: not every terminal answers.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Draws, unless the terminal was given back meanwhile.
    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut Buffer)) -> io::Result<()> {
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
        give_back();
    }
}
