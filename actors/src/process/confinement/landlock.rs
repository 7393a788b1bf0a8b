//! Confinement by Landlock, a part of the Linux kernel that any process may use on itself.
//!
//! What the kernel is too old for is left out of the ruleset, and told by [`confinement`].

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::{Confinement, Reach};
use crate::process::before_exec::landlock_version;

/// The version whose rights are handled; an older kernel handles those that it knows.
const NEWEST: ABI = ABI::V7;

pub(super) fn confinement() -> Confinement {
    of_version(landlock_version())
}

/// Says what a version of Landlock is good for.
fn of_version(version: i64) -> Confinement {
    let partial = |why: &str| Confinement::Partial {
        why: format!("Landlock {version} of this kernel cannot keep a command from {why}"),
    };
    match version {
        ..1 => Confinement::None { why: "this kernel has no Landlock, or it is switched off".to_owned() },
        1 | 2 => partial("emptying files outside of the project"),
        3..=5 => partial("sending signals to programs that it did not start"),
        6.. => Confinement::Full,
    }
}

pub(super) fn ruleset(reach: &Reach) -> io::Result<Option<OwnedFd>> {
    if landlock_version() < 1 {
        return Ok(None);
    }
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    let mut rules = Rules(ruleset);
    // Names may be listed everywhere: without that nobody finds the way to what may be read.
    rules.allow(Path::new("/"), AccessFs::ReadDir.into())?;
    rules.allow_all(&reach.read, AccessFs::from_read(NEWEST))?;
    // A device node that a command makes would lead to the device itself.
    let not_made = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    rules.allow_all(&reach.write, AccessFs::from_all(NEWEST) & !not_made)?;
    rules.allow_all(&reach.devices, AccessFs::from_file(NEWEST) & !BitFlags::from(AccessFs::Execute))?;
    Ok(rules.0.into())
}

/// A ruleset as it fills.
struct Rules(RulesetCreated);

impl Rules {
    fn allow_all(&mut self, paths: &[PathBuf], access: BitFlags<AccessFs>) -> io::Result<()> {
        paths.iter().try_for_each(|path| self.allow(path, access))
    }

    /// Gives leave to what a path is now; one that is gone, or has become a symlink, is passed over.
    fn allow(&mut self, path: &Path, access: BitFlags<AccessFs>) -> io::Result<()> {
        let Ok(file) = opened(path) else { return Ok(()) };
        let metadata = file.metadata()?;
        if metadata.is_symlink() {
            return Ok(());
        }
        let access = if metadata.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
        if !access.is_empty() {
            (&mut self.0).add_rule(PathBeneath::new(file, access)).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// Opens what a path leads to without reading it, and without following a symlink at its end.
fn opened(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)
}

#[cfg(test)]
#[path = "landlock/tests.rs"]
mod tests;
