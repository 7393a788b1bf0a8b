//! What confines on Linux, and how far it does on this machine.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, OnceLock},
};

use super::{Confinement, Fence, Mounts, Reach, landlock};
use crate::process::{Launch, before_exec::landlock_version};

/// What is started to see whether it can be.
const SHELL: &str = "/bin/sh";

/// What a fence consists of.
#[derive(Debug)]
pub(in crate::process) struct Parts {
    /// The ruleset of Landlock.
    pub(in crate::process) ruleset: OwnedFd,
    /// The mounts; `None` = this machine lets nobody have their own.
    pub(in crate::process) mounts: Option<Mounts>,
}

/// What was found out about this machine. It does not change while the process lives.
struct Machine {
    version: i64,
    /// Why a process cannot have mounts of its own; `None` = it can.
    no_mounts: Option<String>,
}

pub(super) fn confinement() -> Confinement {
    of_machine(machine())
}

/// Says what a machine is good for.
fn of_machine(machine: &Machine) -> Confinement {
    let version = machine.version;
    if version < 1 {
        return Confinement::None { why: "this kernel has no Landlock, or it is switched off".to_owned() };
    }
    let old = landlock::lacks(version)
        .map(|from| format!("Landlock {version} of this kernel cannot keep a command from {from}"));
    let bare = machine.no_mounts.as_ref().map(|why| {
        format!("a command could change modes and times of files outside of the project: it gets no mounts ({why})")
    });
    let lacks: Vec<String> = [old, bare].into_iter().flatten().collect();
    if lacks.is_empty() { Confinement::Full } else { Confinement::Partial { why: lacks.join("; ") } }
}

pub(super) fn parts(reach: &Reach) -> io::Result<Option<Parts>> {
    let machine = machine();
    if machine.version < 1 {
        return Ok(None);
    }
    let mounts = machine.no_mounts.is_none().then(|| Mounts::of(reach)).transpose()?;
    Ok(Some(Parts { ruleset: landlock::ruleset(reach)?, mounts }))
}

fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let version = landlock_version();
        let tried = if version < 1 { Ok(()) } else { try_mounts() };
        Machine { version, no_mounts: tried.err().map(|error| error.to_string()) }
    })
}

/// Starts a shell behind a fence: containers and some distributions refuse what the mounts need.
fn try_mounts() -> io::Result<()> {
    let shell = Path::new(SHELL).canonicalize()?;
    // A folder that there is on every system; nothing is written.
    let reach = Reach { write: shell.parent().map(Path::to_owned).into_iter().collect(), ..Reach::default() };
    let parts = Parts { ruleset: landlock::ruleset(&reach)?, mounts: Some(Mounts::of(&reach)?) };
    let launch = Launch::new(shell, Path::new("/"), BTreeMap::new()).arguments(["-c", ":"]);
    match launch.within(Some(Fence(Arc::new(parts)))).run_quietly()? {
        status if status.success() => Ok(()),
        status => Err(io::Error::other(format!("a shell with mounts of its own ended with {status}"))),
    }
}

#[cfg(test)]
#[path = "linux/tests.rs"]
mod tests;
