//! Tests of accepted summaries, and of the message that replaces the covered ones.

use super::{super::summary::*, *};

fn with_sections(sections: &[&str], heading: impl Fn(&str) -> String) -> String {
    sections
        .iter()
        .map(|section| format!("{}\nsome words\n", heading(section)))
        .collect()
}

#[test]
fn answer_is_accepted_as_summary_by_its_sections() {
    let all = |heading: fn(&str) -> String| with_sections(&SECTIONS, heading);
    for (what, answer, accepted) in [
        ("as asked for", all(|title| format!("## {title}")), true),
        ("in bold", all(|title| format!("**{title}:**")), true),
        ("numbered", all(|title| format!("3. {title}")), true),
        ("in capitals", all(str::to_uppercase), true),
        (
            "three of them",
            with_sections(&SECTIONS[..3], |title| format!("# {title}")),
            true,
        ),
        (
            "in a fence",
            format!("```markdown\n{}```", all(|title| format!("## {title}"))),
            true,
        ),
        (
            "two of them",
            with_sections(&SECTIONS[..2], |title| format!("# {title}")),
            false,
        ),
        ("empty", String::new(), false),
        ("blank", " \n\t ".to_owned(), false),
        ("an empty fence", "```\n```".to_owned(), false),
        (
            "an apology",
            "I am sorry, I cannot do that.".to_owned(),
            false,
        ),
        ("headings and nothing else", SECTIONS.join("\n"), false),
        (
            "words that begin like a title",
            "Artifactsmith\nErrors and fixesx\nPending tasksy\nfine".to_owned(),
            false,
        ),
    ] {
        let result = accept_summary(&answer);
        assert_eq!(result.is_ok(), accepted, "{what}: {result:?}");
        match result {
            Ok(text) => assert!(
                !text.contains("```") && text.trim() == text,
                "{what}: {text}"
            ),
            Err(error) => assert!(
                error.message.contains("is not a valid summary"),
                "{what}: {error}"
            ),
        }
    }
}

#[test]
fn summary_message_names_covered_range_and_shows_goals() {
    let tree = goals(
        &[
            ("look", None, GoalStatus::Completed, "saw it"),
            ("write", None, GoalStatus::Pending, ""),
        ],
        None,
    );
    let text = summary_message(" the summary \n", 3, 41, &tree);
    assert!(text.starts_with("# Summary of messages 3–41\n"), "{text}");
    for part in [
        "the summary\n\n## Goals",
        "[✓] 1. look\n    saw it",
        "[ ] 2. write",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let bare = summary_message("the summary", 3, 41, &GoalTree::new("m"));
    assert!(bare.ends_with("the summary"), "{bare}");
    assert_eq!(without_goals(&text), bare);
    assert_eq!(without_goals(&bare), bare);
    let talk = Talk::default()
        .user(&text)
        .user("# Summary of the weather")
        .says(None, &text)
        .0;
    let is: Vec<bool> = talk
        .iter()
        .map(|entry| is_summary(&entry.message))
        .collect();
    assert_eq!(
        is,
        [true, false, false],
        "an answer is not a valid summary, whatever it says"
    );
}

proptest! {
    #[test]
    fn accepting_a_summary_is_idempotent_for_any_answer(answer in "([#* ]{0,3}(Artifacts|Next step|Current work|x|é)[:\n ]{0,2}|```){0,8}") {
        if let Ok(text) = accept_summary(&answer) {
            prop_assert_eq!(accept_summary(&text), Ok(text.clone()));
        }
    }
}
