//! A program and everything that it started: asked to end, killed, and waited for (TOOL-5).
//!
//! Architecture invariant: the program itself, the root, is killed last. Until then it is the reaper of everything
//! below it, so that an orphan becomes its child and is found; and its process id cannot be given to another.
//! Not here: who belongs to a family (`table`).

use std::{
    io,
    process::ExitStatus,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::Child;

use super::{
    mark::Mark,
    table::{self, Process},
};

/// How long processes are given to end by themselves, once they are asked to.
pub(super) const GRACE: Duration = Duration::from_millis(500);
/// How long killing may take at most: a process that waits for a lost disk cannot be killed.
const KILL_LIMIT: Duration = Duration::from_secs(3);
/// How long between two looks at what is left.
const LOOK: Duration = Duration::from_millis(2);

/// A program and all that it started. Dropping it asks them to end, and kills them shortly after.
#[derive(Debug)]
pub struct Family {
    kin: Kin,
    /// `None` once it is taken over by what ends it.
    household: Option<Household>,
}

/// What became of a family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// How many processes were killed beside the program itself.
    pub killed: usize,
    /// How many could not be killed.
    pub left: usize,
}

/// What a family is told by.
#[derive(Debug, Clone, Copy)]
struct Kin {
    root: Pid,
    mark: Mark,
    /// When the root was started, in ticks since the system was.
    since: u64,
}

/// What goes when the family is gone.
struct Household {
    kin: Kin,
    root: Child,
    /// Dropped last.
    belongings: Vec<Box<dyn Send + Sync>>,
    is_gone: bool,
}

impl std::fmt::Debug for Household {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Household").field("kin", &self.kin).finish_non_exhaustive()
    }
}

impl Family {
    /// Takes over a program that leads a session of its own.
    pub(super) fn of(root: Child, mark: Mark) -> io::Result<Self> {
        let id = root.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let id = id.ok_or_else(|| io::Error::other("the child process has no id"))?;
        let since = table::read_one(id.as_raw_pid()).map_or(0, |process| process.started);
        let kin = Kin { root: id, mark, since };
        Ok(Self { kin, household: Some(Household { kin, root, belongings: Vec::new(), is_gone: false }) })
    }

    /// Has something kept until the family is gone, and dropped then: a directory that is removed, say.
    pub fn keep(&mut self, belonging: impl Send + Sync + 'static) {
        if let Some(household) = &mut self.household {
            household.belongings.push(Box::new(belonging));
        }
    }

    /// Waits for the program itself to end; what it started may go on.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.household {
            Some(household) => household.root.wait().await,
            None => std::future::pending().await,
        }
    }

    /// Asks everything that the program started to end, but not the program itself.
    pub async fn ask_to_end(&self) {
        let kin = self.kin;
        let _ = tokio::task::spawn_blocking(move || kin.ask_to_end()).await;
    }

    /// Asks the program itself to end, and everything that it started.
    pub async fn ask_all_to_end(&self) {
        let _ = kill_process_group(self.kin.root, Signal::TERM);
        self.ask_to_end().await;
    }

    /// Kills everything and waits until it is gone. Goes on where the future is dropped.
    pub async fn end(mut self) -> Ended {
        let Some(mut household) = self.household.take() else { return Ended::default() };
        tokio::task::spawn_blocking(move || household.kill()).await.unwrap_or_default()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let Some(mut household) = self.household.take() else { return };
        let end = move || {
            household.kin.ask_to_end();
            let until = Instant::now() + GRACE;
            while Instant::now() < until && !household.kin.members().is_empty() {
                std::thread::sleep(10 * LOOK);
            }
            household.kill();
        };
        // Not a task: the runtime may be on its way out. Where no thread can be had, what is dropped kills at once.
        let _ = std::thread::Builder::new().name("soong-end".to_owned()).spawn(end);
    }
}

impl Drop for Household {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Household {
    /// Kills everything and waits until it is gone, the root last.
    fn kill(&mut self) -> Ended {
        if std::mem::replace(&mut self.is_gone, true) {
            return Ended::default();
        }
        let ended = self.kin.kill();
        let _ = kill_process_group(self.kin.root, Signal::KILL);
        let _ = self.root.start_kill();
        let until = Instant::now() + KILL_LIMIT;
        while matches!(self.root.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        self.belongings.clear();
        ended
    }
}

impl Kin {
    fn table(self) -> Vec<Process> {
        table::read_all(self.mark, self.since)
    }

    fn members(self) -> Vec<Process> {
        let table = self.table();
        table::members(&table, self.root.as_raw_pid(), own_id()).into_iter().cloned().collect()
    }

    fn ask_to_end(self) {
        if !cfg!(target_os = "linux") {
            let _ = kill_process_group(self.root, Signal::TERM);
        }
        for process in self.members() {
            signal(process.pid, Signal::TERM);
        }
    }

    /// Kills all members but the root, until two looks in a row find none.
    ///
    /// The root's group is stopped first, all at once, and every other group of members is killed at once: forking
    /// cannot outrun that. What forks on outside of any such group is killed one by one, faster than it was made.
    fn kill(self) -> Ended {
        let until = Instant::now() + KILL_LIMIT;
        let _ = kill_process_group(self.root, Signal::STOP);
        let (mut met, mut empty_looks) = (std::collections::HashSet::new(), 0);
        loop {
            let members = self.members();
            if members.is_empty() {
                empty_looks += 1;
                if empty_looks == 2 {
                    return Ended { killed: met.len(), left: 0 };
                }
                continue;
            }
            empty_looks = 0;
            if Instant::now() > until {
                return Ended { killed: met.len().saturating_sub(members.len()), left: members.len() };
            }
            for group in self.groups_of(&members) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            for process in members {
                signal(process.pid, Signal::KILL);
                met.insert((process.pid, process.started));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The groups, other than the root's, that a member leads: all that is in them was started by it.
    fn groups_of(self, members: &[Process]) -> Vec<Pid> {
        let leaders = members.iter().filter(|process| process.group == process.pid);
        leaders.filter(|process| process.pid != own_id()).filter_map(|process| Pid::from_raw(process.pid)).collect()
    }
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may be gone by now.
        let _ = kill_process(pid, signal);
    }
}

fn own_id() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(i32::MAX)
}
