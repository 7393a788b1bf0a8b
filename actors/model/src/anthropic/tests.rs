//! Tests of the Messages API against a scripted service.

use std::sync::Arc;

use serde_json::{Value, json};
use soong_protocol::{Effort, Role, ToolCall, Usage};

use super::Messages;
use crate::{
    CacheHints, Completion, Failure, ModelRequest,
    service::testing::{
        ask, caller, data_of, events, full_request, message, request, result,
        scripted::{Reply, ScriptedServer},
        service, stored, tool,
    },
};

const MODEL: &str = "claude-opus-5-5";

/// Returns the events of an answer with these blocks: each is its start and its deltas.
fn answer(blocks: &[(Value, &[Value])], stop_reason: &str) -> Vec<String> {
    let usage = json!({"input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 1});
    let mut data = vec![
        json!({"type": "message_start", "message": {"usage": usage}}),
        json!({"type": "ping"}),
    ];
    for (index, (block, deltas)) in blocks.iter().enumerate() {
        data.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        data.extend(
            deltas.iter().map(
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ),
        );
        data.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
    let usage = json!({"output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}});
    data.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
    data.push(json!({"type": "message_stop"}));
    events(&data)
}

fn text_block(text: &str) -> (Value, Vec<Value>) {
    (
        json!({"type": "text", "text": ""}),
        vec![json!({"type": "text_delta", "text": text})],
    )
}

fn thinking_answer() -> Vec<String> {
    let start = json!({"type": "thinking", "thinking": "", "signature": ""});
    let thought = [
        json!({"type": "thinking_delta", "thinking": "Let me"}),
        json!({"type": "thinking_delta", "thinking": " look."}),
        json!({"type": "signature_delta", "signature": "SIG1"}),
    ];
    let hidden = json!({"type": "redacted_thinking", "data": "SECRET"});
    let (text, deltas) = text_block("Reading.");
    let call = |id: &str, name: &str| json!({"type": "tool_use", "id": id, "name": name, "caller": {"type": "direct"}, "input": {}});
    let arguments = [
        json!({"type": "input_json_delta", "partial_json": ""}),
        json!({"type": "input_json_delta", "partial_json": "{\"path\""}),
        json!({"type": "input_json_delta", "partial_json": ": \"a\"}"}),
    ];
    let blocks = [
        (start, &thought[..]),
        (hidden, &[][..]),
        (text, &deltas[..]),
        (call("toolu_1", "fs__read"), &arguments[..]),
        (call("toolu_2", "list"), &[][..]),
    ];
    answer(&blocks, "tool_use")
}

#[tokio::test]
async fn answer_streams_and_is_returned_as_it_was() {
    let server = ScriptedServer::start(|request| match request.number {
        0 => Reply::stream(thinking_answer()),
        _ => Reply::stream(answer(
            &[(text_block("Done.").0, &text_block("Done.").1)],
            "end_turn",
        )),
    });
    let service = service::<Messages>(&server, MODEL);
    let mut request = ModelRequest {
        tools: Arc::from([tool("fs.read"), tool("list")]),
        ..request()
    };
    let first = ask(&service, &request).await.unwrap();
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let usage = Usage {
        prompt_tokens: 20,
        completion_tokens: 20,
        cached_tokens: 7,
        cache_write_tokens: 3,
        long_cache_write_tokens: 0,
        reasoning_tokens: 5,
        estimated: false,
    };
    assert_eq!(
        (first.text.as_str(), first.reasoning.as_deref()),
        ("Reading.", Some("Let me look."))
    );
    assert_eq!(
        first.tool_calls,
        [
            call("toolu_1", "fs.read", "{\"path\": \"a\"}"),
            call("toolu_2", "list", "{}")
        ]
    );
    assert_eq!(
        (first.usage, first.finish_reason.as_str()),
        (Some(usage), "tool_calls")
    );
    assert_eq!(data_of(&first).source.dialect, "anthropic");

    request.messages.extend(
        [
            stored(&first),
            result("toolu_1", "A"),
            result("toolu_2", ""),
        ]
        .map(Arc::new),
    );
    assert_eq!(ask(&service, &request).await.unwrap().text, "Done.");
    let sent = &server.requests()[1].body;
    let call = |id: &str, name: &str, input: Value| json!({"type": "tool_use", "id": id, "name": name, "input": input, "caller": {"type": "direct"}});
    let cache = json!({"type": "ephemeral"});
    assert_eq!(
        sent["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": cache}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Let me look.", "signature": "SIG1"},
                {"type": "redacted_thinking", "data": "SECRET"},
                {"type": "text", "text": "Reading."},
                call("toolu_1", "fs__read", json!({"path": "a"})),
                call("toolu_2", "list", json!({})),
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "A"}]},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "(no text)"}],
                    "cache_control": cache},
            ]},
        ])
    );
}

#[tokio::test]
async fn request_has_the_form_of_the_api() {
    let server = ScriptedServer::start(|_| Reply::stream(answer(&[], "end_turn")));
    ask(&service::<Messages>(&server, MODEL), &full_request())
        .await
        .unwrap();
    let request = &server.requests()[0];
    assert_eq!(request.path, "/v1/messages");
    assert_eq!(
        (
            &*request.headers["x-api-key"],
            &*request.headers["anthropic-version"]
        ),
        (crate::service::testing::KEY, "2026-10-21")
    );
    let image = |id: &str| json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": id}});
    let cache = json!({"type": "ephemeral"});
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    assert_eq!(
        request.body,
        json!({
            "model": MODEL,
            "max_tokens": 4096,
            "stream": true,
            "system": [{"type": "text", "text": "be brief"}, {"type": "text", "text": "use tools", "cache_control": cache}],
            "tools": [
                {"name": "fs__read", "description": "A tool.", "input_schema": schema},
                {"name": "list", "description": "A tool.", "input_schema": schema},
            ],
            "thinking": {"type": "adaptive", "display": "summarized"},
            "messages": [
                {"role": "user", "content": [image("AAEC"), {"type": "text", "text": "Compare.", "cache_control": cache}]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "call_1", "name": "fs__read", "input": {"path": "a"}},
                    {"type": "tool_use", "id": "call_2", "name": "list", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "text of a"}]},
                    {"type": "tool_result", "tool_use_id": "call_2", "content": [
                        {"type": "text", "text": "`b.x`:"}, image("AAEC"),
                    ]},
                    {"type": "text", "text": "And now?", "cache_control": cache},
                ]},
            ],
        })
    );
}

#[tokio::test]
async fn effort_and_budget_depend_on_the_model() {
    let adaptive = json!({"type": "adaptive", "display": "summarized"});
    for (model, effort, budget, thinking, sent) in [
        (
            "claude-opus-5-5",
            Some(Effort::None),
            None,
            adaptive.clone(),
            json!({"effort": "low"}),
        ),
        (
            "claude-opus-5-5",
            Some(Effort::Max),
            None,
            adaptive.clone(),
            json!({"effort": "max"}),
        ),
        (
            "claude-opus-4-6",
            Some(Effort::Xhigh),
            None,
            adaptive.clone(),
            json!({"effort": "high"}),
        ),
        ("claude-opus-4-6", None, None, Value::Null, Value::Null),
        (
            "claude-sonnet-5-5",
            Some(Effort::None),
            None,
            json!({"type": "between_tools"}),
            Value::Null,
        ),
        (
            "claude-opus-5",
            Some(Effort::None),
            None,
            json!({"type": "disabled"}),
            Value::Null,
        ),
        (
            "claude-haiku-4-5",
            Some(Effort::High),
            None,
            Value::Null,
            Value::Null,
        ),
        (
            "claude-haiku-4-5",
            None,
            Some(2_000),
            json!({"type": "enabled", "budget_tokens": 2_000, "display": "summarized"}),
            Value::Null,
        ),
        ("other-model", None, None, Value::Null, Value::Null),
    ] {
        let server = ScriptedServer::start(|_| Reply::stream(answer(&[], "end_turn")));
        let request = ModelRequest {
            effort,
            reasoning_budget_tokens: budget,
            ..request()
        };
        ask(&service::<Messages>(&server, model), &request)
            .await
            .unwrap();
        let body = &server.requests()[0].body;
        assert_eq!(
            (&body["thinking"], &body["output_config"]),
            (&thinking, &sent),
            "{model} {effort:?}"
        );
    }
}

#[tokio::test]
async fn rejected_thinking_is_left_out_once() {
    let server = ScriptedServer::start(|request| match request.number {
        0 => Reply::stream(thinking_answer()),
        1 => {
            let message = "messages.1.content.0: Invalid `signature` in `thinking` block";
            Reply::status(
                400,
                json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).to_string(),
            )
        }
        _ => Reply::stream(answer(
            &[(text_block("ok").0, &text_block("ok").1)],
            "end_turn",
        )),
    });
    let service = service::<Messages>(&server, MODEL);
    let mut request = request();
    let first = ask(&service, &request).await.unwrap();
    request.messages.extend(
        [
            stored(&first),
            result("toolu_1", "A"),
            result("toolu_2", "B"),
        ]
        .map(Arc::new),
    );
    let second = ask(&service, &request).await.unwrap();
    assert!(second.provider_data_rejected);
    let requests = server.requests();
    let kinds = |number: usize| {
        let blocks = requests[number].body["messages"][1]["content"]
            .as_array()
            .unwrap();
        blocks
            .iter()
            .map(|block| block["type"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        kinds(1),
        [
            "thinking",
            "redacted_thinking",
            "text",
            "tool_use",
            "tool_use"
        ]
    );
    assert_eq!(kinds(2), ["text", "tool_use", "tool_use"]);
}

#[tokio::test]
async fn paused_answer_is_continued() {
    let search =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}});
    let query = [json!({"type": "input_json_delta", "partial_json": "{\"query\": \"x\"}"})];
    let found =
        json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []});
    let first = answer(
        &[
            (text_block("A").0, &text_block("A ").1),
            (search, &query),
            (found, &[]),
        ],
        "pause_turn",
    );
    let server = ScriptedServer::start(move |request| match request.number {
        0 => Reply::stream(first.clone()),
        _ => Reply::stream(answer(
            &[(text_block("b").0, &text_block("b").1)],
            "end_turn",
        )),
    });
    let request = ModelRequest {
        context_update: Some("## Artifacts".into()),
        ..request()
    };
    let answer = ask(&service::<Messages>(&server, MODEL), &request)
        .await
        .unwrap();
    assert_eq!(
        (answer.text.as_str(), answer.finish_reason.as_str()),
        ("A b", "stop")
    );
    assert_eq!(answer.usage.unwrap().completion_tokens, 40);
    let messages = |number: usize| server.requests()[number].body["messages"].clone();
    assert_eq!(
        messages(1)[0],
        messages(0)[0],
        "the beginning stays the same"
    );
    assert_eq!(messages(1).as_array().unwrap().len(), 2);
    assert_eq!(
        messages(1)[1]["content"],
        json!([
            {"type": "text", "text": "A "},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        ])
    );
}

#[tokio::test]
async fn odd_streams_and_errors_have_clear_results() {
    let error =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let start = json!({"type": "message_start", "message": {}});
    let cut = events(&[
        start.clone(),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "x"}}),
    ]);
    for (reply, expected) in [
        (
            Reply::stream(events(&[start, error.clone()])),
            Err((Failure::Unavailable, "Overloaded")),
        ),
        (
            Reply::status(529, error.to_string()),
            Err((Failure::Unavailable, "HTTP 529")),
        ),
        (
            Reply::stream(cut),
            Err((Failure::InvalidResponse, "ended before")),
        ),
        (Reply::stream(answer(&[], "refusal")), Ok("refusal")),
        (
            Reply::stream(answer(&[], "model_context_window_exceeded")),
            Ok("length"),
        ),
        (
            Reply::status(
                200,
                json!({"type": "message", "content": [], "stop_reason": "end_turn"}).to_string(),
            ),
            Ok("stop"),
        ),
    ] {
        let server = ScriptedServer::start(move |_| reply.clone());
        let answer = ask(&service::<Messages>(&server, MODEL), &request()).await;
        match (answer, expected) {
            (Ok(Completion { finish_reason, .. }), Ok(expected)) => {
                assert_eq!(finish_reason, expected)
            }
            (Err(error), Err((failure, part))) => {
                assert!(
                    error.failure == failure && error.message.contains(part),
                    "{error:?}"
                );
            }
            (answer, expected) => panic!("{answer:?} instead of {expected:?}"),
        }
    }
}

fn start(index: Value, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn piece(index: impl Into<Value>, field: &str, text: &str) -> Value {
    let kind = if field == "partial_json" {
        "input_json_delta".to_owned()
    } else {
        format!("{field}_delta")
    };
    json!({"type": "content_block_delta", "index": index.into(), "delta": {"type": kind, field: text}})
}

fn call_block(id: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": "list", "input": input})
}

/// A piece belongs to the block with its index, however the pieces of several blocks alternate.
#[tokio::test]
async fn pieces_are_added_to_the_block_with_their_index() {
    let a = r#"{"path": "a"}"#;
    let b = r#"{"path": "b"}"#;
    let text = || json!({"type": "text", "text": ""});
    let null = Value::Null;
    for (what, data, text_of_answer, calls) in [
        (
            "two calls",
            vec![
                start(0.into(), call_block("c1", json!({}))),
                start(1.into(), call_block("c2", json!({}))),
                piece(0, "partial_json", &a[..6]),
                piece(1, "partial_json", &b[..6]),
                piece(0, "partial_json", &a[6..]),
                piece(1, "partial_json", &b[6..]),
            ],
            "",
            vec![("c1", a), ("c2", b)],
        ),
        (
            "text while a call is open",
            vec![
                start(0.into(), text()),
                piece(0, "text", "I "),
                start(1.into(), call_block("c1", json!({}))),
                piece(1, "partial_json", &a[..6]),
                piece(0, "text", "look."),
                piece(1, "partial_json", &a[6..]),
            ],
            "I look.",
            vec![("c1", a)],
        ),
        (
            "blocks in another order",
            vec![
                start(1.into(), call_block("c1", json!({}))),
                piece(1, "partial_json", a),
                start(0.into(), text()),
                piece(0, "text", "I look."),
            ],
            "I look.",
            vec![("c1", a)],
        ),
        (
            "text without a start",
            vec![
                piece(0, "text", "I "),
                piece(0, "text", "look."),
                start(1.into(), call_block("c1", json!({}))),
                piece(1, "partial_json", a),
            ],
            "I look.",
            vec![("c1", a)],
        ),
        (
            "text with the index of a call",
            vec![
                start(0.into(), call_block("c1", json!({}))),
                piece(0, "text", "I look."),
                piece(0, "partial_json", a),
            ],
            "I look.",
            vec![("c1", a)],
        ),
        (
            "no index",
            vec![
                start(null.clone(), text()),
                piece(null.clone(), "text", "I look."),
                start(null.clone(), call_block("c1", json!({}))),
                piece(null.clone(), "partial_json", a),
                start(null.clone(), call_block("c2", json!({}))),
                piece(null, "partial_json", b),
            ],
            "I look.",
            vec![("c1", a), ("c2", b)],
        ),
        (
            "the input at the start and again",
            vec![
                start(0.into(), call_block("c1", json!({"path": "a"}))),
                piece(0, "partial_json", a),
            ],
            "",
            vec![("c1", a)],
        ),
        (
            "the input at the start, and an empty piece",
            vec![
                start(0.into(), call_block("c1", json!({"path": "a"}))),
                piece(0, "partial_json", ""),
            ],
            "",
            vec![("c1", r#"{"path":"a"}"#)],
        ),
        (
            "pieces of a call with another index",
            vec![
                start(0.into(), call_block("c1", json!({}))),
                piece(1, "partial_json", &a[..6]),
                piece(2, "partial_json", &a[6..]),
                start(3.into(), call_block("c2", json!({}))),
                piece(3, "partial_json", b),
            ],
            "",
            vec![("c1", a), ("c2", b)],
        ),
        (
            "indexes that begin again",
            vec![
                start(0.into(), text()),
                piece(0, "text", "I "),
                start(1.into(), call_block("c1", json!({}))),
                piece(1, "partial_json", a),
                start(0.into(), text()),
                piece(0, "text", "look."),
            ],
            "I look.",
            vec![("c1", a)],
        ),
        (
            "a piece of a call without a start",
            vec![piece(0, "partial_json", a), piece(1, "text", "Done.")],
            "Done.",
            vec![],
        ),
    ] {
        let mut events_of_answer =
            vec![json!({"type": "message_start", "message": {"usage": {"input_tokens": null}}})];
        events_of_answer.extend(data);
        let usage =
            json!({"output_tokens": 9.0, "input_tokens": "10", "cache_read_input_tokens": null});
        events_of_answer.push(
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}),
        );
        events_of_answer.push(json!({"type": "message_stop"}));
        let server = ScriptedServer::start(move |_| Reply::stream(events(&events_of_answer)));
        let request = ModelRequest {
            tools: Arc::from([tool("list")]),
            ..request()
        };
        let answer = ask(&service::<Messages>(&server, MODEL), &request)
            .await
            .unwrap();
        assert_eq!(answer.text, text_of_answer, "{what}");
        let made: Vec<(&str, &str)> = answer
            .tool_calls
            .iter()
            .map(|call| (call.id.as_str(), call.arguments.as_str()))
            .collect();
        assert_eq!(made, calls, "{what}");
        let usage = answer.usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (10, 9),
            "{what}"
        );
    }
}

#[tokio::test]
async fn answers_of_other_services_come_without_reasoning() {
    let server = ScriptedServer::start(|_| Reply::stream(answer(&[], "end_turn")));
    let mut foreign = caller("", &[("a", "list", "{}")]);
    foreign.reasoning = Some("thoughts".into());
    let request = ModelRequest {
        messages: [
            message(Role::User, "x"),
            foreign,
            result("a", "y"),
            message(Role::Assistant, " "),
        ]
        .map(Arc::new)
        .to_vec(),
        ..request()
    };
    ask(&service::<Messages>(&server, MODEL), &request)
        .await
        .unwrap();
    let messages = &server.requests()[0].body["messages"];
    assert_eq!(
        messages[1]["content"],
        json!([{"type": "tool_use", "id": "a", "name": "list", "input": {}}])
    );
    assert_eq!(
        messages.as_array().unwrap().len(),
        3,
        "an answer without content is left out"
    );
}

#[tokio::test]
async fn cache_marks_end_what_other_requests_share() {
    let server = ScriptedServer::start(|_| Reply::stream(answer(&[], "end_turn")));
    let service = service::<Messages>(&server, MODEL);
    let mut request = ModelRequest {
        cache: CacheHints {
            shared_messages: 1,
            ..CacheHints::default()
        },
        ..full_request()
    };
    ask(&service, &request).await.unwrap();
    request.cache.is_long_lived = true;
    ask(&service, &request).await.unwrap();
    let long = json!({"type": "ephemeral", "ttl": "1h"});
    for (request, mark) in server
        .requests()
        .iter()
        .zip([json!({"type": "ephemeral"}), long])
    {
        let text = request.body.to_string();
        let marks: Vec<&str> = text
            .match_indices("\"cache_control\":")
            .map(|(at, _)| &text[at + 16..])
            .collect();
        assert_eq!(
            marks.len(),
            3,
            "the end of the shared part is that of the first turn: {text}"
        );
        assert!(
            marks.iter().all(|rest| rest.starts_with(&mark.to_string())),
            "{text}"
        );
    }
}
