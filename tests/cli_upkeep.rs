//! Keeping a home: copies of it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a test says by a panic what is wrong")]

#[path = "support/process.rs"]
mod process;
#[path = "support/service.rs"]
mod service;

use std::path::PathBuf;

use process::{Running, World};
use serde_json::json;
use service::Service;

fn begin(world: &World, service: &Service, args: &[&str]) -> Running {
    Running { child: world.command(args).env("OPENAI_BASE_URL", &service.address).spawn().unwrap() }
}

/// A folder beside the home.
fn beside(world: &World, name: &str) -> PathBuf {
    world.home().with_file_name(name)
}

#[test]
fn a_backup_beside_an_owner_at_work_is_a_home_that_can_be_used() {
    let world = World::new();
    let service = Service::new();
    world.run(&["run", "--model", "offline", "--session", "s", "--attach", "README.md", "Hello"]).ends(0);
    std::fs::write(world.home().join("config.toml"), "[model]\nprovider = \"offline\"\nname = \"offline\"\n").unwrap();
    let owner =
        begin(&world, &service, &["run", "--session", "o", "--model", "default", "--config", "/dev/null", "Wait"]);
    let asked = service.next();
    let copy = beside(&world, "copy").display().to_string();
    let ran = world.run(&["backup", &copy]).ends(0);
    let home = world.home().canonicalize().unwrap();
    let copied = PathBuf::from(&copy).canonicalize().unwrap();
    for part in [
        format!("the home {} was copied to {}\n", home.display(), copied.display()),
        "2 sessions, database ".to_owned(),
        "1 artifact: 1 file, 28 B\n".to_owned(),
        "also: config.toml\n".to_owned(),
    ] {
        assert!(ran.out.contains(&part), "{part:?} is missing in {}", ran.out);
    }
    ran.says(&[&format!("Use it: soong --home {} sessions list", copied.display())]);
    asked.answer("Done.");
    owner.finish().ends(0);

    for (args, says) in [
        (&["doctor"][..], "1 run left unfinished"),
        (&["sessions", "list"], "o "),
        (&["artifacts", "get", "README.md", "--session", "s"], "Counts ships."),
        (&["run", "--session", "s", "And now?"], "offline"),
        (&["doctor"], "none is unfinished"),
    ] {
        let ran = world.run(&[&["--home", &copy], args].concat()).ends(0);
        assert!(ran.out.contains(says), "{args:?}: {says:?} is missing in {}", ran.out);
    }
    assert!(!beside(&world, "copy").join("logs/host.log").exists() && !world.home().join("copy").exists());
    // A copy of a copy, without an owner.
    let report = world.run(&["--home", &copy, "backup", "../again", "--json"]).ends(0).json();
    assert_eq!((&report["sessions"], &report["missing"]), (&json!(2), &json!([])));
    let left: Vec<_> = std::fs::read_dir(world.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("partial")), "{left:?}");
}

#[test]
fn a_backup_with_a_gap_says_which_and_that_the_rest_is_there() {
    let world = World::new();
    for file in ["README.md", "docs/guide.md"] {
        world.run(&["run", "--model", "offline", "--session", "s", "--attach", file, "Hello"]).ends(0);
    }
    let shown = world.run(&["sessions", "show", "s"]).ends(0).out;
    let path = shown.lines().find(|line| line.starts_with("guide.md")).unwrap().split_whitespace().last().unwrap();
    std::fs::remove_file(path).unwrap();
    let ran = world.run(&["backup", "../copy"]).ends(1);
    ran.says(&["error: 1 file of an artifact is not in the backup", "soong doctor"]);
    assert!(ran.out.contains("2 artifacts: 1 file, 28 B") && ran.out.contains("MISSING: sessions/s/"), "{}", ran.out);
    let home = beside(&world, "copy").display().to_string();
    world.run(&["--home", &home, "artifacts", "get", "README.md", "--session", "s"]).ends(0);
    world.run(&["backup", "../copy"]).ends(4).says(&["the folder ../copy is not empty", "not there yet"]);
}
