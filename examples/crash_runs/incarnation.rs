//! One child process: how it is to die, and what it told until then.

use std::{
    fmt,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use super::{Failed, told::Told};

/// Longest life of a child: one that does not end is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a child is to die.
#[derive(Debug, Clone)]
pub(crate) enum Death {
    /// Not at all: it comes to its end. It counts how often it meets each point.
    Counted,
    /// Not at all.
    Natural,
    /// By its own plan, at a fault point.
    Planned {
        /// The point, for counting.
        point: &'static str,
        /// The whole plan.
        plan: String,
    },
    /// So long after it told so many events.
    Killed { after_events: u64, then: Duration },
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted | Self::Natural => f.write_str("none"),
            Self::Planned { plan, .. } => f.write_str(plan),
            Self::Killed { after_events, then } => write!(f, "{then:?} after {after_events} events"),
        }
    }
}

/// How a child ended.
pub(crate) enum End {
    /// By itself, having told all.
    Done,
    /// As by `kill -9`.
    Killed,
    /// In another way: that is no good.
    Other(String),
}

/// A child at work; killed when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(folder: &Path, base_url: &str, slots: usize, death: &Death) -> Result<Self, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--child").arg(folder).arg(base_url).arg(slots.to_string());
        command.arg(matches!(death, Death::Counted).to_string());
        command.env_remove("SOONG_FAULTS");
        if let Death::Planned { plan, .. } = death {
            command.env("SOONG_FAULTS", plan);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("the child has no stdout")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // A line that was cut off by the kill was not told.
            while stdout.read_line(&mut line).is_ok_and(|read| read > 0) && line.ends_with('\n') {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Reads what is told until nothing more comes; kills when it is time.
    fn listen(&mut self, death: &Death, told: &mut Vec<Told>) -> Result<Option<ExitStatus>, Failed> {
        let deadline = Instant::now() + PATIENCE;
        let (mut events, mut kill_at) = (0, None);
        loop {
            if let Death::Killed { after_events, then } = death
                && events >= *after_events
                && kill_at.is_none()
            {
                kill_at = Some(Instant::now() + *then);
            }
            let until = kill_at.unwrap_or(deadline).min(deadline);
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let one: Told = serde_json::from_str(&line)?;
                    events += u64::from(matches!(one, Told::Event { .. }));
                    told.push(one);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(Some(self.child.wait()?)),
                Err(RecvTimeoutError::Timeout) => {
                    let is_stuck = Instant::now() >= deadline;
                    self.child.kill()?;
                    let status = self.child.wait()?;
                    for line in self.lines.iter() {
                        told.push(serde_json::from_str(&line)?);
                    }
                    return Ok((!is_stuck).then_some(status));
                }
            }
        }
    }
}

/// Runs a child to its end; returns what it told, too.
pub(crate) fn live(folder: &Path, base_url: &str, slots: usize, death: &Death) -> Result<(Vec<Told>, End), Failed> {
    let mut running = Running::start(folder, base_url, slots, death)?;
    let mut told = Vec::new();
    let end = match running.listen(death, &mut told)? {
        None => End::Other(format!("it was not done after {PATIENCE:?}")),
        Some(status) if status.signal() == Some(9) => End::Killed,
        Some(status) if status.success() => End::Done,
        Some(status) => End::Other(status.to_string()),
    };
    Ok((told, end))
}
