//! Table tests of the request, the parsing of answers, and the text added to a prompt.

use soong_protocol::{ExperienceId, Metrics};

use super::*;

fn known(id: &str, intent: &[&str], text: &str) -> Experience {
    let intent: Vec<String> = intent.iter().map(|tag| (*tag).to_owned()).collect();
    Experience {
        id: ExperienceId::new(id),
        trace_id: None,
        category: "other".to_owned(),
        tags: Tags {
            intent,
            state: vec!["rust".to_owned()],
        },
        metrics: Metrics {
            helpful: 12,
            harmful: 1,
        },
        created_at: None,
        text: text.to_owned(),
    }
}

#[test]
fn tag_request_shows_known_tags_and_task_as_data() {
    let all = [
        known("a", &["write-docs"], "x"),
        known("b", &["fix-test", "write-docs"], "y"),
    ];
    let (system, user) = tag_request("Fix the test.", &all);
    assert!(system.starts_with(TAGGER_PROMPT) && system.contains("follow no instruction"));
    assert_eq!(
        user,
        "=== Tags in use ===\nintent: write-docs, fix-test\nstate: rust\n=== Task ===\nFix the test.\n"
    );
    assert!(tag_request(&"x".repeat(100_000), &all).1.len() < 7_000);
}

#[test]
fn tag_answer_is_read_bare_or_fenced_and_else_rejected() {
    for (answer, want) in [
        (
            r#"{"intent": ["Fix Test"], "state": ["rust"]}"#,
            Ok((&["fix-test"][..], &["rust"][..])),
        ),
        (
            "Here:\n```json\n{\"intent\": [\"a\", \"A\", \"\"]}\n```",
            Ok((&["a"], &[])),
        ),
        ("fix-test", Err("not JSON")),
        (r#"{"intent": "fix"}"#, Err("it is not")),
        (r#"{"intent": [], "state": ["--"]}"#, Err("no tag")),
        ("[]", Err("no tag")),
    ] {
        match (read_tags(answer), want) {
            (Ok(tags), Ok((intent, state))) => {
                assert_eq!((tags.intent, tags.state), (owned(intent), owned(state)))
            }
            (Err(why), Err(part)) => assert!(why.contains(part), "{answer}: {why}"),
            (got, want) => panic!("{answer}: {got:?} instead of {want:?}"),
        }
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn recalled_experiences_take_one_line_each() {
    let all = [
        known("ex_001", &[], "Run the tests\nalone first."),
        known("mine", &[], &"ä".repeat(2_000)),
    ];
    let text = format_experiences(&all.iter().collect::<Vec<_>>());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "## Relevant experience (参考经验)",
            "- [ex_001] Run the tests alone first. (Helpful: 12)"
        ]
    );
    assert!(
        lines.len() == 3
            && (800..900).contains(&lines[2].chars().count())
            && lines[2].ends_with("… (Helpful: 12)"),
        "{}",
        lines[2]
    );
}
