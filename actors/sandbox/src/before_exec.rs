//! Code that a child process runs between `fork` and `exec`: the only file with unsafe code.
//!
//! A program is started by two forks. The first child is its supervisor (`supervisor.rs`): it stays
//! a copy of this process, never runs another program, and outlives the program it supervises. The
//! second child prepares itself (mounts, limits, Landlock, seccomp) and becomes the program.
//!
//! After a fork of a process with many threads only system calls are safe: nothing here allocates
//! or takes a lock, and everything that is read was made before the fork. Elsewhere: how a sandbox
//! is built (`confinement`), the order of mounts (`mounting.rs`).

#![allow(
    unsafe_code,
    reason = "code after fork, and system calls without a safe wrapper"
)]

mod child_setup;
#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod mounting;
mod supervisor;

use std::{
    ffi::{CString, OsStr},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::Path,
    process::Command,
};

pub(super) use child_setup::ChildSetup;
pub use child_setup::ResourceLimits;
use rustix::process::Pid;

#[cfg(all(target_os = "linux", feature = "sandbox"))]
use super::confinement::Sandbox;

/// Applies the attribute to all mounts below as well. `libc` lacks the kernel's constant.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
const AT_RECURSIVE: libc::c_int = 0x8000;
/// Runs a script that has no `#!` line, as `execvp` does.
const SCRIPT_SHELL: &str = "/bin/sh";
/// Exit status of a child that could not execute its program.
const NOT_STARTED: i32 = 127;

/// The pipe ends that the supervisor keeps.
pub(super) struct SupervisorEnds {
    /// Read end. It reports end-of-file when the owner exits or ends the program.
    pub(super) lifeline: OwnedFd,
    /// Write end for [`supervisor`]'s reports.
    pub(super) reports: OwnedFd,
}

/// Path, arguments and environment in the form that `execve` takes.
pub(super) struct ExecImage {
    path: CString,
    arguments: CStringArray,
    /// Arguments of the shell that runs the path as a script.
    as_script: CStringArray,
    variables: CStringArray,
}

/// Strings, with an array of pointers to them that ends in a null pointer.
struct CStringArray {
    pointers: Vec<*const libc::c_char>,
    /// Never changed once the pointers are made.
    _strings: Vec<CString>,
}

// SAFETY: the pointers lead to the strings of the same value, which are never changed; moving the
// value moves no string.
unsafe impl Send for CStringArray {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for CStringArray {}

impl CStringArray {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([std::ptr::null()])
            .collect();
        Self {
            pointers,
            _strings: strings,
        }
    }
}

impl ExecImage {
    /// Prepares a program that runs with `variables` and no others.
    ///
    /// # Errors
    /// `InvalidInput` if a string contains a NUL character.
    pub(super) fn new<'a>(
        path: &'a Path,
        arguments: impl Iterator<Item = &'a OsStr> + Clone,
        variables: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> io::Result<Self> {
        let string = |text: &OsStr| Ok(CString::new(text.as_bytes())?);
        let program = path.as_os_str();
        let all = [program]
            .into_iter()
            .chain(arguments.clone())
            .map(string)
            .collect::<io::Result<_>>()?;
        let shell = OsStr::new(SCRIPT_SHELL);
        let as_script = [shell, program]
            .into_iter()
            .chain(arguments)
            .map(string)
            .collect::<io::Result<_>>()?;
        let variables = variables.map(|(name, value)| Ok(CString::new(format!("{name}={value}"))?));
        Ok(Self {
            path: string(program)?,
            arguments: CStringArray::new(all),
            as_script: CStringArray::new(as_script),
            variables: CStringArray::new(variables.collect::<io::Result<_>>()?),
        })
    }

    /// Executes the program; returns only if that fails.
    fn execute(&self) -> io::Error {
        let variables = self.variables.pointers.as_ptr();
        // SAFETY: the path ends in NUL, both arrays end in a null pointer, and all strings outlive
        // the call.
        unsafe {
            libc::execve(
                self.path.as_ptr(),
                self.arguments.pointers.as_ptr(),
                variables,
            )
        };
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ENOEXEC) {
            // SAFETY: as above; the first pointer of the array is the shell's path.
            unsafe {
                libc::execve(
                    self.as_script.pointers[0],
                    self.as_script.pointers.as_ptr(),
                    variables,
                )
            };
        }
        error
    }
}

/// Has the child of a command supervise the program instead of running a program itself.
///
/// Spawning the command fails if the program cannot be started.
pub(super) fn supervise(
    command: &mut Command,
    mut preparation: ChildSetup,
    image: ExecImage,
    ends: SupervisorEnds,
) {
    let prepared = move || start(&mut preparation, &image, &ends);
    // SAFETY: the closure makes system calls only, all of them async-signal-safe: it takes no lock
    // and allocates nothing (an error holds a bare error number), and what it reads was made before
    // the fork.
    unsafe { command.pre_exec(prepared) };
}

/// Runs in the first child: starts the program in a second child and supervises it. Returns only if
/// that fails.
fn start(preparation: &mut ChildSetup, image: &ExecImage, ends: &SupervisorEnds) -> io::Result<()> {
    // The supervisor leads its own session, so that signals of the terminal do not reach it.
    rustix::process::setsid()?;
    block_signals(true)?;
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit};
        // Orphans of the program become children of the supervisor. Any process id means "yes".
        rustix::process::set_child_subreaper(Some(Pid::INIT))?;
        let limit = Some(preparation.mark);
        // Fails if the limit is lower already; the environment carries the mark as well.
        let _ = rustix::process::setrlimit(
            Resource::Rttime,
            Rlimit {
                current: limit,
                maximum: limit,
            },
        );
    }
    let (failed, failing) = close_on_exec_pipe()?;
    let Some(program) = fork()? else {
        let error = become_program(preparation, image);
        let number = error.raw_os_error().unwrap_or(libc::EIO);
        let _ = rustix::io::write(&failing, &number.to_ne_bytes());
        exit_immediately(NOT_STARTED);
    };
    drop(failing);
    let mut number = [0; 4];
    // The program closes the pipe by starting; a failure arrives as a number.
    if matches!(rustix::io::read(&failed, &mut number), Ok(4)) {
        let _ = rustix::process::waitpid(Some(program), rustix::process::WaitOptions::empty());
        return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number)));
    }
    let signals = child_signals();
    let descriptors = [ends.lifeline.as_fd(), ends.reports.as_fd()];
    close_all_but(&descriptors, signals.as_ref().map(AsFd::as_fd));
    // A working directory would keep its file system from being unmounted.
    let _ = rustix::process::chdir(c"/");
    supervisor::supervise(
        program,
        ends.lifeline.as_fd(),
        ends.reports.as_fd(),
        signals.as_ref().map(AsFd::as_fd),
    );
    exit_immediately(0)
}

/// Runs in the second child. Returns only if the program cannot be executed.
fn become_program(preparation: &mut ChildSetup, image: &ExecImage) -> io::Error {
    match prepare(preparation) {
        Ok(()) => image.execute(),
        Err(error) => error,
    }
}

fn prepare(preparation: &mut ChildSetup) -> io::Result<()> {
    // The program leads its own session and group, so that a signal to the group does not reach the
    // supervisor.
    rustix::process::setsid()?;
    if preparation.merge_stderr {
        rustix::stdio::dup2_stderr(rustix::stdio::stdout())?;
    }
    #[cfg(target_os = "linux")]
    apply_linux_limits(preparation)?;
    let limits = preparation.limits;
    if let Some(nice) = limits.nice {
        // Lowering one's own priority is always allowed.
        let _ = rustix::process::nice(nice);
    }
    if limits.no_core {
        limit(rustix::process::Resource::Core, 0);
    }
    if let Some(bytes) = limits.file_bytes {
        limit(rustix::process::Resource::Fsize, bytes);
    }
    block_signals(false)
}

#[cfg(target_os = "linux")]
fn apply_linux_limits(preparation: &mut ChildSetup) -> io::Result<()> {
    #[cfg(feature = "sandbox")]
    if let Some((fence, directory)) = &preparation.fence
        && let Some(mounts) = &fence.parts().mounts
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // The child of a protected owner inherits the non-dumpable flag, and could not write its
        // own user map.
        let previous = rustix::process::dumpable_behavior()?;
        if mounts.user.is_some() {
            set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        }
        mounting::mount(mounts, &mut preparation.trees)?;
        // Until it becomes the program, its memory is a copy of the owner's.
        set_dumpable_behavior(previous)?;
        rustix::process::chdir(directory.as_c_str())?;
        if let (Some(processes), Some(_)) = (preparation.limits.processes, &mounts.user) {
            limit(rustix::process::Resource::Nproc, processes);
        }
    }
    if preparation.no_new_privileges {
        rustix::thread::set_no_new_privs(true)?;
        drop_capabilities()?;
    }
    #[cfg(feature = "sandbox")]
    if let Some((fence, _)) = &preparation.fence {
        let parts = fence.parts();
        if parts
            .mounts
            .as_ref()
            .is_some_and(|mounts| mounts.devices.is_some())
        {
            allow_beneath(fence, mounting::TERMINALS, parts.rights.terminals)?;
            allow_beneath(fence, mounting::SHARED_MEMORY, parts.rights.shared_memory)?;
        }
        // Nothing can be mounted from here on.
        restrict(fence)?;
    }
    #[cfg(feature = "sandbox")]
    if !preparation.filter.is_empty() {
        // Installed last, because the filter also limits the calls of this process.
        install(&preparation.filter)?;
    }
    Ok(())
}

/// Lowers a limit to `most`. A limit that is lower already is kept.
fn limit(resource: rustix::process::Resource, max: u64) {
    let known = rustix::process::getrlimit(resource);
    let lower = |limit: Option<u64>| Some(limit.map_or(max, |limit| limit.min(max)));
    let wanted = rustix::process::Rlimit {
        current: lower(known.current),
        maximum: lower(known.maximum),
    };
    // Lowering a limit is always allowed.
    let _ = rustix::process::setrlimit(resource, wanted);
}

/// Drops all capabilities except those for files, signals, low ports, and changing user and group
/// ids.
///
/// This prevents root from raising limits, loading modules, and reading other processes' memory,
/// which Landlock does not prevent. Other users have no capabilities.
#[cfg(target_os = "linux")]
fn drop_capabilities() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
    let allowed = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::KILL
        | CapabilitySet::NET_BIND_SERVICE
        | CapabilitySet::SETGID
        | CapabilitySet::SETUID;
    let had = capabilities(None)?;
    let effective = had.effective & allowed;
    let permitted = had.permitted & allowed;
    set_capabilities(
        None,
        CapabilitySets {
            effective,
            permitted,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

#[cfg(all(target_os = "linux", feature = "sandbox"))]
fn restrict(fence: &Sandbox) -> io::Result<()> {
    // SAFETY: the system call takes two numbers; the descriptor is open, for the fence owns it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_restrict_self,
            fence.parts().ruleset.as_raw_fd(),
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Adds a rule for a folder that was mounted after the fork.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
fn allow_beneath(fence: &Sandbox, folder: &std::ffi::CStr, access: u64) -> io::Result<()> {
    /// The kernel's `landlock_path_beneath_attr`, which `libc` lacks.
    #[repr(C, packed)]
    struct PathBeneath {
        allowed_access: u64,
        parent_fd: RawFd,
    }
    /// The kernel's `LANDLOCK_RULE_PATH_BENEATH`.
    const RULE_PATH_BENEATH: libc::c_int = 1;
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, rustix::fs::Mode::empty())?;
    let rule = PathBeneath {
        allowed_access: access,
        parent_fd: folder.as_raw_fd(),
    };
    let ruleset = fence.parts().ruleset.as_raw_fd();
    // SAFETY: both descriptors are open, and the structure has the kernel's layout and outlives the
    // call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset,
            RULE_PATH_BENEATH,
            &raw const rule,
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Installs a seccomp filter. Requires `no_new_privs`.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the program has as many instructions as it says, and both outlive the call, which
    // only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Forks. Returns the child's id in the parent and `None` in the child.
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: this process is itself a fresh copy with one thread; the child makes system calls
    // only.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        id => Ok(Pid::from_raw(id)),
    }
}

/// Ends the process without running any destructor or exit handler that it inherited from the
/// copied process.
fn exit_immediately(status: i32) -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(status) }
}

/// Blocks all signals, so that no handler of the copied process runs here, or unblocks all.
fn block_signals(are_blocked: bool) -> io::Result<()> {
    let set = signal_set(|set| {
        // SAFETY: the set is initialized.
        unsafe {
            if are_blocked {
                libc::sigfillset(set)
            } else {
                libc::sigemptyset(set)
            }
        };
    });
    // SAFETY: the new set is initialized; the old set is not requested.
    let result =
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn signal_set(fill: impl FnOnce(*mut libc::sigset_t)) -> libc::sigset_t {
    // SAFETY: a set of signals is plain data, and zero is a valid value of every field.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    fill(&raw mut set);
    set
}

/// Returns a descriptor that becomes readable when a child ends. `None` if the system has no such
/// descriptor.
#[cfg(target_os = "linux")]
fn child_signals() -> Option<OwnedFd> {
    let set = signal_set(|set| {
        // SAFETY: the set is valid and the signal exists.
        unsafe { libc::sigaddset(set, libc::SIGCHLD) };
    });
    // SAFETY: -1 requests a new descriptor; the set is initialized.
    let descriptor =
        unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
    // SAFETY: the kernel has just created it, and it has no other owner.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(not(target_os = "linux"))]
fn child_signals() -> Option<OwnedFd> {
    None
}

fn close_on_exec_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?);
    #[cfg(not(target_os = "linux"))]
    {
        let (read, write) = rustix::pipe::pipe()?;
        for end in [&read, &write] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        }
        Ok((read, write))
    }
}

/// Closes every descriptor except these. The supervisor must not hold a pipe of the program or
/// another lifeline.
fn close_all_but(descriptors: &[BorrowedFd<'_>; 2], also: Option<BorrowedFd<'_>>) {
    let also = also.map_or(descriptors[0].as_raw_fd(), |descriptor| {
        descriptor.as_raw_fd()
    });
    let mut descriptors = [descriptors[0].as_raw_fd(), descriptors[1].as_raw_fd(), also];
    descriptors.sort_unstable();
    let mut first = 0;
    for descriptor in descriptors {
        close_range(first, descriptor - 1);
        first = descriptor + 1;
    }
    close_range(first, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    #[cfg(target_os = "linux")]
    // SAFETY: it takes three numbers; nothing that this process still uses is in the range.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    let open = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let max = open
        .and_then(|most| RawFd::try_from(most).ok())
        .unwrap_or(1 << 16)
        .min(1 << 16);
    for descriptor in first..=last.min(max) {
        // SAFETY: as above; a number that is not open is an error that changes nothing.
        unsafe { libc::close(descriptor) };
    }
}

/// Moves this process into new namespaces.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    // SAFETY: the function is unsafe because of its effect on threads that share descriptors. This
    // process has one thread, and the flags passed here concern mounts and users only.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Makes the mount at a descriptor, and all mounts below it, read-only.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
fn set_read_only(tree: impl AsFd) -> io::Result<()> {
    let wanted = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | AT_RECURSIVE;
    let tree = tree.as_fd();
    // SAFETY: the descriptor is open, the path is empty and ends in NUL, and the structure has the
    // size that is passed; all of them outlive the call.
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
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the kernel's Landlock version; 0 if Landlock is missing or disabled. Changes nothing.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
pub(super) fn landlock_version() -> i64 {
    /// Requests the version instead of a ruleset.
    const CREATE_RULESET_VERSION: libc::c_int = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    let no_size = 0_usize;
    // SAFETY: with this flag the call takes a null pointer and size 0, and returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            nothing,
            no_size,
            CREATE_RULESET_VERSION,
        )
    };
    version.max(0)
}
