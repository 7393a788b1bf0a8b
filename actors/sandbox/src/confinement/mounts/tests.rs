//! Tests of the mounts computed for a reach.

use super::*;

#[test]
fn writable_paths_are_mounted_writable_except_hidden_parts() {
    for (write, hidden, want) in [
        (vec![], vec![], vec!["r /"]),
        (vec!["/p"], vec!["/h"], vec!["r /", "w /p"]),
        (vec!["/p", "/p/q", "/p"], vec![], vec!["r /", "w /p"]),
        (
            vec!["/p"],
            vec!["/p/h", "/p/h/deep"],
            vec!["r /", "w /p", "r /p/h"],
        ),
        (
            vec!["/p/h/w", "/p"],
            vec!["/p/h"],
            vec!["r /", "w /p", "r /p/h", "w /p/h/w"],
        ),
        // A path named as both is writable.
        (vec!["/p"], vec!["/p"], vec!["r /", "w /p"]),
        (vec!["/p/h", "/p"], vec!["/p/h"], vec!["r /", "w /p"]),
        // A name with the same prefix is another path.
        (
            vec!["/p", "/pq", "/p-"],
            vec!["/pqr"],
            vec!["r /", "w /p", "w /p-", "w /pq"],
        ),
        (vec!["/"], vec!["/h"], vec!["w /", "r /h"]),
    ] {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let reach = SandboxPolicy {
            write: paths(&write),
            hidden: paths(&hidden),
            ..SandboxPolicy::default()
        };
        let shown = |step: &MountStep| {
            format!(
                "{} {}",
                if step.is_writable { "w" } else { "r" },
                step.path.to_str().unwrap()
            )
        };
        let steps: Vec<String> = steps(&reach).unwrap().iter().map(shown).collect();
        assert_eq!(steps, want, "{write:?} but {hidden:?}");
    }
}

#[test]
fn path_with_nul_byte_is_rejected() {
    let reach = SandboxPolicy {
        write: vec!["/p\0q".into()],
        ..SandboxPolicy::default()
    };
    assert!(steps(&reach).is_err());
}
