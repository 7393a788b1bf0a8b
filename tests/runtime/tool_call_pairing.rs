//! Rules of providers for tool calls and results: tables of accepted and rejected conversations.

use serde_json::{Value, json};

use crate::support::pairing;

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn says(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn calls(ids: &[&str]) -> Value {
    let calls: Vec<Value> = ids
        .iter()
        .map(|id| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}}))
        .collect();
    json!({"role": "assistant", "content": "", "tool_calls": calls})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "ok"})
}

fn system() -> Value {
    json!({"role": "system", "content": "be good"})
}

#[test]
fn conversations_are_accepted_as_by_their_provider() {
    let rows: Vec<(&str, Vec<Value>, bool, bool)> = vec![
        // Description, messages, whether OpenAI accepts them, whether Anthropic accepts them.
        (
            "a question and its answer",
            vec![user("a"), says("b")],
            true,
            true,
        ),
        (
            "with instructions",
            vec![system(), user("a"), says("b"), user("c")],
            true,
            true,
        ),
        (
            "two of one role",
            vec![user("a"), user("b"), says("c"), says("d")],
            true,
            true,
        ),
        (
            "a call and its result",
            vec![user("a"), calls(&["1"]), result("1"), says("b")],
            true,
            true,
        ),
        (
            "results in another order",
            vec![user("a"), calls(&["1", "2"]), result("2"), result("1")],
            true,
            true,
        ),
        (
            "an id that comes again later",
            vec![
                user("a"),
                calls(&["1"]),
                result("1"),
                calls(&["1"]),
                result("1"),
            ],
            true,
            true,
        ),
        (
            "a word behind the results",
            vec![user("a"), calls(&["1"]), result("1"), user("b")],
            true,
            true,
        ),
        (
            "a word with the calls",
            vec![user("a"), says("so"), calls(&["1"]), result("1")],
            true,
            true,
        ),
        (
            "a call without result",
            vec![user("a"), calls(&["1"])],
            false,
            false,
        ),
        (
            "one of two results",
            vec![user("a"), calls(&["1", "2"]), result("1"), says("b")],
            false,
            false,
        ),
        (
            "a result twice",
            vec![user("a"), calls(&["1"]), result("1"), result("1")],
            false,
            false,
        ),
        (
            "a result of another call",
            vec![user("a"), calls(&["1"]), result("2")],
            false,
            false,
        ),
        (
            "an orphan result",
            vec![user("a"), result("1"), says("b")],
            false,
            false,
        ),
        ("a result first", vec![result("1"), says("b")], false, false),
        (
            "a word before the result",
            vec![user("a"), calls(&["1"]), user("b"), result("1")],
            false,
            false,
        ),
        (
            "a word behind the calls, one turn for Anthropic",
            vec![user("a"), calls(&["1"]), says("b"), result("1")],
            false,
            true,
        ),
        (
            "a late result",
            vec![user("a"), calls(&["1"]), user("b"), says("c"), result("1")],
            false,
            false,
        ),
        (
            "the same id twice",
            vec![user("a"), calls(&["1", "1"]), result("1"), result("1")],
            false,
            false,
        ),
        (
            "an answer of nothing",
            vec![user("a"), says("")],
            false,
            false,
        ),
        (
            "an assistant first",
            vec![says("a"), user("b")],
            true,
            false,
        ),
        ("nothing", vec![], true, false),
        ("instructions only", vec![system()], true, false),
        (
            "a question of blanks",
            vec![user(" \n"), says("b")],
            true,
            false,
        ),
        (
            "calls of two messages in one turn",
            vec![
                user("a"),
                calls(&["1"]),
                calls(&["2"]),
                result("1"),
                result("2"),
            ],
            false,
            true,
        ),
        (
            "an unknown role",
            vec![user("a"), json!({"role": "function", "content": "x"})],
            false,
            false,
        ),
    ];
    for (what, messages, by_openai, by_anthropic) in rows {
        let openai = pairing::openai(&messages);
        let anthropic = pairing::anthropic(&messages);
        assert_eq!(openai.is_ok(), by_openai, "{what}, OpenAI: {openai:?}");
        assert_eq!(
            anthropic.is_ok(),
            by_anthropic,
            "{what}, Anthropic: {anthropic:?}"
        );
    }
}

#[test]
fn content_parts_are_read_like_a_single_text() {
    let parts = |texts: &[&str]| {
        let parts: Vec<Value> = texts
            .iter()
            .map(|text| json!({"type": "text", "text": text}))
            .collect();
        json!({"role": "assistant", "content": parts})
    };
    for (texts, is_said) in [
        (&["a"][..], true),
        (&["", "b"], true),
        (&[""], false),
        (&[], false),
    ] {
        let messages = [user("q"), parts(texts)];
        assert_eq!(pairing::openai(&messages).is_ok(), is_said, "{texts:?}");
        assert_eq!(pairing::anthropic(&messages).is_ok(), is_said, "{texts:?}");
    }
}
