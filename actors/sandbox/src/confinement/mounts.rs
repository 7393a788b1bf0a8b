//! Mounts of a confined process: everything is read-only except what it may change.
//!
//! Landlock does not restrict changes of modes, owners, times and attributes of files; on a read-only mount they
//! cannot be changed either. This module computes the mounts before the fork. Elsewhere: mounting
//! (`before_exec/mounting.rs`).

use std::{
    ffi::CString,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::thread::CapabilitySet;

use super::{DEVICES, SandboxPolicy};

/// Mounts to make.
#[derive(Debug)]
pub(crate) struct Mounts {
    /// Paths to mount again, in this order; the first is the root directory.
    pub(crate) steps: Vec<MountStep>,
    /// Files that read as empty.
    pub(crate) masked: Vec<CString>,
    /// The process's own `/dev`; `None` if it uses that of the machine.
    pub(crate) devices: Option<DeviceMounts>,
    /// Mapping for the user namespace that the process needs; `None` if it may mount without one.
    pub(crate) user: Option<UserMap>,
}

/// A `/dev` with a few devices, its own terminals and `/dev/shm`.
#[derive(Debug)]
pub(crate) struct DeviceMounts {
    /// Device nodes of the machine.
    pub(crate) nodes: Vec<CString>,
    /// Options of the file system at `/dev/shm`.
    pub(crate) shared_memory: CString,
}

/// A path that is mounted again, including everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountStep {
    pub(crate) path: CString,
    /// Whether the mount is writable.
    pub(crate) is_writable: bool,
}

/// Mapping of the current user and group to themselves, in the kernel's format.
#[derive(Debug)]
pub(crate) struct UserMap {
    pub(crate) user: String,
    pub(crate) group: String,
}

impl Mounts {
    /// Computes the mounts for a reach.
    pub(super) fn of(reach: &SandboxPolicy, has_devices: bool) -> io::Result<Self> {
        let powers = rustix::thread::capabilities(None)?.effective;
        let user = (!powers.contains(CapabilitySet::SYS_ADMIN)).then(UserMap::of_this_process);
        let devices = if has_devices { DeviceMounts::of(reach)? } else { None };
        let files = reach.hidden.iter().filter(|path| path.is_file());
        let masked = files.map(|path| as_c(path)).collect::<io::Result<_>>()?;
        Ok(Self { steps: steps(reach)?, masked, devices, user })
    }
}

impl DeviceMounts {
    /// Returns the devices of a reach. `None` if it has writable paths below `/dev`, whose changes would be lost in
    /// its own `/dev`.
    fn of(reach: &SandboxPolicy) -> io::Result<Option<Self>> {
        let Some(bytes) = reach.shared_memory_bytes else { return Ok(None) };
        if reach.write.iter().any(|path| path.starts_with(DEVICES)) {
            return Ok(None);
        }
        let nodes = reach.devices.iter().map(|path| as_c(path)).collect::<io::Result<_>>()?;
        Ok(Some(Self { nodes, shared_memory: CString::new(format!("mode=1777,size={bytes}"))? }))
    }
}

fn as_c(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

impl UserMap {
    fn of_this_process() -> Self {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { user: format!("{user} {user} 1"), group: format!("{group} {group} 1") }
    }
}

/// Returns the root directory, and every path whose mode differs from that of the path above it, parents first.
fn steps(reach: &SandboxPolicy) -> io::Result<Vec<MountStep>> {
    let writable = reach.write.iter().map(|path| (path, true));
    let kept = reach.hidden.iter().chain(&reach.read_only);
    let hidden = kept.filter(|path| !reach.write.contains(path)).map(|path| (path, false));
    let mut known: Vec<(&PathBuf, bool)> = writable.chain(hidden).collect();
    known.sort();
    known.dedup();
    let mut kept: Vec<(&Path, bool)> = vec![(Path::new("/"), reach.write.iter().any(|path| path == Path::new("/")))];
    for (path, is_writable) in known {
        // Parents come first, so the last match is the nearest ancestor.
        let above = kept.iter().rev().find(|(above, _)| path.starts_with(above));
        if above.is_some_and(|(_, is_above_writable)| *is_above_writable != is_writable) {
            kept.push((path, is_writable));
        }
    }
    let step = |(path, is_writable): (&Path, bool)| Ok(MountStep { path: as_c(path)?, is_writable });
    kept.into_iter().map(step).collect()
}

#[cfg(test)]
#[path = "mounts/tests.rs"]
mod tests;
