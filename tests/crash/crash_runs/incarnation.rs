//! One child process: how it ends, and its reports.

use std::{
    fmt,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, ExitStatus},
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use super::{Failed, process::Running, report::Report};

/// Maximum lifetime of a child; a child that lives longer is stuck.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Planned end of a child.
#[derive(Debug, Clone)]
pub(crate) enum PlannedEnd {
    /// It completes its work and counts how often it reaches each fault point.
    Counted,
    /// It completes its work.
    Natural,
    /// A fault plan kills it at a fault point.
    Planned {
        /// The fault point, for the statistics.
        point: &'static str,
        /// The complete fault plan.
        plan: String,
    },
    /// The parent kills it this long after it reported this many events.
    Killed { after_events: u64, then: Duration },
}

impl fmt::Display for PlannedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted | Self::Natural => f.write_str("none"),
            Self::Planned { plan, .. } => f.write_str(plan),
            Self::Killed { after_events, then } => {
                write!(f, "{then:?} after {after_events} events")
            }
        }
    }
}

/// Actual end of a child.
pub(crate) enum ChildEnd {
    /// It completed its work and wrote all reports.
    Done,
    /// It was killed by SIGKILL.
    Killed,
    /// It ended in an unexpected way.
    Other(String),
}

fn start(
    folder: &Path,
    base_url: &str,
    slots: usize,
    death: &PlannedEnd,
) -> Result<Running, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("--child")
        .arg(folder)
        .arg(base_url)
        .arg(slots.to_string());
    command.arg(matches!(death, PlannedEnd::Counted).to_string());
    command.env_remove("SOONG_FAULTS");
    if let PlannedEnd::Planned { plan, .. } = death {
        command.env("SOONG_FAULTS", plan);
    }
    Running::start(&mut command)
}

/// Reads reports until the child closes its output, and kills the child when it is due.
fn collect_reports(
    running: &mut Running,
    death: &PlannedEnd,
    reports: &mut Vec<Report>,
) -> Result<Option<ExitStatus>, Failed> {
    let deadline = Instant::now() + TIMEOUT;
    let mut events = 0;
    let mut kill_at = None;
    loop {
        if let PlannedEnd::Killed { after_events, then } = death
            && events >= *after_events
            && kill_at.is_none()
        {
            kill_at = Some(Instant::now() + *then);
        }
        let until = kill_at.unwrap_or(deadline).min(deadline);
        match running
            .lines
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            Ok(line) => {
                let one: Report = serde_json::from_str(&line)?;
                events += u64::from(matches!(one, Report::Event { .. }));
                reports.push(one);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(Some(running.child.wait()?)),
            Err(RecvTimeoutError::Timeout) => {
                let is_stuck = Instant::now() >= deadline;
                let (status, rest) = running.kill()?;
                for line in rest {
                    reports.push(serde_json::from_str(&line)?);
                }
                return Ok((!is_stuck).then_some(status));
            }
        }
    }
}

/// Runs a child to its end. Returns its reports and its end.
pub(crate) fn run_child(
    folder: &Path,
    base_url: &str,
    slots: usize,
    death: &PlannedEnd,
) -> Result<(Vec<Report>, ChildEnd), Failed> {
    let mut running = start(folder, base_url, slots, death)?;
    let mut reports = Vec::new();
    let end = match collect_reports(&mut running, death, &mut reports)? {
        None => ChildEnd::Other(format!("it did not finish within {TIMEOUT:?}")),
        Some(status) if status.signal() == Some(9) => ChildEnd::Killed,
        Some(status) if status.success() => ChildEnd::Done,
        Some(status) => ChildEnd::Other(status.to_string()),
    };
    Ok((reports, end))
}
