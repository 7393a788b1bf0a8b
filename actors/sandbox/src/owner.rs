//! Protection of the owner process: no core dumps, memory that other processes cannot read,
//! adoption of orphans.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::process::Pid;

use super::process_table;

/// Supervisors of running programs: children of this process that are not orphans.
static SUPERVISORS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
/// Whether orphans of this process's descendants become its children.
static ADOPTS: AtomicBool = AtomicBool::new(false);

/// Protects this process from the programs that it starts, and makes it the reaper of their
/// orphans. On Linux:
///
/// - Its memory cannot be read by other processes of the same user, nor dumped (`PR_SET_DUMPABLE`
///   0).
/// - It writes no core file, and the limit cannot be raised again (`RLIMIT_CORE` 0, hard).
/// - Orphans of its descendants become its children (`PR_SET_CHILD_SUBREAPER`), so that a program
///   whose supervisor was killed is still found and ended.
///
/// The binary `soong` calls this at its start. The library never calls it automatically: a debugger
/// cannot attach afterwards, and the embedding program must reap the processes that it orphans
/// itself. Does nothing on other systems.
///
/// # Errors
/// The system refused one of the calls; the later ones were not made.
pub fn protect_owner() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{
            DumpableBehavior, Resource, Rlimit, set_child_subreaper, set_dumpable_behavior,
            setrlimit,
        };
        setrlimit(
            Resource::Core,
            Rlimit {
                current: Some(0),
                maximum: Some(0),
            },
        )?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        // Any process id means "yes".
        set_child_subreaper(Some(Pid::INIT))?;
        ADOPTS.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Returns the process id of this process.
pub(super) fn id() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(i32::MAX)
}

pub(super) fn add_supervisor(pid: Pid) {
    SUPERVISORS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(pid.as_raw_pid());
}

pub(super) fn remove_supervisor(pid: Pid) {
    SUPERVISORS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&pid.as_raw_pid());
}

/// Returns the children of this process that confined programs have orphaned.
///
/// A confined program cannot gain privileges, and neither can its children. No other child of this
/// process has that property, unless this process has it too.
pub(super) fn adopted_orphans() -> Vec<i32> {
    if !ADOPTS.load(Ordering::Relaxed) || process_table::has_no_new_privileges(id()) {
        return Vec::new();
    }
    let mut children = process_table::children(id());
    let supervisors = SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner);
    children.retain(|pid| !supervisors.contains(pid) && process_table::has_no_new_privileges(*pid));
    children
}

/// Reaps the adopted children that have ended.
pub(super) fn reap_adopted() {
    for pid in adopted_orphans().into_iter().filter_map(Pid::from_raw) {
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
    }
}
