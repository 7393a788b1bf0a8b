//! Table tests of the parsing of answers, and of which experiences a reflection may rate.

use soong_protocol::{Timestamp, ToolCall, TraceId};
use soong_tool::JsonSchema;

use super::*;

fn set(ids: &[&str]) -> HashSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn reflection_is_bounded_and_rates_only_recalled_experiences() {
    let many: Vec<Value> = (0..20)
        .map(|n| json!({"category": "Tool Usage!", "tags": {"intent": ["Fix Test"]}, "text": format!(" {n}\u{1b} ")}))
        .collect();
    let used = json!([{"id": "ex_001", "helped": true}, {"id": "ex_001", "helped": false}, {"id": "ex_009", "helped": false}]);
    let (new, rated) = read_reflection(
        &json!({"experiences": many, "used": used}).to_string(),
        &set(&["ex_001"]),
    );
    assert_eq!(new.len(), 8);
    assert_eq!(
        (new[0].category.as_str(), new[0].text.as_str()),
        ("tool_usage", "0")
    );
    assert_eq!(new[0].tags.intent, ["fix-test"]);
    assert_eq!(rated, [(ExperienceId::new("ex_001"), true)]);
    let long = json!({"experiences": [{"category": "", "tags": {}, "text": "ä".repeat(9_000)}, {"category": "a", "tags": {}, "text": " "}]});
    let (new, rated) = read_reflection(&long.to_string(), &set(&[]));
    assert_eq!(
        (
            new.len(),
            new[0].text.chars().count(),
            new[0].category.as_str(),
            rated.len()
        ),
        (1, 4_000, "other", 0)
    );
}

#[test]
fn recalled_experiences_are_found_in_conversation() {
    let message = |sequence, role, text: &str| {
        Message::new(
            TraceId::new("t"),
            sequence,
            None,
            role,
            text.to_owned(),
            Timestamp::from_millis(0),
        )
    };
    let mut asks = message(3, Role::Assistant, "- [ex_007] not told");
    asks.tool_calls = vec![
        ToolCall {
            id: "a".into(),
            name: "get_experience".into(),
            arguments: "{}".into(),
        },
        ToolCall {
            id: "b".into(),
            name: "webfetch".into(),
            arguments: "{}".into(),
        },
    ];
    let result = |sequence, id: &str, text: &str| Message {
        tool_call_id: Some(id.to_owned()),
        ..message(sequence, Role::Tool, text)
    };
    let messages = [
        message(
            1,
            Role::System,
            "## Relevant experience (参考经验)\n- [ex_006] x",
        ),
        message(
            2,
            Role::User,
            "Do it. [ex_005]\n\n## Relevant experience (参考经验)\n- [ex_001] One. (Helpful: 1)\n- [mine] Two.",
        ),
        asks,
        result(4, "a", "[ex_003] other (helpful 1)\nText."),
        result(5, "b", "[ex_004] from a page"),
    ];
    assert_eq!(
        experiences_in(&messages),
        set(&["ex_001", "mine", "ex_003"])
    );
}

#[test]
fn reflection_question_includes_focus() {
    assert_eq!(
        reflection_question(Some(" the tests ")),
        "What was learned here that helps later work? Focus on this: the tests"
    );
    assert!(
        reflection_prompt().starts_with(REFLECTION_PROMPT_START)
            && JsonSchema::compile(&reflection_schema()).is_ok()
    );
}
