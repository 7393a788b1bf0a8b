//! Experiences: listing, use in runs, and reflection, through the real binary (MEM-2, MEM-3,
//! MEM-4).

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
};

use crate::process::{KillOnDrop, TestHome};
use crate::service::ManualModelService;
use serde_json::json;

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

fn world() -> TestHome {
    let world = TestHome::new();
    let folder = world.home().join("memory");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("experiences.md"), BOOK).unwrap();
    world
}

#[test]
fn experiences_are_listed_and_broken_ones_reported() {
    let world = world();
    let listed = world.run(&["experiences", "list"]).expect_code(0);
    let rows: Vec<Vec<&str>> = listed
        .out
        .lines()
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        [
            "ID", "CATEGORY", "INTENT", "STATE", "HELPFUL", "HARMFUL", "TEXT"
        ]
    );
    assert_eq!(
        rows[1][..6],
        ["ex_001", "tool_usage", "fix-test", "rust", "3", "1"]
    );
    assert!(
        rows.len() == 3 && rows[2][0] == "ex_002" && !listed.out.contains('\u{1b}'),
        "{}",
        listed.out
    );
    assert!(
        listed
            .err
            .contains("skipped: line 18: `metrics.helpful` must be a whole number"),
        "{}",
        listed.err
    );

    let found = world
        .run(&[
            "experiences",
            "list",
            "--json",
            "--intent",
            "Fix Test",
            "--state",
            "python",
        ])
        .expect_code(0)
        .json();
    let first = json!({
        "id": "ex_001", "category": "tool_usage", "tags": {"intent": ["fix-test"], "state": ["rust"]},
        "metrics": {"helpful": 3, "harmful": 1}, "text": "Run the failing test alone first.\nThen the others."
    });
    assert_eq!(found, json!([first]));
    assert_eq!(
        world
            .run(&["experiences", "show", "ex_001", "--json"])
            .expect_code(0)
            .json(),
        first
    );
    let shown = world
        .run(&["experiences", "show", "ex_001"])
        .expect_code(0)
        .out;
    assert!(
        shown.starts_with("ex_001 · tool_usage\nintent: fix-test\n")
            && shown.ends_with("Then the others.\n"),
        "{shown}"
    );
    world
        .run(&["experiences", "show", "ex_404"])
        .expect_code(3)
        .expect_stderr(&["no experience \"ex_404\""]);

    let mut doctor = world.command(&["doctor"]);
    let doctor = KillOnDrop {
        child: doctor.env("OPENAI_API_KEY", "k").spawn().unwrap(),
    }
    .finish()
    .expect_code(0)
    .out;
    let line = doctor
        .lines()
        .find(|line| line.starts_with("warning  memory: "))
        .unwrap_or(&doctor);
    assert!(
        line.ends_with(
            "experiences.md: line 18: `metrics.helpful` must be a whole number, 0 or greater"
        ),
        "{doctor}"
    );

    let empty = TestHome::new();
    assert_eq!(
        empty
            .run(&["experiences", "list", "--json"])
            .expect_code(0)
            .json(),
        json!([])
    );
    assert!(!empty.home().exists(), "looking makes nothing");
    let config = format!(
        "[memory]\nexperiences_path = \"{}\"\n",
        world.home().join("memory/experiences.md").display()
    );
    let path = empty.project().join("soong.toml");
    std::fs::write(&path, config).unwrap();
    let path = path.display().to_string();
    assert_eq!(
        empty
            .run(&["experiences", "list", "--json", "--config", &path])
            .expect_code(0)
            .json()
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn run_tags_its_task_and_gets_matching_experiences() {
    let world = world();
    let service = ManualModelService::new();
    let mut command = world.command(&["run", "Fix it."]);
    let running = KillOnDrop {
        child: command
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    };
    let request = service.next();
    assert!(
        request.body["messages"][1]["content"]
            .as_str()
            .unwrap()
            .contains("intent: fix-test, write-docs"),
        "{}",
        request.body
    );
    request.answer("{\"intent\": [\"fix-test\"], \"state\": []}");
    let request = service.next();
    let message = request.body["messages"].as_array().unwrap().last().unwrap()["content"]
        .as_str()
        .unwrap()
        .to_owned();
    let want = "Fix it.\n\n## Relevant experience (参考经验)\n- [ex_001] Run the failing test alone first. Then the others. (Helpful: 3)";
    let before_context = message.split("\n\n[Context of this run").next().unwrap();
    assert_eq!(before_context, want);
    request.answer("Done.");
    let ran = running.finish().expect_code(0);
    assert_eq!(
        ran.err
            .matches("experiences: line 18: `metrics.helpful` must be")
            .count(),
        1,
        "{}",
        ran.err
    );
    assert_eq!(
        std::fs::read_to_string(world.home().join("memory/experiences.md")).unwrap(),
        BOOK
    );
}

#[test]
fn common_date_formats_are_accepted() {
    let world = TestHome::new();
    let folder = world.home().join("memory");
    std::fs::create_dir_all(&folder).unwrap();
    let block = |id: &str, date: &str| {
        format!("---\nid: {id}\ncreated_at: {date}\n---\nKeep it short.\n\n")
    };
    let blocks = [
        block("ex_1", "2026-02-12 15:30"),
        block("ex_2", "2026-02-12"),
        block("ex_3", "last week"),
    ];
    std::fs::write(folder.join("experiences.md"), blocks.concat()).unwrap();
    let listed = world.run(&["experiences", "list", "--json"]).expect_code(0);
    let listed = (listed.json(), listed.err);
    let dates: Vec<_> = listed
        .0
        .as_array()
        .unwrap()
        .iter()
        .map(|known| known["created_at"].clone())
        .collect();
    assert_eq!(
        dates,
        [
            json!("2026-02-12T15:30:00.000Z"),
            json!("2026-02-12T00:00:00.000Z"),
            json!(null)
        ]
    );
    assert!(
        listed
            .1
            .starts_with("note: line 15: `created_at` must be a date"),
        "{}",
        listed.1
    );
}

#[test]
fn reflection_stores_experiences_on_a_side_branch() {
    let world = world();
    world
        .run(&[
            "run",
            "--model",
            "offline",
            "--session",
            "s",
            "Fix the failing tests of this Rust project.",
        ])
        .expect_code(0);
    let before = world
        .run(&["traces", "messages", "s", "--json"])
        .expect_code(0)
        .json();
    let looked = world
        .run(&["traces", "reflect", "s", "--focus", "the tests"])
        .expect_code(0);
    assert!(
        looked.out.contains("learned: ex_004; helpful: ex_001"),
        "{}{}",
        looked.out,
        looked.err
    );
    let shown = world
        .run(&["experiences", "show", "ex_004", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        (&shown["trace_id"], &shown["metrics"]),
        (&json!("s"), &json!({"helpful": 1, "harmful": 0}))
    );
    let book = std::fs::read_to_string(world.home().join("memory/experiences.md")).unwrap();
    assert!(
        book.contains("helpful: 4, harmful: 1") && book.contains("metrics: {helpful: none}"),
        "{book}"
    );

    assert_eq!(
        world
            .run(&["traces", "messages", "s", "--json"])
            .expect_code(0)
            .json(),
        before,
        "the conversation stays"
    );
    let all = world
        .run(&["traces", "messages", "s", "--all"])
        .expect_code(0)
        .out;
    assert_eq!(
        all.lines()
            .filter(|line| line.starts_with('#') && line.ends_with("(reflection)"))
            .count(),
        2,
        "{all}"
    );
    let switch_number = before.as_array().unwrap().len() + 1;
    world
        .run(&["sessions", "switch", "s", &switch_number.to_string()])
        .expect_code(2);
    world
        .run(&["run", "--model", "offline", "--session", "s", "Again."])
        .expect_code(0);
    let trace = world
        .run(&["traces", "show", "s", "--json"])
        .expect_code(0)
        .json()["trace"]
        .clone();
    assert_eq!(trace["status"], "completed");

    world.run(&["traces", "reflect", "nope"]).expect_code(3);
    let events = world
        .run(&["traces", "reflect", "s", "--json"])
        .expect_code(0);
    let result = events.out.lines().last().unwrap();
    assert!(
        result.starts_with("{\"result\":") && result.contains("\"reflects\":{}"),
        "{result}"
    );
    world.run(&["sessions", "delete", "s"]).expect_code(0);
    assert!(
        world
            .run(&["experiences", "list"])
            .expect_code(0)
            .out
            .contains("ex_004"),
        "deleting a session touches no memory"
    );
}

#[test]
fn owner_accepts_reflection_except_during_a_run() {
    let world = world();
    let service = ManualModelService::new();
    world
        .run(&["run", "--model", "offline", "--session", "done", "Fix it."])
        .expect_code(0);
    let mut command = world.command(&["run", "--session", "busy", "Write."]);
    let owner = KillOnDrop {
        child: command
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    };
    let tagging = service.next();
    let post = |path: &str, body: &str| {
        let mut stream = UnixStream::connect(world.home().join("control.sock")).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: \
             {length}\r\n\r\n{body}"
        )
        .unwrap();
        let answer: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
        answer.join("\n")
    };
    for (path, body, status, says) in [
        ("/api/traces/busy/reflect", "{}", "409", "session_active"),
        ("/api/traces/nope/reflect", "{}", "404", "trace_not_found"),
        (
            "/api/traces/done/reflect",
            "{\"focuss\": 1}",
            "400",
            "focuss",
        ),
        (
            "/api/traces/done/reflect",
            "{\"focus\": \"tests\"}",
            "202",
            "\"session_id\":\"done\"",
        ),
        (
            "/api/traces",
            "{\"session_id\": \"done\", \"prompt\": \"x\", \"reflects\": {}}",
            "400",
            "takes no message",
        ),
    ] {
        let answer = post(path, body);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(says),
            "{path} {body}: {answer}"
        );
    }
    tagging.answer("{\"intent\": [\"nothing\"]}");
    service.next().answer("Written.");
    owner.finish().expect_code(0);
    let runs = world
        .run(&["traces", "events", "done", "--json"])
        .expect_code(0)
        .out;
    assert!(runs.contains("\"event\":\"experience_added\""), "{runs}");
}

#[test]
fn kill_during_write_keeps_file_intact_and_counts_once() {
    let world = world();
    world
        .run(&[
            "run",
            "--model",
            "offline",
            "--session",
            "s",
            "Fix the failing tests of this Rust project.",
        ])
        .expect_code(0);
    let folder = world.home().join("memory");
    let file = folder.join("experiences.md");
    let mut killed = 0;
    let rounds = 12;
    for round in 1..=rounds {
        let before = std::fs::read(&file).unwrap();
        let mut running = KillOnDrop {
            child: world.command(&["traces", "reflect", "s"]).spawn().unwrap(),
        };
        // Kill the process after it has written the copy and before it renames the copy into place.
        let is_draft = |name: &str| name.ends_with(".tmp");
        let has_draft = || {
            std::fs::read_dir(&folder)
                .unwrap()
                .flatten()
                .any(|entry| entry.file_name().to_str().is_some_and(is_draft))
        };
        while !has_draft() && running.child.try_wait().unwrap().is_none() {}
        running.child.kill().unwrap();
        drop(running);
        let after = std::fs::read(&file).unwrap();
        // The process may have ended before the signal arrived.
        let session = world
            .run(&["sessions", "show", "s", "--json"])
            .expect_code(0)
            .json();
        let was_writing = session["session"]["live_runs"] != 0;
        let listed = world.run(&["experiences", "list"]).expect_code(0);
        assert_eq!(
            listed.err.lines().count(),
            1,
            "nothing but what was broken before: {}",
            listed.err
        );
        let text = String::from_utf8_lossy(&after);
        let is_whole = text.contains("metrics: {helpful: none}\n---\nBroken.\n")
            && text.matches("id: ex_").count() == 4;
        assert!(
            after == before || is_whole,
            "it is the old file, or the new one: {text}"
        );
        if was_writing {
            killed += 1;
            // Both commands resume the interrupted run.
            let args = if round % 2 == 0 {
                ["run", "--trace", "s"]
            } else {
                ["traces", "reflect", "s"]
            };
            world.run(&args).expect_code(0);
        }
        let shown = world
            .run(&["experiences", "show", "ex_004", "--json"])
            .expect_code(0)
            .json();
        assert_eq!(
            shown["metrics"],
            json!({"helpful": round, "harmful": 0}),
            "round {round}"
        );
        let left: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(left.len(), 2, "the file and its lock: {left:?}");
    }
    assert!(killed > 0, "none of {rounds} was met while it wrote");
}

#[test]
fn interrupted_reflection_can_be_stopped() {
    let world = world();
    let service = ManualModelService::new();
    world
        .run(&["run", "--model", "offline", "--session", "s", "Fix it."])
        .expect_code(0);
    let config = "[model]\nname = \"m\"\n[context]\nutility_profile = \"default\"\n";
    std::fs::write(world.home().join("config.toml"), config).unwrap();
    let mut command = world.command(&["traces", "reflect", "s"]);
    let mut running = KillOnDrop {
        child: command
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    };
    let request = service.next();
    running.child.kill().unwrap();
    drop((request, running));
    world.run(&["traces", "stop", "s"]).expect_code(0);
    world
        .run(&["traces", "stop", "s"])
        .expect_code(4)
        .expect_stderr(&["nothing_running"]);
    let trace = world
        .run(&["traces", "show", "s", "--json"])
        .expect_code(0)
        .json()["trace"]
        .clone();
    assert_eq!(trace["status"], "completed", "it says nothing of the trace");
    assert_eq!(
        std::fs::read_to_string(world.home().join("memory/experiences.md")).unwrap(),
        BOOK
    );
}
