//! Tests of what each version of Landlock is said to be good for.

use super::*;

#[test]
fn tool_5_each_version_of_landlock_is_told_for_what_it_is() {
    for (version, is_full, part) in [
        (0, false, "no Landlock"),
        (-1, false, "no Landlock"),
        (1, false, "emptying files"),
        (2, false, "emptying files"),
        (3, false, "signals"),
        (5, false, "signals"),
        (6, true, ""),
        (7, true, ""),
        (99, true, ""),
    ] {
        let confinement = of_version(version);
        assert_eq!(confinement == Confinement::Full, is_full, "version {version}");
        assert!(confinement.lacks().unwrap_or_default().contains(part), "version {version}: {confinement:?}");
    }
    assert!(matches!(of_version(2), Confinement::Partial { .. }));
}
