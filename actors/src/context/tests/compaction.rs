//! CTX-3: which prefix a summary covers.

use super::{
    super::{compaction::*, summary::is_summary, summary_message},
    *,
};

fn summary() -> String {
    summary_message("## Next step\nnone", 1, 9, &GoalTree::new("m"))
}

#[test]
fn recent_messages_are_kept_and_request_is_pinned() {
    let work =
        |talk: Talk, times: usize| (0..times).fold(talk, |talk, _| talk.calls(None, &["read"]));
    let ask = || Talk::default().user("do it");
    let cut = |covered, pinned| Some(CompactionPlan { covered, pinned });
    for (what, path, keep_recent, budget, want) in [
        ("nothing", Talk::default(), 2, 1000, None),
        ("only the request", ask(), 2, 1000, None),
        ("all is recent", work(ask(), 2), 10, 1000, None),
        (
            "the request and work",
            work(ask(), 3),
            2,
            1000,
            cut(5, Some(0)),
        ),
        (
            "a unit is not split",
            work(ask(), 3),
            1,
            1000,
            cut(5, Some(0)),
        ),
        (
            "the last unit stays whatever it costs",
            work(ask(), 3),
            6,
            1,
            cut(5, Some(0)),
        ),
        (
            "two units fill half of the budget",
            work(ask(), 3),
            6,
            2 * 2 * (4 + 18),
            cut(3, Some(0)),
        ),
        (
            "half of the budget stops the end",
            work(ask(), 3),
            6,
            2 * 2 * (4 + 18) - 2,
            cut(5, Some(0)),
        ),
        (
            "no request is covered",
            work(work(ask(), 3).says(None, "done").user("more"), 1),
            4,
            1000,
            cut(7, None),
        ),
        (
            "only the request is before the end",
            work(ask(), 1),
            2,
            1000,
            None,
        ),
        (
            "only a summary is",
            work(Talk::default().user(&summary()), 1),
            2,
            1000,
            None,
        ),
        (
            "only a summary and the request",
            work(Talk::default().user(&summary()).user("do it"), 1),
            2,
            1000,
            None,
        ),
        (
            "a summary and work",
            work(Talk::default().user(&summary()).user("do it"), 2),
            2,
            1000,
            cut(4, Some(1)),
        ),
        (
            "an older request is work",
            work(ask().user("and more"), 1),
            2,
            1000,
            cut(2, Some(1)),
        ),
    ] {
        assert_eq!(
            plan_compaction(&path.0, keep_recent, budget),
            want,
            "{what}"
        );
    }
}

proptest! {
    #[test]
    fn any_compaction_leaves_valid_conversation_and_covers_messages(
        path in any_path(), keep_recent in 0usize..12, budget in 0u64..400
    ) {
        let Some(cut) = plan_compaction(&path, keep_recent, budget) else { return Ok(()) };
        prop_assert!(cut.covered > 0 && cut.covered < path.len());
        let request = path.iter().rposition(|entry| entry.message.role == Role::User);
        prop_assert_eq!(cut.pinned, request.filter(|index| *index < cut.covered));
        let mut left = Talk::default().user(&summary()).0;
        prop_assert!(is_summary(&left[0].message));
        left.extend(cut.pinned.map(|index| path[index].clone()));
        left.extend_from_slice(&path[cut.covered..]);
        let messages: Vec<_> = left.iter().map(|entry| Arc::clone(&entry.message)).collect();
        assert_valid(&messages);
        // At most the requested messages are kept, plus the rest of the unit they start in.
        let kept_count = path.len() - cut.covered;
        prop_assert!(kept_count <= keep_recent.max(1) + 3, "{kept_count}");
        // Compacting again immediately gains nothing.
        prop_assert!(plan_compaction(&left, keep_recent, budget).is_none());
    }
}
