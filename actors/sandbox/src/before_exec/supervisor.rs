//! The supervisor process of a program: reaps it and its orphans, and kills everything when its
//! lifeline closes.
//!
//! It is a copy of the owner process that never runs another program. So it is outside the
//! program's Landlock domain, and the program cannot signal it. As the reaper of all orphans below
//! it, it finds every process that the program started, even one that changed its session, group,
//! environment or limits: if `waitpid` reports no child, no descendant remains.
//!
//! Only system calls: nothing here allocates or takes a lock (see `before_exec.rs`).

use std::{io, os::fd::BorrowedFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, Signal, WaitOptions, getpgid, kill_process, kill_process_group, wait},
    time::{ClockId, clock_gettime},
};

use crate::report::Report;

/// Maximum duration of killing: a process that waits for a lost disk cannot be killed.
const KILL_LIMIT: Duration = Duration::from_secs(3);
/// Time between two rounds of killing.
const KILL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000,
};
/// Time between two checks for ended children, if the system does not notify.
const REAP_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
/// Children of this process, as process ids separated by spaces.
const CHILDREN: &std::ffi::CStr = c"/proc/thread-self/children";

/// Supervises `program` until the lifeline closes; then kills all remaining processes and reports
/// the result.
///
/// `signals` becomes readable when a child ends.
pub(super) fn supervise(
    program: Pid,
    lifeline: BorrowedFd<'_>,
    reports: BorrowedFd<'_>,
    signals: Option<BorrowedFd<'_>>,
) {
    let mut supervised = Supervised {
        program,
        reports,
        killed: 0,
        is_killing: false,
        has_exited: false,
    };
    let timeout = if signals.is_some() {
        None
    } else {
        Some(&REAP_INTERVAL)
    };
    loop {
        supervised.reap();
        let second = signals.unwrap_or(lifeline);
        let mut watched = [
            PollFd::new(&lifeline, PollFlags::IN),
            PollFd::new(&second, PollFlags::IN),
        ];
        let polled = poll(&mut watched, timeout);
        if !matches!(polled, Ok(_) | Err(Errno::INTR)) || !watched[0].revents().is_empty() {
            break;
        }
        if let Some(signals) = signals {
            let mut pending = [0; 1024];
            let _ = rustix::io::read(signals, &mut pending);
        }
    }
    let left = supervised.kill();
    Report::Ended {
        killed: supervised.killed,
        left,
    }
    .send(reports);
}

struct Supervised<'a> {
    program: Pid,
    reports: BorrowedFd<'a>,
    /// Number of processes other than the program that ended while everything was being killed.
    killed: u32,
    is_killing: bool,
    has_exited: bool,
}

impl Supervised<'_> {
    /// Reaps the children that have ended; returns whether any child remains.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.program && !self.has_exited => {
                    self.has_exited = true;
                    Report::Exited {
                        status: status.as_raw(),
                    }
                    .send(self.reports);
                }
                Ok(Some(_)) => self.killed += u32::from(self.is_killing),
                Ok(None) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Kills all children until none remains: the children of a killed process become children of
    /// this one. Returns how many could not be killed.
    fn kill(&mut self) -> u32 {
        let begun = now();
        self.reap();
        self.is_killing = true;
        loop {
            // If children cannot be listed, the program and its group are killed.
            let met = kill_children().or_else(|_| self.kill_program());
            if !self.reap() {
                return 0;
            }
            if now().saturating_sub(begun) > KILL_LIMIT {
                return met.unwrap_or(1);
            }
            let _ = poll(&mut [], Some(&KILL_INTERVAL));
        }
    }

    fn kill_program(&self) -> io::Result<u32> {
        // Once the program is reaped, its id may belong to another process.
        if !self.has_exited {
            kill_process_group(self.program, Signal::KILL)?;
        }
        Ok(1)
    }
}

/// Kills every child with its process group; returns the number of children.
///
/// A whole group dies together, faster than it can fork. The program leads its own session, so
/// every group of a child consists of descendants only.
fn kill_children() -> io::Result<u32> {
    let file = rustix::fs::open(
        CHILDREN,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        0.into(),
    )?;
    let mut text = [0; 8192];
    let count = rustix::io::read(&file, &mut text)?;
    let mut met = 0;
    // A number cut off by the end of the buffer is not followed by a space.
    for word in text[..count].split_inclusive(|byte| *byte == b' ') {
        let Some((b' ', digits)) = word.split_last() else {
            continue;
        };
        let pid = digits.iter().fold(0_i32, |number, digit| {
            number * 10 + i32::from(digit.wrapping_sub(b'0'))
        });
        if let Some(pid) = Pid::from_raw(pid) {
            if let Ok(group) = getpgid(Some(pid)) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = kill_process(pid, Signal::KILL);
            met += 1;
        }
    }
    Ok(met)
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or_default(),
        u32::try_from(now.tv_nsec).unwrap_or_default(),
    )
}
