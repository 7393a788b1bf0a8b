//! One child process: how it is to die, and what it told until then.

use std::{
    fmt,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, ExitStatus},
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use super::{Failed, process::Running, told::Told};

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

fn start(folder: &Path, base_url: &str, slots: usize, death: &Death) -> Result<Running, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--child").arg(folder).arg(base_url).arg(slots.to_string());
    command.arg(matches!(death, Death::Counted).to_string());
    command.env_remove("SOONG_FAULTS");
    if let Death::Planned { plan, .. } = death {
        command.env("SOONG_FAULTS", plan);
    }
    Running::start(&mut command)
}

/// Reads what is told until nothing more comes; kills when it is time.
fn listen(running: &mut Running, death: &Death, told: &mut Vec<Told>) -> Result<Option<ExitStatus>, Failed> {
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
        match running.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let one: Told = serde_json::from_str(&line)?;
                events += u64::from(matches!(one, Told::Event { .. }));
                told.push(one);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(Some(running.child.wait()?)),
            Err(RecvTimeoutError::Timeout) => {
                let is_stuck = Instant::now() >= deadline;
                let (status, rest) = running.kill()?;
                for line in rest {
                    told.push(serde_json::from_str(&line)?);
                }
                return Ok((!is_stuck).then_some(status));
            }
        }
    }
}

/// Runs a child to its end; returns what it told, too.
pub(crate) fn live(folder: &Path, base_url: &str, slots: usize, death: &Death) -> Result<(Vec<Told>, End), Failed> {
    let mut running = start(folder, base_url, slots, death)?;
    let mut told = Vec::new();
    let end = match listen(&mut running, death, &mut told)? {
        None => End::Other(format!("it was not done after {PATIENCE:?}")),
        Some(status) if status.signal() == Some(9) => End::Killed,
        Some(status) if status.success() => End::Done,
        Some(status) => End::Other(status.to_string()),
    };
    Ok((told, end))
}
