//! A process on a pseudo-terminal, and its screen.

use std::{
    io::{Read, Write},
    num::NonZeroU16,
    path::Path,
    process::Child,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use pty_process::{
    Size,
    blocking::{Command, Pty, open},
};
use vt100::{Parser, Screen};

use crate::Failed;

/// Maximum wait for a condition.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The process. Killed when dropped.
pub(crate) struct Terminal {
    child: Child,
    pty: Arc<Pty>,
    written: Receiver<Vec<u8>>,
    emulator: Parser,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Terminal {
    /// Starts the binary in the project. `folder`: the user's home folder. `model`: address of the
    /// model.
    pub(crate) fn start(
        binary: &Path,
        arguments: &[&str],
        (rows, columns): (u16, u16),
        project: &Path,
        folder: &Path,
        model: &str,
    ) -> Result<Self, Failed> {
        let (pty, pts) = open()?;
        pty.resize(Size::new(rows, columns))?;
        let command = Command::new(binary)
            .args(arguments)
            .env_clear()
            .env("HOME", folder)
            .env("PATH", "/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm-256color")
            .env("OPENAI_BASE_URL", model)
            .current_dir(project);
        let child = command.spawn(pts)?;
        let pty = Arc::new(pty);
        let (sender, written) = mpsc::channel();
        let from = Arc::clone(&pty);
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(read @ 1..) = (&*from).read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let cells = |n: u16| NonZeroU16::new(n).ok_or("a screen has cells");
        Ok(Self {
            child,
            pty,
            written,
            emulator: Parser::new(cells(rows)?, cells(columns)?, 0),
        })
    }

    pub(crate) fn screen(&self) -> &Screen {
        self.emulator.screen()
    }

    /// Waits until the text of the screen meets a condition and nothing more was written for a
    /// moment.
    pub(crate) fn until(&mut self, is_met: impl Fn(&str) -> bool) -> Result<(), Failed> {
        let begun = Instant::now();
        let mut is_quiet = false;
        while !(is_quiet && is_met(&self.screen().contents())) {
            match self.written.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => {
                    self.emulator.process(&bytes);
                    // A display that is redrawn all the time is never quiet.
                    is_quiet = is_met(&self.screen().contents());
                }
                Err(RecvTimeoutError::Timeout) => is_quiet = true,
                Err(RecvTimeoutError::Disconnected) if is_met(&self.screen().contents()) => {
                    return Ok(());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.unmet("the process has ended"));
                }
            }
            if begun.elapsed() > TIMEOUT {
                return Err(self.unmet("timed out"));
            }
        }
        Ok(())
    }

    fn unmet(&self, why: &str) -> Failed {
        format!("{why}; the screen shows:\n{}", self.screen().contents()).into()
    }

    /// Types keys.
    pub(crate) fn types(&self, keys: &str) -> Result<(), Failed> {
        Ok((&*self.pty).write_all(keys.as_bytes())?)
    }
}
