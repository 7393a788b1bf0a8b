//! Tests of the transcript: the lines of each kind of call, from events.

use serde_json::json;
use soong_protocol::{
    ChildMode, ErrorCode, ErrorInfo, Message, Stats, StatsPair, Timestamp, TraceId, Usd,
};

use super::*;
use crate::{
    sample::record,
    styled_line::StyledLine,
    terminal::{Paint, TextStyle},
};

const RUN: &str = "r";

fn started(id: &str, tool: &str, arguments: &str) -> EventRecord {
    let tool_call_id = id.to_owned();
    let name = tool.to_owned();
    let arguments_preview = arguments.to_owned();
    record(
        RUN,
        0,
        ToolEvent::Started {
            tool_call_id,
            name,
            arguments_preview,
        },
    )
}

fn completed(id: &str, tool: &str, duration_ms: u64) -> EventRecord {
    let tool_call_id = id.to_owned();
    let name = tool.to_owned();
    let event = ToolEvent::Completed {
        tool_call_id,
        name,
        duration_ms,
        preview: String::new(),
        artifact_ref: None,
        artifact_snapshot: None,
        file_change: None,
        artifact_delta: Default::default(),
    };
    record(RUN, 0, event)
}

fn result(id: &str, text: &str) -> EventRecord {
    let message = Message::new(
        TraceId::new("t"),
        5,
        None,
        Role::Tool,
        text,
        Timestamp::from_millis(0),
    );
    record(
        RUN,
        0,
        MessageEvent::added(&Message {
            tool_call_id: Some(id.to_owned()),
            ..message
        }),
    )
}

fn model_call() -> EventRecord {
    record(
        RUN,
        0,
        ModelEvent::Started {
            model: "m".into(),
            attempt: 1,
        },
    )
}

/// Returns the lines of the steps that the events complete, without styles.
fn lines(transcript: &mut Transcript, events: &[EventRecord]) -> Vec<String> {
    let steps = events
        .iter()
        .flat_map(|event| transcript.apply(event))
        .collect::<Vec<_>>();
    let plain = |line: &StyledLine| line.to_ansi(Paint { on: false });
    steps
        .iter()
        .flat_map(|step| step.lines(60, true))
        .map(|line| plain(&line))
        .collect()
}

/// Returns the lines of one call.
fn call(tool: &str, arguments: &str, text: &str) -> Vec<String> {
    let events = [
        started("c", tool, arguments),
        completed("c", tool, 2_100),
        result("c", text),
        model_call(),
    ];
    lines(&mut Transcript::new(RunId::new(RUN)), &events)
}

#[test]
fn all_lines_contain_the_whole_output() {
    let wide = format!("{}end", "x".repeat(100));
    let output = format!("{wide}\n2\n3\n4\n[exit status 0]");
    let events = [
        started("c", "bash", r#"{"command":"make"}"#),
        completed("c", "bash", 2_100),
        result("c", &output),
        model_call(),
    ];
    let mut transcript = Transcript::new(RunId::new(RUN));
    let step = events
        .iter()
        .flat_map(|event| transcript.apply(event))
        .next()
        .unwrap();
    assert!(step.is_folded());
    let shown: String = step
        .all_lines(40, true)
        .iter()
        .map(|line| line.to_ansi(Paint { on: false }))
        .collect();
    assert!(
        shown.contains("end") && shown.matches('x').count() >= 100,
        "{shown}"
    );
}

#[test]
fn change_that_was_seen_is_not_repeated() {
    let edited = "`a.py` edited: 1 line added, 0 removed\n--- original\n+++ modified\n@@ -1 +1,2 @@\n def f():\n+    return 2\n";
    let events = [
        started("c", "edit", r#"{"path":"a.py"}"#),
        completed("c", "edit", 5),
        result("c", edited),
        model_call(),
    ];
    let mut transcript = Transcript::new(RunId::new(RUN));
    transcript.mark_change_seen("c");
    let step = events
        .iter()
        .flat_map(|event| transcript.apply(event))
        .next()
        .unwrap();
    assert!(step.is_folded());
    let plain = |lines: Vec<StyledLine>| {
        lines
            .iter()
            .map(|line| line.to_ansi(Paint { on: false }))
            .collect::<Vec<_>>()
    };
    assert_eq!(plain(step.lines(60, true)), ["● edit a.py +1 -0"]);
    assert_eq!(plain(step.all_lines(60, true)).len(), 3);
    assert!(
        lines(&mut transcript, &events).len() > 1,
        "the next call has another change"
    );
}

#[test]
fn calls_are_summed_up_in_one_line_with_rows_below() {
    let edited = "`src/app.py` edited: 1 line added, 1 removed\n--- original\n+++ modified\n@@ -1,2 +1,2 @@\n def f():\n\
                  -    return 1\n+    return 2\n";
    assert_eq!(
        call(
            "edit",
            r#"{"path":"src/app.py","edits":[{"old":"1"…"#,
            edited
        ),
        [
            "● edit src/app.py +1 -1",
            "  |     1     1   def f():",
            "  |     2       -     return 1",
            "  |           2 +     return 2",
        ]
    );
    for (tool, arguments, text, expected) in [
        (
            "write",
            r#"{"path":"notes.md"}"#,
            "`notes.md` written: 3 lines, 20 bytes",
            vec!["● write notes.md  3 lines, 20 bytes"],
        ),
        (
            "bash",
            r#"{"command":"cargo test"}"#,
            "a\nb\n\nc\nd\n[exit status 0]",
            vec![
                "● bash cargo test  exit 0, 2.1 s",
                "  (1 line before)",
                "  b",
                "  c",
                "  d",
            ],
        ),
        (
            "bash",
            r#"{"command":"false"}"#,
            "[exit status 1]\n[1 process was killed]",
            vec!["✗ bash false  exit 1, 2.1 s"],
        ),
        (
            "bash",
            r#"{"command":"sleep 9"}"#,
            "zz\n[killed by signal 9 (exit status 137)]",
            vec![
                "✗ bash sleep 9  killed by signal 9 (exit status 137), 2.1 s",
                "  zz",
            ],
        ),
        (
            "webfetch",
            r#"{"url":"https://example.org/"}"#,
            "Hello",
            vec!["● webfetch https://example.org/  5 B, 2.1 s"],
        ),
        (
            "read",
            r#"{"path":"a.txt"}"#,
            "`a.txt`: 3 lines",
            vec!["● read a.txt  2.1 s"],
        ),
        (
            "mcp.s.add",
            r#"{"a":1,"b":2}"#,
            "3",
            vec!["● mcp.s.add  2.1 s"],
        ),
        // Only the tools for files are believed what they say about files.
        (
            "mcp.s.add",
            r#"{"x":"y"}"#,
            "`a` edited: 1 lines added, 0 removed",
            vec!["● mcp.s.add y  2.1 s"],
        ),
        ("goal", r#"{"goal":"x"}"#, "added", vec![]),
    ] {
        assert_eq!(call(tool, arguments, text), expected, "{tool}");
    }
}

#[test]
fn consecutive_calls_that_read_are_one_step() {
    let mut transcript = Transcript::new(RunId::new(RUN));
    let mut events = Vec::new();
    for (id, tool) in [
        ("1", "read"),
        ("2", "read"),
        ("3", "read"),
        ("4", "grep"),
        ("5", "grep"),
        ("6", "bash"),
    ] {
        let arguments = format!(r#"{{"path":"{id}","pattern":"x{id}"}}"#);
        events.extend([
            started(id, tool, &arguments),
            completed(id, tool, 1),
            result(id, "[exit status 0]"),
        ]);
    }
    assert_eq!(
        lines(&mut transcript, &events),
        ["● read 3 files", "● grep ×2", "● bash x6  exit 0, 0.0 s"]
    );
    let one = [
        started("7", "read", r#"{"path":"a"}"#),
        completed("7", "read", 1),
        result("7", "a"),
    ];
    assert!(
        lines(&mut transcript, &one).is_empty(),
        "the next call may read too"
    );
    assert_eq!(lines(&mut transcript, &[model_call()]), ["● read a"]);
}

#[test]
fn call_that_started_before_the_display_is_a_step_too() {
    let edited = "`a.txt` edited: 1 lines added, 0 removed\n@@ -1,1 +1,2 @@\n one\n+two\n";
    let mut transcript = Transcript::new(RunId::new(RUN));
    let events = [
        completed("c", "edit", 1),
        result("c", edited),
        completed("g", "goal", 1),
        result("g", "added"),
    ];
    assert_eq!(lines(&mut transcript, &events)[0], "● edit a.txt +1 -0");
    assert!(transcript.calls.is_empty());
}

#[test]
fn failed_and_denied_calls_name_the_reason() {
    let error = ErrorInfo::new(ErrorCode::ToolNotAvailable, "`a.txt` does not exist");
    let tool_call_id = "c".to_owned();
    let name = "read".to_owned();
    let failed = ToolEvent::Failed {
        tool_call_id,
        name,
        duration_ms: 1,
        error,
    };
    let events = [
        started("c", "read", r#"{"path":"a.txt"}"#),
        record(RUN, 0, failed),
        result("c", "error"),
    ];
    let mut transcript = Transcript::new(RunId::new(RUN));
    assert_eq!(
        lines(&mut transcript, &events),
        ["✗ read a.txt  `a.txt` does not exist"]
    );
    for (by, expected) in [
        (None, "⊘ bash rm x  denied: no"),
        (Some("hook"), "⊘ bash rm x  denied: no"),
        (Some("rule"), "⊘ bash rm x  denied by a rule"),
        (Some("terminal"), "⊘ bash rm x  denied at the terminal"),
        (Some("monitor"), "⊘ bash rm x  denied by monitor"),
    ] {
        let denied = ToolEvent::Denied {
            tool_call_id: "d".into(),
            name: "bash".into(),
            duration_ms: 1,
            reason: "no".into(),
            by: by.map(str::to_owned),
            target: None,
            allow: Vec::new(),
        };
        let events = [
            started("d", "bash", r#"{"command":"rm x"}"#),
            record(RUN, 0, denied),
            result("d", "denied"),
        ];
        assert_eq!(lines(&mut transcript, &events), [expected]);
    }
}

#[test]
fn sub_agents_are_summed_up_by_their_call() {
    let child = |run: &str, agent_type: &str| SubAgentEvent::Started {
        sub_trace_id: TraceId::new(run),
        run_id: RunId::new(run),
        mode: ChildMode::Explore,
        agent_type: agent_type.to_owned(),
        task: "look".to_owned(),
        parent_goal_id: None,
        tool_call_id: Some("c".to_owned()),
        deliver: false,
    };
    let stats = Stats {
        total_tokens: 1_500,
        cost: Some(Usd::from_nanos(20_000_000)),
        ..Stats::default()
    };
    let ended = |run: &str, status| SubAgentEvent::Completed {
        sub_trace_id: TraceId::new(run),
        run_id: RunId::new(run),
        status,
        summary: String::new(),
        stats: StatsPair {
            own: stats,
            tree: stats,
        },
        artifacts: Vec::new(),
    };
    let of_child = EventRecord {
        run_id: Some(RunId::new("a")),
        ..started("x", "read", "{}")
    };
    let events = [
        started("c", "agent", r#"{"task":["a","b"]}"#),
        record(RUN, 0, child("a", "explore")),
        record(RUN, 0, child("b", "explore")),
        of_child,
        record(RUN, 0, ended("a", RunStatus::Completed)),
        record(RUN, 0, ended("b", RunStatus::Failed)),
        completed("c", "agent", 12_300),
        result("c", "both"),
    ];
    let mut transcript = Transcript::new(RunId::new(RUN));
    assert_eq!(
        lines(&mut transcript, &events),
        ["● agent explore ×2  1 failed, 12 s, 3.0k tokens, $0.0400"]
    );
    assert!(transcript.calls.is_empty() && transcript.parents.is_empty());
}

#[test]
fn text_of_a_model_cannot_affect_the_terminal() {
    let arguments =
        json!({ "command": format!("echo \u{1b}[2J\u{202e}{}", "x".repeat(300)) }).to_string();
    let cut: String = arguments.chars().take(200).collect::<String>() + "…";
    let shown = call("bash", &cut, "\u{1b}]0;title\u{7}out\n[exit status 0]");
    assert!(
        shown[0].starts_with("● bash echo \\u{1b}[2J\\u{202e}xxx"),
        "{shown:#?}"
    );
    assert!(
        shown[0].ends_with("x…  exit 0, 2.1 s"),
        "the end of the command is cut, not its status: {shown:#?}"
    );
    assert!(
        shown
            .iter()
            .all(|line| crate::text::width(line) <= 60 && !line.contains('\u{1b}')),
        "{shown:#?}"
    );
}

#[test]
fn steps_have_an_ascii_form_and_a_summary() {
    let events = [
        started("c", "bash", r#"{"command":"make"}"#),
        completed("c", "bash", 2_100),
        result("c", "[exit status 2]"),
    ];
    let mut transcript = Transcript::new(RunId::new(RUN));
    let steps: Vec<Step> = events
        .iter()
        .flat_map(|event| transcript.apply(event))
        .collect();
    assert_eq!(
        steps[0].lines(60, false),
        [StyledLine::of(TextStyle::Red, "x ")
            .and(TextStyle::Bold, "bash")
            .and(TextStyle::Plain, " make")
            .and(TextStyle::Dim, "  exit 2, 2.1 s"),]
    );
    assert_eq!(steps[0].summary(), "bash make: exit 2, 2.1 s");
}
