//! Confinement by Landlock, a Linux kernel feature with which an unprivileged process can restrict
//! itself. It controls opening, creating, moving and removing files.
//!
//! Restrictions that the kernel does not support are omitted from the ruleset.
//! [`unsupported_restriction`] reports the resulting gap.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope,
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use super::SandboxPolicy;

/// Newest Landlock version whose access rights are used. An older kernel applies only the rights
/// that it supports.
const NEWEST: ABI = ABI::V7;

/// Returns the most serious action that a Landlock version cannot prevent. `None`: no relevant
/// restriction is missing.
pub(super) fn unsupported_restriction(version: i64) -> Option<&'static str> {
    match version {
        ..3 => Some("truncating files outside the project"),
        3..=5 => Some("sending signals to other processes"),
        6.. => None,
    }
}

/// Access rights, as Landlock bit masks, for folders that exist only in the private mounts of the
/// process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rights {
    /// Rights in a folder of terminals: to list it, and to read, write and control its devices.
    pub(crate) terminals: u64,
    /// Rights in a folder of shared memory: all except to create device nodes and to control
    /// devices.
    pub(crate) shared_memory: u64,
}

impl Rights {
    /// Returns the rights that a Landlock version supports.
    pub(super) fn of(version: i64) -> Self {
        let known = AccessFs::from_all(if version < 5 { ABI::V4 } else { NEWEST });
        let known = if version < 3 {
            known & AccessFs::from_all(ABI::V2)
        } else {
            known
        };
        let known = if version < 2 {
            known & AccessFs::from_all(ABI::V1)
        } else {
            known
        };
        let not_made = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
        let terminals =
            (AccessFs::from_file(NEWEST) | AccessFs::ReadDir) & !BitFlags::from(AccessFs::Execute);
        Self {
            terminals: (terminals & known).bits(),
            shared_memory: (known & !not_made).bits(),
        }
    }
}

/// Builds the Landlock ruleset of a policy and returns its file descriptor.
pub(super) fn ruleset(reach: &SandboxPolicy) -> io::Result<OwnedFd> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    let mut rules = Rules(ruleset);
    // Every directory may be listed, since a process may need to search for the files that it can
    // read.
    rules.allow(Path::new("/"), AccessFs::ReadDir.into())?;
    rules.allow_all(&reach.readable(), AccessFs::from_read(NEWEST))?;
    // A device node that a command creates would give access to the device itself.
    let not_made = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    rules.allow_all(&reach.writable(), AccessFs::from_all(NEWEST) & !not_made)?;
    rules.allow_all(
        &reach.devices,
        AccessFs::from_file(NEWEST) & !BitFlags::from(AccessFs::Execute),
    )?;
    let descriptor: Option<OwnedFd> = rules.0.into();
    descriptor.ok_or_else(|| io::Error::other("the kernel created no Landlock ruleset"))
}

/// A ruleset that is being built.
struct Rules(RulesetCreated);

impl Rules {
    fn allow_all(&mut self, paths: &[PathBuf], access: BitFlags<AccessFs>) -> io::Result<()> {
        paths.iter().try_for_each(|path| self.allow(path, access))
    }

    /// Allows access to the file or folder at `path`, including everything below it. Skips a path
    /// that cannot be opened or that contains a symlink.
    fn allow(&mut self, path: &Path, access: BitFlags<AccessFs>) -> io::Result<()> {
        let Ok(file) = opened(path) else {
            return Ok(());
        };
        let metadata = file.metadata()?;
        if metadata.is_symlink() {
            return Ok(());
        }
        let access = if metadata.is_dir() {
            access
        } else {
            access & AccessFs::from_file(NEWEST)
        };
        if !access.is_empty() {
            (&mut self.0)
                .add_rule(PathBeneath::new(file, access))
                .map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// Opens a path only as a reference (`O_PATH`), without following symlinks.
fn opened(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?.into())
}
