//! Which protections a command has on this machine, and what remains reachable: one table for
//! display.

use super::{linux, support::Mechanisms};

/// Extent of a protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionLevel {
    /// Fully protected.
    Protected,
    /// Partly protected; the value describes the gap.
    Partly(&'static str),
    /// Not protected.
    Reachable,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protection {
    /// Subject of the row: an action or a resource.
    pub subject: &'static str,
    /// Extent of the protection.
    pub level: ProtectionLevel,
    /// Mechanism that protects it; empty if there is none.
    pub mechanism: &'static str,
}

impl Protection {
    /// Returns the row as a line of text: extent, subject, mechanism.
    pub fn line(&self) -> String {
        let (word, missing) = match self.level {
            ProtectionLevel::Protected => ("protected", ""),
            ProtectionLevel::Partly(missing) => ("partly", missing),
            ProtectionLevel::Reachable => ("reachable", ""),
        };
        let missing = if missing.is_empty() {
            String::new()
        } else {
            format!(", but {missing}")
        };
        let by = if self.mechanism.is_empty() {
            String::new()
        } else {
            format!(" ({})", self.mechanism)
        };
        format!("{word:<9}  {}{missing}{by}", self.subject)
    }
}

/// Returns the protections of a command on this machine.
pub fn protections() -> Vec<Protection> {
    table(linux::mechanisms())
}

fn table(means: Mechanisms) -> Vec<Protection> {
    let row = |what, by, extent| Protection {
        subject: what,
        level: extent,
        mechanism: if extent == ProtectionLevel::Reachable {
            ""
        } else {
            by
        },
    };
    let if_so = |has: bool| {
        if has {
            ProtectionLevel::Protected
        } else {
            ProtectionLevel::Reachable
        }
    };
    let landlock = means.landlock > 0;
    let writing = match means.landlock {
        0 => ProtectionLevel::Reachable,
        1 | 2 => ProtectionLevel::Partly("existing files can be truncated"),
        _ => ProtectionLevel::Protected,
    };
    let devices = match (landlock, means.devices) {
        (false, _) => ProtectionLevel::Reachable,
        (true, true) => ProtectionLevel::Protected,
        (true, false) => ProtectionLevel::Partly("System V shared memory is not separated"),
    };
    vec![
        row(
            "changing files outside the project and the allowed folders",
            "Landlock",
            writing,
        ),
        row(
            "reading credential files and the Soong home",
            "Landlock",
            if_so(landlock),
        ),
        row(
            "changing modes, owners and times of other files",
            "mounts",
            if_so(landlock && means.mounts),
        ),
        row(
            "devices, terminals and shared memory of the host",
            "Landlock, mounts",
            devices,
        ),
        row(
            "memory and environment of other processes",
            "Landlock",
            if_so(landlock),
        ),
        row(
            "signals to other processes of the user",
            "Landlock 6",
            if_so(means.landlock >= 6),
        ),
        row(
            "kernel keys, limits of other processes",
            "seccomp",
            if_so(means.seccomp),
        ),
        row(
            "continuing to run after the call",
            "supervisor process",
            if_so(cfg!(target_os = "linux")),
        ),
        row(
            "unbounded processes, memory and files",
            "limits",
            if_so(cfg!(target_os = "linux")),
        ),
        row(
            "Unix sockets, such as those of Docker or an SSH agent",
            "",
            ProtectionLevel::Reachable,
        ),
        row("the network", "", ProtectionLevel::Reachable),
    ]
}

/// Returns a line that lists everything that is not fully protected.
pub fn describe_gaps() -> String {
    let open = protections()
        .into_iter()
        .filter(|row| row.level != ProtectionLevel::Protected);
    let open: Vec<&str> = open.map(|row| row.subject).collect();
    format!("not protected: {}", open.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mechanism_protects_its_rows_and_network_stays_reachable() {
        let all = Mechanisms {
            landlock: 7,
            mounts: true,
            devices: true,
            seccomp: true,
        };
        for (means, reachable) in [
            (all, 2),
            (
                Mechanisms {
                    mounts: false,
                    devices: false,
                    ..all
                },
                3,
            ),
            (Mechanisms { landlock: 5, ..all }, 3),
            (
                Mechanisms {
                    seccomp: false,
                    ..all
                },
                3,
            ),
            (
                Mechanisms {
                    seccomp: false,
                    ..Mechanisms::default()
                },
                9,
            ),
        ] {
            let table = table(means);
            let count = table
                .iter()
                .filter(|row| row.level == ProtectionLevel::Reachable)
                .count();
            assert_eq!(count, reachable, "{means:?}");
            assert!(
                table
                    .iter()
                    .any(|row| row.subject == "the network"
                        && row.level == ProtectionLevel::Reachable)
            );
        }
        let old = table(Mechanisms { landlock: 2, ..all });
        assert_eq!(
            old[0].level,
            ProtectionLevel::Partly("existing files can be truncated")
        );
        assert!(
            old[0].line().starts_with("partly     changing files"),
            "{}",
            old[0].line()
        );
    }
}
