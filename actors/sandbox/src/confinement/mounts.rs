//! Mounts of a confined process: all paths are read-only except the writable paths of the policy.
//!
//! Landlock does not restrict changes to the mode, owner, times and attributes of a file. A
//! read-only mount prevents them. This module computes the mounts before the fork. Elsewhere:
//! mounting (`before_exec/mounting.rs`).

use std::{
    ffi::CString,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::thread::CapabilitySet;

use super::{DEVICES, SandboxPolicy};

/// Mounts that a confined process makes before it starts its program.
#[derive(Debug)]
pub(crate) struct Mounts {
    /// Paths to bind-mount onto themselves, in this order. The first is the root directory.
    pub(crate) steps: Vec<MountStep>,
    /// Hidden files; the process reads them as empty.
    pub(crate) masked: Vec<CString>,
    /// Private `/dev` of the process. `None`: the process uses the machine's `/dev`.
    pub(crate) devices: Option<DeviceMounts>,
    /// Id mapping of a new user namespace. `None` if the process has the privilege to mount without
    /// one.
    pub(crate) user: Option<UserMap>,
}

/// Contents of a private `/dev`: selected devices, new terminals and a new `/dev/shm`.
#[derive(Debug)]
pub(crate) struct DeviceMounts {
    /// Device nodes of the machine that are available in it.
    pub(crate) nodes: Vec<CString>,
    /// Mount options of the file system at `/dev/shm`.
    pub(crate) shared_memory: CString,
}

/// A path that is bind-mounted onto itself, including everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountStep {
    pub(crate) path: CString,
    /// Whether the mount is writable.
    pub(crate) is_writable: bool,
}

/// Mapping of the current user and group to themselves, in the format of `/proc/PID/uid_map` and
/// `gid_map`.
#[derive(Debug)]
pub(crate) struct UserMap {
    pub(crate) user: String,
    pub(crate) group: String,
}

impl Mounts {
    /// Computes the mounts of a policy. `has_devices`: whether the machine supports a private
    /// `/dev`.
    pub(super) fn of(reach: &SandboxPolicy, has_devices: bool) -> io::Result<Self> {
        let powers = rustix::thread::capabilities(None)?.effective;
        let user = (!powers.contains(CapabilitySet::SYS_ADMIN)).then(UserMap::of_this_process);
        let devices = if has_devices {
            DeviceMounts::of(reach)?
        } else {
            None
        };
        let files = reach.hidden.iter().filter(|path| path.is_file());
        let masked = files.map(|path| as_c(path)).collect::<io::Result<_>>()?;
        Ok(Self {
            steps: steps(reach)?,
            masked,
            devices,
            user,
        })
    }
}

impl DeviceMounts {
    /// Returns the private `/dev` of a policy. `None` if the policy requests none, or if it makes
    /// paths below `/dev` writable: changes to a private `/dev` would be lost.
    fn of(reach: &SandboxPolicy) -> io::Result<Option<Self>> {
        let Some(bytes) = reach.shared_memory_bytes else {
            return Ok(None);
        };
        if reach.write.iter().any(|path| path.starts_with(DEVICES)) {
            return Ok(None);
        }
        let nodes = reach
            .devices
            .iter()
            .map(|path| as_c(path))
            .collect::<io::Result<_>>()?;
        Ok(Some(Self {
            nodes,
            shared_memory: CString::new(format!("mode=1777,size={bytes}"))?,
        }))
    }
}

fn as_c(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

impl UserMap {
    fn of_this_process() -> Self {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Self {
            user: format!("{user} {user} 1"),
            group: format!("{group} {group} 1"),
        }
    }
}

/// Returns the root directory, and each path that must be writable or read-only unlike its nearest
/// returned ancestor. Parents come before their descendants.
fn steps(reach: &SandboxPolicy) -> io::Result<Vec<MountStep>> {
    let writable = reach.write.iter().map(|path| (path, true));
    let restricted = reach.hidden.iter().chain(&reach.read_only);
    let hidden = restricted
        .filter(|path| !reach.write.contains(path))
        .map(|path| (path, false));
    let mut known: Vec<(&PathBuf, bool)> = writable.chain(hidden).collect();
    known.sort();
    known.dedup();
    let mut mounts: Vec<(&Path, bool)> = vec![(
        Path::new("/"),
        reach.write.iter().any(|path| path == Path::new("/")),
    )];
    for (path, is_writable) in known {
        // Parents come first, so the last match is the nearest ancestor.
        let above = mounts
            .iter()
            .rev()
            .find(|(above, _)| path.starts_with(above));
        if above.is_some_and(|(_, is_above_writable)| *is_above_writable != is_writable) {
            mounts.push((path, is_writable));
        }
    }
    let step = |(path, is_writable): (&Path, bool)| {
        Ok(MountStep {
            path: as_c(path)?,
            is_writable,
        })
    };
    mounts.into_iter().map(step).collect()
}

#[cfg(test)]
#[path = "mounts/tests.rs"]
mod tests;
