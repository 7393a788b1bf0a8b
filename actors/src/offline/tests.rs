//! Tests of the offline model on whole projects.

mod world;

use serde_json::json;
use soong_protocol::{GoalStatus, GoalTree, Message, Role, Timestamp, TraceId};
use soong_tool::testing::TestProject;
use world::{Ended, MAX_TURNS, Streamed, TestSession, add};

use super::*;
use crate::builtin_tools;

fn called<'a>(ended: &'a Ended, name: &'a str) -> impl Iterator<Item = &'a ToolCall> {
    ended
        .messages
        .iter()
        .flat_map(|message| &message.tool_calls)
        .filter(move |call| call.name == name)
}

fn small_repository() -> TestProject {
    TestProject::new(&[
        (
            "Cargo.toml",
            "[package]\nname = \"tiny\"\ndescription = \"a tiny thing\"\n",
        ),
        ("README.md", "# Tiny\n\nHello.\n"),
        (
            "src/main.rs",
            "//! Says hello.\nfn main() {}\n// TODO more\n",
        ),
        ("src/net/mod.rs", "//! Talks to\n//! the network.\n"),
        ("docs/guide.md", "# A `guide`\n"),
        ("tests/all.rs", "#[test]\nfn x() {}\n"),
        ("data/a.csv", "1,2\n"),
        ("data/logo.png", "\u{0}\u{0}png"),
    ])
}

#[tokio::test]
async fn a_small_repository_gets_a_report_that_passes() {
    let world = TestSession::new(small_repository());
    let ended = world.orchestrate("What is this project?").await;
    let report = world.artifact("report");
    for part in [
        "## `src/`",
        "## `docs/`",
        "## files at the top level",
        "`src/main.rs` (42 bytes): entry point of a Rust program: Says hello.",
        "`src/net/mod.rs` (30 bytes): root of a Rust module: Talks to the network.",
        "`Cargo.toml` (53 bytes): manifest of a Rust package: tiny, a tiny thing",
        "`docs/guide.md` (12 bytes): document (Markdown): A 'guide'",
        "`data/logo.png` (5 bytes): image",
        "Lines marked TODO or FIXME: 1, the first in `src/main.rs`, line 3.",
        "no language model was used",
    ] {
        assert!(report.contains(part), "{part}\n{report}");
    }
    assert!(
        ended.answer.contains("artifact `report`") && ended.answer.contains("passed"),
        "{}",
        ended.answer
    );
    assert!(ended.answer.contains("no language model"));
    let plan = world.artifact("task_plan");
    for ticked in [
        "- [x] Understand the project\n  - [x] `data/`",
        "- [x] Write a report",
        "- [x] Check the report",
    ] {
        assert!(plan.contains(ticked), "{ticked}\n{plan}");
    }
    assert!(!plan.contains("[ ]"), "{plan}");
    assert_eq!(
        (
            called(&ended, "agent").count(),
            called(&ended, "evaluate").count()
        ),
        (2, 1)
    );
    assert_eq!(world.children.lock().unwrap().len(), 5 + 1 + 1);
    let goals = world.goals.lock().unwrap();
    assert!(
        goals
            .goals
            .iter()
            .all(|goal| goal.status == GoalStatus::Completed),
        "{}",
        goals.render(true)
    );
}

#[tokio::test]
async fn report_is_deterministic_and_independent_of_restarts() {
    let mut reports = Vec::new();
    for _ in 0..2 {
        let world = TestSession::new(small_repository());
        let ended = world.orchestrate("Describe it.").await;
        reports.push((world.artifact("report"), ended.answer.clone()));
        // The next turn is the same, whichever point the conversation is resumed from.
        for (index, message) in ended
            .messages
            .iter()
            .enumerate()
            .filter(|(_, message)| message.role == Role::Assistant)
        {
            let tools = world.registry.specs().cloned().collect();
            let request = ModelRequest {
                system: vec!["You orchestrate.".into()],
                messages: ended.messages[..index].to_vec(),
                tools,
                ..ModelRequest::default()
            };
            let repeated = Offline::new()
                .complete(&request, &mut Streamed(String::new()))
                .await
                .unwrap();
            assert_eq!(
                (repeated.text.as_str(), &repeated.tool_calls),
                (message.content.as_str(), &message.tool_calls),
                "{index}"
            );
        }
    }
    assert_eq!(reports[0], reports[1]);
}

#[tokio::test]
async fn unusual_projects_get_accurate_reports() {
    let empty = TestProject::new(&[]);
    let binary = TestProject::new(&[]);
    binary.write("bin/a.dat", b"\0\0\0");
    binary.write("bin/b", b"\x7fELF\0");
    let many = TestProject::new(&[]);
    for number in 0..3000 {
        many.write(&format!("many/{number:04}.txt"), b"text\n");
    }
    let odd = TestProject::new(&[
        ("tick`/a`b.md", "# odd `one`\n"),
        ("new\nline/x\ty.rs", "//! ===\n"),
        ("=== Findings 9/a [x].rs", ""),
    ]);
    for (name, project, parts) in [
        ("empty", empty, vec!["The project holds no files"]),
        (
            "binary",
            binary,
            vec!["`bin/a.dat` (3 bytes)", "`bin/b` (5 bytes)"],
        ),
        (
            "many",
            many,
            vec![
                "3000 files, 15000 bytes",
                "`many/0000.txt` (5 bytes)",
                "the rest was counted",
            ],
        ),
        (
            "odd",
            odd,
            vec![
                "`tick\\u{60}/a\\u{60}b.md` (12 bytes)",
                "`new\\nline/x\\ty.rs` (8 bytes)",
                "`=== Findings 9/`",
            ],
        ),
    ] {
        let world = TestSession::new(project);
        let ended = world.orchestrate("What is here?").await;
        let report = world.artifact("report");
        for part in parts {
            assert!(report.contains(part), "{name}: {part}\n{report}");
        }
        assert!(
            ended.answer.contains("The check of the report passed."),
            "{name}: {}\n{report}",
            ended.answer
        );
    }
}

#[tokio::test]
async fn requested_number_of_children_explore() {
    for number in [1, 2, 12, 200] {
        for project in [small_repository(), TestProject::new(&[])] {
            let world = TestSession::new(project);
            let ended = world
                .orchestrate(&format!("Describe it, with exactly {number} children."))
                .await;
            let call = called(&ended, "agent").next().unwrap();
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            let tasks = arguments["task"].as_array().unwrap();
            assert_eq!(tasks.len(), number);
            let different: std::collections::BTreeSet<String> =
                tasks.iter().map(Value::to_string).collect();
            assert_eq!(different.len(), number);
            assert!(
                ended.answer.contains("check of the report passed"),
                "{number}: {}",
                ended.answer
            );
            let result = ended
                .messages
                .iter()
                .filter(|message| message.role == Role::Tool);
            assert!(result.map(|message| message.content.len()).max().unwrap() < 100_000);
        }
    }
}

#[tokio::test]
async fn failed_child_is_reported_as_missing() {
    let mut world = TestSession::new(small_repository());
    world.tamper = |index, mode, mut result| {
        if mode == "explore" && index == 1 {
            result["status"] = json!("failed");
            result["summary"] = json!("");
            result["error"] =
                json!({"code": "timeout", "message": "took `too` long", "retryable": false});
        }
        result
    };
    let ended = world.orchestrate("Describe it.").await;
    let report = world.artifact("report");
    assert!(
        report.contains("## What is missing\n\n- `docs/` (failed: took 'too' long)"),
        "{report}"
    );
    assert!(
        ended.answer.contains("Explored: 4 of 5 parts")
            && ended.answer.contains("Missing: `docs/`"),
        "{}",
        ended.answer
    );
    assert!(ended.answer.contains("passed"), "{}", ended.answer);
}

#[tokio::test]
async fn inaccurate_report_is_sent_back_once() {
    let without_docs: fn(usize, &str, Value) -> Value = |_, mode, mut result| {
        if mode == "delegate" {
            let text = result["summary"]
                .as_str()
                .unwrap()
                .replace("docs/", "nope/");
            result["summary"] = json!(text);
        }
        result
    };
    let mut world = TestSession::new(small_repository());
    world.tamper = without_docs;
    let ended = world.orchestrate("Describe it.").await;
    let answer = &ended.answer;
    assert!(
        answer.contains("did not pass: there is no section on 'docs/'"),
        "{answer}"
    );
    assert_eq!(
        (
            called(&ended, "agent").count(),
            called(&ended, "evaluate").count()
        ),
        (3, 2)
    );
    let sent_back = world
        .children
        .lock()
        .unwrap()
        .iter()
        .filter(|task| task.contains("nope/guide.md is named and does not exist"))
        .count();
    assert_eq!(sent_back, 1);
    assert!(!world.artifact("report").is_empty() && !world.artifact("report-2").is_empty());

    // The second attempt is correct.
    let mut world = TestSession::new(small_repository());
    world.tamper = |_, mode, mut result| {
        let text = result["summary"].as_str().unwrap().to_owned();
        if mode == "delegate" && !text.contains("again") {
            result["summary"] = json!(text.split("\n## `src/`").next().unwrap());
        }
        result
    };
    let ended = world
        .orchestrate("Describe it, and again if need be.")
        .await;
    assert!(
        ended.answer.contains("check of the report passed"),
        "{}",
        ended.answer
    );
}

#[tokio::test]
async fn run_ends_if_all_tools_fail() {
    for answer in [
        "error: internal_error: no",
        "cancelled: no",
        "",
        "{\"error\": {\"code\": \"skipped\"}}",
        "[1, 2",
        "{\"mode\":\"explore\",\"results\":[{\"mode\":\"explore\",\"status\":\"comp",
    ] {
        let mut request = ModelRequest {
            system: vec!["You orchestrate.".into()],
            messages: vec![],
            tools: builtin_tools::registry(&Default::default(), &Default::default(), None)
                .unwrap()
                .specs()
                .cloned()
                .collect(),
            ..ModelRequest::default()
        };
        add(&mut request, Role::User, "Do it".to_owned());
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < MAX_TURNS, "{answer:?}");
            let completion = Offline::new()
                .complete(&request, &mut Streamed(String::new()))
                .await
                .unwrap();
            add(&mut request, Role::Assistant, completion.text.clone())
                .tool_calls
                .clone_from(&completion.tool_calls);
            if completion.tool_calls.is_empty() {
                assert!(
                    completion.text.contains("There is no report"),
                    "{answer:?}: {}",
                    completion.text
                );
                break;
            }
            for call in completion.tool_calls {
                add(&mut request, Role::Tool, answer.to_owned()).tool_call_id = Some(call.id);
            }
        }
    }
}

#[tokio::test]
async fn second_task_in_trace_starts_over() {
    let world = TestSession::new(small_repository());
    let first = world.orchestrate("Describe it.").await;
    let second = world
        .run(
            "orchestrator",
            "# Once more\nplease".to_owned(),
            first.messages.clone(),
        )
        .await;
    assert!(
        second.answer.contains("artifact `report-2`") && second.answer.contains("passed"),
        "{}",
        second.answer
    );
    let goals = world.goals.lock().unwrap();
    assert_eq!(goals.goals.len(), 6);
    assert!(
        goals
            .goals
            .iter()
            .all(|goal| goal.status == GoalStatus::Completed),
        "{}",
        goals.render(true)
    );
}

#[tokio::test]
async fn injected_context_is_not_taken_for_new_task() {
    let world = TestSession::new(small_repository());
    let ended = world.orchestrate("Describe it.").await;
    let index = ended
        .messages
        .iter()
        .position(|message| message.role == Role::Tool)
        .unwrap()
        + 2;
    let mut messages = ended.messages[..index].to_vec();
    let context = Message::new(
        TraceId::new("s"),
        99,
        None,
        Role::User,
        "## Goals\n[ ] 1. x",
        Timestamp::default(),
    );
    messages.push(context.into());
    let tools = world.registry.specs().cloned().collect();
    let system = vec!["You orchestrate.".into()];
    let request = ModelRequest {
        system,
        messages,
        tools,
        ..ModelRequest::default()
    };
    let next = Offline::new()
        .complete(&request, &mut Streamed(String::new()))
        .await
        .unwrap();
    assert_eq!(next.tool_calls[0].name, "goal");
}

#[tokio::test]
async fn summary_message_is_not_taken_for_new_task() {
    let world = TestSession::new(small_repository());
    let ended = world.orchestrate("Describe it.").await;
    let index = ended
        .messages
        .iter()
        .position(|message| message.role == Role::Tool)
        .unwrap()
        + 2;
    let summary = crate::context::summary_message("## Next step\nnone", 1, 9, &GoalTree::new("m"));
    for (what, at, content) in [
        ("a stand-in", index, "[Goal 1 completed: x] y"),
        ("a summary", 0, summary.as_str()),
    ] {
        let mut messages = ended.messages[..index].to_vec();
        let mut replacement = Message::clone(&messages[0]);
        replacement.content = content.into();
        replacement.covers = (at == 0).then_some(soong_protocol::Covers {
            first: 1,
            last: 9,
            next: 10,
            system: None,
            request: None,
        });
        messages.insert(at, replacement.into());
        let tools = world.registry.specs().cloned().collect();
        let system = vec!["You orchestrate.".into()];
        let request = ModelRequest {
            system,
            messages,
            tools,
            ..ModelRequest::default()
        };
        let next = Offline::new()
            .complete(&request, &mut Streamed(String::new()))
            .await
            .unwrap();
        assert_eq!(next.tool_calls[0].name, "goal", "{what}");
    }
}

#[tokio::test]
async fn plain_question_is_answered_by_search_without_model() {
    let world = TestSession::new(small_repository());
    let ended = world
        .run(
            "default",
            "Where does it say \"fn main(\"?".to_owned(),
            Vec::new(),
        )
        .await;
    assert!(
        ended.answer.contains("no language model")
            && ended.answer.contains("`src/main.rs`, first in line 2"),
        "{}",
        ended.answer
    );
    let request = ModelRequest {
        system: vec![],
        messages: vec![],
        tools: Vec::new().into(),
        ..ModelRequest::default()
    };
    let alone = Offline::new()
        .complete(&request, &mut Streamed(String::new()))
        .await
        .unwrap();
    assert!(
        alone.tool_calls.is_empty() && alone.text.contains("No tool"),
        "{}",
        alone.text
    );
}

#[tokio::test]
async fn unreadable_folder_is_named_in_answer() {
    let world = TestSession::new(TestProject::new(&[]));
    let scope = plan::Scope {
        label: "`closed/`".into(),
        folders: vec!["closed/".into()],
        max_bytes: 2000,
        ..plan::Scope::default()
    };
    let mut request = ModelRequest {
        system: vec![],
        messages: vec![],
        tools: world
            .registry
            .specs()
            .filter(|spec| spec.name != "agent")
            .cloned()
            .collect(),
        ..ModelRequest::default()
    };
    add(&mut request, Role::User, scope.task());
    let first = Offline::new()
        .complete(&request, &mut Streamed(String::new()))
        .await
        .unwrap();
    add(&mut request, Role::Assistant, String::new())
        .tool_calls
        .clone_from(&first.tool_calls);
    let result = "[`closed` is empty: 0 files, 0 folders, 0 bytes; could not be read (1): `closed` (permission denied)]";
    add(&mut request, Role::Tool, result.to_owned()).tool_call_id =
        Some(first.tool_calls[0].id.clone());
    let answer = Offline::new()
        .complete(&request, &mut Streamed(String::new()))
        .await
        .unwrap();
    assert!(
        answer
            .text
            .contains("Could not be read: (1): 'closed' (permission denied)"),
        "{}",
        answer.text
    );
}
