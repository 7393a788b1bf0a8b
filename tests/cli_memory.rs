//! What runs have learned, through the real binary (MEM-2, MEM-3).
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a test says by a panic what is wrong")]

#[path = "support/process.rs"]
mod process;
#[path = "support/service.rs"]
mod service;

use process::{Running, World};
use serde_json::json;
use service::Service;

const BOOK: &str = "\
---
id: ex_001
category: tool_usage
tags: {intent: [fix-test], state: [rust]}
metrics: {helpful: 3, harmful: 1}
---
Run the failing test alone first.
Then the others.

---
id: ex_002
tags: {intent: [write-docs]}
---
Keep it short.\u{1b}[31m

---
id: ex_003
metrics: {helpful: none}
---
Broken.
";

fn world() -> World {
    let world = World::new();
    let folder = world.home().join("memory");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("experiences.md"), BOOK).unwrap();
    world
}

#[test]
fn mem_2_experiences_are_listed_and_shown_and_what_is_broken_is_named() {
    let world = world();
    let listed = world.run(&["experiences", "list"]).ends(0);
    let rows: Vec<Vec<&str>> = listed.out.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["ID", "CATEGORY", "INTENT", "STATE", "HELPFUL", "HARMFUL", "TEXT"]);
    assert_eq!(rows[1][..6], ["ex_001", "tool_usage", "fix-test", "rust", "3", "1"]);
    assert!(rows.len() == 3 && rows[2][0] == "ex_002" && !listed.out.contains('\u{1b}'), "{}", listed.out);
    assert!(listed.err.contains("left out: line 18: `metrics.helpful` must be a whole number"), "{}", listed.err);

    let found =
        world.run(&["experiences", "list", "--json", "--intent", "Fix Test", "--state", "python"]).ends(0).json();
    let first = json!({
        "id": "ex_001", "category": "tool_usage", "tags": {"intent": ["fix-test"], "state": ["rust"]},
        "metrics": {"helpful": 3, "harmful": 1}, "text": "Run the failing test alone first.\nThen the others."
    });
    assert_eq!(found, json!([first]));
    assert_eq!(world.run(&["experiences", "show", "ex_001", "--json"]).ends(0).json(), first);
    let shown = world.run(&["experiences", "show", "ex_001"]).ends(0).out;
    assert!(
        shown.starts_with("ex_001 · tool_usage\nintent: fix-test\n") && shown.ends_with("Then the others.\n"),
        "{shown}"
    );
    world.run(&["experiences", "show", "ex_404"]).ends(3).says(&["there is no experience \"ex_404\""]);

    let empty = World::new();
    assert_eq!(empty.run(&["experiences", "list", "--json"]).ends(0).json(), json!([]));
    assert!(!empty.home().exists(), "looking makes nothing");
    let config = format!("[memory]\nexperiences_path = \"{}\"\n", world.home().join("memory/experiences.md").display());
    let path = empty.project().join("soong.toml");
    std::fs::write(&path, config).unwrap();
    let path = path.display().to_string();
    assert_eq!(
        empty.run(&["experiences", "list", "--json", "--config", &path]).ends(0).json().as_array().unwrap().len(),
        2
    );
}

#[test]
fn mem_3_a_run_is_told_what_fits_its_task_and_its_model_is_asked_for_tags_first() {
    let (world, service) = (world(), Service::new());
    let mut command = world.command(&["run", "Fix it."]);
    let running = Running { child: command.env("OPENAI_BASE_URL", &service.address).spawn().unwrap() };
    let asked = service.next();
    assert!(
        asked.body["messages"][1]["content"].as_str().unwrap().contains("intent: fix-test, write-docs"),
        "{}",
        asked.body
    );
    asked.answer("{\"intent\": [\"fix-test\"], \"state\": []}");
    let asked = service.next();
    let told = asked.body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    let want = "Fix it.\n\n## Relevant experience (参考经验)\n- [ex_001] Run the failing test alone first. Then the others. (Helpful: 3)";
    assert_eq!(told, want);
    asked.answer("Done.");
    running.finish().ends(0);
    assert_eq!(std::fs::read_to_string(world.home().join("memory/experiences.md")).unwrap(), BOOK);
}
