//! What a child process does between `fork` and `exec`: the one place of the house with unsafe code.
//!
//! Only system calls, on values that were made before the fork: in a copy of a process of many threads nothing else
//! is safe: nothing is allocated, and no lock is taken.
//! Not here: how a fence is built (`confinement`); in which order is mounted (`mounting.rs`).

#![allow(unsafe_code, reason = "what runs after fork, and system calls without a safe wrapper")]

#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod mounting;

use std::{ffi::CString, io, os::unix::ffi::OsStrExt, os::unix::process::CommandExt, path::Path, process::Command};

use super::confinement::Fence;

/// Concerns everything that is mounted below as well; the kernel's number, which `libc` does not have.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
const AT_RECURSIVE: libc::c_int = 0x8000;

/// What a child process is to be before it becomes another program.
pub(super) struct Preparation {
    mark: u64,
    no_new_privileges: bool,
    #[cfg_attr(not(all(target_os = "linux", feature = "sandbox")), allow(dead_code))]
    fence: Option<(Fence, CString)>,
    /// Made before the fork, with room for all that comes into it.
    #[cfg(all(target_os = "linux", feature = "sandbox"))]
    trees: mounting::Trees,
}

impl Preparation {
    /// A process that is marked with a number.
    pub(super) fn marked(mark: u64) -> Self {
        Self {
            mark,
            no_new_privileges: false,
            fence: None,
            #[cfg(all(target_os = "linux", feature = "sandbox"))]
            trees: mounting::Trees::new(),
        }
    }

    /// Keeps set-user-id programs from having any effect.
    pub(super) fn without_new_privileges(self) -> Self {
        Self { no_new_privileges: true, ..self }
    }

    /// Puts the process behind a fence; `directory` is where it works.
    pub(super) fn within(self, fence: Fence, directory: &Path) -> io::Result<Self> {
        Ok(Self {
            #[cfg(all(target_os = "linux", feature = "sandbox"))]
            trees: mounting::Trees::with_capacity(fence.parts().mounts.as_ref().map_or(0, |mounts| mounts.steps.len())),
            fence: Some((fence, CString::new(directory.as_os_str().as_bytes())?)),
            ..self.without_new_privileges()
        })
    }
}

/// Has a command prepare itself after the fork.
pub(super) fn prepare(command: &mut Command, mut preparation: Preparation) {
    let prepared = move || {
        // A session of its own: a group of its own, and no terminal that it could read from.
        rustix::process::setsid()?;
        #[cfg(target_os = "linux")]
        on_linux(&mut preparation)?;
        #[cfg(not(target_os = "linux"))]
        let _ = &preparation;
        Ok(())
    };
    // SAFETY: the closure makes system calls only, all of them async-signal-safe: it takes no lock and allocates
    // nothing (an error holds a bare error number), and what it reads was made before the fork.
    unsafe { command.pre_exec(prepared) };
}

#[cfg(target_os = "linux")]
fn on_linux(preparation: &mut Preparation) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit};
    // Orphans below it become its children, and so are found. The process itself says who is meant: any number does.
    rustix::process::set_child_subreaper(Some(rustix::process::Pid::INIT))?;
    let limit = Some(preparation.mark);
    // Refused where the limit is lower already; the other ways to find it remain.
    let _ = rustix::process::setrlimit(Resource::Rttime, Rlimit { current: limit, maximum: limit });
    #[cfg(feature = "sandbox")]
    if let Some((fence, directory)) = &preparation.fence
        && let Some(mounts) = &fence.parts().mounts
    {
        mounting::mount(mounts, &mut preparation.trees)?;
        rustix::process::chdir(directory.as_c_str())?;
    }
    if preparation.no_new_privileges {
        rustix::thread::set_no_new_privs(true)?;
        give_up_powers()?;
    }
    #[cfg(feature = "sandbox")]
    if let Some((fence, _)) = &preparation.fence {
        // Nothing can be mounted from here on.
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
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, fence.parts().ruleset.as_raw_fd(), 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Leaves the namespaces of the parent.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    // SAFETY: it is unsafe for what it does to threads that share descriptors; this process has one thread, and the
    // flags that are given here concern mounts and users only.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Makes what is mounted at a descriptor, and all below, read-only.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
fn set_read_only(tree: impl std::os::fd::AsFd) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let wanted = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | AT_RECURSIVE;
    let tree = tree.as_fd();
    // SAFETY: the descriptor is open, the path is empty and ends in NUL, and the structure has the size that is told;
    // all of them outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
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
