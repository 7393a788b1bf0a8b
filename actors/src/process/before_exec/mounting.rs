//! Mounting what a process sees of the disk, after the fork: only system calls, and nothing is allocated.

use std::{ffi::CStr, io, os::fd::OwnedFd};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2},
    io::Errno,
    mount::{MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount, open_tree},
    thread::UnshareFlags,
};

use super::{set_read_only, unshare};
use crate::process::confinement::{Mounts, UserMap};

/// The trees that are on their way to their places, one for each step but the first; room for all is made before the
/// fork.
pub(super) type Trees = Vec<Option<OwnedFd>>;

/// Gives the process mounts of its own. Its working directory is another one's from then on.
pub(super) fn mount(mounts: &Mounts, trees: &mut Trees) -> io::Result<()> {
    match &mounts.user {
        None => unshare(UnshareFlags::NEWNS)?,
        Some(user) => {
            unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
            stay(user)?;
        }
    }
    // What is mounted elsewhere later does not come in here, nor the other way round.
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let Some((root, steps)) = mounts.steps.split_first() else { return Ok(()) };
    // What may be changed is taken as it is, before everything becomes read-only.
    for step in steps {
        trees.push(if step.is_writable { copy(&step.path)? } else { None });
    }
    if !root.is_writable {
        set_read_only(open_path(&root.path)?)?;
    }
    for (step, tree) in steps.iter().zip(trees.drain(..)) {
        let tree = if step.is_writable { tree } else { copy(&step.path)? };
        let Some(tree) = tree else { continue };
        if !step.is_writable {
            set_read_only(&tree)?;
        }
        move_mount(
            &tree,
            c"",
            // Opened only now: what was mounted before lies above it.
            open_path(&step.path)?,
            c"",
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
        )?;
    }
    Ok(())
}

/// Keeps the process the user that it is: in a user namespace it is nobody at first.
fn stay(user: &UserMap) -> io::Result<()> {
    write(c"/proc/self/uid_map", &user.user)?;
    write(c"/proc/self/setgroups", "deny")?;
    write(c"/proc/self/gid_map", &user.group)
}

fn write(path: &CStr, text: &str) -> io::Result<()> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.as_bytes())?;
    Ok(())
}

/// Takes a copy of what is mounted at and below a path, to be mounted; `None` = there is nothing at the path.
fn copy(path: &CStr) -> io::Result<Option<OwnedFd>> {
    let place = match open_path(path) {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => return Ok(None),
        place => place?,
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(Some(open_tree(place, c"", flags)?))
}

/// Opens what a path leads to; a symlink on the way is an error, for the path had none when it was allowed.
fn open_path(path: &CStr) -> io::Result<OwnedFd> {
    Ok(openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}
