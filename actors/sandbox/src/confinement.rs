//! Confinement: what a child process may read and write, where the kernel can see to that (TOOL-5).
//!
//! A [`Reach`] says which paths; a [`Fence`] is the same in the kernel's hands, prepared before the process is started.
//! It has two parts: a ruleset of Landlock, which sees to what is opened, made and removed; and mounts of the process's
//! own, on which modes, owners and times cannot be changed either. Only files are confined: neither the network, nor
//! sockets that lie in the file system.
//! Not here: which paths a tool's commands may use (the tool says), how a process goes behind the fence
//! (`before_exec`).

#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod landlock;
#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod linux;
mod means;
#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod mounts;
mod protection;
#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod seccomp;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::protection::reachable_in_words;
pub use self::protection::{Extent, Protection, protections};
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

/// Finds out how far commands can be confined on this machine. Starts a shell for that, the first time.
pub fn confinement() -> Confinement {
    linux::confinement()
}

/// What a process may do with files. Everything else is refused, but for the names in directories: those can be
/// listed everywhere. All paths are absolute, with symlinks resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// What it may change, with all that lies below.
    pub write: Vec<PathBuf>,
    /// Paths in folders of `write` that it may read but not change. Nothing new can be created directly in a folder that
    /// contains such a path.
    pub read_only: Vec<PathBuf>,
    /// Files and folders that it may neither read nor change, with everything below, except for what is named in
    /// `write`. Everything else it may read and run. Where it has mounts of its own, a hidden file reads as empty.
    pub hidden: Vec<PathBuf>,
    /// Devices that it may read and write; nothing can be made below them. Any others are hidden.
    pub devices: Vec<PathBuf>,
    /// Size of its own `/dev/shm`, in bytes, if it can have mounts of its own. `None`: it has no terminals and no
    /// `/dev/shm`.
    pub shared_memory_bytes: Option<u64>,
}

/// The folder of the device nodes.
const DEVICES: &str = "/dev";

impl Reach {
    /// Returns what it may read and run, apart from what it may change.
    pub fn readable(&self) -> Vec<PathBuf> {
        let hidden = [&self.hidden[..], &[DEVICES.into()]].concat();
        grants_around(Path::new("/"), &hidden)
    }

    /// Returns what it may change: the paths, without what is hidden below them.
    pub fn writable(&self) -> Vec<PathBuf> {
        // What was named on purpose is not hidden itself.
        let below = |root: &Path| -> Vec<PathBuf> {
            let kept = self.hidden.iter().chain(&self.read_only);
            kept.filter(|path| path.starts_with(root) && *path != root).cloned().collect()
        };
        // Whether it lies in something hidden does not matter: it was named more closely.
        self.write.iter().flat_map(|root| grants_around(root, &below(root))).collect()
    }
}

/// A reach in the kernel's hands. A process that is started within it cannot leave it, nor can its children.
#[derive(Debug, Clone)]
pub struct Fence(Arc<linux::Parts>);

impl Fence {
    /// Prepares the fence; `None` = this machine cannot confine.
    pub fn around(reach: &Reach) -> io::Result<Option<Self>> {
        Ok(linux::parts(reach)?.map(|parts| Self(Arc::new(parts))))
    }

    /// Returns what it consists of.
    #[cfg_attr(not(all(target_os = "linux", feature = "sandbox")), allow(dead_code))]
    pub(super) fn parts(&self) -> &linux::Parts {
        &self.0
    }
}

/// Returns the paths that together hold what lies below `root`, without what is hidden.
///
/// Leave can be given to whole directories only. Where something is hidden below one, its entries are given leave
/// one by one; what is made in it later has none. Symlinks are left out: what they lead to counts where it is.
/// `hidden` are absolute paths with symlinks resolved.
fn grants_around(root: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
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
    use super::{Confinement, Reach, io, means::Means};

    /// There are none.
    #[derive(Debug)]
    pub(crate) enum Parts {}

    pub(super) fn means() -> Means {
        Means::default()
    }

    pub(super) fn confinement() -> Confinement {
        let why = if cfg!(target_os = "linux") {
            "Soong was built without the feature `sandbox`"
        } else {
            "commands can be confined on Linux only"
        };
        Confinement::None { why: why.to_owned() }
    }

    pub(super) fn parts(_: &Reach) -> io::Result<Option<Parts>> {
        Ok(None)
    }
}

#[cfg(test)]
#[path = "confinement/tests.rs"]
mod tests;
