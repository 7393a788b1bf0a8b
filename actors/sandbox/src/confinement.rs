//! Confinement: what a child process may read and write, as far as the kernel can enforce it
//! (TOOL-5).
//!
//! A [`SandboxPolicy`] lists the paths. A [`Sandbox`] is the same policy prepared for the kernel,
//! before the process is started. It has two parts: a Landlock ruleset, which restricts opening,
//! creating and removing files; and mounts of the process's own namespace, on which modes, owners
//! and times cannot be changed either. Only files are confined: not the network, and not sockets in
//! the file system.
//!
//! Not in this module: which paths a tool's commands may use (the tool decides), how a process
//! enters the sandbox (`before_exec`).

#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod landlock;
#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod linux;
#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod mounts;
mod protection;
#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod seccomp;
mod support;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::protection::describe_gaps;
pub use self::protection::{Protection, ProtectionLevel, protections};
#[cfg(not(all(target_os = "linux", feature = "sandbox")))]
use self::without as linux;
#[cfg(all(target_os = "linux", feature = "sandbox"))]
pub(super) use self::{
    landlock::Rights,
    mounts::{DeviceMounts, Mounts, UserMap},
    seccomp::filter as seccomp_filter,
};

/// How far commands can be confined on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confinement {
    /// Reads and writes are fully confined.
    Full,
    /// Reads and writes are confined, with gaps.
    Partial {
        /// The part that the kernel cannot enforce.
        why: String,
    },
    /// Commands cannot be confined.
    None {
        /// The reason.
        why: String,
    },
}

impl Confinement {
    /// Returns what is missing for full confinement.
    pub fn missing(&self) -> Option<&str> {
        match self {
            Self::Full => None,
            Self::Partial { why } | Self::None { why } => Some(why),
        }
    }
}

/// Determines how far commands can be confined on this machine. The first call starts a shell.
pub fn confinement() -> Confinement {
    linux::confinement()
}

/// File access policy of a process. Everything else is denied, except listing the names in
/// directories, which is always possible. All paths are absolute, with symlinks resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxPolicy {
    /// Paths that the process may change, including everything below.
    pub write: Vec<PathBuf>,
    /// Paths in folders of `write` that the process may read but not change. Nothing new can be
    /// created directly in a folder that contains such a path.
    pub read_only: Vec<PathBuf>,
    /// Files and folders that the process may neither read nor change, including everything below,
    /// except for paths named in `write`. Everything else may be read and executed. If the process
    /// has its own mounts, a hidden file reads as empty.
    pub hidden: Vec<PathBuf>,
    /// Devices that the process may read and write; nothing can be created below them. All other
    /// devices are hidden.
    pub devices: Vec<PathBuf>,
    /// Size of the process's own `/dev/shm`, in bytes, if it can have its own mounts. `None`: it
    /// has no terminals and no `/dev/shm`.
    pub shared_memory_bytes: Option<u64>,
}

/// Folder of the device nodes.
const DEVICES: &str = "/dev";

impl SandboxPolicy {
    /// Returns the paths that may be read and executed, in addition to those that may be changed.
    pub fn readable(&self) -> Vec<PathBuf> {
        let hidden = [&self.hidden[..], &[DEVICES.into()]].concat();
        paths_excluding(Path::new("/"), &hidden)
    }

    /// Returns the paths that may be changed, without hidden and read-only paths below them.
    pub fn writable(&self) -> Vec<PathBuf> {
        // A path that is named explicitly is not hidden itself.
        let below = |root: &Path| -> Vec<PathBuf> {
            let restricted = self.hidden.iter().chain(&self.read_only);
            restricted
                .filter(|path| path.starts_with(root) && *path != root)
                .cloned()
                .collect()
        };
        // A named path counts even if it is inside a hidden folder, since it is more specific.
        self.write
            .iter()
            .flat_map(|root| paths_excluding(root, &below(root)))
            .collect()
    }
}

/// A [`SandboxPolicy`] prepared for the kernel. A process that is started within it cannot leave
/// it, nor can its children.
#[derive(Debug, Clone)]
pub struct Sandbox(Arc<linux::SandboxParts>);

impl Sandbox {
    /// Prepares the policy for the kernel; `None` if this machine cannot confine processes.
    pub fn prepare(reach: &SandboxPolicy) -> io::Result<Option<Self>> {
        Ok(linux::parts(reach)?.map(|parts| Self(Arc::new(parts))))
    }

    /// Returns the Landlock ruleset and the mounts.
    #[cfg_attr(not(all(target_os = "linux", feature = "sandbox")), allow(dead_code))]
    pub(super) fn parts(&self) -> &linux::SandboxParts {
        &self.0
    }
}

/// Returns the paths that together cover everything below `root`, except for hidden paths.
///
/// Access can be granted to whole directories only. If a directory contains something hidden, its
/// entries are granted one by one, so files created in it later are not accessible. Symlinks are
/// skipped, because access is checked on their targets. `hidden` are absolute paths with symlinks
/// resolved.
fn paths_excluding(root: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    if hidden.iter().any(|path| root.starts_with(path)) {
        return Vec::new();
    }
    if !hidden.iter().any(|path| path.starts_with(root)) {
        return vec![root.to_owned()];
    }
    // A directory that cannot be listed here could not be read by the process either.
    let Ok(entries) = fs::read_dir(root) else {
        return Vec::new();
    };
    let is_symlink = |path: &PathBuf| {
        path.symlink_metadata()
            .is_ok_and(|metadata| metadata.is_symlink())
    };
    let mut below: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    below.retain(|path| !is_symlink(path));
    below.sort();
    below
        .iter()
        .flat_map(|path| paths_excluding(path, hidden))
        .collect()
}

/// Replacement for platforms without Landlock.
#[cfg(not(all(target_os = "linux", feature = "sandbox")))]
mod without {
    use super::{Confinement, SandboxPolicy, io, support::Mechanisms};

    /// Never constructed.
    #[derive(Debug)]
    pub(crate) enum SandboxParts {}

    pub(super) fn mechanisms() -> Mechanisms {
        Mechanisms::default()
    }

    pub(super) fn confinement() -> Confinement {
        let why = if cfg!(target_os = "linux") {
            "this build of Soong does not include the feature `sandbox`"
        } else {
            "commands can be confined only on Linux"
        };
        Confinement::None {
            why: why.to_owned(),
        }
    }

    pub(super) fn parts(_: &SandboxPolicy) -> io::Result<Option<SandboxParts>> {
        Ok(None)
    }
}

#[cfg(test)]
#[path = "confinement/tests.rs"]
mod tests;
