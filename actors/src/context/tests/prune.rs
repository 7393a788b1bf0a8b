//! CTX-2: which messages are kept, which are replaced by a summary, and properties of all
//! conversations.

use GoalStatus::{Abandoned, Completed, InProgress, Pending};

use super::{super::prune::*, *};

/// Builds the context. Each original message is shown by its sequence number, each replacement by
/// its text.
fn shown(path: &[SizedMessage], goals: &GoalTree, keep_recent: usize) -> Vec<String> {
    let built = prune(path, &goals_to_omit(goals), keep_recent, count);
    assert_valid(&built.messages);
    let as_text = |message: &Arc<Message>| {
        if is_replacement(&message.content) {
            message.content.to_string()
        } else {
            message.sequence.to_string()
        }
    };
    built.messages.iter().map(as_text).collect()
}

#[test]
fn messages_of_closed_goals_are_replaced_by_summaries() {
    let tree = goals(
        &[
            ("look", None, Completed, "saw it"),
            ("try", None, Abandoned, "no way"),
            ("write", None, InProgress, ""),
            ("quiet", None, Completed, " "),
        ],
        Some("3"),
    );
    let ask = || Talk::default().user("do it");
    for (what, path, want) in [
        (
            "nothing is over",
            ask().calls(Some("3"), &["read"]),
            vec!["1", "2", "3"],
        ),
        (
            "one is",
            ask()
                .calls(Some("1"), &["read"])
                .calls(Some("3"), &["write"]),
            vec!["1", "[Goal 1 completed: look] saw it", "4", "5"],
        ),
        (
            "two in a row are summarized in one message",
            ask()
                .calls(Some("1"), &["read"])
                .calls(Some("2"), &["read"]),
            vec![
                "1",
                "[Goal 1 completed: look] saw it\n\n[Goal 2 abandoned: try] no way",
            ],
        ),
        (
            "each is summarized once, where its first message stood",
            {
                ask()
                    .calls(Some("1"), &["read"])
                    .calls(Some("3"), &["read"])
                    .calls(Some("1"), &["read"])
            },
            vec!["1", "[Goal 1 completed: look] saw it", "4", "5"],
        ),
        (
            "no summary, none shown",
            ask().calls(Some("4"), &["read"]),
            vec!["1", "[Goal 4 completed: quiet]"],
        ),
        (
            "an unknown goal stays",
            ask().calls(Some("77"), &["read"]),
            vec!["1", "2", "3"],
        ),
        (
            "no goal stays",
            ask().calls(None, &["read"]),
            vec!["1", "2", "3"],
        ),
        (
            "a result of an open goal keeps its call",
            ask().calls(Some("1"), &["read", "read@3"]),
            vec!["1", "2", "3", "4"],
        ),
        (
            "a result of no goal keeps its call",
            ask().calls(Some("1"), &["read@"]),
            vec!["1", "2", "3"],
        ),
        (
            "a call to the plan goes with its goal",
            ask().calls(Some("1"), &["goal@3"]),
            vec!["1", "[Goal 1 completed: look] saw it"],
        ),
        (
            "what is said between is conversation",
            {
                ask()
                    .says(Some("1"), "thinking aloud")
                    .calls(Some("1"), &["read"])
                    .says(Some("1"), "done")
                    .user("more")
                    .says(Some("1"), "yes")
            },
            vec!["1", "[Goal 1 completed: look] saw it", "5", "6", "7"],
        ),
    ] {
        assert_eq!(shown(&path.0, &tree, 0), want, "{what}");
    }
}

#[test]
fn messages_of_focused_goal_and_its_parents_are_kept() {
    let tree = |focus| {
        goals(
            &[
                ("a", None, Completed, "A"),
                ("a1", Some("1"), Completed, "A1"),
                ("a2", Some("1"), InProgress, ""),
                ("a2x", Some("1.2"), Completed, "A2X"),
                ("b", None, Completed, "B"),
            ],
            focus,
        )
    };
    let path = (1..=5)
        .fold(Talk::default().user("go"), |talk, goal| {
            talk.calls(Some(&goal.to_string()), &["read"])
        })
        .0;
    let a = "[Goal 1 completed: a] A";
    let a1 = "[Goal 1.1 completed: a1] A1";
    let a2x = "[Goal 1.2.1 completed: a2x] A2X";
    let b = "[Goal 2 completed: b] B";
    // Goal 1 is above the focus, goal 4 is below; 2 and 5 are neither.
    assert_eq!(
        shown(&path, &tree(Some("3")), 0),
        ["1", "2", "3", a1, "6", "7", "8", "9", b]
    );
    let both = |one: &str, other: &str| format!("{one}\n\n{other}");
    assert_eq!(
        shown(&path, &tree(None), 0),
        ["1", &both(a, a1), "6", "7", &both(a2x, b)]
    );
}

#[test]
fn recent_messages_are_kept_in_whole_groups() {
    let tree = goals(
        &[("a", None, Completed, "A"), ("b", None, Pending, "")],
        None,
    );
    let path = Talk::default()
        .user("go")
        .calls(Some("1"), &["read", "read"])
        .calls(Some("1"), &["read", "read"])
        .0;
    let a = "[Goal 1 completed: a] A";
    for (keep_recent, want) in [
        (0, vec!["1", a]),
        (1, vec!["1", a, "5", "6", "7"]),
        (3, vec!["1", a, "5", "6", "7"]),
        (4, vec!["1", "2", "3", "4", "5", "6", "7"]),
        (100, vec!["1", "2", "3", "4", "5", "6", "7"]),
    ] {
        assert_eq!(shown(&path, &tree, keep_recent), want, "{keep_recent}");
    }
}

#[test]
fn tool_result_without_call_is_omitted() {
    let tree = GoalTree::new("m");
    let mut talk = Talk::default();
    talk.add(Role::Tool, None, "lost", |message| {
        message.tool_call_id = Some("gone".into())
    });
    let path = talk.user("go on").says(None, "yes").0;
    let built = prune(&path, &goals_to_omit(&tree), 10, count);
    assert_eq!((built.messages.len(), built.omitted), (2, 1));
    assert_valid(&built.messages);
}

#[test]
fn goal_summary_is_recognized_by_its_prefix() {
    for (text, is_one) in [
        ("[Goal 1 completed: x] y", true),
        ("[Goal 12.3.4 abandoned: x]", true),
        ("[Goal setting completed: x]", false),
        ("[Goal 1] completed: x", false),
        ("Goal 1 completed: x", false),
        ("", false),
    ] {
        assert_eq!(is_replacement(text), is_one, "{text}");
    }
}

#[test]
fn five_thousand_messages_are_pruned_in_linear_time() {
    let wanted: Vec<_> = (0..200)
        .map(|_| ("goal", None, Completed, "done"))
        .collect();
    let tree = goals(&wanted, None);
    let path = (0..2500)
        .fold(Talk::default(), |talk, n| {
            talk.calls(Some(&(n / 13 + 1).to_string()), &["read"])
        })
        .0;
    let start = std::time::Instant::now();
    let built = prune(&path, &goals_to_omit(&tree), 10, count);
    // Much more than it takes (0.2 ms in release), and much less than scanning the path for each
    // message.
    assert!(
        start.elapsed() < std::time::Duration::from_millis(250),
        "{:?}",
        start.elapsed()
    );
    assert_eq!((path.len(), built.omitted), (5000, 4990));
}

proptest! {
    #[test]
    fn pruned_conversation_stays_valid_ordered_and_counted(
        path in any_path(), goals in any_goals(), keep_recent in 0usize..12
    ) {
        let built = prune(&path, &goals_to_omit(&goals), keep_recent, count);
        assert_valid(&built.messages);
        prop_assert_eq!(built.tokens, built.messages.iter().map(|message| count(message)).sum::<u64>());
        let is_kept = |message: &&Arc<Message>| !is_replacement(&message.content);
        let kept_sequences: Vec<u64> = built.messages.iter().filter(is_kept).map(|message| message.sequence).collect();
        prop_assert!(kept_sequences.is_sorted() && kept_sequences.len() + built.omitted == path.len());
        prop_assert!(built.messages.iter().map(|message| message.sequence).is_sorted());
        // Messages of users and the most recent messages are all kept_sequences.
        let recent = path.len().saturating_sub(keep_recent);
        for (index, entry) in path.iter().enumerate() {
            let stays = entry.message.role == Role::User || index >= recent || entry.message.goal_id.is_none() && entry.message.role != Role::Tool;
            prop_assert!(!stays || kept_sequences.contains(&entry.message.sequence), "{:?}", entry.message);
        }
        // No goal is replaced twice, and no two replacement messages are adjacent.
        prop_assert!(built.messages.windows(2).all(|two| !two.iter().all(|message| is_replacement(&message.content))));
    }

    #[test]
    fn pruning_is_idempotent(path in any_path(), goals in any_goals(), keep_recent in 0usize..12) {
        let once = prune(&path, &goals_to_omit(&goals), keep_recent, count);
        let entries: Vec<SizedMessage> =
            once.messages.iter().map(|message| SizedMessage { tokens: count(message), message: Arc::clone(message) }).collect();
        let twice = prune(&entries, &goals_to_omit(&goals), keep_recent, count);
        prop_assert_eq!(&once.messages, &twice.messages);
        prop_assert_eq!((once.tokens, 0), (twice.tokens, twice.omitted));
    }
}
