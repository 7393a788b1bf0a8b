//! JSON output of each command: the keys of every object, level by level.
//!
//! In a list of keys, `key?` is present only if it has a value, and `(key)` is allowed although no
//! test here produces it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use soong::protocol::{Durability, EventDraft, RunEvent, Timestamp, TraceId, Write};
use soong_storage::{
    sqlite::SqliteStore,
    store::{Append, Store},
};

use super::{begin, configure};
use crate::{
    process::TestHome,
    scripted::{Reply, ScriptedServer},
    service::ManualModelService,
};

/// Paths in a document, with the keys of the objects at each path.
type Shape<'a> = &'a [(&'a str, &'a str)];

const SESSION: &str = "session_id (slug) name uid project_dir last_session_seq live_runs created_at updated_at (last_run_at)";
const TRACE: &str = "trace_id session_id mode run_mode task name agent_type parent_trace_id? parent_goal_id? status \
                     end_reason? total_messages total_tokens total_prompt_tokens total_completion_tokens total_cost (estimated) \
                     total_duration_ms last_sequence head_sequence last_event_id uid model (tools) llm_params \
                     prompt_name context current_goal_id? \
                     result_summary? error_message? created_at completed_at?";
const CONTEXT: &str = "collaborators";
const COLLABORATOR: &str = "name type trace_id status summary";
const GOAL: &str = "id number description reason (parent_id) type status summary? sub_trace_ids (sub_trace_metadata) \
                    agent_call_mode? self_stats cumulative_stats created_sequence created_at";
const STATS: &str = "messages total_tokens prompt_tokens completion_tokens cached_tokens reasoning_tokens cost \
                     model_calls tool_calls duration_ms (cache_write_tokens) (estimated)";
const MESSAGE: &str = "message_id trace_id sequence parent_sequence? role origin? content (reasoning) context_update? tool_calls? tool_call_id? \
                       goal_id? description (partial) prompt_tokens? completion_tokens? cost? duration_ms? \
                       finish_reason? created_at";
const ARTIFACT: &str = "artifact_id scope session_id? uid? name title filename content_type size current_version \
                        stored_version dirty source (debug) provenance summary? (metadata) created_at updated_at";
const PROVENANCE: &str = "run_id? trace_id? message_sequence? tool_call_id?";
const VERSION: &str = "version size content_type update_type source provenance changes? created_at";
const RUN: &str = "run_id trace_id session_id depth mode task agent_type model max_iterations? timeout_ms? goes_on? \
                   model_name uid status end_reason turn usage cost error? created_at started_at completed_at output \
                   artifacts stats";
const ACTOR: &str = "actor_id kind id name parent state activity since started_at restarts restart_limit mailbox \
                     handled last_error run? gateway? children";
const ACTOR_RUN: &str = "trace_id parent_run_id mode agent_type task turn goal tokens cost events asks last_progress \
                         stuck passive";
const GATEWAY: &str = "in_flight max_concurrency waiting waits_for waits_until sent requests requests_per_minute tokens \
                       tokens_per_minute retry_after is_down";
const ERROR: &str = "code message retryable";

/// Keys of every event, in order. A delta has neither `level` nor numbers.
const EVENT: [&str; 10] = [
    "event_id",
    "event",
    "trace_id",
    "session_id",
    "run_id",
    "run_seq",
    "session_seq",
    "ts",
    "level",
    "data",
];
const DELTA: [&str; 6] = ["event", "trace_id", "session_id", "run_id", "ts", "data"];

/// Collects the keys of every object by its path. Paths in `opaque` are skipped.
fn collect(
    value: &Value,
    at: &str,
    opaque: &[&str],
    found: &mut BTreeMap<String, Vec<BTreeSet<String>>>,
) {
    if opaque.contains(&at) {
        return;
    }
    match value {
        Value::Object(fields) => {
            found
                .entry(at.to_owned())
                .or_default()
                .push(fields.keys().cloned().collect());
            for (key, value) in fields {
                let path = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                collect(value, &path, opaque, found);
            }
        }
        // Actors are nested; all of them share one path.
        Value::Array(items) if at.ends_with("children") => {
            items
                .iter()
                .for_each(|item| collect(item, "children[]", opaque, found));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect(item, &format!("{at}[]"), opaque, found)),
        _ => {}
    }
}

/// Compares the documents of one command with the expected keys, and reports every difference.
#[track_caller]
fn check(command: &str, documents: &[Value], shape: Shape<'_>) {
    let opaque: Vec<&str> = shape
        .iter()
        .filter(|(_, keys)| *keys == "…")
        .map(|(path, _)| *path)
        .collect();
    let mut found = BTreeMap::new();
    for document in documents {
        collect(document, "", &opaque, &mut found);
    }
    let mut findings = Vec::new();
    for (path, objects) in &found {
        let Some((_, keys)) = shape.iter().find(|(known, _)| known == path) else {
            findings.push(format!("{path:?} is new, with {:?}", objects[0]));
            continue;
        };
        let keys: Vec<&str> = keys.split_whitespace().collect();
        let bare = |key: &str| key.trim_matches(['?', '(', ')']).to_owned();
        let known: BTreeSet<String> = keys.iter().map(|key| bare(key)).collect();
        let all: BTreeSet<&String> = objects.iter().flatten().collect();
        findings.extend(
            all.iter()
                .filter(|key| !known.contains(**key))
                .map(|key| format!("{path:?} has a new {key}")),
        );
        for key in keys.iter().filter(|key| !key.starts_with('(')) {
            let name = bare(key);
            let count = objects
                .iter()
                .filter(|object| object.contains(&name))
                .count();
            match (count, key.ends_with('?')) {
                (0, _) => findings.push(format!("{path:?} never has {name}")),
                (n, true) if n == objects.len() => {
                    findings.push(format!("{path:?} always has {name}"))
                }
                (n, false) if n < objects.len() => {
                    findings.push(format!("{path:?} sometimes lacks {name}"))
                }
                _ => {}
            }
        }
    }
    let lost = shape
        .iter()
        .filter(|(path, keys)| *keys != "…" && !found.contains_key(*path));
    findings.extend(lost.map(|(path, _)| format!("{path:?} is gone")));
    assert!(
        findings.is_empty(),
        "the JSON of `soong {command}` has changed: {findings:#?}"
    );
}

/// Returns the JSON output of a command.
#[track_caller]
fn json(world: &TestHome, line: &str) -> Value {
    let args: Vec<&str> = line.split(' ').collect();
    world
        .run(&[&args[..], &["--json"]].concat())
        .expect_code(0)
        .json()
}

#[test]
fn session_and_trace_records_have_these_keys() {
    let world = TestHome::new();
    let (_, result) = world.demo(&[]);
    let demo = result["session_id"].as_str().unwrap();
    // A session that fails, a session with active runs, and a price.
    configure(
        &world,
        "[model]\nname = \"m\"\n[prices.m]\nprompt_per_mtok = \"1\"\ncompletion_per_mtok = \"2\"\n",
    );
    let refusing = ScriptedServer::start(|_| Reply::status(400, "{}"));
    let address = refusing.base_url();
    begin(
        &world,
        &[("OPENAI_BASE_URL", &address)],
        &["run", "--session", "f", "x"],
    )
    .finish()
    .expect_code(1);
    let service = ManualModelService::new();
    let owner = begin(
        &world,
        &[("OPENAI_BASE_URL", &service.address)],
        &["run", "--session", "s", "Plan"],
    );
    let mut request = service.next();
    request.call("goal", &json!({ "add": ["one"], "focus": "1" }));
    request.end();
    let mut request = service.next();
    request.call("agent", &json!({ "task": ["left", "right"] }));
    request.end();
    let children = service.take(2);

    check(
        "sessions list",
        &[json(&world, "sessions list")],
        &[("[]", SESSION)],
    );
    check(
        "sessions show ID",
        &[
            json(&world, &format!("sessions show {demo}")),
            json(&world, "sessions show s"),
            json(&world, "sessions show f"),
        ],
        &[
            ("", "session traces artifacts"),
            ("session", SESSION),
            ("traces[]", TRACE),
            ("traces[].llm_params", "…"),
            ("traces[].context", CONTEXT),
            ("traces[].context.collaborators[]", COLLABORATOR),
            (
                "artifacts[]",
                &ARTIFACT
                    .replace(" session_id? uid?", " session_id")
                    .replace("summary?", "summary"),
            ),
            (
                "artifacts[].provenance",
                "run_id trace_id message_sequence tool_call_id",
            ),
        ],
    );
    check(
        "traces list",
        &[json(&world, "traces list")],
        &[
            ("[]", TRACE),
            ("[].llm_params", "…"),
            ("[].context", CONTEXT),
            ("[].context.collaborators[]", COLLABORATOR),
        ],
    );
    let all = json(&world, "traces list");
    let ids: Vec<&str> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|trace| trace["trace_id"].as_str().unwrap())
        .collect();
    let shown: Vec<Value> = ids
        .iter()
        .map(|id| json(&world, &format!("traces show {id}")))
        .collect();
    let sub_trace = TRACE
        .replace("parent_trace_id?", "parent_trace_id")
        .replace("error_message?", "(error_message)");
    let sub_trace = sub_trace
        .replace("current_goal_id?", "(current_goal_id)")
        .replace("parent_goal_id?", "(parent_goal_id)");
    check(
        "traces show ID",
        &shown,
        &[
            ("", "trace goal_tree sub_traces"),
            ("trace", TRACE),
            ("trace.llm_params", "…"),
            ("sub_traces[].llm_params", "…"),
            ("goal_tree.goals[].sub_trace_metadata", "…"),
            ("trace.context", CONTEXT),
            ("trace.context.collaborators[]", COLLABORATOR),
            ("goal_tree", "mission current_id? goals"),
            ("goal_tree.goals[]", GOAL),
            ("goal_tree.goals[].self_stats", STATS),
            ("goal_tree.goals[].cumulative_stats", STATS),
            ("sub_traces[]", &sub_trace),
            ("sub_traces[].context", CONTEXT),
        ],
    );
    let messages: Vec<Value> = ids
        .iter()
        .map(|id| json(&world, &format!("traces messages {id}")))
        .collect();
    check(
        "traces messages ID",
        &messages,
        &[
            ("[]", MESSAGE),
            ("[].tool_calls[]", "id type function"),
            ("[].tool_calls[].function", "name arguments"),
        ],
    );
    drop(children);
    owner.interrupt();
    owner.finish().expect_code(130);
    let forked = json(&world, &format!("sessions fork {demo}"));
    check("sessions fork ID", &[forked], &[("", SESSION)]);
    let switched = json(&world, &format!("sessions switch {demo} 2"));
    check(
        "sessions switch ID SEQ",
        &[switched],
        &[("", "sequence from_sequence restored left")],
    );
    let gone = json(&world, &format!("sessions delete {demo}"));
    check(
        "sessions delete ID",
        &[gone],
        &[("", "session_id traces messages artifacts")],
    );
}

#[test]
fn usage_has_these_keys() {
    let world = TestHome::new();
    world
        .run(&["run", "--model", "offline", "--session", "s", "x"])
        .expect_code(0);
    let sum = "runs total_tokens prompt_tokens completion_tokens cached_tokens cache_write_tokens reasoning_tokens cost known_cost \
               runs_without_price model_calls tool_calls (estimated)";
    for (by, key) in [
        ("day", "day"),
        ("model", "model"),
        ("session", "session_id"),
    ] {
        let line = format!("usage --by {by}");
        let row = format!("{key} {sum}");
        check(
            &line,
            &[json(&world, &line)],
            &[("", "usage total"), ("usage[]", &row), ("total", sum)],
        );
    }
}

#[test]
fn tree_has_these_keys_with_and_without_an_owner() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let mut owner = begin(
        &world,
        &[("OPENAI_BASE_URL", &service.address)],
        &["run", "--session", "s", "Divide"],
    );
    let mut request = service.next();
    request.call("agent", &json!({ "task": ["left", "right"] }));
    request.end();
    let children = service.take(2);
    let top = format!("{} source pid", ACTOR.replace(" run? gateway?", ""));
    let keys = [
        ("", &*top),
        ("children[]", ACTOR),
        ("children[].run", ACTOR_RUN),
        ("children[].gateway", GATEWAY),
    ];
    check("tree", &[json(&world, "tree")], &keys);
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    drop(children);
    check(
        "tree",
        &[json(&world, "tree")],
        &[
            ("", "source pid children"),
            (
                "children[]",
                "actor_id kind id name parent state started_at run? children",
            ),
            (
                "children[].run",
                ACTOR_RUN
                    .replace(" goal", "")
                    .split(" events")
                    .next()
                    .unwrap_or_default(),
            ),
        ],
    );
    world
        .run(&["run", "--session", "s", "--model", "offline", "x"])
        .expect_code(0);
    check(
        "tree",
        &[json(&world, "tree")],
        &[("", "source pid children")],
    );
}

#[test]
fn events_share_one_envelope_and_the_last_line_is_the_result() {
    let world = TestHome::new();
    configure(&world, "[model]\nretry = { max_attempts = 1 }\n");
    let service = ManualModelService::new();
    // Checks all lines before the result. Returns whether they include streamed text.
    let check_events = |lines: &[Value]| {
        let mut has_delta = false;
        for event in lines {
            let keys: Vec<&String> = event.as_object().unwrap().keys().collect();
            let is_delta = event["event"].as_str().unwrap().ends_with("_delta");
            assert_eq!(
                keys,
                if is_delta { &DELTA[..] } else { &EVENT[..] },
                "{event}"
            );
            has_delta |= is_delta;
        }
        let terminal = lines.last().unwrap()["event"].as_str().unwrap();
        assert!(
            ["run_completed", "run_failed", "run_cancelled"].contains(&terminal),
            "{terminal}"
        );
        has_delta
    };
    let result = |args: &[&str], play: &dyn Fn(&ManualModelService), code: i32| {
        let running = begin(
            &world,
            &[("OPENAI_BASE_URL", &service.address)],
            &[args, &["--json"]].concat(),
        );
        play(&service);
        let mut lines = running.finish().expect_code(code).json_lines();
        let result = lines.pop().unwrap();
        check_events(&lines);
        result
    };
    let answer = |service: &ManualModelService| service.next().answer("Well.");
    let limits = [
        "run",
        "--session",
        "s",
        "--max-iterations",
        "3",
        "--timeout",
        "60",
        "x",
    ];
    let done = result(&limits, &answer, 0);
    let failed = result(
        &["run", "--session", "f", "x"],
        &|service| drop(service.next()),
        5,
    );
    let resumed = result(&["run", "--trace", "f"], &answer, 0);
    let home = world.home().display().to_string();
    let mut events = world
        .run(&["demo", "--json", "--home", &home])
        .expect_code(0)
        .json_lines();
    let demo = events.pop().unwrap();
    assert!(check_events(&events), "streamed text comes too");
    let mut expected = vec![
        ("", "result".to_owned()),
        ("result", format!("{RUN} unattended home")),
    ];
    expected.extend([
        ("result.usage", STATS.to_owned()),
        ("result.error", ERROR.to_owned()),
    ]);
    expected.extend([("result.stats", "own tree".to_owned())]);
    expected.extend(["result.stats.own", "result.stats.tree"].map(|path| (path, STATS.to_owned())));
    expected.push((
        "result.artifacts[]",
        "type artifact_id name version content_type size summary path".to_owned(),
    ));
    let shape: Vec<(&str, &str)> = expected
        .iter()
        .map(|(path, keys)| (*path, keys.as_str()))
        .collect();
    check("run", &[done, failed, resumed, demo], &shape);

    let talk = world
        .run_with_input(&["chat", "--model", "offline", "--json"], b"One\nTwo\n")
        .expect_code(0)
        .json_lines();
    let results: Vec<&Value> = talk
        .iter()
        .filter(|line| line["result"].is_object())
        .collect();
    assert_eq!(
        (results.len(), talk.last()),
        (2, results.last().copied()),
        "a result for each run, each after its events"
    );

    let stored = world
        .run(&["traces", "events", "s", "--json"])
        .expect_code(0)
        .json_lines();
    for event in &stored {
        let keys: Vec<&String> = event.as_object().unwrap().keys().collect();
        assert_eq!(keys, EVENT, "{event}");
    }
}

#[test]
fn accepted_and_stopped_runs_have_these_keys() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let detached = begin(
        &world,
        &[("OPENAI_BASE_URL", &service.address)],
        &["run", "--detach", "--json", "x"],
    );
    let accepted = detached.finish().expect_code(0).json();
    let session = accepted["session_id"].as_str().unwrap().to_owned();
    let mut request = service.next();
    request.call("agent", &json!({ "task": ["left", "right"] }));
    request.end();
    let children = service.take(2);
    let queued = json(&world, &format!("run --detach --session {session} y"));
    assert_eq!(
        (&accepted["status"], &queued["status"]),
        (&json!("started"), &json!("queued"))
    );
    check(
        "run --detach",
        &[accepted, queued],
        &[("", "trace_id run_id session_id status")],
    );

    let traces = json(&world, "traces list");
    let left = traces
        .as_array()
        .unwrap()
        .iter()
        .find(|trace| trace["task"] == "left")
        .unwrap();
    let child = json(
        &world,
        &format!("traces stop {}", left["trace_id"].as_str().unwrap()),
    );
    let first = json(&world, &format!("traces stop {session}"));
    let _asked = service.next();
    let second = json(&world, &format!("traces stop {session}"));
    drop(children);
    let run = RUN.replace(
        " max_iterations? timeout_ms? goes_on?",
        " parent_run_id? (parent_goal_id) timeout_ms? tools? collaborator?",
    );
    check(
        "traces stop ID",
        &[child, first, second],
        &[
            ("", &run.replace(" error?", " (error)")),
            ("usage", STATS),
            ("stats", "own tree"),
            ("stats.own", STATS),
            ("stats.tree", STATS),
        ],
    );
}

#[test]
fn task_journals_have_these_keys() {
    let world = TestHome::new();
    world
        .run(&[
            "run",
            "--mode",
            "orchestrator",
            "--model",
            "offline",
            "Explore",
        ])
        .expect_code(0);
    let task = "path kept_in session_id run_id status mission lines modified_at";
    check("tasks list", &[json(&world, "tasks list")], &[("[]", task)]);
    let candidate = ("candidates[]", "path reason modified_at deleted");
    for line in ["tasks cleanup", "tasks cleanup --yes"] {
        check(
            line,
            &[json(&world, line)],
            &[("", "dry_run candidates failed"), candidate],
        );
    }
}

#[test]
fn artifacts_have_these_keys_with_and_without_an_owner() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let variables = [("OPENAI_BASE_URL", service.address.as_str())];
    let owner = begin(&world, &variables, &["run", "--session", "s", "Write"]);
    let mut request = service.next();
    request.call(
        "create_artifact",
        &json!({ "name": "plan", "content": "# Plan" }),
    );
    request.call(
        "update_artifact",
        &json!({ "name": "plan", "old": "Plan", "new": "The plan" }),
    );
    request.end();
    service.next().answer("Done.");
    owner.finish().expect_code(0);
    std::fs::write(world.project().join("bytes"), [0, 255]).unwrap();
    let check_all = || {
        let ask = |line: &str| json(&world, &format!("artifacts {line} --session s"));
        let stored = [ask("put user:bytes bytes"), ask("put note README.md")];
        check(
            "artifacts put NAME FILE",
            &stored,
            &[("", "name artifact_id version size content_type")],
        );
        check(
            "artifacts list",
            &[ask("list")],
            &[("[]", ARTIFACT), ("[].provenance", PROVENANCE)],
        );
        check(
            "artifacts show NAME",
            &["show plan", "show user:bytes"].map(ask),
            &[
                ("", "artifact content? versions"),
                ("artifact", ARTIFACT),
                ("artifact.provenance", PROVENANCE),
                ("versions[]", VERSION),
                ("versions[].provenance", PROVENANCE),
            ],
        );
        let versions = ["versions plan", "versions note"].map(ask);
        check(
            "artifacts versions NAME",
            &versions,
            &[("[]", VERSION), ("[].provenance", PROVENANCE)],
        );
        let edited = ask("edit note --old ships --new boats");
        check(
            "artifacts edit NAME",
            &[edited],
            &[("", "version layer similarity replaced")],
        );
        let written = ["get note -o out", "export note -o out.docx"].map(ask);
        check("artifacts get NAME", &written, &[("", "name path size")]);
        let report = "dry_run candidates busy deleted failed";
        let candidate = "artifact_id session_id name title bytes updated_at reason";
        check(
            "artifacts cleanup",
            &[ask("cleanup --all")],
            &[("", report), ("candidates[]", candidate)],
        );
        check(
            "artifacts delete NAME",
            &[ask("delete note")],
            &[("", "name artifact_id versions")],
        );
        check(
            "artifacts cleanup --yes",
            &[ask("cleanup --yes")],
            &[("", report)],
        );
    };
    check_all();
    let owner = begin(&world, &variables, &["run", "--session", "o", "Wait"]);
    let request = service.next();
    check_all();
    json(&world, "artifacts put note README.md --session o");
    let shape: Shape<'_> = &[
        ("", "dry_run candidates busy deleted failed"),
        (
            "candidates[]",
            "artifact_id session_id name title bytes updated_at reason",
        ),
        ("busy[]", "session_id artifacts"),
    ];
    check(
        "artifacts cleanup",
        &[json(&world, "artifacts cleanup --all")],
        shape,
    );
    request.answer("Done.");
    owner.finish().expect_code(0);
}

/// Makes a session old by appending an event with a timestamp in the past.
fn age(world: &TestHome, session: &str) {
    let mut store =
        SqliteStore::open(world.home().join("sessions.sqlite"), Durability::Normal).unwrap();
    let event = EventDraft::new(
        TraceId::new(session),
        None,
        Timestamp::default(),
        RunEvent::CancelRequested {},
    );
    store
        .commit(&[Append {
            fence: None,
            writes: vec![Write::Event(event)],
        }])
        .unwrap()[0]
        .as_ref()
        .unwrap();
}

#[test]
fn cleanup_export_and_backup_have_these_keys() {
    let world = TestHome::new();
    world
        .run(&[
            "run",
            "--model",
            "offline",
            "--session",
            "s",
            "--attach",
            "README.md",
            "x",
        ])
        .expect_code(0);
    age(&world, "s");
    let report = "dry_run candidates busy deleted failed";
    let old = json(&world, "sessions cleanup --older-than 365d");
    check(
        "sessions cleanup",
        &[old],
        &[("", report), ("candidates[]", SESSION)],
    );
    std::fs::write(world.home().join("sessions/.deleted"), "in the way").unwrap();
    let failed = world
        .run(&[
            "sessions",
            "cleanup",
            "--older-than",
            "365d",
            "--yes",
            "--json",
        ])
        .expect_code(1)
        .json();
    check(
        "sessions cleanup --yes",
        &[failed],
        &[
            ("", report),
            ("candidates[]", SESSION),
            ("failed[]", "session_id error"),
            ("failed[].error", "code message retryable details"),
            ("failed[].error.details", "…"),
        ],
    );
    std::fs::remove_file(world.home().join("sessions/.deleted")).unwrap();
    let backup =
        "home dir sessions artifacts files bytes database_bytes store also left_out missing";
    let missing = "artifact_id version path reason";
    let traces = "trace_id folder messages events runs";
    check(
        "traces export",
        &[json(&world, "traces export s ../out")],
        &[("", "dir traces"), ("traces[]", traces)],
    );
    let meta: Value =
        serde_json::from_slice(&std::fs::read(world.dir.path().join("out/s/meta.json")).unwrap())
            .unwrap();
    let keys: Vec<&String> = meta.as_object().unwrap().keys().collect();
    let ours = ["soong", "trace", "runs", "main_path", "sub_traces"];
    assert_eq!(&keys[keys.len() - ours.len()..], ours);
    for (name, value) in meta["trace"].as_object().unwrap() {
        assert_eq!(
            &meta[name], value,
            "{name}: the fields of the trace are also outside of it"
        );
    }
    let run = &meta["runs"][0];
    assert_eq!(
        (&meta["prompt_name"], &run["profile"], &run["model"]),
        (&meta["agent_type"], &"offline".into(), &meta["model"])
    );
    check("backup", &[json(&world, "backup ../copy")], &[("", backup)]);
    std::fs::remove_dir_all(world.home().join("sessions")).unwrap();
    let gap = world
        .run(&["backup", "../gap", "--json"])
        .expect_code(1)
        .json();
    check("backup", &[gap], &[("", backup), ("missing[]", missing)]);
}

#[test]
fn setup_and_list_commands_have_these_keys() {
    let world = TestHome::new();
    let head = |file: &str| format!("home {file} settings faults");
    check(
        "config show",
        &[json(&world, "config show")],
        &[
            ("", &head("file")),
            ("home", "value origin"),
            ("settings[]", "key value origin is_set?"),
        ],
    );
    let doctor = || world.run(&["doctor", "--json"]).expect_code(1).json();
    check(
        "doctor",
        &[doctor()],
        &[
            ("", "checks broken"),
            ("checks[]", "name status finding advice?"),
        ],
    );
    check("init", &[json(&world, "init --full")], &[("", "path")]);
    configure(
        &world,
        "[model_profiles.small]\nname = \"little\"\n[prices.little]\nprompt_per_mtok = \"1\"\n\
         completion_per_mtok = \"2\"\n[presets.p]\ndescription = \"P.\"\ninstructions = \"P.\"\nmodel = \"small\"\n\
         denied_tools = [\"grep\"]\nskills = []\n[mcp.gone]\ncommand = \"/no/such/program\"\n[mcp.web]\n\
         url = \"http://127.0.0.1:9/mcp\"\nheader_env = { Authorization = \"NOT_SET\" }\n",
    );
    std::fs::create_dir(world.home().join("agents")).unwrap();
    std::fs::write(
        world.home().join("agents/a.md"),
        "---\nname: a\ndescription: A.\n---\n",
    )
    .unwrap();
    check(
        "config show",
        &[json(&world, "config show")],
        &[
            ("", &head("file")),
            ("home", "value origin"),
            ("file", "value origin"),
            ("settings[]", "key value origin line? is_set?"),
        ],
    );
    check(
        "presets list",
        &[json(&world, "presets list")],
        &[(
            "[]",
            "name description allowed_tools? denied_tools? max_iterations? temperature? skills? model? instructions \
             coordinates tools origin file?",
        )],
    );
    check(
        "tools list",
        &[json(&world, "tools list")],
        &[
            (
                "[]",
                "name title description parameters effect idempotent tags? timeout_ms paged disabled lacks?",
            ),
            ("[].parameters", "…"),
        ],
    );
    check(
        "models list",
        &[json(&world, "models list")],
        &[
            (
                "[]",
                "profile provider name server? max_output_tokens? prices?",
            ),
            ("[].server", "base_url api_key_env is_set is_usable"),
            (
                "[].prices",
                "prompt_per_mtok completion_per_mtok (cached_per_mtok) (cache_write_per_mtok) (long_cache_write_per_mtok)",
            ),
        ],
    );
    let server = "name command? args url? variables timeout_ms start_timeout_ms disabled_tools is_usable \
                  (took_ms) tools left_out error advice";
    let of_list = [
        ("[]", server),
        ("[].variables", "NOT_SET?"),
        ("[].error", "code message retryable (details)"),
    ];
    check("mcp list", &[json(&world, "mcp list")], &of_list);
    let tested = world.run(&["mcp", "test", "--json"]).expect_code(1).json();
    check(
        "mcp test",
        &[tested],
        &[
            ("[]", "name is_usable (took_ms) tools left_out error advice"),
            ("[].error", "code message retryable (details)"),
        ],
    );
    // A script is not a record: `--json` does not change it.
    assert!(
        world
            .run(&["completions", "bash", "--json"])
            .expect_code(0)
            .out
            .contains("_soong")
    );
}
