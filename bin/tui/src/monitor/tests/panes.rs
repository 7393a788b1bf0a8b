//! The panes of a run that are shown with a letter: Diff, Cost and Prompt; and the line of the
//! filter.

use serde_json::json;
use soong_protocol::{
    Event, EventRecord, Message, MessageEvent, ModelEvent, Role, Run, RunSettings, ToolEvent,
    Trace,
    api::{RunWithOutcome, TraceView},
};

use super::*;
use crate::monitor::{RunFacts, detail::ReadContent};

/// Opens a pane of the run `main` with a key, and answers its read.
fn with_pane(key: char, content: ReadContent) -> TestMonitor {
    let mut test = TestMonitor::begin(FINE);
    test.receive(MonitorInput::Tree(sample_tree()));
    let actors = std::mem::take(&mut test.monitor.actors);
    test.monitor.list.select(&actors, &"run:main".into());
    test.monitor.actors = actors;
    let read = test
        .types(&key.to_string())
        .into_iter()
        .find_map(|request| match request {
            MonitorRequest::Read(want) => Some(want),
            _ => None,
        });
    test.receive(MonitorInput::Read(read.unwrap(), Box::new(Ok(content))));
    test
}

fn check(mut test: TestMonitor, parts: &[&str]) {
    for (columns, rows) in [(80, 24), (100, 30), (200, 50)] {
        test.key(KeyCode::Esc);
        test.key(KeyCode::Enter);
        let screen = test.screen(columns, rows);
        for part in parts {
            assert!(
                screen.contains(part),
                "{part:?} is missing on {columns} columns in:\n{screen}"
            );
        }
    }
}

#[test]
fn d_shows_the_changes_of_files() {
    let event = |id: u64, event: Event| EventRecord {
        event_id: id,
        ..crate::sample::record("main", 0, event)
    };
    let call = "c1".to_owned();
    let result =
        "`notes.txt` edited: 1 lines added, 1 removed\n@@ -3,1 +3,1 @@\n-old words\n+new words\n";
    let message = Message::new(TraceId::new("s"), 5, None, Role::Tool, result, at(0));
    let records = vec![
        event(
            1,
            Event::Tool(ToolEvent::Started {
                tool_call_id: call.clone(),
                name: "edit".to_owned(),
                arguments_preview: "{}".to_owned(),
            }),
        ),
        event(
            2,
            Event::Tool(ToolEvent::Completed {
                tool_call_id: call.clone(),
                name: "edit".to_owned(),
                duration_ms: 3,
                preview: String::new(),
                artifact_ref: None,
                artifact_snapshot: None,
                file_change: None,
                artifact_delta: Default::default(),
            }),
        ),
        event(
            3,
            Event::Message(MessageEvent::added(&Message {
                tool_call_id: Some(call),
                ..message
            })),
        ),
        event(
            4,
            Event::Model(ModelEvent::Started {
                model: "m".into(),
                attempt: 1,
            }),
        ),
    ];
    let test = with_pane(
        'd',
        ReadContent::Events {
            records,
            follow: false,
        },
    );
    check(
        test,
        &[
            "d Diff",
            "1 change",
            "edit notes.txt +1 -1",
            "3       - old words",
            "3 + new words",
        ],
    );
    let none = with_pane(
        'd',
        ReadContent::Events {
            records: Vec::new(),
            follow: false,
        },
    );
    check(none, &["no files changed by edit or write"]);
}

#[test]
fn dollar_shows_tokens_and_money_with_sub_agents() {
    let mut record = Run::queued(
        SessionId::new("s"),
        TraceId::new("s"),
        "Write a report".to_owned(),
        RunSettings::default(),
        "local".to_owned(),
        at(-300),
    );
    record.usage.total_tokens = 10_000;
    record.usage.prompt_tokens = 8_000;
    record.usage.completion_tokens = 2_000;
    record.usage.cached_tokens = 4_000;
    record.usage.model_calls = 3;
    record.usage.cost = Some(Usd::from_nanos(20_000_000));
    record.cost = record.usage.cost;
    let trace = |id: &str, task: &str, tokens: u64, cost: &str| -> Trace {
        serde_json::from_value(json!({
            "trace_id": id, "session_id": "s", "parent_trace_id": null, "mode": "agent", "run_mode": "normal",
            "task": task, "name": "t", "agent_type": "explore", "status": "completed", "total_messages": 0,
            "total_tokens": tokens, "total_prompt_tokens": 0, "total_completion_tokens": 0, "total_cost": cost,
            "total_duration_ms": 0, "last_sequence": 0, "head_sequence": 0, "last_event_id": 0, "uid": "local",
            "model": "m", "context": { "collaborators": [] }, "created_at": at(-200),
        }))
        .unwrap()
    };
    let facts = RunFacts {
        run: RunWithOutcome {
            run: record,
            output: None,
            tool_calls: Vec::new(),
            artifacts: None,
            stats: None,
        },
        trace: TraceView {
            trace: trace("s", "Write a report", 10_000, "0.02"),
            goal_tree: Default::default(),
            sub_traces: vec![
                trace("s@1", "the cheap one", 500, "0.001"),
                trace("s@2", "the dear one", 700, "0.03"),
            ],
        },
    };
    let mut test = with_pane('$', ReadContent::Facts(Box::new(facts)));
    test.key(KeyCode::Enter);
    let screen = test.screen(100, 30);
    let position_of = |part: &str| {
        screen
            .find(part)
            .unwrap_or_else(|| panic!("{part:?} is missing in:\n{screen}"))
    };
    assert!(
        position_of("the dear one") < position_of("the cheap one"),
        "{screen}"
    );
    check(
        test,
        &[
            "$ Cost",
            "this run",
            "10.0k    $0.0200  3 model calls",
            "from cache 4.0k (50 %)",
            "total",
            "11.2k    $0.0510  with 2 children",
            "$0.0010",
        ],
    );
}

#[test]
fn p_shows_the_system_messages_in_full() {
    let message = |sequence: u64, role: Role, text: &str| {
        (
            Message::new(TraceId::new("s"), sequence, None, role, text, at(0)),
            String::new(),
        )
    };
    let instructions = format!(
        "You are careful.\n{}\n  The last line.",
        "Read first. ".repeat(12)
    );
    let messages = vec![
        message(1, Role::System, &instructions),
        message(2, Role::User, "a question"),
        message(3, Role::System, "The mode is plan now."),
    ];
    let mut test = with_pane('p', ReadContent::Messages(messages));
    test.key(KeyCode::Enter);
    assert!(!test.screen(100, 30).contains("a question"));
    check(
        test,
        &[
            "p Prompt",
            "#1 system",
            "  The last line.",
            "#3 system",
            "The mode is plan now.",
        ],
    );
}

#[test]
fn filter_has_its_own_line_and_the_keys_stay_below() {
    let mut test = TestMonitor::begin(FINE);
    test.receive(MonitorInput::Tree(sample_tree()));
    assert!(!test.screen(80, 24).contains("filter: "));
    test.types("/vend");
    let screen = test.screen(80, 24);
    assert!(
        screen.contains("filter: vend_  (Enter: keep filter, Esc: show all)"),
        "{screen}"
    );
    test.key(KeyCode::Enter);
    let screen = test.screen(80, 24);
    assert!(
        screen.contains("filter: vend  (/: change, Esc: show all)"),
        "{screen}"
    );
    assert!(
        screen.lines().last().unwrap().starts_with("q exit"),
        "{screen}"
    );
}
