//! Maintenance of a home: backups, exported traces, and cleanup of old sessions.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use crate::process::{KillOnDrop, TestHome};
use crate::service::ManualModelService;
use serde_json::{Value, json};
use soong::protocol::{
    Durability, EventDraft, EventRecord, GoalTree, Message, Run, RunEvent, SessionId, Timestamp,
    Trace, TraceId, Write,
};
use soong_storage::{
    sqlite::SqliteStore,
    store::{Append, Store},
};

fn begin(world: &TestHome, service: &ManualModelService, args: &[&str]) -> KillOnDrop {
    KillOnDrop {
        child: world
            .command(args)
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    }
}

/// Returns the path of a folder next to the home.
fn beside(world: &TestHome, name: &str) -> PathBuf {
    world.home().with_file_name(name)
}

#[test]
fn backup_made_during_a_run_is_a_usable_home() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    world
        .run(&[
            "run",
            "--model",
            "offline",
            "--session",
            "s",
            "--attach",
            "README.md",
            "Hello",
        ])
        .expect_code(0);
    std::fs::write(
        world.home().join("config.toml"),
        "[model]\nprovider = \"offline\"\nname = \"offline\"\n",
    )
    .unwrap();
    let owner = begin(
        &world,
        &service,
        &[
            "run",
            "--session",
            "o",
            "--model",
            "default",
            "--config",
            "/dev/null",
            "Wait",
        ],
    );
    let request = service.next();
    let copy = beside(&world, "copy").display().to_string();
    let ran = world.run(&["backup", &copy]).expect_code(0);
    let home = world.home().canonicalize().unwrap();
    let copied = PathBuf::from(&copy).canonicalize().unwrap();
    for part in [
        format!(
            "copied the home {} to {}\n",
            home.display(),
            copied.display()
        ),
        "2 sessions, database ".to_owned(),
        "1 artifact: 1 file, 28 B\n".to_owned(),
        "also copied: config.toml\n".to_owned(),
    ] {
        assert!(
            ran.out.contains(&part),
            "{part:?} is missing in {}",
            ran.out
        );
    }
    ran.expect_stderr(&[&format!(
        "Use it: soong --home {} sessions list",
        copied.display()
    )]);
    request.answer("Done.");
    owner.finish().expect_code(0);

    for (args, says) in [
        (&["doctor"][..], "1 run left unfinished"),
        (&["sessions", "list"], "o "),
        (
            &["artifacts", "get", "README.md", "--session", "s"],
            "Counts ships.",
        ),
        (&["run", "--session", "s", "And now?"], "offline"),
        (&["run", "--trace", "o"], "Wait"),
        (&["doctor"], "no unfinished runs"),
    ] {
        let ran = world
            .run(&[&["--home", &copy], args].concat())
            .expect_code(0);
        assert!(
            ran.out.contains(says),
            "{args:?}: {says:?} is missing in {}",
            ran.out
        );
    }
    assert!(
        !beside(&world, "copy").join("logs/host.log").exists()
            && !world.home().join("copy").exists()
    );
    // A backup of the backup, without an owner.
    let report = world
        .run(&["--home", &copy, "backup", "../again", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        (&report["sessions"], &report["missing"]),
        (&json!(2), &json!([]))
    );
    let left: Vec<_> = std::fs::read_dir(world.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().contains("partial")),
        "{left:?}"
    );
}

#[test]
fn backup_reports_missing_files_and_copies_the_rest() {
    let world = TestHome::new();
    for file in ["README.md", "docs/guide.md"] {
        world
            .run(&[
                "run",
                "--model",
                "offline",
                "--session",
                "s",
                "--attach",
                file,
                "Hello",
            ])
            .expect_code(0);
    }
    let shown = world.run(&["sessions", "show", "s"]).expect_code(0).out;
    let path = shown
        .lines()
        .find(|line| line.starts_with("guide.md"))
        .unwrap()
        .split_whitespace()
        .last()
        .unwrap();
    std::fs::remove_file(path).unwrap();
    let ran = world.run(&["backup", "../copy"]).expect_code(1);
    ran.expect_stderr(&[
        "error: 1 artifact file is missing from the backup",
        "soong doctor",
    ]);
    assert!(
        ran.out.contains("2 artifacts: 1 file, 28 B") && ran.out.contains("MISSING: sessions/s/"),
        "{}",
        ran.out
    );
    let home = beside(&world, "copy").display().to_string();
    world
        .run(&[
            "--home",
            &home,
            "artifacts",
            "get",
            "README.md",
            "--session",
            "s",
        ])
        .expect_code(0);
    world
        .run(&["backup", "../copy"])
        .expect_code(4)
        .expect_stderr(&["the folder ../copy is not empty", "an empty folder"]);
}

/// An exported trace, read from its folder with the types that wrote it.
struct Folder {
    trace: Trace,
    runs: Vec<Run>,
    main_path: Vec<u64>,
    sub_traces: Vec<TraceId>,
    goals: GoalTree,
    events: Vec<EventRecord>,
    messages: BTreeMap<String, Message>,
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

impl Folder {
    fn read(dir: &Path) -> Self {
        let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(
            names(dir),
            ["events.jsonl", "goal.json", "messages", "meta.json"]
        );
        let meta: Value = parse(&text("meta.json"));
        let field = |name: &str| meta[name].to_string();
        let messages = names(&dir.join("messages"));
        Self {
            trace: parse(&field("trace")),
            runs: parse(&field("runs")),
            main_path: parse(&field("main_path")),
            sub_traces: parse(&field("sub_traces")),
            goals: parse(&text("goal.json")),
            events: text("events.jsonl").lines().map(parse).collect(),
            messages: messages
                .into_iter()
                .map(|name| (name.clone(), parse(&text(&format!("messages/{name}")))))
                .collect(),
        }
    }

    /// Reads all folders of an export, and checks that each is consistent and matches the output of
    /// `soong`.
    fn read_all(world: &TestHome, dir: &Path) -> BTreeMap<String, Self> {
        let all: BTreeMap<String, Self> = names(dir)
            .into_iter()
            .map(|name| (name.clone(), Self::read(&dir.join(&name))))
            .collect();
        for (name, folder) in &all {
            let Self {
                trace,
                runs,
                main_path,
                events,
                messages,
                sub_traces,
                goals,
            } = folder;
            assert_eq!(trace.trace_id.as_str(), name);
            let numbers: Vec<u64> = events.iter().map(|event| event.event_id).collect();
            assert_eq!(
                numbers,
                (1..=trace.last_event_id).collect::<Vec<_>>(),
                "{name}"
            );
            assert_eq!(messages.len() as u64, trace.total_messages);
            assert!(
                messages
                    .iter()
                    .all(|(file, message)| *file == format!("{name}-{:04}.json", message.sequence))
            );
            assert!(
                runs.iter().all(|run| run.trace_id == trace.trace_id),
                "{runs:?}"
            );
            assert_eq!(
                runs.is_empty(),
                !events.iter().any(|event| event.run_id.is_some())
            );
            assert!(
                sub_traces
                    .iter()
                    .all(|below| all.contains_key(below.as_str())),
                "{sub_traces:?}"
            );
            let shown = world
                .run(&["traces", "messages", name, "--json"])
                .expect_code(0)
                .json();
            let sequences: Vec<u64> = shown
                .as_array()
                .unwrap()
                .iter()
                .map(|message| message["sequence"].as_u64().unwrap())
                .collect();
            assert_eq!(*main_path, sequences, "{name}");
            let shown = world
                .run(&["traces", "show", name, "--json"])
                .expect_code(0)
                .json();
            assert_eq!(serde_json::to_value(goals).unwrap(), shown["goal_tree"]);
            assert_eq!(serde_json::to_value(trace).unwrap(), shown["trace"]);
            let printed = world
                .run(&["traces", "events", name, "--json"])
                .expect_code(0)
                .out;
            let exported = std::fs::read_to_string(dir.join(name).join("events.jsonl")).unwrap();
            assert_eq!(exported, printed, "an event a line, as everywhere");
        }
        all
    }
}

#[test]
fn exported_trace_is_complete_and_readable_without_soong() {
    let world = TestHome::new();
    let (_, result) = world.demo(&[]);
    let demo = result["trace_id"].as_str().unwrap();
    let ran = world
        .run(&["traces", "export", demo, "../out"])
        .expect_code(0);
    let all = Folder::read_all(&world, &beside(&world, "out"));
    let below = all[demo].sub_traces.len();
    assert!(
        below >= 5 && all.len() == below + 1,
        "the demo has children: {below}"
    );
    let count: (usize, usize) = all.values().fold((0, 0), |(messages, events), folder| {
        (
            messages + folder.messages.len(),
            events + folder.events.len(),
        )
    });
    let target = beside(&world, "out").canonicalize().unwrap();
    let want = format!(
        "trace {demo} (sub-traces: {below}) written to {}: {} messages, {} events\n",
        target.display(),
        count.0,
        count.1
    );
    assert_eq!(ran.out, want);
    world
        .run(&["traces", "export", demo, "../out"])
        .expect_code(4)
        .expect_stderr(&["the folder ../out is not empty"]);
    // A child trace can be exported alone.
    let child = all[demo].sub_traces[0].as_str();
    std::fs::create_dir(beside(&world, "child")).unwrap();
    let ran = world
        .run(&["traces", "export", child, "../child", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(names(&beside(&world, "child")), [child]);
    assert_eq!(ran["traces"][0]["trace_id"], *child);
}

#[test]
fn export_during_a_run_includes_messages_off_the_main_path() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    // An interrupted answer is kept but is not on the main path.
    let mut cut = begin(
        &world,
        &service,
        &["run", "--session", "s", "--json", "First"],
    );
    let mut request = service.next();
    request.text("Once upon a ti");
    let mut lines = BufReader::new(cut.child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("model_text_delta")));
    cut.interrupt();
    cut.finish().expect_code(130);
    drop(request);
    let owner = begin(&world, &service, &["run", "--session", "s", "Divide"]);
    let mut request = service.next();
    request.call("agent", &json!({ "task": ["left", "right"] }));
    request.end();
    let children = service.take(2);
    let report = world
        .run(&["traces", "export", "s", "../owned", "--json"])
        .expect_code(0)
        .json();
    let all = Folder::read_all(&world, &beside(&world, "owned"));
    assert_eq!(
        (all.len(), report["traces"].as_array().unwrap().len()),
        (3, 3)
    );
    let main = &all["s"];
    assert_eq!(
        (main.runs.len(), report["traces"][0]["runs"].as_u64()),
        (2, Some(2))
    );
    drop(children);
    owner.interrupt();
    owner.finish().expect_code(130);
    world
        .run(&["traces", "export", "s", "../alone"])
        .expect_code(0);
    let alone = Folder::read_all(&world, &beside(&world, "alone"));
    let partial: Vec<u64> = alone["s"]
        .messages
        .values()
        .filter(|m| m.partial)
        .map(|m| m.sequence)
        .collect();
    assert_eq!(partial.len(), 1);
    assert!(
        partial
            .iter()
            .all(|sequence| !alone["s"].main_path.contains(sequence))
    );
    assert!(alone["s"].events.len() > main.events.len(), "it went on");
}

#[test]
fn export_after_compaction_contains_the_main_path() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    std::fs::create_dir_all(world.home()).unwrap();
    let small = "[model]\ncontext_window = 3000\nmax_output_tokens = 100\n[context]\nkeep_recent_messages = 2\n";
    std::fs::write(world.home().join("config.toml"), small).unwrap();
    let long = "Tell me of ships and of the sea. ".repeat(100);
    for round in 0..6 {
        let run = begin(
            &world,
            &service,
            &["run", "--session", "s", &format!("{round}: {long}")],
        );
        loop {
            let request = service.next();
            let is_summary = request.body["tools"].as_array().is_none_or(Vec::is_empty);
            if !is_summary {
                request.answer("A ship is a ship.");
                break;
            }
            request.answer(
                "## Request and intent\nships\n## Current work\ntelling\n## Next step\ntell on",
            );
        }
        run.finish().expect_code(0);
    }
    world
        .run(&["traces", "export", "s", "../out"])
        .expect_code(0);
    let all = Folder::read_all(&world, &beside(&world, "out"));
    let Folder {
        main_path,
        messages,
        ..
    } = &all["s"];
    let summary = messages
        .values()
        .find(|message| Some(&message.sequence) == main_path.get(1))
        .unwrap();
    assert!(summary.covers.is_some(), "{main_path:?}");
    assert!(main_path.len() < messages.len());
}

/// Makes sessions old by appending an event with a timestamp in the past.
fn age(world: &TestHome, sessions: &[&str]) {
    let mut store =
        SqliteStore::open(world.home().join("sessions.sqlite"), Durability::Normal).unwrap();
    for session in sessions {
        let trace = TraceId::root(&SessionId::new(*session));
        let event = EventDraft::new(
            trace,
            None,
            Timestamp::default(),
            RunEvent::CancelRequested {},
        );
        let append = Append {
            fence: None,
            writes: vec![Write::Event(event)],
        };
        store.commit(&[append]).unwrap()[0].as_ref().unwrap();
    }
}

#[test]
fn cleanup_lists_old_sessions_and_deletes_only_with_yes() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    for session in ["a", "b", "files", "new"] {
        let attach: &[&str] = if session == "files" {
            &["--attach", "README.md"]
        } else {
            &[]
        };
        world
            .run(
                &[
                    &["run", "--model", "offline", "--session", session, "Hello"],
                    attach,
                ]
                .concat(),
            )
            .expect_code(0);
    }
    // A session whose process was killed during a run.
    let mut cut = begin(&world, &service, &["run", "--session", "cut", "Wait"]);
    let request = service.next();
    cut.child.kill().unwrap();
    cut.child.wait().unwrap();
    drop(request);
    age(&world, &["a", "b", "files", "cut"]);
    let cleanup = |more: &[&'static str]| -> Vec<&'static str> {
        [&["sessions", "cleanup", "--older-than", "365d"], more].concat()
    };
    let sessions = || -> Vec<String> {
        let all = world
            .run(&["sessions", "list", "--json"])
            .expect_code(0)
            .json();
        let mut ids: Vec<String> = all
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["session_id"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    };
    let listed = world.run(&cleanup(&[])).expect_code(0);
    for part in [
        "SESSION",
        "can be deleted",
        "a   ",
        "kept, because they have runs that have not ended: cut\n",
    ] {
        assert!(
            listed.out.contains(part),
            "{part:?} is missing in {}",
            listed.out
        );
    }
    listed.expect_stderr(&["3 sessions: nothing was deleted; delete with --yes"]);
    assert!(!listed.out.contains("new"), "{}", listed.out);
    assert_eq!(sessions(), ["a", "b", "cut", "files", "new"]);

    // With an owner, which deletes the sessions. One deletion fails.
    let trash = world.home().join("sessions/.deleted");
    std::fs::write(&trash, "in the way").unwrap();
    let owner = begin(&world, &service, &["run", "--session", "o", "Wait"]);
    let request = service.next();
    let report = world.run(&cleanup(&["--yes", "--json"])).expect_code(1);
    report.expect_stderr(&["error: 1 session could not be deleted", "Try again"]);
    let report = report.json();
    assert_eq!(
        (&report["deleted"], &report["failed"][0]["session_id"]),
        (&json!(["a", "b"]), &json!("files"))
    );
    assert_eq!(report["failed"][0]["error"]["code"], "storage_error");
    assert_eq!(sessions(), ["cut", "files", "new", "o"]);
    request.answer("Done.");
    owner.finish().expect_code(0);

    // Without an owner.
    std::fs::remove_file(trash).unwrap();
    let ran = world.run(&cleanup(&["--yes"])).expect_code(0);
    ran.expect_stderr(&["1 of 1 session deleted"]);
    assert!(
        ran.out.contains("deleted") && !world.home().join("sessions/files").exists(),
        "{}",
        ran.out
    );
    assert_eq!(sessions(), ["cut", "new", "o"]);
    let left = "nothing to delete\nkept, because they have runs that have not ended: cut\n";
    assert_eq!(world.run(&cleanup(&["--yes"])).expect_code(0).out, left);
}
