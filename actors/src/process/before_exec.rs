//! What a child process does between `fork` and `exec`: the one place of the house with unsafe code.
//!
//! Only system calls, on values that were made before the fork: in a copy of a process of many threads nothing else
//! is safe. No allocation, no lock, no file is opened here.
//! Not here: how a fence is built (`confinement`).

#![allow(unsafe_code, reason = "what runs after fork, and two system calls without a safe wrapper")]

use std::{io, os::unix::process::CommandExt, process::Command};

use super::confinement::Fence;

/// What a child process is to be before it becomes another program.
pub(super) struct Preparation {
    /// The number that marks it.
    pub(super) mark: u64,
    /// Whether set-user-id programs have no effect any more.
    pub(super) no_new_privileges: bool,
    /// What it may read and write.
    #[cfg_attr(not(all(target_os = "linux", feature = "sandbox")), allow(dead_code))]
    pub(super) fence: Option<Fence>,
}

/// Has a command prepare itself after the fork.
pub(super) fn prepare(command: &mut Command, preparation: Preparation) {
    let prepared = move || {
        // A session of its own: a group of its own, and no terminal that it could read from.
        rustix::process::setsid()?;
        #[cfg(target_os = "linux")]
        on_linux(&preparation)?;
        #[cfg(not(target_os = "linux"))]
        let _ = &preparation;
        Ok(())
    };
    // SAFETY: the closure makes system calls only, all of them async-signal-safe: it takes no lock and allocates
    // nothing (an error holds a bare error number), and what it reads was made before the fork.
    unsafe { command.pre_exec(prepared) };
}

#[cfg(target_os = "linux")]
fn on_linux(preparation: &Preparation) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit};
    // Orphans below it become its children, and so are found. The process itself says who is meant: any number does.
    rustix::process::set_child_subreaper(Some(rustix::process::Pid::INIT))?;
    let limit = Some(preparation.mark);
    // Refused where the limit is lower already; the other ways to find it remain.
    let _ = rustix::process::setrlimit(Resource::Rttime, Rlimit { current: limit, maximum: limit });
    if preparation.no_new_privileges {
        rustix::thread::set_no_new_privs(true)?;
        give_up_powers()?;
    }
    #[cfg(feature = "sandbox")]
    if let Some(fence) = &preparation.fence {
        restrict(fence)?;
    }
    Ok(())
}

/// Gives up what root may do beyond the files: to look into other processes' memory, which Landlock does not keep
/// root from, to raise the limit that is the mark, to load modules. Nobody else has any of it to give up.
#[cfg(target_os = "linux")]
fn give_up_powers() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
    let kept = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::KILL
        | CapabilitySet::NET_BIND_SERVICE
        | CapabilitySet::SETGID
        | CapabilitySet::SETUID;
    let had = capabilities(None)?;
    let (effective, permitted) = (had.effective & kept, had.permitted & kept);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })?;
    Ok(())
}

#[cfg(all(target_os = "linux", feature = "sandbox"))]
fn restrict(fence: &Fence) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the system call takes two numbers; the descriptor is open, for the fence owns it.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, fence.descriptor().as_raw_fd(), 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns which version of Landlock the kernel has; 0 = none, or it is switched off. Changes nothing.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
pub(super) fn landlock_version() -> i64 {
    /// Asks for the version instead of a ruleset.
    const CREATE_RULESET_VERSION: libc::c_int = 1;
    let (nothing, no_size) = (std::ptr::null::<libc::c_void>(), 0_usize);
    // SAFETY: with this flag the call takes a null pointer and size 0, and returns a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, no_size, CREATE_RULESET_VERSION) };
    version.max(0)
}
