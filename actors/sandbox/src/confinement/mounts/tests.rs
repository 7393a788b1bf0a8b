//! Tests of the mounts computed for a reach.

use super::*;

#[test]
fn tool_5_what_may_be_changed_is_mounted_so_and_what_is_hidden_in_it_is_not() {
    for (write, hidden, want) in [
        (vec![], vec![], vec!["r /"]),
        (vec!["/p"], vec!["/h"], vec!["r /", "w /p"]),
        (vec!["/p", "/p/q", "/p"], vec![], vec!["r /", "w /p"]),
        (vec!["/p"], vec!["/p/h", "/p/h/deep"], vec!["r /", "w /p", "r /p/h"]),
        (vec!["/p/h/w", "/p"], vec!["/p/h"], vec!["r /", "w /p", "r /p/h", "w /p/h/w"]),
        // A path named as both is writable.
        (vec!["/p"], vec!["/p"], vec!["r /", "w /p"]),
        (vec!["/p/h", "/p"], vec!["/p/h"], vec!["r /", "w /p"]),
        // A name with the same prefix is another path.
        (vec!["/p", "/pq", "/p-"], vec!["/pqr"], vec!["r /", "w /p", "w /p-", "w /pq"]),
        (vec!["/"], vec!["/h"], vec!["w /", "r /h"]),
    ] {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let reach = SandboxPolicy { write: paths(&write), hidden: paths(&hidden), ..SandboxPolicy::default() };
        let shown =
            |step: &MountStep| format!("{} {}", if step.is_writable { "w" } else { "r" }, step.path.to_str().unwrap());
        let steps: Vec<String> = steps(&reach).unwrap().iter().map(shown).collect();
        assert_eq!(steps, want, "{write:?} but {hidden:?}");
    }
}

#[test]
fn a_path_that_no_system_call_takes_is_an_error() {
    let reach = SandboxPolicy { write: vec!["/p\0q".into()], ..SandboxPolicy::default() };
    assert!(steps(&reach).is_err());
}
