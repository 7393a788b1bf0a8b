//! A child process that writes one report per line and is killed. Elsewhere: when it is killed, and
//! the format of its reports.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
};

use super::Failed;

/// A running child. Killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) lines: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Self, Failed> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the child has no stdout")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // A line cut off by the kill does not count as reported.
            while stdout.read_line(&mut line).is_ok_and(|read| read > 0) && line.ends_with('\n') {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Kills the child. Returns its exit status and the lines that were not read yet.
    pub(crate) fn kill(&mut self) -> Result<(ExitStatus, Vec<String>), Failed> {
        self.child.kill()?;
        let status = self.child.wait()?;
        Ok((status, self.lines.iter().collect()))
    }
}
