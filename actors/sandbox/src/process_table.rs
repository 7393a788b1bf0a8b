//! The process table, and which of its processes belong to a call (TOOL-5).
//!
//! Membership is computed from the table that was read, without further system calls. On systems
//! other than Linux nothing is read, and only the process group is known. Elsewhere: signals
//! (`process_tree.rs`).

use std::collections::HashSet;

use super::process_tag::{ProcessTag, number_in_limits, text_in_environment};

/// A process, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// Whether it has ended and its parent has not reaped it yet.
    pub(super) is_dead: bool,
    /// Start time, in ticks since boot.
    pub(super) started: u64,
    /// Whether it carries the mark that was searched for.
    pub(super) is_marked: bool,
}

/// Returns the live processes that belong to `root`, without `root` itself and without the process
/// `own`.
///
/// A process belongs to `root` if it is in its session or group, carries its mark, or descends from
/// it or from another member.
pub(super) fn members(table: &[Process], root: i32, own: i32) -> Vec<&Process> {
    let may_be = |process: &&Process| process.pid != own && process.pid > 1;
    let belongs = |process: &&Process| {
        process.pid == root || process.session == root || process.group == root || process.is_marked
    };
    let mut found: HashSet<i32> = table
        .iter()
        .filter(may_be)
        .filter(belongs)
        .map(|process| process.pid)
        .collect();
    found.insert(root);
    loop {
        let children = table
            .iter()
            .filter(may_be)
            .filter(|process| found.contains(&process.parent));
        let new: Vec<i32> = children
            .map(|process| process.pid)
            .filter(|pid| !found.contains(pid))
            .collect();
        if new.is_empty() {
            break;
        }
        found.extend(new);
    }
    table
        .iter()
        .filter(|p| found.contains(&p.pid) && p.pid != root && !p.is_dead)
        .collect()
}

/// Parses the content of `/proc/PID/stat`.
fn parsed(stat: &str) -> Option<Process> {
    let pid = stat.split(' ').next()?.parse().ok()?;
    // The name is in parentheses and may contain any character.
    let rest: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| rest.get(at)?.parse::<i32>().ok();
    Some(Process {
        pid,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        is_dead: matches!(*rest.first()?, "Z" | "X" | "x"),
        started: rest.get(19)?.parse().ok()?,
        is_marked: false,
    })
}

/// Reads one process; `None` if it does not exist or cannot be read.
pub(super) fn read_one(pid: i32) -> Option<Process> {
    // A name need not be UTF-8.
    parsed(&String::from_utf8_lossy(
        &std::fs::read(format!("/proc/{pid}/stat")).ok()?,
    ))
}

/// Returns the live descendants of a process. Stops once at least `limit` processes are found. If
/// the process itself has ended, the result is empty.
pub(super) fn descendants(root: i32, limit: usize) -> Vec<i32> {
    let mut found = children(root);
    // A process that gets another parent while the table is read could be found twice.
    let mut known: HashSet<i32> = found.iter().copied().collect();
    let mut next: usize = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(
            children(pid)
                .into_iter()
                .filter(|child| known.insert(*child)),
        );
        next += 1;
        if found.len() >= limit {
            break;
        }
    }
    found.retain(|pid| read_one(*pid).is_some_and(|process| !process.is_dead));
    found
}

/// Returns how much memory of a process is not backed by files, in bytes: anonymous and shared
/// pages.
pub(super) fn memory_bytes(pid: i32) -> u64 {
    let Ok(status) = std::fs::read(format!("/proc/{pid}/status")) else {
        return 0;
    };
    let status = String::from_utf8_lossy(&status);
    let lines = status.lines().filter_map(|line| {
        line.strip_prefix("RssAnon:")
            .or_else(|| line.strip_prefix("RssShmem:"))?
            .trim()
            .strip_suffix(" kB")
    });
    lines
        .filter_map(|number| number.parse::<u64>().ok())
        .sum::<u64>()
        * 1024
}

/// Returns the children of a process, including dead ones.
pub(super) fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let of_thread =
        |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).ok();
    let lists = threads.filter_map(|thread| of_thread(thread.ok()?));
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<i32>>()
        })
        .collect()
}

/// Returns the program name of a process, which the kernel cuts to 15 bytes.
pub(super) fn name_of(pid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name: String = String::from_utf8_lossy(&name)
        .trim_end()
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    Some(name).filter(|name| !name.is_empty())
}

/// Returns whether a process can never gain privileges (`no_new_privs`); `false` if it cannot be
/// read.
pub(super) fn has_no_new_privileges(pid: i32) -> bool {
    status_line(pid, "NoNewPrivs:").as_deref() == Some("1")
}

/// Returns the value of a line of `/proc/PID/status`.
pub(super) fn status_line(pid: i32, name: &str) -> Option<String> {
    // The file also contains the process name, which need not be UTF-8.
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    Some(
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))?
            .trim()
            .to_owned(),
    )
}

/// Reads all processes. Of the live processes that were started at `since` or later, those with the
/// mark and those in `also` are marked.
#[cfg(target_os = "linux")]
pub(super) fn read_all(mark: ProcessTag, since: u64, also: &[i32]) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut table: Vec<Process> = pids.filter_map(read_one).collect();
    for process in table
        .iter_mut()
        .filter(|process| process.started >= since && !process.is_dead)
    {
        process.is_marked = also.contains(&process.pid)
            || number_of(process.pid) == Some(mark.number())
            || text_of(process.pid) == Some(mark.text());
    }
    table
}

#[cfg(not(target_os = "linux"))]
pub(super) fn read_all(_: ProcessTag, _: u64, _: &[i32]) -> Vec<Process> {
    Vec::new()
}

/// Returns the mark number of a process.
pub(super) fn number_of(pid: i32) -> Option<u64> {
    number_in_limits(&std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

/// Returns the mark in the environment of a process.
pub(super) fn text_of(pid: i32) -> Option<String> {
    text_in_environment(&std::fs::read(format!("/proc/{pid}/environ")).ok()?)
}

#[cfg(test)]
#[path = "process_table/tests.rs"]
mod tests;
