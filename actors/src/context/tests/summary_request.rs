//! Tests of the request for a summary.

use soong_model::tokens::estimate_tokens;

use super::{
    super::{summary::SECTIONS, summary_message, summary_request::*, truncate::*},
    *,
};

#[test]
fn the_request_holds_sections_plan_and_conversation() {
    let tree = goals(
        &[
            ("look", None, GoalStatus::Completed, "saw it"),
            ("write", None, GoalStatus::InProgress, ""),
        ],
        Some("2"),
    );
    let path = Talk::default()
        .user(&summary_message("## Artifacts\nold news", 1, 9, &tree))
        .user("Write \"the report\"\n[1] assistant:\nnot said")
        .calls(Some("1"), &["read"])
        .says(Some("2"), "Half of it is done.")
        .0;
    let (system, user) = summary_request(&path, &tree, 100_000).unwrap();
    assert!(system.starts_with(SUMMARY_PROMPT_START));
    for section in SECTIONS {
        assert!(system.contains(&format!("\n## {section}\n")), "{section}");
    }
    for part in [
        "=== Goals ===\n  Mission: the mission\n  [✓] 1. look\n      saw it\n  [→] 2. write ← current\n",
        "=== Conversation ===\n[1] earlier summary:\n  # Summary of messages 1–9\n",
        "  ## Artifacts\n  old news\n[2] user:\n",
        "[2] user:\n  Write \"the report\"\n  [1] assistant:\n  not said\n", // no text can be mistaken for a heading
        "[3] assistant calls read (goal id 1):\n  {\"n\":0}\n[4] result of read (goal id 1):\n  output of read\n",
        "[5] assistant (goal id 2):\n  Half of it is done.\n=== End ===\n",
    ] {
        assert!(user.contains(part), "{part}\n---\n{user}");
    }
    assert!(
        !user.contains("Goals at that point"),
        "the plan of an earlier summary is out of date: {user}"
    );
    assert!(!user.contains("left out"), "{user}");
}

#[test]
fn long_texts_are_truncated_with_a_note() {
    let mut talk = Talk::default().user(&"u".repeat(20_000));
    talk.add(Role::Assistant, None, "", |message| {
        let call = ToolCall {
            id: "c".into(),
            name: "write".into(),
            arguments: "a".repeat(10_000),
        };
        message.tool_calls = vec![call];
    });
    talk.add(Role::Tool, None, &"é".repeat(5_000), |message| {
        message.tool_call_id = Some("c".into())
    });
    let (_, user) = summary_request(&talk.0, &GoalTree::new("m"), 100_000).unwrap();
    for part in [
        "[… 14000 characters left out …]",
        "[… 9400 characters left out …]",
        "[… 3800 characters left out …]",
    ] {
        assert!(user.contains(part), "{part}: {user}");
    }
}

#[test]
fn oldest_messages_are_omitted_and_counted_to_fit_budget() {
    let path = (0..200).fold(
        Talk::default()
            .user(&summary_message(
                "## Artifacts\nKEEP ME",
                1,
                9,
                &GoalTree::new("m"),
            ))
            .user("FIRST"),
        |talk, n| {
            talk.calls(None, &["read"])
                .says(None, &format!("step {n} {}", "word ".repeat(20)))
        },
    );
    let path = path.user("LAST").calls(None, &["read"]).0;
    let (system, user) = summary_request(&path, &GoalTree::new("m"), 3_000).unwrap();
    assert!(estimate_tokens(&system) + estimate_tokens(&user) <= 3_000);
    for part in [
        "KEEP ME",
        "  FIRST\n[… ",
        " messages left out …]\n",
        "step 199",
        "  LAST\n",
        "=== End ===",
    ] {
        assert!(user.contains(part), "{part}: {user}");
    }
    assert!(
        !user.contains("step 0 ") && user.matches("left out").count() == 1,
        "{user}"
    );
}

#[test]
fn text_is_truncated_to_token_limit() {
    for text in [
        "",
        "short",
        &"word ".repeat(1_000),
        &"好".repeat(1_000),
        &"a".repeat(10_000),
        &"\n".repeat(500),
    ] {
        for max in [0, 1, 5, 50, 500, 5_000] {
            let cut = truncate_tokens(text, max);
            assert!(estimate_tokens(&cut) <= max, "{max}: {cut}");
            assert!(estimate_tokens(text) > max || cut == text);
        }
    }
    assert_eq!(
        truncate_middle("abcdefgh", 4),
        "abc [… 4 characters left out …] h"
    );
    assert_eq!(truncate_middle("héééé", 5), "héééé");
}

proptest! {
    #[test]
    fn request_never_exceeds_its_budget(
        path in any_path(), goals in any_goals(), long in 1usize..3000, budget in 600u64..4000
    ) {
        let mut talk = Talk(path);
        talk.add(Role::User, None, &"long ".repeat(long), |_| {});
        let Some((system, user)) = summary_request(&talk.0, &goals, budget) else {
            prop_assert!(budget < 1_200, "there is room");
            return Ok(());
        };
        prop_assert!(estimate_tokens(&system) + estimate_tokens(&user) <= budget);
        prop_assert!(user.contains(CONVERSATION_HEADING) && user.contains("\n  long"), "{user}");
    }
}
