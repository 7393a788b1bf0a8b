//! Creates the mounts of a process after the fork: only system calls, and nothing is allocated.

use std::{ffi::CStr, io, os::fd::OwnedFd};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, mkdir, open, openat2, symlink},
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount,
        open_tree,
    },
    thread::UnshareFlags,
};

use super::{set_read_only, unshare};
use crate::confinement::{DeviceMounts, Mounts, UserMap};

/// Terminals of a process that has its own devices.
pub(super) const TERMINALS: &CStr = c"/dev/pts";
/// Shared memory of a process that has its own devices.
pub(super) const SHARED_MEMORY: &CStr = c"/dev/shm";
const NULL_DEVICE: &CStr = c"/dev/null";

/// Mount trees to attach, one for each step except the first. Their capacity is allocated before
/// the fork.
pub(super) type Trees = Vec<Option<OwnedFd>>;

/// Maximum number of device nodes in the process's own `/dev`.
const MAX_NODES: usize = 16;

/// Creates the process's own mounts. The caller must enter the working directory again.
pub(super) fn mount(mounts: &Mounts, trees: &mut Trees) -> io::Result<()> {
    match &mounts.user {
        None => unshare(UnshareFlags::NEWNS | UnshareFlags::NEWIPC)?,
        Some(user) => {
            unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWIPC)?;
            map_current_user(user)?;
        }
    }
    // Later mounts of the machine do not appear here, nor the other way round.
    mount_change(
        c"/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    let Some((root, steps)) = mounts.steps.split_first() else {
        return Ok(());
    };
    // The null device hides a file: it reads as empty.
    for file in &mounts.masked {
        if let Some(empty) = clone_mount_tree(NULL_DEVICE)?
            && let Ok(target) = open_path(file)
        {
            attach_tree(&empty, &target)?;
        }
    }
    // Writable paths are copied before everything becomes read-only.
    for step in steps {
        trees.push(if step.is_writable {
            clone_mount_tree(&step.path)?
        } else {
            None
        });
    }
    if !root.is_writable {
        set_read_only(open_path(&root.path)?)?;
    }
    if let Some(devices) = &mounts.devices {
        mount_devices(devices)?;
    }
    for (step, tree) in steps.iter().zip(trees.drain(..)) {
        let tree = if step.is_writable {
            tree
        } else {
            clone_mount_tree(&step.path)?
        };
        let Some(tree) = tree else { continue };
        if !step.is_writable {
            set_read_only(&tree)?;
        }
        // Opened only now, because an earlier step may have mounted something above it.
        attach_tree(&tree, &open_path(&step.path)?)?;
    }
    Ok(())
}

/// Mounts a `/dev` with the given nodes, its own terminals and shared memory. It stays writable,
/// but Landlock denies new names in it.
fn mount_devices(devices: &DeviceMounts) -> io::Result<()> {
    let mut nodes = [const { None }; MAX_NODES];
    for (node, path) in nodes.iter_mut().zip(&devices.nodes) {
        *node = clone_mount_tree(path)?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount_filesystem(c"tmpfs", c"/dev", c"tmpfs", flags, c"mode=755,size=65536")?;
    for (node, path) in nodes.iter().zip(&devices.nodes) {
        let Some(node) = node else { continue };
        let file = open(
            path,
            OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o666),
        )?;
        drop(file);
        attach_tree(node, &open_path(path)?)?;
    }
    for (name, target) in [
        (c"/dev/fd", c"/proc/self/fd"),
        (c"/dev/stdin", c"/proc/self/fd/0"),
        (c"/dev/stdout", c"/proc/self/fd/1"),
        (c"/dev/stderr", c"/proc/self/fd/2"),
        (c"/dev/ptmx", c"pts/ptmx"),
    ] {
        symlink(target, name)?;
    }
    mkdir(TERMINALS, Mode::from_raw_mode(0o755))?;
    mount_filesystem(
        c"devpts",
        TERMINALS,
        c"devpts",
        flags,
        c"newinstance,ptmxmode=0666,mode=0600",
    )?;
    mkdir(SHARED_MEMORY, Mode::from_raw_mode(0o1777))?;
    mount_filesystem(
        c"tmpfs",
        SHARED_MEMORY,
        c"tmpfs",
        flags | MountFlags::NODEV,
        devices.shared_memory.as_c_str(),
    )
}

/// Mounts a new file system.
fn mount_filesystem(
    source: &CStr,
    target: &CStr,
    kind: &CStr,
    flags: MountFlags,
    options: &CStr,
) -> io::Result<()> {
    Ok(rustix::mount::mount(source, target, kind, flags, options)?)
}

/// Mounts a tree at `target`.
fn attach_tree(tree: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, c"", target, c"", flags)?)
}

/// Maps the user to itself: in a new user namespace, the process has no user id at first.
fn map_current_user(user: &UserMap) -> io::Result<()> {
    write(c"/proc/self/uid_map", &user.user)?;
    write(c"/proc/self/setgroups", "deny")?;
    write(c"/proc/self/gid_map", &user.group)
}

fn write(path: &CStr, text: &str) -> io::Result<()> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.as_bytes())?;
    Ok(())
}

/// Clones the mounts at and below a path; `None` if the path does not exist.
fn clone_mount_tree(path: &CStr) -> io::Result<Option<OwnedFd>> {
    let source = match open_path(path) {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => return Ok(None),
        source => source?,
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(Some(open_tree(source, c"", flags)?))
}

/// Opens a path. A symlink in it is an error, because the path had none when it was allowed.
fn open_path(path: &CStr) -> io::Result<OwnedFd> {
    Ok(openat2(
        CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )?)
}
