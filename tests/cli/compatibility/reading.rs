//! Reading: every command that lists or shows, and every GET route.

use std::{collections::BTreeMap, fs, path::Path};

use reqwest::Method;
use serde_json::Value;
use soong::protocol::Durability;
use soong_storage::sqlite::SqliteStore;

use super::home::{HOME_0_1, unpack};
use crate::{
    process::{HangingModelService, TestHome},
    served::TestServer,
};

/// Returns every file of a home with its contents, except the files without data that readers of
/// the database leave: `-shm`, and an empty `-wal`.
fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                drop(found.insert(path.to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
            }
        }
    }
    let is_of_readers = |path: &str, bytes: &[u8]| {
        path.ends_with("-shm") || (path.ends_with("-wal") && bytes.is_empty())
    };
    found.retain(|path, bytes| !is_of_readers(path, bytes));
    found
}

fn read(world: &TestHome, args: &[&str]) -> String {
    world.run(args).expect_code(0).out
}

/// Migrates the database to the current format without starting a run. In production only a process
/// that owns the home migrates it.
fn migrate(world: &TestHome) {
    drop(SqliteStore::open(world.home().join("sessions.sqlite"), Durability::Normal).unwrap());
}

#[test]
fn read_commands_explain_migration_of_0_1_and_change_nothing() {
    let (world, _) = unpack(HOME_0_1);
    let before = files_of(&world.home());
    for args in [
        &["traces", "list"][..],
        &["traces", "show", "plan"],
        &["traces", "events", "plan"],
        &["traces", "messages", "plan"],
        &["sessions", "list"],
        &["sessions", "show", "finished"],
        &["artifacts", "list", "--session", "finished"],
        &["artifacts", "get", "report", "--session", "finished"],
        &["artifacts", "show", "report", "--session", "finished"],
        &["artifacts", "versions", "report", "--session", "finished"],
        &[
            "artifacts",
            "export",
            "report",
            "--session",
            "finished",
            "-o",
            "report.docx",
        ],
        &["traces", "export", "plan", "exported"],
        &["questions", "list"],
        &["permissions", "list"],
        &["usage"],
        &["tree"],
    ] {
        let ran = world.run(args);
        assert_ne!(ran.code, Some(0), "{args:?}");
        for part in ["format 9", "soong serve", "a backup is kept"] {
            assert!(
                ran.err.contains(part),
                "{args:?}: {part:?} is missing in:\n{}",
                ran.err
            );
        }
    }
    let doctor = world.run(&["doctor"]);
    assert!(
        doctor.out.contains("format 9 of an earlier version"),
        "{}",
        doctor.out
    );
    assert_eq!(before, files_of(&world.home()), "nothing changes");
}

#[test]
fn run_in_a_session_of_0_1_migrates_the_home() {
    let (world, _) = unpack(HOME_0_1);
    world
        .run(&[
            "run",
            "--model",
            "offline",
            "--session",
            "finished",
            "And now?",
        ])
        .expect_code(0);
    let shown = world
        .run(&["sessions", "show", "last", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(shown["session"]["session_id"], "finished");
}

#[test]
fn every_read_command_shows_a_home_of_0_1() {
    let (world, expected) = unpack(HOME_0_1);
    migrate(&world);
    let before = files_of(&world.home());
    for (trace, lines) in &expected {
        let printed = read(&world, &["traces", "events", trace, "--json"]);
        let printed: Vec<&str> = printed.lines().collect();
        assert_eq!(printed, *lines, "{trace}");
        for args in [["traces", "show"], ["traces", "messages"]] {
            assert!(
                !read(&world, &[&args[..], &[trace]].concat()).is_empty(),
                "{args:?} {trace}"
            );
        }
        read(&world, &["traces", "messages", trace, "--all", "--json"]);
    }
    let traces: Value = serde_json::from_str(&read(&world, &["traces", "list", "--json"])).unwrap();
    assert_eq!(traces.as_array().unwrap().len(), expected.len());
    let sessions: Value =
        serde_json::from_str(&read(&world, &["sessions", "list", "--json"])).unwrap();
    for session in sessions.as_array().unwrap() {
        read(
            &world,
            &["sessions", "show", session["session_id"].as_str().unwrap()],
        );
    }
    for (args, part) in [
        (
            &["artifacts", "list", "--session", "finished"][..],
            "report",
        ),
        (
            &["artifacts", "show", "report", "--session", "finished"],
            "3",
        ),
        (
            &["artifacts", "get", "report", "--session", "finished"],
            "# Report, third edition\n\nShips per hour.\n",
        ),
        (
            &[
                "artifacts",
                "get",
                "report",
                "--session",
                "finished",
                "--version",
                "1",
            ],
            "# Report\n\nIt counts ships.\n",
        ),
        (
            &["artifacts", "get", "draft", "--session", "unflushed"],
            "first line, edited\n",
        ),
        (
            &["artifacts", "versions", "report", "--session", "finished"],
            "rewrite",
        ),
        (&["tasks", "list"], "fx:plan"),
        (&["questions", "list"], "Which port does it listen on?"),
        (&["permissions", "list"], "out.txt"),
        (&["experiences", "list"], "ex_001"),
        (&["experiences", "show", "ex_001"], "page it"),
        (&["usage", "--by", "model"], "scripted"),
        (&["tree"], ""),
        (&["config", "show"], "scripted"),
        (&["models", "list"], "tight"),
        (&["presets", "list"], "orchestrator"),
        (&["tools", "list"], "bash"),
        (&["skills", "list"], "planning"),
        (&["skills", "show", "planning"], "plan"),
        (&["mcp", "list"], ""),
    ] {
        let printed = read(&world, args);
        assert!(
            printed.contains(part),
            "{args:?}: {part:?} is missing in:\n{printed}"
        );
        // `artifacts get` prints raw bytes and has no JSON output.
        if !args.starts_with(&["artifacts", "get"]) {
            read(&world, &[args, &["--json"]].concat());
        }
    }
    // Reports by day and model use stored totals; reports by session use the runs.
    let totals = ["day", "model", "session"].map(|by| {
        let report: Value =
            serde_json::from_str(&read(&world, &["usage", "--by", by, "--json"])).unwrap();
        report["total"].clone()
    });
    assert!(
        totals[0]["total_tokens"].as_u64().unwrap() > 0 && totals[0]["runs"].as_u64().unwrap() > 5,
        "{totals:?}"
    );
    assert!(totals.iter().all(|total| *total == totals[0]), "{totals:?}");
    let export = world.dir.path().join("export");
    read(
        &world,
        &["traces", "export", "plan", export.to_str().unwrap()],
    );
    let after = files_of(&world.home());
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>(),
        "reading makes no file"
    );
    let changed: Vec<_> = before
        .iter()
        .filter(|(path, bytes)| after[*path] != **bytes)
        .map(|(path, _)| path)
        .collect();
    assert!(changed.is_empty(), "reading changes no byte: {changed:?}");
}

#[tokio::test]
async fn every_get_route_shows_a_home_of_0_1() {
    let (world, expected) = unpack(HOME_0_1);
    // The interrupted runs resume, and wait for a model that never answers.
    let model = HangingModelService::new();
    let config = format!(
        "[model]\nbase_url = \"{}\"\nname = \"scripted\"\n[model_profiles.tight]\ncontext_window = 7000\n",
        model.address
    );
    let served = TestServer::over(
        world,
        &config,
        &[("OPENAI_API_KEY", "sk-fixture-fixture-fixture")],
    );
    for (trace, lines) in &expected {
        let trace = trace.replace('@', "%40");
        let page = served
            .get(&format!("/api/traces/{trace}/events?limit=1000"))
            .await;
        let events: Vec<String> = page["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(Value::to_string)
            .collect();
        assert_eq!(events[..lines.len()], lines[..], "{trace}");
        for rest in ["", "/messages", "/messages?mode=all"] {
            served.get(&format!("/api/traces/{trace}{rest}")).await;
        }
    }
    let run =
        served.get("/api/traces/finished/events?limit=1").await["events"][0]["run_id"].clone();
    let run = format!("/api/runs/{}", run.as_str().unwrap());
    let document = served.get("/openapi.json").await;
    let fixed = [
        ("/api/sessions/{session_id}", "/api/sessions/finished"),
        (
            "/api/sessions/{session_id}/artifacts",
            "/api/sessions/finished/artifacts",
        ),
        (
            "/api/sessions/{session_id}/artifacts/{name}",
            "/api/sessions/finished/artifacts/report",
        ),
        (
            "/api/sessions/{session_id}/artifacts/{name}/content",
            "/api/sessions/finished/artifacts/report/content",
        ),
        (
            "/api/sessions/{session_id}/artifacts/{name}/export",
            "/api/sessions/finished/artifacts/report/export?format=docx",
        ),
        (
            "/api/sessions/{session_id}/artifacts/{name}/versions",
            "/api/sessions/finished/artifacts/report/versions",
        ),
        (
            "/api/sessions/{session_id}/artifacts/{name}/versions/{version}",
            "/api/sessions/finished/artifacts/report/versions/2",
        ),
        ("/api/runs/{run_id}", run.as_str()),
        ("/api/traces/{trace_id}", "/api/traces/plan"),
        ("/api/traces/{trace_id}/events", "/api/traces/plan/events"),
        (
            "/api/traces/{trace_id}/messages",
            "/api/traces/plan/messages",
        ),
    ];
    let fixed: BTreeMap<&str, &str> = fixed.into();
    for (path, operations) in document["paths"].as_object().unwrap() {
        // WebSocket routes are tested in `server/streams.rs`.
        if operations.get("get").is_none() || path.ends_with("/watch") {
            continue;
        }
        let concrete = fixed.get(path.as_str()).copied().unwrap_or(path);
        assert!(
            !concrete.contains('{'),
            "a new route with parameters: add an address for {path}"
        );
        let response = served.request(Method::GET, concrete).send().await.unwrap();
        assert_eq!(response.status(), 200, "GET {concrete}");
    }
}
