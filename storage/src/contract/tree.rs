//! Messages and their tree (MSG-1).

use soong_protocol::{
    ArtifactId, ContentPart, Covers, GoalTree, Message, MessageContent, MessageEvent,
    MessageOrigin, ModelSource, PartFile, ProviderData, ProviderItem, Role, ToolCall, Usd,
};

use super::world::{
    TestStore, add_message, child_run, event, goal_id, message, new_run, open_run, session_id,
    sub_trace, trace_id,
};
use crate::store::{MessagePath, StoreError};

fn rewind(to: u64, from: u64) -> MessageEvent {
    let goal_tree_snapshot = Box::new(GoalTree::new("task of a"));
    let restored = Vec::new();
    let left = Vec::new();
    MessageEvent::Rewind {
        after_sequence: to,
        head_sequence: to,
        from_sequence: from,
        goal_tree: goal_tree_snapshot.clone(),
        goal_tree_snapshot,
        restored,
        left,
        collaborators: None,
    }
}

fn switch(to: u64, from: u64) -> MessageEvent {
    let tree = || Box::new(GoalTree::new("task of a"));
    let restored = Vec::new();
    let left = Vec::new();
    MessageEvent::HeadSwitched {
        sequence: to,
        from_sequence: from,
        goal_tree_snapshot: tree(),
        goal_tree: tree(),
        restored,
        left,
        collaborators: None,
    }
}

fn path(world: &TestStore, trace: &str, path: MessagePath) -> Vec<u64> {
    let messages = world.reader.messages(&trace_id(trace), path).unwrap();
    messages
        .into_iter()
        .map(|message| message.sequence)
        .collect()
}

pub(super) fn messages_round_trip(mut world: TestStore) {
    world.start_run("a");
    let first = message("a", 1, None, Role::User);
    let mut second = message("a", 2, Some(1), Role::Assistant);
    second.content = "数 🦀 \u{0} end".into();
    second.reasoning = Some("because".into());
    second.tool_calls = vec![ToolCall {
        id: "c1".into(),
        name: "read".into(),
        arguments: "{not json".into(),
    }];
    second.provider_data = Some(Box::new(ProviderData {
        source: ModelSource {
            dialect: "openai".into(),
            base_url: "https://h/v1".into(),
            api_key_env: "KEY".into(),
            model: "m".into(),
        },
        items: vec![
            ProviderItem::Opaque(serde_json::json!({"encrypted": "x"})),
            ProviderItem::Text {
                bytes: 9,
                data: serde_json::Value::Null,
            },
        ],
    }));
    second.goal_id = Some(goal_id("3"));
    second.prompt_tokens = Some(100);
    second.completion_tokens = Some(7);
    second.cost = Some(Usd::from_nanos(42));
    second.duration_ms = Some(900);
    second.finish_reason = Some("tool_calls".into());
    let mut third = message("a", 3, Some(2), Role::Tool);
    third.tool_call_id = Some("c1".into());
    third.partial = true;
    let file = PartFile {
        artifact_id: ArtifactId::new("a1"),
        content_type: "image/png".into(),
        size: 9,
        filename: None,
        width: Some(2),
        height: Some(1),
        scaled_from: Some((20, 10)),
    };
    third.content =
        MessageContent::from_parts(vec![ContentPart::text("See"), ContentPart::of_file(file)]);
    let all = vec![first, second, third];
    world.write(all.iter().cloned().map(add_message).collect());
    assert_eq!(
        world
            .reader
            .messages(&trace_id("a"), MessagePath::All)
            .unwrap(),
        all
    );
    assert!(
        world
            .reader
            .messages(&trace_id("nowhere"), MessagePath::All)
            .unwrap()
            .is_empty()
    );
}

pub(super) fn main_path_leads_from_first_message_to_head(mut world: TestStore) {
    world.start_run("a");
    assert!(path(&world, "a", MessagePath::Main).is_empty());
    for sequence in 1..=5 {
        world.write(vec![add_message(message(
            "a",
            sequence,
            (sequence > 1).then(|| sequence - 1),
            Role::User,
        ))]);
    }
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 2, 3, 4, 5]);
    // After a rewind to 3, messages 4 and 5 are kept off the path.
    world.write(vec![
        event("a", Some("a"), 2, rewind(3, 5)),
        add_message(message("a", 6, Some(3), Role::User)),
        add_message(message("a", 7, Some(6), Role::Assistant)),
    ]);
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 2, 3, 6, 7]);
    assert_eq!(path(&world, "a", MessagePath::All), [1, 2, 3, 4, 5, 6, 7]);
    let trace = world.trace("a");
    assert_eq!(
        (
            trace.head_sequence,
            trace.last_sequence,
            trace.total_messages
        ),
        (7, 7, 7)
    );
    // Without the event, a message whose parent is not the head is on a side branch.
    world.write(vec![add_message(message("a", 8, Some(5), Role::Assistant))]);
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 2, 3, 6, 7]);
    assert_eq!(path(&world, "a", MessagePath::To(8)), [1, 2, 3, 4, 5, 8]);

    for used_sequence in [7, 3] {
        let refused = world.write_rejected(vec![add_message(message(
            "a",
            used_sequence,
            Some(1),
            Role::User,
        ))]);
        assert_eq!(
            refused,
            StoreError::AlreadyExists(format!("message a-{used_sequence:04}"))
        );
    }
    let ahead = world.write_rejected(vec![add_message(message("a", 9, Some(10), Role::User))]);
    assert_eq!(ahead, StoreError::NotFound("message a-0010".into()));
}

pub(super) fn summary_replaces_covered_messages(mut world: TestStore) {
    world.start_run("a");
    for sequence in 1..=5 {
        world.write(vec![add_message(message(
            "a",
            sequence,
            (sequence > 1).then(|| sequence - 1),
            Role::User,
        ))]);
    }
    world.write(vec![event("a", Some("a"), 2, rewind(3, 5))]);
    world.write(vec![
        add_message(message("a", 6, Some(3), Role::User)),
        add_message(message("a", 7, Some(6), Role::Assistant)),
    ]);
    // MSG-5: message 8 replaces 1 to 3.
    let covers = Covers {
        first: 1,
        last: 3,
        next: 6,
        system: None,
        request: None,
    };
    let summary = Message {
        covers: Some(covers),
        ..message("a", 8, None, Role::User)
    };
    world.write(vec![add_message(summary.clone())]);
    assert_eq!(path(&world, "a", MessagePath::Main), [8, 6, 7]);
    assert_eq!(world.trace("a").head_sequence, 7);
    assert_eq!(
        world.reader.messages_at(&trace_id("a"), &[8, 6]).unwrap()[0],
        summary
    );
    let messages = world.reader.messages_at(&trace_id("a"), &[6]).unwrap();
    assert_eq!(messages[0].parent_sequence, Some(3), "links stay");
    world.write(vec![add_message(message("a", 9, Some(7), Role::Assistant))]);
    assert_eq!(path(&world, "a", MessagePath::Main), [8, 6, 7, 9]);
    // The path to a covered message follows the old links; the path to a later one has the summary.
    for (sequence, want) in [
        (2, vec![1, 2]),
        (3, vec![1, 2, 3]),
        (6, vec![8, 6]),
        (5, vec![1, 2, 3, 4, 5]),
    ] {
        assert_eq!(
            path(&world, "a", MessagePath::To(sequence)),
            want,
            "to {sequence}"
        );
    }
    // A second summary covers the first; it names the system message and the request that stay on
    // the path.
    let covers = Covers {
        first: 8,
        last: 7,
        next: 9,
        system: Some(1),
        request: Some(6),
    };
    world.write(vec![add_message(Message {
        covers: Some(covers),
        ..message("a", 10, None, Role::User)
    })]);
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 10, 6, 9]);
    // A message of the runtime is no request.
    let origin = Some(MessageOrigin::Correction);
    world.write(vec![add_message(Message {
        origin,
        ..message("a", 11, Some(9), Role::User)
    })]);
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 10, 6, 9, 11]);
    // A new request does not change the path before it.
    world.write(vec![add_message(message("a", 12, Some(11), Role::User))]);
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 10, 6, 9, 11, 12]);
    assert_eq!(path(&world, "a", MessagePath::To(9)), [1, 10, 6, 9]);
    world.write(vec![event("a", Some("a"), 3, rewind(7, 12))]);
    assert_eq!(path(&world, "a", MessagePath::Main), [8, 6, 7]);
    world.write(vec![event("a", Some("a"), 3, rewind(2, 7))]);
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 2]);
}

pub(super) fn summary_keeps_a_request_only_if_no_later_one_precedes_it(mut world: TestStore) {
    for (trace, role, want) in [
        ("a", Role::User, vec![5, 3, 4]),
        ("b", Role::Assistant, vec![5, 2, 3, 4]),
    ] {
        world.start_run(trace);
        for (sequence, role) in [
            (1, Role::User),
            (2, Role::User),
            (3, role),
            (4, Role::Assistant),
        ] {
            world.write(vec![add_message(message(
                trace,
                sequence,
                (sequence > 1).then(|| sequence - 1),
                role,
            ))]);
        }
        let covers = Covers {
            first: 1,
            last: 2,
            next: 3,
            system: None,
            request: Some(2),
        };
        world.write(vec![add_message(Message {
            covers: Some(covers),
            ..message(trace, 5, None, Role::User)
        })]);
        assert_eq!(path(&world, trace, MessagePath::Main), want, "{trace}");
    }
}

pub(super) fn head_moves_only_between_resume_points(mut world: TestStore) {
    world.start_run("a");
    let asks = |sequence, parent, calls: &[&str]| {
        let call = |id: &&str| ToolCall {
            id: (*id).into(),
            name: "read".into(),
            arguments: "{}".into(),
        };
        let tool_calls = calls.iter().map(call).collect();
        add_message(Message {
            tool_calls,
            ..message("a", sequence, Some(parent), Role::Assistant)
        })
    };
    let answers = |sequence, id: &str| {
        add_message(Message {
            tool_call_id: Some(id.into()),
            ..message("a", sequence, Some(sequence - 1), Role::Tool)
        })
    };
    let partial_message = Message {
        partial: true,
        ..message("a", 7, Some(6), Role::Assistant)
    };
    world.write(vec![
        add_message(message("a", 1, None, Role::User)),
        asks(2, 1, &["x", "y"]),
        answers(3, "x"),
        answers(4, "y"),
    ]);
    world.write(vec![
        asks(5, 4, &["z", "w"]),
        answers(6, "z"),
        add_message(partial_message),
    ]);
    let resume_point =
        |world: &TestStore, sequence| world.reader.resume_point(&trace_id("a"), sequence).unwrap();
    let found = |world: &TestStore, sequence| {
        resume_point(world, sequence)
            .map(|resume_point| (resume_point.sequence, resume_point.is_on_path))
    };
    // MSG-3: the end of the turn is the last result; if a call has no result, it is the last
    // existing result.
    for (sequence, want) in [(1, 1), (2, 4), (3, 4), (4, 4), (5, 6), (6, 6)] {
        assert_eq!(found(&world, sequence), Some((want, true)), "{sequence}");
    }
    assert_eq!(
        (found(&world, 7), found(&world, 8), found(&world, 0)),
        (None, None, None)
    );

    let moved = StoreError::HeadMoved(trace_id("a"));
    assert_eq!(
        world.write_rejected(vec![event("a", Some("a"), 2, rewind(4, 5))]),
        moved
    );
    let missing = |sequence: u64| StoreError::NotFound(format!("message a-{sequence:04}"));
    assert_eq!(
        world.write_rejected(vec![event("a", Some("a"), 2, rewind(7, 6))]),
        missing(7)
    );
    // The run "a" is live, so no one else may move the head.
    assert_eq!(
        world.write_rejected(vec![event("a", None, 2, switch(1, 6))]),
        StoreError::SessionActive(session_id("a"))
    );
    assert_eq!(
        world.write_rejected(vec![event("a", Some("a"), 2, switch(9, 6))]),
        missing(9)
    );
    world.write(vec![event("a", Some("a"), 2, rewind(4, 6))]);
    assert_eq!(
        (world.trace("a").head_sequence, found(&world, 6)),
        (4, Some((6, false)))
    );
    assert_eq!(
        world.write_rejected(vec![event("a", Some("a"), 2, rewind(6, 4))]),
        missing(6)
    );
    world.write(vec![add_message(message("a", 8, Some(4), Role::User))]);
    world.write(vec![event("a", Some("a"), 2, switch(6, 8))]);
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 2, 3, 4, 5, 6]);
    world.write(vec![add_message(message("a", 9, Some(6), Role::User))]);
    world.write(vec![event("a", Some("a"), 2, switch(8, 9))]);
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 2, 3, 4, 8]);
    assert_eq!(path(&world, "a", MessagePath::To(9)), [1, 2, 3, 4, 5, 6, 9]);
}

pub(super) fn partial_message_never_becomes_head(mut world: TestStore) {
    world.start_run("a");
    let mut partial_message = message("a", 2, Some(1), Role::Assistant);
    partial_message.partial = true;
    world.write(vec![
        add_message(message("a", 1, None, Role::User)),
        add_message(partial_message),
    ]);
    let trace = world.trace("a");
    assert_eq!(
        (
            trace.head_sequence,
            trace.last_sequence,
            trace.total_messages
        ),
        (1, 2, 2)
    );
    assert_eq!(path(&world, "a", MessagePath::Main), [1]);
    world.write(vec![add_message(message("a", 3, Some(1), Role::Assistant))]);
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 3]);
}

pub(super) fn messages_are_read_by_sequence(mut world: TestStore) {
    world.start_run("a");
    world.start_run("b");
    let mut partial_message = message("a", 3, Some(2), Role::Assistant);
    partial_message.partial = true;
    world.write(vec![
        add_message(message("a", 1, None, Role::User)),
        add_message(message("a", 2, Some(1), Role::User)),
        add_message(partial_message),
    ]);
    world.write(vec![add_message(message("b", 4, None, Role::User))]);
    for (trace, sequences, want) in [
        ("a", vec![], vec![]),
        ("a", vec![2], vec![2]),
        ("a", vec![3, 1], vec![3, 1]),
        ("a", vec![4, 2, 0, u64::MAX], vec![2]),
        ("b", vec![1, 2, 3, 4], vec![4]),
        ("nowhere", vec![1], vec![]),
    ] {
        let found = world
            .reader
            .messages_at(&trace_id(trace), &sequences)
            .unwrap();
        let found: Vec<u64> = found.iter().map(|message| message.sequence).collect();
        assert_eq!(found, want, "{sequences:?} of {trace}");
    }
    let all = world
        .reader
        .messages(&trace_id("a"), MessagePath::All)
        .unwrap();
    assert_eq!(
        world
            .reader
            .messages_at(&trace_id("a"), &[1, 2, 3])
            .unwrap(),
        all,
        "whole, also what was cut off"
    );
}

pub(super) fn messages_count_for_the_writing_run(mut world: TestStore) {
    world.start_run("a");
    world.write(vec![
        sub_trace("a@1", "a", Some("a"), None),
        child_run("c", "a@1", "a", "a"),
        open_run("c"),
    ]);
    world
        .fenced(
            "a",
            1,
            1,
            vec![add_message(message("a", 1, None, Role::User))],
        )
        .unwrap();
    // The last append of a child may also write a message to its parent's trace, which is not
    // counted for the child.
    let both = vec![
        add_message(message("a@1", 1, None, Role::Assistant)),
        add_message(message("a", 2, Some(1), Role::Tool)),
    ];
    world.fenced("c", 1, 1, both).unwrap();
    // A run can be created, get its message and be opened in one append, in any order.
    world.write(vec![
        new_run("next", "a", "a"),
        add_message(message("a", 3, Some(2), Role::User)),
        open_run("next"),
    ]);
    let counts: Vec<u64> = ["a", "c", "next"]
        .iter()
        .map(|run| world.run(run).usage.messages)
        .collect();
    assert_eq!(counts, [1, 1, 1]);
    assert_eq!(
        (
            world.trace("a").total_messages,
            world.trace("a@1").total_messages
        ),
        (3, 1)
    );
}
