//! Tests of how far a machine can confine commands.

use super::*;

#[test]
fn confinement_level_follows_host_capabilities() {
    for (version, no_mounts, is_full, parts) in [
        (0, None, false, vec!["does not support Landlock"]),
        (1, None, false, vec!["Landlock 1", "truncating files"]),
        (2, None, false, vec!["truncating files"]),
        (3, None, false, vec!["signals"]),
        (
            5,
            Some("refused"),
            false,
            vec!["signals", "modes and times", "refused"],
        ),
        (
            6,
            Some("refused"),
            false,
            vec!["modes and times", "refused"],
        ),
        (6, None, true, vec![]),
        (99, None, true, vec![]),
    ] {
        let no_mounts = no_mounts.map(str::to_owned);
        let confinement = confinement_of(&HostCapabilities {
            version,
            no_mounts,
            has_private_devices: true,
        });
        assert_eq!(
            confinement == Confinement::Full,
            is_full,
            "version {version}"
        );
        for part in parts {
            assert!(
                confinement.missing().unwrap_or_default().contains(part),
                "version {version}: {confinement:?}"
            );
        }
        assert_eq!(
            matches!(confinement, Confinement::None { .. }),
            version < 1,
            "version {version}"
        );
    }
}
