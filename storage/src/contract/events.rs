//! Events are read back byte by byte, wherever a reader begins, and however they are stored.

use std::collections::HashMap;

use soong_protocol::{
    ArtifactRef, ChildMode, ChildResult, Collaborator, CollaboratorKind, CollaboratorStatus,
    Covers, Event, EventRecord, GoalEvent, GoalTree, Message, MessageEvent, RefKind, Role,
    RunEvent, RunStatus, RunWrite, SubAgentEvent, ToolCall, Usd, Write,
};

use super::fork::{fork, fork_event};
use super::world::{
    TestStore, add_message, answered, artifact_id, at, child_run, completed, event, goal_id,
    message, open_run, queued, run_id, session_id, started, stats_with_duration, sub_trace,
    trace_id, turn_started,
};
use crate::store::EventIds;

/// A message with its event.
fn added(message: Message, run: &str, second: i64) -> [Write; 2] {
    let trace = message.trace_id.to_string();
    let event = event(&trace, Some(run), second, MessageEvent::added(&message));
    [add_message(message), event]
}

fn goal_event() -> GoalEvent {
    GoalEvent::Focused {
        goal_id: goal_id("1"),
    }
}

/// The end of a child with its result; `summary` is that of the event.
fn child_ended(number: u64, second: i64, summary: &str) -> Vec<Write> {
    let trace = format!("a@{number}");
    let run = format!("c{number}");
    let mut stats = stats_with_duration(3);
    stats.tree.cost = Some(Usd::from_nanos(12_345));
    let artifact = ArtifactRef {
        kind: RefKind::ArtifactRef,
        artifact_id: artifact_id("x"),
        name: Some("notes".into()),
        version: 2,
        content_type: "text/plain".into(),
        size: 3,
        summary: "\"notes\"".into(),
    };
    let result = ChildResult {
        mode: ChildMode::Evaluate,
        sub_trace_id: trace_id(&trace),
        run_id: run_id(&run),
        status: RunStatus::Completed,
        summary: format!("found \"{number}\" – and more\n"),
        findings: vec!["x".into()],
        passed: Some(true),
        artifacts: vec![artifact],
        stats,
        error: None,
    };
    let summary = if summary.is_empty() {
        result.summary.clone()
    } else {
        summary.to_owned()
    };
    let own_end = RunEvent::Completed {
        summary: summary.clone(),
        stats: result.stats,
    };
    let ended = SubAgentEvent::completed(&result, summary);
    vec![
        Write::Run(RunWrite::ChildResult(Box::new(result))),
        event(&trace, Some(&run), second, own_end),
        event("a", Some("a"), second, ended),
    ]
}

/// Returns appends that cover all ways to store events: one or several in a row, with and without
/// references, on one and on two timelines.
fn appends() -> Vec<Vec<Write>> {
    let calls = vec![ToolCall {
        id: "call".into(),
        name: "read".into(),
        arguments: "{\"path\": \"ä\"}".into(),
    }];
    let long = "0123456789abcdef".repeat(5_000);
    let covers = Covers {
        first: 1,
        last: 2,
        next: 3,
        system: None,
        request: None,
    };
    let text = |sequence, role, content: &str| {
        Message::new(
            trace_id("a"),
            sequence,
            (sequence > 1).then(|| sequence - 1),
            role,
            content.to_owned(),
            at(3),
        )
    };
    let mut first = vec![event("a", Some("a"), 1, started())];
    first.extend(added(
        text(1, Role::System, "You are brief, and \"precise\".\n\u{1}"),
        "a",
        1,
    ));
    first.extend(added(text(2, Role::User, "task\nof two lines"), "a", 1));
    first.push(event("a", Some("a"), 1, turn_started(1)));
    let mut answer = vec![event("a", Some("a"), 2, answered(5, 6, Some(7)))];
    answer.extend(added(
        Message {
            goal_id: Some(goal_id("1")),
            tool_calls: calls,
            ..text(3, Role::Assistant, "")
        },
        "a",
        2,
    ));
    // Another time, another run, and no run.
    answer.extend([
        event("a", Some("a"), 3, goal_event()),
        event("a", None, 3, queued()),
        event("a", None, 3, queued()),
    ]);
    let mut results = Vec::from(added(
        Message {
            tool_call_id: Some("call".into()),
            partial: true,
            ..text(4, Role::Tool, &long)
        },
        "a",
        4,
    ));
    results.extend(added(
        Message {
            parent_sequence: None,
            covers: Some(covers),
            ..text(5, Role::User, "summary")
        },
        "a",
        4,
    ));
    // An event that does not report the message before it.
    results.push(add_message(text(6, Role::User, "not reported")));
    results.push(event(
        "a",
        Some("a"),
        4,
        MessageEvent::added(&text(6, Role::User, "other text")),
    ));
    results.push(event(
        "a",
        Some("a"),
        4,
        MessageEvent::added(&text(3, Role::Assistant, "earlier")),
    ));
    let mut children = Vec::new();
    for number in 1..=2 {
        let trace = format!("a@{number}");
        let run = format!("c{number}");
        children.extend([
            sub_trace(&trace, "a", Some("a"), None),
            child_run(&run, &trace, "a", "a"),
            open_run(&run),
        ]);
        children.push(event("a", Some("a"), 5, turn_started(1)));
        children.extend(added(message(&trace, 1, None, Role::User), &run, 5));
    }
    vec![
        first,
        answer,
        results,
        children,
        child_ended(1, 6, ""),
        (0..150)
            .map(|_| event("a", Some("a"), 7, queued()))
            .collect(),
        [
            child_ended(2, 8, "shortened"),
            vec![event("a", Some("a"), 8, completed("done"))],
        ]
        .concat(),
    ]
}

type Expected<'a> = Vec<(&'a EventIds, &'a str, &'a str)>;

fn assert_same<'a>(
    read: &[EventRecord],
    expected: impl IntoIterator<Item = &'a (&'a EventIds, &'a str, &'a str)>,
    what: &str,
) {
    let read: Vec<_> = read
        .iter()
        .map(|record| {
            (
                record.lsn,
                record.event_id,
                record.run_seq.unwrap_or(0),
                record.session_seq,
                record.event.kind(),
                record.data.as_str(),
            )
        })
        .collect();
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(ids, kind, data)| {
            (
                ids.lsn,
                ids.event_id,
                ids.run_seq,
                ids.session_seq,
                *kind,
                *data,
            )
        })
        .collect();
    assert!(
        read == expected,
        "{what}: {read:#?}\nexpected {expected:#?}"
    );
}

pub(super) fn events_are_read_back_byte_by_byte_from_every_cursor(mut world: TestStore) {
    world.start_run("a");
    let appends = appends();
    let mut acknowledged = Vec::new();
    for writes in &appends {
        // An event of another session after each append, so that the lsns of the session have gaps.
        acknowledged.extend(world.write(writes.clone()).events);
        world.start_run(&format!("other{}", acknowledged.len()));
        world.write(vec![event(
            &format!("other{}", acknowledged.len()),
            None,
            1,
            queued(),
        )]);
    }
    let drafts = appends.iter().flatten().filter_map(|write| match write {
        Write::Event(draft) => Some(draft),
        _ => None,
    });
    let all: Vec<_> = acknowledged.iter().zip(drafts).collect();
    let expected = |filter: &dyn Fn(&soong_protocol::EventDraft) -> bool| -> Expected<'_> {
        let found = all.iter().filter(|(_, draft)| filter(draft));
        found
            .map(|(ids, draft)| (*ids, draft.event.kind(), draft.data.as_str()))
            .collect()
    };

    let mut by_trace: HashMap<&str, usize> = HashMap::new();
    for trace in ["a", "a@1", "a@2"] {
        let expected = expected(&|draft| draft.trace_id.as_str() == trace);
        by_trace.insert(trace, expected.len());
        for since in 0..=expected.len() {
            for limit in [0, 1, 3, usize::MAX] {
                let read = world
                    .reader
                    .events(&trace_id(trace), since as u64, limit)
                    .unwrap();
                assert_same(
                    &read,
                    expected[since..].iter().take(limit),
                    &format!("{trace} after {since}"),
                );
            }
        }
        assert!(
            world
                .reader
                .events(&trace_id(trace), u64::MAX, 1)
                .unwrap()
                .is_empty()
        );
    }
    assert_eq!((by_trace["a@1"], by_trace["a@2"]), (2, 2));
    for run in ["a", "c1", "c2"] {
        let expected = expected(&|draft| draft.run_id.as_ref() == Some(&run_id(run)));
        assert_same(
            &world.reader.run_events(&run_id(run)).unwrap(),
            &expected,
            run,
        );
    }
    let expected = expected(&|_| true);
    for seen in 0..=expected.len() {
        let lsn = world
            .reader
            .session_lsn(&session_id("a"), seen as u64)
            .unwrap();
        for limit in [1, 3, usize::MAX] {
            let read = world
                .reader
                .session_events(&session_id("a"), lsn, limit)
                .unwrap();
            assert_same(
                &read,
                expected[seen..].iter().take(limit),
                &format!("the session after {seen}"),
            );
        }
    }
}

pub(super) fn goals_at_an_lsn_end_within_an_append(mut world: TestStore) {
    world.start_run("a");
    let mut tree = GoalTree::new("task of a");
    let planned = tree.plan_mission_goal("task of a", 1, at(1));
    planned.iter().for_each(|event| tree.apply(event));
    let mut writes = vec![event("a", Some("a"), 1, started())];
    writes.extend(
        planned
            .into_iter()
            .map(|planned| event("a", Some("a"), 1, planned)),
    );
    writes.push(event("a", Some("a"), 1, turn_started(1)));
    let lsns: Vec<u64> = world
        .write(writes)
        .events
        .iter()
        .map(|ids| ids.lsn)
        .collect();
    let goals = |lsn| {
        world
            .reader
            .goal_tree_at(&trace_id("a"), lsn)
            .unwrap()
            .unwrap()
    };
    let counts: Vec<_> = lsns
        .iter()
        .map(|lsn| (goals(*lsn).goals.len(), goals(*lsn).current_id.is_some()))
        .collect();
    assert_eq!(counts, [(0, false), (1, false), (1, true), (1, true)]);
    assert_eq!(goals(u64::MAX).goals.len(), 1, "any lsn may be asked for");
}

pub(super) fn collaborators_and_forks_end_within_an_append(mut world: TestStore) {
    world.start_run("a");
    let collaborator = |name: &str| SubAgentEvent::CollaboratorUpdated {
        collaborator: Collaborator {
            name: name.into(),
            kind: CollaboratorKind::Agent,
            trace_id: None,
            status: CollaboratorStatus::Running,
            summary: String::new(),
        },
    };
    let child = |number: u64| SubAgentEvent::Started {
        sub_trace_id: trace_id(&format!("a@{number}")),
        run_id: run_id(&format!("c{number}")),
        mode: ChildMode::Explore,
        agent_type: "default".into(),
        task: "t".into(),
        parent_goal_id: None,
        tool_call_id: None,
        deliver: false,
    };
    let mut writes: Vec<Write> = (1..=2)
        .map(|number| sub_trace(&format!("a@{number}"), "a", Some("a"), None))
        .collect();
    for number in 1..=2 {
        writes.extend(added(
            message("a", number, (number > 1).then(|| number - 1), Role::User),
            "a",
            1,
        ));
        writes.push(event("a", Some("a"), 1, child(number)));
        writes.push(event(
            "a",
            Some("a"),
            1,
            collaborator(&format!("c{number}")),
        ));
    }
    let lsns: Vec<u64> = world
        .write(writes)
        .events
        .iter()
        .map(|ids| ids.lsn)
        .collect();
    let counts: Vec<usize> = lsns
        .iter()
        .map(|lsn| {
            world
                .reader
                .collaborators_at(&trace_id("a"), *lsn)
                .unwrap()
                .len()
        })
        .collect();
    assert_eq!(counts, [0, 0, 1, 1, 1, 2]);
    for (id, to, linked) in [("b", 1, 0), ("c", 2, 1)] {
        world.write(vec![fork(id, "a", to), fork_event(id, "a", to)]);
        assert_eq!(
            world.reader.linked_traces(&trace_id(id)).unwrap().len(),
            linked,
            "a fork at message {to}"
        );
    }
}

pub(super) fn unreadable_event_leaves_others_readable(mut world: TestStore) {
    world.start_run("a");
    let Write::Event(mut broken) = event("a", None, 1, queued()) else {
        unreachable!("it is an event")
    };
    broken.data = r#"{"position":[redacted]}"#.into();
    broken.event = Event::decode(broken.event.kind(), &broken.data);
    world.write(vec![
        event("a", None, 1, queued()),
        Write::Event(broken.clone()),
        event("a", None, 1, queued()),
    ]);
    let data: Vec<String> = world
        .events("a")
        .into_iter()
        .map(|event| event.data)
        .collect();
    assert_eq!(
        data,
        [r#"{"position":1}"#, &broken.data, r#"{"position":1}"#]
    );
}
