//! Messages and their tree (MSG-1).

use soong_protocol::{Role, ToolCall, Usd};

use super::world::{World, child_run, goal_id, message, new_run, open, say, sub_trace, trace_id};
use crate::store::{MessagePath, StoreError};

fn path(world: &World, trace: &str, path: MessagePath) -> Vec<u64> {
    let messages = world.reader.messages(&trace_id(trace), path).unwrap();
    messages.into_iter().map(|message| message.sequence).collect()
}

pub(super) fn a_message_comes_back_as_it_was_written(mut world: World) {
    world.begin("a");
    let first = message("a", 1, None, Role::User);
    let mut second = message("a", 2, Some(1), Role::Assistant);
    second.content = "数 🦀 \u{0} end".into();
    second.reasoning = Some("because".into());
    second.tool_calls = vec![ToolCall { id: "c1".into(), name: "read".into(), arguments: "{not json".into() }];
    second.goal_id = Some(goal_id("3"));
    second.prompt_tokens = Some(100);
    second.completion_tokens = Some(7);
    second.cost = Some(Usd::from_nanos(42));
    second.duration_ms = Some(900);
    second.finish_reason = Some("tool_calls".into());
    let mut third = message("a", 3, Some(2), Role::Tool);
    third.tool_call_id = Some("c1".into());
    third.partial = true;
    let all = vec![first, second, third];
    world.write(all.iter().cloned().map(say).collect());
    assert_eq!(world.reader.messages(&trace_id("a"), MessagePath::All).unwrap(), all);
    assert!(world.reader.messages(&trace_id("nowhere"), MessagePath::All).unwrap().is_empty());
}

pub(super) fn the_main_path_leads_from_the_first_message_to_the_head(mut world: World) {
    world.begin("a");
    assert!(path(&world, "a", MessagePath::Main).is_empty());
    for sequence in 1..=5 {
        world.write(vec![say(message("a", sequence, (sequence > 1).then(|| sequence - 1), Role::User))]);
    }
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 2, 3, 4, 5]);
    // Rewound to 3: 4 and 5 are kept, off the path.
    world.write(vec![say(message("a", 6, Some(3), Role::User)), say(message("a", 7, Some(6), Role::Assistant))]);
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 2, 3, 6, 7]);
    assert_eq!(path(&world, "a", MessagePath::All), [1, 2, 3, 4, 5, 6, 7]);
    let trace = world.trace("a");
    assert_eq!((trace.head_sequence, trace.last_sequence, trace.total_messages), (7, 7, 7));

    for taken in [7, 3] {
        let refused = world.refused(vec![say(message("a", taken, Some(1), Role::User))]);
        assert_eq!(refused, StoreError::Exists(format!("message a-{taken:04}")));
    }
    let ahead = world.refused(vec![say(message("a", 8, Some(9), Role::User))]);
    assert_eq!(ahead, StoreError::Missing("message a-0009".into()));
}

pub(super) fn a_partial_message_never_becomes_head(mut world: World) {
    world.begin("a");
    let mut cut = message("a", 2, Some(1), Role::Assistant);
    cut.partial = true;
    world.write(vec![say(message("a", 1, None, Role::User)), say(cut)]);
    let trace = world.trace("a");
    assert_eq!((trace.head_sequence, trace.last_sequence, trace.total_messages), (1, 2, 2));
    assert_eq!(path(&world, "a", MessagePath::Main), [1]);
    world.write(vec![say(message("a", 3, Some(1), Role::Assistant))]);
    assert_eq!(path(&world, "a", MessagePath::Main), [1, 3]);
}

pub(super) fn messages_are_read_by_their_sequences(mut world: World) {
    world.begin("a");
    world.begin("b");
    let mut cut = message("a", 3, Some(2), Role::Assistant);
    cut.partial = true;
    world.write(vec![say(message("a", 1, None, Role::User)), say(message("a", 2, Some(1), Role::User)), say(cut)]);
    world.write(vec![say(message("b", 4, None, Role::User))]);
    for (trace, sequences, want) in [
        ("a", vec![], vec![]),
        ("a", vec![2], vec![2]),
        ("a", vec![3, 1], vec![3, 1]),
        ("a", vec![4, 2, 0, u64::MAX], vec![2]),
        ("b", vec![1, 2, 3, 4], vec![4]),
        ("nowhere", vec![1], vec![]),
    ] {
        let found = world.reader.messages_at(&trace_id(trace), &sequences).unwrap();
        let found: Vec<u64> = found.iter().map(|message| message.sequence).collect();
        assert_eq!(found, want, "{sequences:?} of {trace}");
    }
    let all = world.reader.messages(&trace_id("a"), MessagePath::All).unwrap();
    assert_eq!(world.reader.messages_at(&trace_id("a"), &[1, 2, 3]).unwrap(), all, "whole, also what was cut off");
}

pub(super) fn messages_count_for_the_run_that_writes_them(mut world: World) {
    world.begin("a");
    world.write(vec![sub_trace("a@1", "a", Some("a"), None), child_run("c", "a@1", "a", "a"), open("c")]);
    world.fenced("a", 1, 1, vec![say(message("a", 1, None, Role::User))]).unwrap();
    // A child's last append may speak on its parent's trace as well: that is not the child's message.
    let both = vec![say(message("a@1", 1, None, Role::Assistant)), say(message("a", 2, Some(1), Role::Tool))];
    world.fenced("c", 1, 1, both).unwrap();
    // The run may be made, fed and opened in one append, in any order.
    world.write(vec![new_run("next", "a", "a"), say(message("a", 3, Some(2), Role::User)), open("next")]);
    let counts: Vec<u64> = ["a", "c", "next"].iter().map(|run| world.run(run).usage.messages).collect();
    assert_eq!(counts, [1, 1, 1]);
    assert_eq!((world.trace("a").total_messages, world.trace("a@1").total_messages), (3, 1));
}
