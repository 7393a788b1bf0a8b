//! Tests of answers that differ from OpenAI's form and are still accepted (MOD-4).

use serde_json::{Value, json};
use soong_protocol::{ToolCall, Usage};

use super::*;

/// Id, name, arguments.
type CallRow = (&'static str, &'static str, &'static str);

#[tokio::test]
async fn nonstandard_streams_are_accepted() {
    let counted = |prompt_tokens, completion_tokens| {
        Some(Usage {
            prompt_tokens,
            completion_tokens,
            ..Usage::default()
        })
    };
    let with = |mut chunk: Value, field: &str, value: Value| {
        chunk[field] = value;
        chunk
    };
    let usage = |prompt: u64| json!({"prompt_tokens": prompt, "completion_tokens": 1});
    let whole = |finish: &str| json!({"choices": [{"message": {"content": "hi"}, "finish_reason": finish}]});
    let reasons = |content: &str| Completion {
        reasoning: Some(content.into()),
        ..completion("hi")
    };
    let rows: Vec<(&str, Reply, Completion)> = vec![
        (
            "no usage",
            Reply::answer("hi").without_usage(),
            completion("hi"),
        ),
        (
            "usage in each chunk",
            Reply::sse([
                with(text("hi"), "usage", usage(1)),
                with(stop(), "usage", usage(2)),
            ]),
            Completion {
                usage: counted(2, 1),
                ..completion("hi")
            },
        ),
        (
            "usage as floats",
            Reply::sse([
                text("hi"),
                stop(),
                json!({"usage": {"prompt_tokens": 3.0, "completion_tokens": "4"}}),
            ]),
            Completion {
                usage: counted(3, 4),
                ..completion("hi")
            },
        ),
        (
            "details of usage",
            Reply::sse([
                text("hi"),
                stop(),
                json!({"choices": [], "usage": {"prompt_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}}),
            ]),
            Completion {
                usage: Some(Usage {
                    prompt_tokens: 9,
                    cached_tokens: 4,
                    reasoning_tokens: 2,
                    ..Usage::default()
                }),
                ..completion("hi")
            },
        ),
        (
            "empty choices",
            Reply::sse([
                json!({"choices": []}),
                text("hi"),
                json!({"choices": null}),
                stop(),
            ]),
            completion("hi"),
        ),
        (
            "unknown fields",
            Reply::sse([with(text("hi"), "x_groq", json!({"a": [1]})), stop()]),
            completion("hi"),
        ),
        (
            "null content",
            Reply::sse([
                delta(json!({"content": null, "tool_calls": null}), Value::Null),
                text("hi"),
                stop(),
            ]),
            completion("hi"),
        ),
        (
            "content parts",
            Reply::sse([
                delta(
                    json!({"content": [{"type": "text", "text": "h"}, {"type": "image"}, "i"]}),
                    Value::Null,
                ),
                stop(),
            ]),
            completion("hi"),
        ),
        (
            "refusal",
            Reply::sse([
                delta(json!({"refusal": "hi", "content": null}), Value::Null),
                stop(),
            ]),
            Completion {
                finish_reason: "refusal".into(),
                ..completion("hi")
            },
        ),
        (
            "reasoning_content",
            Reply::sse([
                delta(json!({"reasoning_content": "hm"}), Value::Null),
                text("hi"),
                stop(),
            ]),
            reasons("hm"),
        ),
        (
            "reasoning",
            Reply::sse([
                delta(json!({"reasoning": "hm", "content": ""}), Value::Null),
                text("hi"),
                stop(),
            ]),
            reasons("hm"),
        ),
        (
            "both reasonings",
            Reply::sse([
                delta(
                    json!({"reasoning": "hm", "reasoning_content": "hm"}),
                    Value::Null,
                ),
                text("hi"),
                stop(),
            ]),
            reasons("hm"),
        ),
        (
            "a second choice",
            Reply::sse([
                text("hi"),
                json!({"choices": [{"index": 1, "delta": {"content": "no"}}]}),
                stop(),
            ]),
            completion("hi"),
        ),
        (
            "message repeated at the end",
            Reply::sse([text("hi"), whole("stop")]),
            completion("hi"),
        ),
        (
            "[DONE] without a finish reason",
            Reply::sse([text("hi")]),
            completion("hi"),
        ),
        (
            "empty finish reasons",
            Reply::sse([delta(json!({"content": "hi"}), "".into()), stop()]),
            completion("hi"),
        ),
        (
            "no [DONE]",
            Reply::stream([format!("data: {}\n\ndata: {}\n\n", text("hi"), stop())]),
            completion("hi"),
        ),
        (
            "cut after the finish reason",
            Reply::sse([text("hi"), stop()]).then_cut(),
            completion("hi"),
        ),
        (
            "no last blank line",
            Reply::stream([format!("data: {}\n\ndata: {}", text("hi"), stop())]),
            completion("hi"),
        ),
        (
            "CRLF and comments",
            Reply::stream([format!(
                ": PROCESSING\r\n\r\ndata:{}\r\n\r\n: x\r\nevent: y\r\ndata: {}\r\n\r\ndata: [DONE]\r\n\r\n",
                text("hi"),
                stop()
            )]),
            completion("hi"),
        ),
        (
            "a body in one piece",
            Reply::status(200, whole("stop").to_string()),
            completion("hi"),
        ),
        (
            "a body in one piece, spaced",
            Reply::status(200, format!("\n  {:#}\n", whole("eos"))),
            completion("hi"),
        ),
        ("nothing said", Reply::sse([stop()]), completion("")),
    ];
    for (row, reply, want) in rows {
        // Data for the service has tests of its own.
        let answer = answer_to(reply).await.map(|answer| Completion {
            provider_data: None,
            ..answer
        });
        assert_eq!(answer, Ok(want), "{row}");
    }
}

#[tokio::test]
async fn finish_reasons_are_mapped_to_openai_names() {
    for (reason, want) in [
        ("eos", "stop"),
        ("end_turn", "stop"),
        ("STOP", "stop"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("length", "length"),
        ("tool_use", "tool_calls"),
        ("content_filter", "content_filter"),
    ] {
        let answer = answer_to(Reply::sse([text("hi"), delta(json!({}), reason.into())]))
            .await
            .unwrap();
        assert_eq!(answer.finish_reason, want, "{reason}");
    }
}

#[tokio::test]
async fn nonstandard_tool_calls_are_completed_with_unique_ids() {
    let f = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    let more = |arguments: &str| json!({"arguments": arguments});
    let a = ("x", "read", "{\"a\":1}");
    let b = ("y", "grep", "{}");
    let with_usage =
        |message: Value| Reply::status(200, json!({"choices": [{"message": message}]}).to_string());
    let rows: Vec<(&str, Vec<Value>, Vec<CallRow>)> = vec![
        (
            "pieces",
            vec![
                json!({"index": 0, "id": "x", "function": f("read", "")}),
                json!({"index": 0, "function": more("{\"a\"")}),
                json!({"index": 0, "function": more(":1}")}),
                json!({"index": 1, "id": "y", "function": f("grep", "{}")}),
            ],
            vec![a, b],
        ),
        (
            "interleaved",
            vec![
                json!({"index": 0, "id": "x", "function": f("read", "{\"a\"")}),
                json!({"index": 1, "id": "y", "function": f("grep", "{")}),
                json!({"index": 0, "function": more(":1}")}),
                json!({"index": 1, "function": more("}")}),
            ],
            vec![a, b],
        ),
        (
            "no index",
            vec![
                json!({"id": "x", "function": f("read", "{\"a\"")}),
                json!({"function": more(":1}")}),
                json!({"id": "y", "function": f("grep", "{}")}),
            ],
            vec![a, b],
        ),
        (
            "index 0 for all",
            vec![
                json!({"index": 0, "id": "x", "function": f("read", "{\"a\":1}")}),
                json!({"index": 0, "id": "y", "function": f("grep", "{}")}),
            ],
            vec![a, b],
        ),
        (
            "name and id repeated",
            vec![
                json!({"index": 0, "id": "x", "function": f("read", "{\"a\"")}),
                json!({"index": 0, "id": "x", "function": f("read", ":1}")}),
                json!({"index": 0, "id": "x", "function": f("read", "")}),
            ],
            vec![a],
        ),
        (
            "pieces with other indexes",
            vec![
                json!({"index": 0, "id": "x", "function": f("read", "")}),
                json!({"index": 1, "function": more("{\"a\"")}),
                json!({"index": 2, "function": more(":1}")}),
                json!({"index": 3, "id": "y", "function": f("grep", "{}")}),
            ],
            vec![a, b],
        ),
        (
            "pieces with the id and other indexes",
            vec![
                json!({"index": 0, "id": "x", "function": f("read", "{\"a\"")}),
                json!({"index": 1, "id": "y", "function": f("grep", "{")}),
                json!({"index": 2, "id": "x", "function": more(":1}")}),
                json!({"index": 3, "id": "y", "function": more("}")}),
            ],
            vec![a, b],
        ),
        (
            "the same id with another index",
            vec![
                json!({"index": 0, "id": "x", "function": f("read", "")}),
                json!({"index": 1, "id": "x", "function": f("grep", "")}),
                json!({"index": 0, "function": more("{\"a\":1}")}),
                json!({"index": 1, "function": more("{}")}),
            ],
            vec![a, ("x_2", "grep", "{}")],
        ),
        (
            "a name after the arguments",
            vec![
                json!({"index": 0, "id": "x", "function": f("read", "{\"a\":1}")}),
                json!({"index": 1, "function": more("{}")}),
                json!({"index": 1, "id": "y", "function": {"name": "grep"}}),
            ],
            vec![a, b],
        ),
        (
            "a name in pieces",
            vec![
                json!({"index": 0, "id": "x", "function": {"name": "re"}}),
                json!({"index": 0, "function": {"name": "ad"}}),
                json!({"index": 0, "function": more("{\"a\":1}")}),
            ],
            vec![a],
        ),
        (
            "missing ids",
            vec![
                json!({"index": 0, "function": f("read", "{\"a\":1}")}),
                json!({"index": 1, "id": null, "function": f("grep", "{}")}),
                json!({"index": 2, "id": "", "function": f("grep", "{}")}),
            ],
            vec![
                ("call_1", "read", "{\"a\":1}"),
                ("call_2", "grep", "{}"),
                ("call_3", "grep", "{}"),
            ],
        ),
        (
            "no id, no index",
            vec![
                json!({"function": f("read", "{\"a\":1}")}),
                json!({"function": f("read", "{\"a\":1}")}),
            ],
            vec![
                ("call_1", "read", "{\"a\":1}"),
                ("call_2", "read", "{\"a\":1}"),
            ],
        ),
        (
            "duplicate ids",
            vec![
                json!({"index": 0, "id": "x", "function": f("read", "{\"a\":1}")}),
                json!({"index": 1, "id": "x", "function": f("grep", "{}")}),
                json!({"index": 2, "id": "x_2", "function": f("grep", "{}")}),
            ],
            vec![a, ("x_3", "grep", "{}"), ("x_2", "grep", "{}")],
        ),
        (
            "duplicate ids, no index",
            vec![
                json!({"id": "x", "function": f("read", "{\"a\":1}")}),
                json!({"id": "x", "function": f("read", "{\"a\":1}")}),
            ],
            vec![a, ("x_2", "read", "{\"a\":1}")],
        ),
        (
            "arguments as an object",
            vec![
                json!({"index": "0", "id": "x", "function": {"name": "read", "arguments": {"a": 1}}}),
            ],
            vec![a],
        ),
        (
            "no arguments",
            vec![json!({"index": 0, "id": "y", "function": {"name": "grep", "arguments": null}})],
            vec![b],
        ),
        (
            "bad arguments",
            vec![json!({"index": 0, "id": "y", "function": f("grep", "{\"a")})],
            vec![("y", "grep", "{\"a")],
        ),
        (
            "a ghost",
            vec![
                json!({"index": 0, "id": "y", "function": f("grep", "{}")}),
                json!({"index": 1, "function": f("", "")}),
            ],
            vec![b],
        ),
    ];
    for (row, pieces, want) in rows {
        let want: Vec<ToolCall> = want
            .into_iter()
            .map(|(id, name, arguments)| ToolCall {
                id: id.into(),
                name: name.into(),
                arguments: arguments.into(),
            })
            .collect();
        let streamed = Reply::sse(pieces.iter().cloned().map(call_piece).chain([stop()]));
        let answer = answer_to(streamed).await.unwrap();
        assert_eq!(
            (&answer.tool_calls, &*answer.finish_reason),
            (&want, "tool_calls"),
            "{row}"
        );
        if pieces.len() == want.len() {
            let answer = answer_to(with_usage(json!({"content": null, "tool_calls": pieces})))
                .await
                .unwrap();
            assert_eq!(answer.tool_calls, want, "{row}, in one piece");
        }
    }
    let old = delta(
        json!({"function_call": f("grep", "{}")}),
        "function_call".into(),
    );
    assert_eq!(
        answer_to(Reply::sse([old])).await.unwrap().tool_calls[0].id,
        "call_1"
    );
}

#[tokio::test]
async fn multibyte_characters_may_be_split_across_chunks() {
    let answer_text = "好é😀 ";
    let bytes = format!(
        "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
        text(answer_text),
        stop()
    )
    .into_bytes();
    assert_eq!(
        answer_to(Reply::stream(bytes.chunks(1))).await,
        Ok(completion(answer_text))
    );
    assert_eq!(
        answer_to(Reply::stream(bytes.chunks(7))).await,
        Ok(completion(answer_text))
    );
}
