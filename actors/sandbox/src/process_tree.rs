//! A program and everything that it started: asked to end, killed, and waited for (TOOL-5).
//!
//! The supervisor process (`before_exec/supervisor.rs`) kills them when its lifeline closes, which
//! also happens when this process ends in any way. If the supervisor itself was killed, which
//! requires a process outside the program's sandbox, this process finds and kills the remaining
//! processes.
//!
//! Elsewhere: how processes are found (`process_table.rs`).

use std::{
    collections::BTreeSet,
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::net::unix::pipe;

use super::{
    owner,
    process_table::{self, Process},
    process_tag::ProcessTag,
    report::Report,
};

/// Time that processes get to end after they were asked to.
pub(super) const TERM_GRACE: Duration = Duration::from_millis(500);
/// Maximum duration of killing: a process that waits for a lost disk cannot be killed. Longer than
/// the limit of the supervisor, which knows more processes than this one would find.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Time between two checks for remaining processes.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum number of processes named in [`EndSummary`].
const MAX_NAMES: usize = 8;

/// A program and everything that it started. Dropping it asks all processes to end, and kills them
/// after 500 ms.
#[derive(Debug)]
pub struct ProcessTree {
    reports: pipe::Receiver,
    status: Option<ExitStatus>,
    ids: ProcessIds,
    /// `None` once another owner ends it.
    owner: Option<ProcessOwner>,
}

/// Result of ending a program and its descendants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndSummary {
    /// Number of processes that were killed. The program itself is counted only if the supervisor
    /// had been killed.
    pub killed: usize,
    /// Number of processes that could not be killed.
    pub survivors: usize,
    /// Names of processes that were still running, sorted; at most eight.
    pub names: Vec<String>,
}

/// Measures the resource usage of a program and everything that it started.
#[derive(Debug, Clone, Copy)]
pub struct UsageMeter {
    supervisor: i32,
}

/// Resource usage of a program and everything that it started, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Number of processes.
    pub processes: usize,
    /// Memory that is not backed by a file, in bytes. Shared pages count in each process.
    pub memory_bytes: u64,
}

impl UsageMeter {
    /// Reads the process table, which takes about 50 µs per process. If there are more than `most`
    /// processes, counting stops and their memory is not read.
    pub fn read(self, most: usize) -> ResourceUsage {
        let members = process_table::descendants(self.supervisor, most + 1);
        if members.len() > most {
            return ResourceUsage {
                processes: members.len(),
                memory_bytes: 0,
            };
        }
        let memory_bytes = members
            .iter()
            .map(|pid| process_table::memory_bytes(*pid))
            .sum();
        ResourceUsage {
            processes: members.len(),
            memory_bytes,
        }
    }
}

/// Identifies the processes of one program.
#[derive(Debug, Clone, Copy)]
struct ProcessIds {
    supervisor: Pid,
    mark: ProcessTag,
    /// The program; `None` if it ended immediately.
    program: Option<i32>,
    /// Start time of the supervisor, in ticks since boot.
    since: u64,
}

/// Owner of the processes: ends them, and then drops the values that were kept for them.
struct ProcessOwner {
    kin: ProcessIds,
    supervisor: Child,
    /// Closing it makes the supervisor kill all processes.
    lifeline: Option<OwnedFd>,
    /// Second descriptor of the report pipe.
    reports: OwnedFd,
    /// Dropped last.
    attachments: Vec<Box<dyn Send + Sync>>,
    has_ended: bool,
}

impl std::fmt::Debug for ProcessOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Household")
            .field("kin", &self.kin)
            .finish_non_exhaustive()
    }
}

impl ProcessTree {
    /// Takes ownership of a supervisor and of this process's pipe ends.
    pub(super) fn of(
        mut supervisor: Child,
        mark: ProcessTag,
        lifeline: OwnedFd,
        reports: OwnedFd,
    ) -> io::Result<Self> {
        let ends = reports
            .try_clone()
            .and_then(|second| Ok((second, pipe::Receiver::from_owned_fd(reports)?)));
        let (second, reports) = match ends {
            Ok(ends) => ends,
            Err(error) => {
                drop(lifeline);
                let _ = supervisor.wait(); // the supervisor exits when its lifeline closes
                return Err(error);
            }
        };
        let id = Pid::from_child(&supervisor);
        let since = process_table::read_one(id.as_raw_pid()).map_or(0, |process| process.started);
        // The first child is the program: orphans are adopted later.
        let program = process_table::children(id.as_raw_pid()).first().copied();
        let kin = ProcessIds {
            supervisor: id,
            mark,
            program,
            since,
        };
        owner::add_supervisor(id);
        let household = ProcessOwner {
            kin,
            supervisor,
            lifeline: Some(lifeline),
            reports: second,
            attachments: Vec::new(),
            has_ended: false,
        };
        Ok(Self {
            reports,
            status: None,
            ids: kin,
            owner: Some(household),
        })
    }

    /// Keeps a value until all processes have ended, and drops it then; for example a temporary
    /// directory.
    pub fn attach(&mut self, belonging: impl Send + Sync + 'static) {
        if let Some(household) = &mut self.owner {
            household.attachments.push(Box::new(belonging));
        }
    }

    /// Waits for the program itself to end; other processes may still run. Cancel-safe: it can be
    /// dropped and called again.
    ///
    /// # Errors
    /// The supervisor was killed, so that the exit status is lost.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.status {
                return Ok(status);
            }
            self.reports.readable().await?;
            match self.reports.try_io(|| Report::receive(&self.reports)) {
                Ok(Some(Report::Exited { status })) => {
                    self.status = Some(ExitStatus::from_raw(status))
                }
                Ok(_) => return Err(io::Error::other("the supervisor of the program was killed")),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks the program and everything that it started to end.
    pub async fn ask_to_end(&self) {
        let kin = self.ids;
        let _ = tokio::task::spawn_blocking(move || kin.ask_to_end()).await;
    }

    /// Returns a meter for the program and everything that it started.
    pub fn meter(&self) -> UsageMeter {
        UsageMeter {
            supervisor: self.ids.supervisor.as_raw_pid(),
        }
    }

    /// Closes the lifeline and does nothing else, as the kernel does when this process is killed.
    #[cfg(feature = "testing")]
    pub fn close_lifeline_only(mut self) {
        if let Some(mut household) = self.owner.take() {
            household.has_ended = true;
            let _ = household.lifeline.take();
            std::thread::spawn(move || household.supervisor.wait());
        }
    }

    /// Kills all processes and waits until they have ended, even if the future is dropped.
    pub async fn end(mut self) -> EndSummary {
        let Some(mut household) = self.owner.take() else {
            return EndSummary::default();
        };
        tokio::task::spawn_blocking(move || household.kill())
            .await
            .unwrap_or_default()
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        let Some(mut household) = self.owner.take() else {
            return;
        };
        let end = move || {
            household.kin.ask_to_end();
            let until = Instant::now() + TERM_GRACE;
            while Instant::now() < until && !household.kin.descendants().is_empty() {
                std::thread::sleep(10 * POLL_INTERVAL);
            }
            household.kill();
        };
        // A thread, not a task, because the runtime may be shutting down. If no thread can be
        // created, the dropped closure kills all processes immediately.
        let _ = std::thread::Builder::new()
            .name("soong-end".to_owned())
            .spawn(end);
    }
}

impl Drop for ProcessOwner {
    fn drop(&mut self) {
        self.kill();
    }
}

impl ProcessOwner {
    /// Kills all processes and waits until they have ended.
    fn kill(&mut self) -> EndSummary {
        if std::mem::replace(&mut self.has_ended, true) {
            return EndSummary::default();
        }
        let names = self.kin.names();
        drop(self.lifeline.take());
        self.await_supervisor();
        let mut ended = match self.last_report() {
            Some((killed, left)) => EndSummary {
                killed,
                survivors: left,
                names,
            },
            None => EndSummary {
                names,
                ..self.kin.kill()
            },
        };
        let _ = self.supervisor.kill();
        self.await_supervisor();
        if ended.killed + ended.survivors == 0 {
            ended.names.clear();
        } else {
            let EndSummary {
                killed,
                survivors: left,
                names,
            } = &ended;
            tracing::info!(
                killed,
                left,
                ?names,
                "killed processes that a program had left running"
            );
        }
        owner::remove_supervisor(self.kin.supervisor);
        self.attachments.clear();
        ended
    }

    /// Reaps the supervisor once it has ended, or gives up after `KILL_LIMIT`.
    fn await_supervisor(&mut self) {
        let until = Instant::now() + KILL_LIMIT;
        while matches!(self.supervisor.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Reads the supervisor's final report; `None` if it was killed before it could write one.
    fn last_report(&self) -> Option<(usize, usize)> {
        loop {
            match Report::receive(&self.reports).ok()?? {
                Report::Exited { .. } => {}
                Report::Ended { killed, left } => return Some((killed as usize, left as usize)),
            }
        }
    }
}

impl ProcessIds {
    fn descendants(self) -> Vec<i32> {
        process_table::descendants(self.supervisor.as_raw_pid(), usize::MAX)
    }

    /// Returns the names of the running processes, except the program itself.
    fn names(self) -> Vec<String> {
        let others = self
            .descendants()
            .into_iter()
            .filter(|pid| Some(*pid) != self.program);
        let names: BTreeSet<String> = others.filter_map(process_table::name_of).collect();
        names.into_iter().take(MAX_NAMES).collect()
    }

    fn ask_to_end(self) {
        for pid in self.descendants() {
            signal(pid, Signal::TERM);
        }
    }

    /// Kills the remaining processes of a program whose supervisor was killed, until two checks in
    /// a row find none.
    fn kill(self) -> EndSummary {
        let until = Instant::now() + KILL_LIMIT;
        let _ = kill_process(self.supervisor, Signal::KILL);
        let mut killed_processes = std::collections::HashSet::new();
        let mut empty_checks = 0;
        loop {
            let members = self.members();
            if members.is_empty() {
                // The processes killed last may have ended only now.
                owner::reap_adopted();
                empty_checks += 1;
                if empty_checks == 2 {
                    return EndSummary {
                        killed: killed_processes.len(),
                        ..EndSummary::default()
                    };
                }
                continue;
            }
            empty_checks = 0;
            if Instant::now() > until {
                let killed = killed_processes.len().saturating_sub(members.len());
                return EndSummary {
                    killed,
                    survivors: members.len(),
                    ..EndSummary::default()
                };
            }
            let leaders = members
                .iter()
                .filter(|process| process.group == process.pid && process.pid != owner::id());
            for group in leaders.filter_map(|process| Pid::from_raw(process.pid)) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            for process in members {
                signal(process.pid, Signal::KILL);
                killed_processes.insert((process.pid, process.started));
            }
            std::thread::sleep(POLL_INTERVAL);
            owner::reap_adopted();
        }
    }

    fn members(self) -> Vec<Process> {
        let table = process_table::read_all(self.mark, self.since, &owner::adopted_orphans());
        process_table::members(&table, self.supervisor.as_raw_pid(), owner::id())
            .into_iter()
            .cloned()
            .collect()
    }
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // The process may have ended already.
        let _ = kill_process(pid, signal);
    }
}
