//! Confinement on Linux, and its extent on this machine.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, OnceLock},
};

use super::{Confinement, Mounts, Rights, Sandbox, SandboxPolicy, landlock, support::Mechanisms};
use crate::{SpawnOptions, landlock_version};

/// Program that is started to test the mounts.
const SHELL: &str = "/bin/sh";

/// Parts of a fence.
#[derive(Debug)]
pub(crate) struct SandboxParts {
    /// Landlock ruleset.
    pub(crate) ruleset: OwnedFd,
    /// The process's own mounts; `None` if this machine does not allow them.
    pub(crate) mounts: Option<Mounts>,
    /// Rights that are added to the ruleset for mounts made after the fork.
    pub(crate) rights: Rights,
}

/// Detected capabilities of this machine. They do not change during the process.
struct HostCapabilities {
    version: i64,
    /// Why a process cannot have its own mounts; `None` if it can.
    no_mounts: Option<String>,
    /// Whether the mounts can include new terminals and shared memory.
    has_private_devices: bool,
}

pub(super) fn confinement() -> Confinement {
    confinement_of(machine())
}

/// Returns the mechanisms that this machine supports.
pub(super) fn mechanisms() -> Mechanisms {
    let machine = machine();
    let mounts = machine.version > 0 && machine.no_mounts.is_none();
    let seccomp = !super::seccomp_filter().is_empty();
    Mechanisms {
        landlock: machine.version,
        mounts,
        devices: mounts && machine.has_private_devices,
        seccomp,
    }
}

/// Returns how far a machine can confine commands.
fn confinement_of(machine: &HostCapabilities) -> Confinement {
    let version = machine.version;
    if version < 1 {
        return Confinement::None {
            why: "this kernel does not support Landlock, or Landlock is disabled".to_owned(),
        };
    }
    let old = landlock::unsupported_restriction(version).map(|from| {
        format!("Landlock {version} of this kernel cannot prevent commands from {from}")
    });
    let bare = machine.no_mounts.as_ref().map(|why| {
        format!(
            "commands can change modes and times of files outside the project, because private mounts failed ({why})"
        )
    });
    let unsupported_restriction: Vec<String> = [old, bare].into_iter().flatten().collect();
    if unsupported_restriction.is_empty() {
        Confinement::Full
    } else {
        Confinement::Partial {
            why: unsupported_restriction.join("; "),
        }
    }
}

pub(super) fn parts(reach: &SandboxPolicy) -> io::Result<Option<SandboxParts>> {
    let machine = machine();
    if machine.version < 1 {
        return Ok(None);
    }
    let has_mounts = machine.no_mounts.is_none();
    Ok(Some(parts_with(
        reach,
        machine.version,
        has_mounts,
        machine.has_private_devices,
    )?))
}

fn parts_with(
    reach: &SandboxPolicy,
    version: i64,
    has_mounts: bool,
    has_devices: bool,
) -> io::Result<SandboxParts> {
    let mounts = has_mounts
        .then(|| Mounts::of(reach, has_devices))
        .transpose()?;
    Ok(SandboxParts {
        ruleset: landlock::ruleset(reach)?,
        mounts,
        rights: Rights::of(version),
    })
}

fn machine() -> &'static HostCapabilities {
    static MACHINE: OnceLock<HostCapabilities> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let version = landlock_version();
        if version < 1 {
            return HostCapabilities {
                version,
                no_mounts: None,
                has_private_devices: false,
            };
        }
        let (whole, plain) = match try_mounts(version, true) {
            Ok(()) => (true, Ok(())),
            Err(_) => (false, try_mounts(version, false)),
        };
        HostCapabilities {
            version,
            no_mounts: plain.err().map(|error| error.to_string()),
            has_private_devices: whole,
        }
    })
}

/// Tests the mounts with a confined shell: containers and some distributions do not allow them.
fn try_mounts(version: i64, has_devices: bool) -> io::Result<()> {
    let shell = Path::new(SHELL).canonicalize()?;
    // A folder that exists on every system; nothing is written to it.
    let write = shell.parent().map(Path::to_owned).into_iter().collect();
    let reach = SandboxPolicy {
        write,
        shared_memory_bytes: Some(1 << 20),
        ..SandboxPolicy::default()
    };
    let parts = parts_with(&reach, version, true, has_devices)?;
    let launch = SpawnOptions::new(shell, Path::new("/"), BTreeMap::new()).arguments(["-c", ":"]);
    match launch
        .sandboxed(Some(Sandbox(Arc::new(parts))))
        .run_without_output()?
    {
        status if status.success() => Ok(()),
        status => Err(io::Error::other(format!(
            "a test shell with private mounts exited with {status}"
        ))),
    }
}

#[cfg(test)]
#[path = "linux/tests.rs"]
mod tests;
