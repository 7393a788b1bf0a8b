//! Confinement: what a child process may read and write, where the kernel can see to that (TOOL-5).
//!
//! A [`Reach`] says which paths; a [`Fence`] is the same in the kernel's hands, built before the process is started.
//! Only files are confined: neither the network, nor sockets that lie in the file system.
//! Not here: which paths a tool's commands may use (the tool says), how a process goes behind the fence
//! (`before_exec`).

#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod landlock;

use std::{
    fs, io,
    os::fd::{BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

#[cfg(not(all(target_os = "linux", feature = "sandbox")))]
use self::without as landlock;

/// How far commands can be confined on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confinement {
    /// To what they may read and write.
    Full,
    /// The same, with gaps.
    Partial {
        /// What the kernel cannot see to.
        why: String,
    },
    /// Not at all.
    None {
        /// Why not.
        why: String,
    },
}

impl Confinement {
    /// Returns what is missing for full confinement.
    pub fn lacks(&self) -> Option<&str> {
        match self {
            Self::Full => None,
            Self::Partial { why } | Self::None { why } => Some(why),
        }
    }
}

/// Finds out how far commands can be confined on this machine. Changes nothing.
pub fn confinement() -> Confinement {
    landlock::confinement()
}

/// What a process may do with files. Everything else is refused, but for the names in directories: those can be
/// listed everywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// What it may read and run, with all that lies below.
    pub read: Vec<PathBuf>,
    /// What it may change as well.
    pub write: Vec<PathBuf>,
    /// Devices that it may write to; nothing can be made below them.
    pub devices: Vec<PathBuf>,
}

/// A reach in the kernel's hands. A process that is started within it cannot leave it, nor can its children.
#[derive(Debug, Clone)]
pub struct Fence(Arc<OwnedFd>);

impl Fence {
    /// Builds the fence; `None` = this machine cannot confine.
    pub fn around(reach: &Reach) -> io::Result<Option<Self>> {
        Ok(landlock::ruleset(reach)?.map(|descriptor| Self(Arc::new(descriptor))))
    }

    /// Returns what the kernel knows it by.
    #[cfg_attr(not(all(target_os = "linux", feature = "sandbox")), allow(dead_code))]
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.as_fd()
    }
}

/// Returns the paths that together hold what lies below `root`, without what is hidden.
///
/// Leave can be given to whole directories only. Where something is hidden below one, its entries are given leave
/// one by one; what is made in it later has none. Symlinks are left out: what they lead to counts where it is.
/// `hidden` are absolute paths with symlinks resolved.
pub fn grants_around(root: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    if hidden.iter().any(|path| root.starts_with(path)) {
        return Vec::new();
    }
    if !hidden.iter().any(|path| path.starts_with(root)) {
        return vec![root.to_owned()];
    }
    // A directory that cannot be read is one that the process could not read either.
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let is_symlink = |path: &PathBuf| path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    let mut below: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    below.retain(|path| !is_symlink(path));
    below.sort();
    below.iter().flat_map(|path| grants_around(path, hidden)).collect()
}

/// What there is where no kernel can be asked.
#[cfg(not(all(target_os = "linux", feature = "sandbox")))]
mod without {
    use super::{Confinement, OwnedFd, Reach, io};

    pub(super) fn confinement() -> Confinement {
        let why = if cfg!(target_os = "linux") {
            "Soong was built without the feature `sandbox`"
        } else {
            "commands can be confined on Linux only"
        };
        Confinement::None { why: why.to_owned() }
    }

    pub(super) fn ruleset(_: &Reach) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}

#[cfg(test)]
#[path = "confinement/tests.rs"]
mod tests;
