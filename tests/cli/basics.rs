//! The `soong` binary: demo, runs, records, usage errors and configuration.
//!
//! Each test creates an isolated world: a home, a project and an empty environment
//! (`support/process.rs`).

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
};

use crate::{
    process::{HangingModelService, KillOnDrop, TestHome},
    service::ManualModelService,
};
use serde_json::{Value, json};

fn report_of(result: &Value) -> String {
    let artifacts = result["artifacts"].as_array().unwrap();
    let report = artifacts
        .iter()
        .find(|artifact| artifact["name"] == "report")
        .expect("no report");
    std::fs::read_to_string(report["path"].as_str().unwrap()).unwrap()
}

#[test]
fn demo_reports_on_project_files_and_prints_report_path() {
    let world = TestHome::new();
    let ran = world.run(&["demo"]).expect_code(0);
    let path = ran
        .out
        .lines()
        .find_map(|line| line.strip_prefix("Report: "))
        .expect(&ran.out);
    let report = std::fs::read_to_string(path).unwrap();
    for part in ["README.md", "src/main.rs", "docs/guide.md"] {
        assert!(report.contains(part), "{part} is missing in {report}");
    }
    assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
    assert!(
        path.contains("/.cache/soong/demo/"),
        "the home of demos: {path}"
    );
    assert!(ran.err.contains("keeps the last 5 demos"), "{}", ran.err);
    assert!(!world.home().exists(), "the user's own home is left alone");
    assert!(
        !ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'),
        "no escape codes in pipes"
    );
    ran.expect_stderr(&[
        "explore-001",
        "artifact report version 1 saved",
        "No language model was used",
        "Next: `soong demo",
    ]);
    // The suggested command works.
    let hint = ran
        .err
        .lines()
        .find_map(|line| line.strip_prefix("Details: soong "))
        .unwrap();
    let listed = world
        .run(&hint.split(' ').collect::<Vec<_>>())
        .expect_code(0);
    assert!(listed.out.contains("orchestrator"), "{}", listed.out);
    for _ in 0..5 {
        world.run(&["demo"]).expect_code(0);
    }
    let home = path.split_once("/sessions/").unwrap().0;
    let sessions = world
        .run(&["--home", home, "sessions", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(sessions.as_array().map(Vec::len), Some(5));
    assert!(!Path::new(path).exists(), "the first one is gone");
    let left: Vec<_> = std::fs::read_dir(world.dir.path().join("tmp"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "no temporary home: {left:?}");
}

#[test]
fn killed_demo_loses_and_repeats_nothing() {
    let world = TestHome::new();
    let home = world.home().display().to_string();
    let ran = world
        .run(&[
            "demo",
            "--kill",
            "--children",
            "6",
            "--pace",
            "120ms",
            "--home",
            &home,
        ])
        .expect_code(0);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(
        lines[0].starts_with("process ") && lines[0].ends_with(" starts 6 sub-agents"),
        "{}",
        ran.out
    );
    let (killed, resumed) = ran
        .out
        .split_once("This process resumes the run:")
        .expect(&ran.out);
    assert!(
        killed.contains("explore") && !killed.contains("evaluator"),
        "{killed}"
    );
    assert!(resumed.contains("evaluator"), "{resumed}");
    let (counts, end) = lines.last().unwrap().split_once(": ").unwrap();
    assert_eq!(end, "0 lost, 0 repeated");
    let numbers = counts
        .split(", ")
        .map(|count| count.split_once(' ').unwrap().0.parse::<usize>().unwrap());
    assert!(
        numbers.clone().count() == 2 && numbers.clone().all(|number| number > 10),
        "{counts}"
    );
    let sessions = world
        .run(&["sessions", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(sessions.as_array().map(Vec::len), Some(1));
    let left: Vec<_> = std::fs::read_dir(world.dir.path().join("tmp"))
        .unwrap()
        .collect();
    assert!(
        left.is_empty(),
        "the log of executions is removed: {left:?}"
    );
}

#[test]
fn two_demos_of_one_folder_write_the_same_report() {
    let world = TestHome::new();
    let (_, first) = world.demo(&[]);
    let (_, second) = world.demo(&[]);
    assert_ne!(first["session_id"], second["session_id"]);
    assert_eq!(report_of(&first), report_of(&second));
}

#[test]
fn demo_of_an_empty_folder_writes_a_report() {
    let world = TestHome::empty();
    let (_, result) = world.demo(&["."]);
    assert_eq!(result["status"], "completed");
    assert!(!report_of(&result).is_empty());
}

/// (TASK-1)
#[test]
fn plans_are_stored_in_the_project_except_by_the_demo() {
    let world = TestHome::new();
    let (_, result) = world.demo(&[]);
    assert!(
        !world.project().join(".soong-agent").exists(),
        "the demo only looks"
    );
    let session = result["session_id"].as_str().unwrap();
    let listed = world
        .run(&["tasks", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        (&listed[0]["session_id"], &listed[0]["kept_in"]),
        (&session.into(), &"home".into())
    );
    assert_eq!(listed[0]["status"], "completed");

    world
        .run(&[
            "run",
            "--mode",
            "orchestrator",
            "--model",
            "offline",
            "--session",
            "s",
            "Explore it",
        ])
        .expect_code(0);
    let listed = world.run(&["tasks", "list"]).expect_code(0);
    for part in [
        "Explore it",
        "completed",
        ".soong-agent/tasks/s/",
        "-explore-it-",
    ] {
        assert!(
            listed.out.contains(part),
            "{part} is missing in {}",
            listed.out
        );
    }
    listed.expect_stderr(&["some journals are in the home"]);
    let journals = || {
        std::fs::read_dir(world.project().join(".soong-agent/tasks/s")).map_or(0, Iterator::count)
    };
    let dry = world.run(&["tasks", "cleanup"]).expect_code(0);
    assert!(dry.out.contains("the task was completed"), "{}", dry.out);
    dry.expect_stderr(&["2 task journals: nothing was deleted; delete with --yes"]);
    assert_eq!(
        world
            .run(&["tasks", "cleanup", "--older-than", "1d", "--yes"])
            .expect_code(0)
            .out,
        "nothing to delete\n"
    );
    assert_eq!(journals(), 1);
    world
        .run(&["tasks", "cleanup", "--yes"])
        .expect_code(0)
        .expect_stderr(&["2 of 2 task journals deleted"]);
    assert_eq!(journals(), 0);
    assert_eq!(
        world.run(&["tasks", "list"]).expect_code(0).out,
        "no task journals\n"
    );
    // The command needs neither a home nor an owner.
    world
        .run(&["--home", "elsewhere", "tasks", "list"])
        .expect_code(0);
    assert!(!world.project().join("elsewhere").exists());
}

#[test]
fn demo_starts_the_requested_number_of_children() {
    let world = TestHome::new();
    for n in [1, 7] {
        let (events, _) = world.demo(&["--children", &n.to_string()]);
        let explored = events
            .iter()
            .filter(|event| {
                event["event"] == "sub_trace_started" && event["data"]["mode"] == "explore"
            })
            .count();
        assert_eq!(explored, n);
    }
    for bad in ["0", "201", "-1", "x"] {
        world.run(&["demo", "--children", bad]).expect_code(2);
    }
    world
        .run(&["demo", "there/is/nothing"])
        .expect_code(3)
        .expect_stderr(&["there/is/nothing"]);
}

#[test]
fn records_match_the_output_of_the_demo() {
    let world = TestHome::new();
    let (events, result) = world.demo(&[]);
    let numbers: Vec<u64> = events
        .iter()
        .filter_map(|event| event["session_seq"].as_u64())
        .collect();
    assert_eq!(
        numbers,
        (1..=numbers.len() as u64).collect::<Vec<_>>(),
        "each event once and in order"
    );
    assert_eq!(events.last().unwrap()["event"], "run_completed");
    for field in [
        "run_id",
        "trace_id",
        "session_id",
        "status",
        "usage",
        "cost",
        "created_at",
        "output",
        "artifacts",
    ] {
        assert!(!result[field].is_null(), "{field} is missing in {result}");
    }
    let session = result["session_id"].as_str().unwrap();

    let sessions = world
        .run(&["sessions", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(sessions[0]["session_id"], session);
    let shown = world
        .run(&["sessions", "show", session, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(shown["session"]["last_session_seq"], numbers.len());

    let traces = world
        .run(&["traces", "list", "--json"])
        .expect_code(0)
        .json();
    let traces = traces.as_array().unwrap();
    let started = events
        .iter()
        .filter(|event| event["event"] == "sub_trace_started")
        .count();
    assert_eq!(traces.len(), started + 1);
    let trace = world
        .run(&["traces", "show", session, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(trace["sub_traces"].as_array().unwrap().len(), started);
    assert!(!trace["goal_tree"]["goals"].as_array().unwrap().is_empty());

    for trace in traces {
        let id = trace["trace_id"].as_str().unwrap();
        let stored = world
            .run(&["traces", "events", id, "--json"])
            .expect_code(0)
            .json_lines();
        let live: Vec<&Value> = events
            .iter()
            .filter(|event| event["trace_id"] == id && !event["event_id"].is_null())
            .collect();
        assert_eq!(stored.iter().collect::<Vec<_>>(), live);
        let rest = world
            .run(&["traces", "events", id, "--json", "--since", "3", "--follow"])
            .expect_code(0)
            .json_lines();
        assert_eq!(rest, stored[3..]);
        let beyond = (stored.len() + 1).to_string();
        world
            .run(&["traces", "events", id, "--since", &beyond])
            .expect_code(3)
            .expect_stderr(&["no event", "Omit --since"]);
        let messages = world
            .run(&["traces", "messages", id, "--json"])
            .expect_code(0)
            .json();
        assert_eq!(
            messages.as_array().unwrap().len() as u64,
            trace["total_messages"].as_u64().unwrap()
        );
    }
    // Without `--json`, every command prints something and succeeds.
    for args in [
        vec!["sessions", "list"],
        vec!["sessions", "show", session],
        vec!["traces", "list"],
        vec!["traces", "show", session],
        vec!["traces", "messages", session],
        vec!["traces", "messages", session, "--all"],
        vec!["traces", "events", session],
        vec!["tree"],
    ] {
        assert!(!world.run(&args).expect_code(0).out.is_empty(), "{args:?}");
    }
}

#[test]
fn run_without_a_model_lists_three_options_and_creates_nothing() {
    let world = TestHome::new();
    let ran = world.run(&["run", "What is this?"]).expect_code(2);
    ran.expect_stderr(&[
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "soong demo",
        "--model offline",
    ]);
    assert_eq!(ran.out, "");
    assert!(!world.home().exists());
}

#[test]
fn offline_model_answers_and_continues_a_session() {
    let world = TestHome::new();
    let first = world
        .run(&["run", "--model", "offline", "--json", "What is this?"])
        .expect_code(0)
        .json_lines();
    let first = first.last().unwrap()["result"].clone();
    assert!(
        first["output"]
            .as_str()
            .is_some_and(|output| !output.is_empty()),
        "{first}"
    );
    let go_on = ["run", "--continue", "--model", "offline", "--json", "-"];
    let second = world
        .run_with_input(&go_on, b"And what else?")
        .expect_code(0)
        .json_lines();
    let result = &second.last().unwrap()["result"];
    assert_eq!(
        (&result["session_id"], &result["mode"]),
        (&first["session_id"], &first["mode"])
    );
    assert_ne!(result["run_id"], first["run_id"]);
    let is_old = |event: &Value| event["run_id"] == first["run_id"];
    assert!(
        !second.iter().any(is_old),
        "a continued session shows what is new"
    );
    let human = world
        .run(&[
            "run",
            "--model",
            "offline",
            "--mode",
            "orchestrator",
            "Report",
        ])
        .expect_code(0);
    human.expect_stderr(&["Artifacts", "report.md", "completed: ", "Details: "]);
    assert!(
        !human.out.contains("completed: "),
        "a pipe gets the answer alone: {}",
        human.out
    );
    let elsewhere = world.dir.path().join("user").display().to_string();
    world
        .run(&[
            "run",
            "--continue",
            "--path",
            &elsewhere,
            "--model",
            "offline",
            "x",
        ])
        .expect_code(3);
}

#[test]
fn invalid_prompts_are_rejected_and_control_codes_removed() {
    let world = TestHome::new();
    for (args, input) in [
        (vec!["run", "--model", "offline", ""], &b""[..]),
        (vec!["run", "--model", "offline", " \n"], b""),
        (vec!["run", "--model", "offline", "-"], b" "),
        (vec!["run", "--model", "offline"], b""),
        (vec!["run", "--model", "offline"], b"\xff\xfe"),
    ] {
        let ran = world.run_with_input(&args, input).expect_code(2);
        let says_why = ["prompt", "standard input cannot be read"]
            .iter()
            .any(|part| ran.err.contains(part));
        assert!(says_why, "{args:?}: {}", ran.err);
    }
    let evil = "look \u{1b}[2J\u{1b}]0;owned\u{7} at \u{202e}this\r\n";
    for args in [
        vec!["run", "--model", "offline", "--mode", "orchestrator", evil],
        vec!["run", "--model", "offline", evil],
        vec!["sessions", "list"],
        vec!["traces", "list"],
    ] {
        let ran = world.run(&args).expect_code(0);
        for bad in ['\u{1b}', '\u{7}', '\r', '\u{202e}'] {
            assert!(
                !ran.out.contains(bad) && !ran.err.contains(bad),
                "{args:?} lets {bad:?} through: {}",
                ran.out
            );
        }
    }
}

#[test]
fn wrong_usage_and_unknown_names_have_distinct_exit_codes() {
    let world = TestHome::new();
    let lists = [
        "sessions list",
        "traces list",
        "artifacts list",
        "permissions list",
        "questions list",
        "usage",
        "tree",
    ];
    for list in lists.map(|list| list.split(' ').collect::<Vec<_>>()) {
        let list = list.as_slice();
        let listed = world.run(list).expect_code(0);
        assert_eq!(
            listed.out,
            "No sessions yet. Start one with `soong`, or try `soong demo`, which needs no key.\n",
            "{list:?}"
        );
        world
            .run(&[&["--home", "no-such-home"], list].concat())
            .expect_code(3)
            .expect_stderr(&["there is no home at", "soong demo"]);
    }
    assert_eq!(
        world
            .run(&["sessions", "list", "--json"])
            .expect_code(0)
            .json(),
        json!([])
    );
    assert_eq!(
        world.run(&["usage", "--json"]).expect_code(0).json()["usage"],
        json!([])
    );
    assert!(!world.home().exists(), "reading makes nothing");
    std::fs::create_dir(world.home()).unwrap();
    world.run(&["traces", "list"]).expect_code(0);
    world
        .run(&["sessions", "show", "x"])
        .expect_code(3)
        .expect_stderr(&["has no database"]);
    world
        .run(&["run", "--model", "offline", "x"])
        .expect_code(0);
    for (args, code) in [
        (vec!["sessions", "show", "nothing"], 3),
        (vec!["traces", "show", "nothing"], 3),
        (vec!["traces", "messages", "nothing"], 3),
        (vec!["traces", "events", "nothing", "--follow"], 3),
        (
            vec!["run", "--model", "offline", "--agent-type", "nobody", "x"],
            2,
        ),
        (
            vec!["run", "--model", "offline", "--session", "../x", "x"],
            2,
        ),
        (
            vec!["run", "--model", "offline", "--path", "nowhere", "x"],
            3,
        ),
        (
            vec!["run", "--model", "offline", "--timeout", "soon", "x"],
            2,
        ),
        (
            vec!["run", "--model", "offline", "--max-iterations", "0", "x"],
            2,
        ),
        (vec!["run", "--mode", "chaos", "x"], 2),
        (vec!["frobnicate"], 2),
        (vec![], 2),
        (vec!["--help"], 0),
        (vec!["run", "--help"], 0),
        (vec!["--version"], 0),
    ] {
        world.run(&args).expect_code(code);
    }
}

#[test]
fn config_error_names_file_line_and_key() {
    let world = TestHome::new();
    let file = world.dir.path().join("my.toml").display().to_string();
    std::fs::write(&file, "[runtime]\n\nmax_turn = 3\n").unwrap();
    for command in [
        vec!["run", "--model", "offline", "x"],
        vec!["demo"],
        vec!["tree"],
    ] {
        let args = [&["--config", file.as_str()], &command[..]].concat();
        world
            .run(&args)
            .expect_code(2)
            .expect_stderr(&[&format!("{file}:3:"), "runtime.max_turn"]);
    }
    world
        .run(&["--config", "missing.toml", "run", "--model", "offline", "x"])
        .expect_code(2)
        .expect_stderr(&["missing.toml"]);
    std::fs::create_dir_all(world.home()).unwrap();
    std::fs::write(world.home().join("config.toml"), "[model]\nname = 7\n").unwrap();
    world
        .run(&["run", "--model", "offline", "x"])
        .expect_code(2)
        .expect_stderr(&["config.toml:2:", "model.name"]);
}

#[test]
fn home_has_one_owner() {
    let world = TestHome::new();
    let threads = tokio::runtime::Runtime::new().unwrap();
    let owner = soong::Runtime::builder()
        .home(world.home())
        .project_dir(world.project())
        .offline();
    let owner = threads.block_on(owner.build()).unwrap();
    world
        .run(&["run", "--model", "offline", "x"])
        .expect_code(4)
        .expect_stderr(&["owns the home", "home_locked", "--home"]);
    let home = world.home().display().to_string();
    world.run(&["demo", "--home", &home]).expect_code(4);
    world.run(&["sessions", "list"]).expect_code(0);
    threads.block_on(owner.close());
    world
        .run(&["run", "--model", "offline", "x"])
        .expect_code(0);
}

#[test]
fn run_fails_with_a_message_when_it_times_out() {
    let world = TestHome::new();
    let service = HangingModelService::new();
    let mut command = world.command(&["run", "--session", "s", "--timeout", "1", "Wait for me"]);
    let running = KillOnDrop {
        child: command
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    };
    running
        .finish()
        .expect_code(1)
        .expect_stderr(&["timeout", "--timeout"]);
    let trace = world
        .run(&["traces", "show", "s", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(trace["trace"]["end_reason"], "timed_out");
}

#[test]
fn unreachable_provider_has_its_own_exit_code() {
    let world = TestHome::new();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    std::fs::create_dir(world.home()).unwrap();
    let config = format!(
        "[model]\nbase_url = \"http://127.0.0.1:{port}/v1\"\nretry = {{ max_attempts = 1 }}\n"
    );
    std::fs::write(world.home().join("config.toml"), config).unwrap();
    world
        .run(&["run", "x"])
        .expect_code(5)
        .expect_stderr(&["the run failed", "is the server running there?"]);
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    let world = TestHome::new();
    let mut demo = world.start(&["demo", "--json", "--children", "100"]);
    let mut first = String::new();
    BufReader::new(demo.child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.contains("loop_started"), "{first}");
    let ran = demo.finish();
    assert!(
        !ran.err.contains("panicked") && matches!(ran.code, Some(0 | 1)),
        "{:?} {}",
        ran.code,
        ran.err
    );

    let (_, result) = world.demo(&[]);
    let id = result["trace_id"].as_str().unwrap();
    for args in [
        vec!["traces", "messages", id],
        vec!["traces", "events", id, "--json"],
        vec!["traces", "list"],
    ] {
        let mut reading = world.start(&args);
        drop(reading.child.stdout.take());
        reading.finish().expect_code(0);
    }
}

#[cfg(not(feature = "otlp"))]
#[test]
fn build_without_otlp_warns_once_of_collector_variable() {
    let world = TestHome::new();
    let mut command = world.command(&["run", "--model", "offline", "x"]);
    let ran = KillOnDrop {
        child: command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
            .spawn()
            .unwrap(),
    };
    let ran = ran.finish().expect_code(0);
    assert_eq!(
        ran.err
            .matches("warning: OTEL_EXPORTER_OTLP_ENDPOINT is set")
            .count(),
        1,
        "{}",
        ran.err
    );
    let listed = world
        .command(&["sessions", "list"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x")
        .output()
        .unwrap();
    assert!(
        listed.stderr.is_empty(),
        "a command that only reads exports nothing anyway"
    );
}

#[test]
fn color_is_used_only_when_requested() {
    let world = TestHome::new();
    let colored = world
        .run(&["--color", "always", "sessions", "show", "x"])
        .expect_code(3);
    assert!(colored.err.contains('\u{1b}'), "{}", colored.err);
    assert!(
        !world
            .run(&["sessions", "show", "x"])
            .expect_code(3)
            .err
            .contains('\u{1b}')
    );
}

#[test]
fn call_prints_its_answer_and_is_hidden_from_lists() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let environment = [
        ("OPENAI_BASE_URL", service.address.as_str()),
        ("OPENAI_API_KEY", "k"),
    ];
    let mut command = world.command(&[
        "call",
        "--system-prompt",
        "Be terse.",
        "--model",
        "m",
        "good morning",
    ]);
    let asking = KillOnDrop {
        child: command.envs(environment).spawn().unwrap(),
    };
    let request = service.next();
    assert_eq!(request.last_message(), "good morning");
    request.answer("bonjour");
    let ran = asking.finish().expect_code(0);
    assert_eq!(ran.out, "bonjour\n");
    assert_eq!(
        world
            .run(&["sessions", "list", "--json"])
            .expect_code(0)
            .json(),
        json!([])
    );
    let all = world
        .run(&["sessions", "list", "--all", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        (all.as_array().map(Vec::len), &all[0]["kind"]),
        (Some(1), &json!("call"))
    );
    let session = all[0]["session_id"].as_str().unwrap();
    let messages = world
        .run(&["traces", "messages", session, "--json"])
        .expect_code(0)
        .json();
    let roles: Vec<&Value> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["role"])
        .collect();
    assert_eq!(roles, ["system", "user", "assistant"]);
    // Nothing continues it.
    let more = world
        .run(&["run", "--model", "offline", "--session", session, "more"])
        .expect_code(2);
    more.expect_stderr(&["a call starts a session of its own"]);
    world
        .run(&["call", ""])
        .expect_code(2)
        .expect_stderr(&["the prompt is empty"]);
}
