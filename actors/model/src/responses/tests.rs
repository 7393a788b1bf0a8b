//! Tests of the Responses API against a scripted service.

use std::sync::Arc;

use serde_json::{Value, json};
use soong_protocol::{Effort, Message, Role, ToolCall, Usage};

use super::Responses;
use crate::{
    CacheHints, Completion, Failure, ModelRequest,
    service::testing::{
        ask, caller, data_of, events, full_request, message, request, result,
        scripted::{Reply, ScriptedServer},
        service, stored, tool,
    },
};

const MODEL: &str = "gpt-6-sol";

fn reasoning_item(content: Option<&str>) -> Value {
    let summary = json!([{"type": "summary_text", "text": "Let me"}, {"type": "summary_text", "text": "look."}]);
    json!({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": content, "status": null})
}

fn message_item(text: &str) -> Value {
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary",
        "content": content})
}

fn call_item(number: u32, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{number}"), "call_id": format!("call_{number}"), "name": name,
        "arguments": arguments, "status": "completed"})
}

fn usage() -> Value {
    json!({"input_tokens": 20, "input_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 3},
        "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 40})
}

fn done(index: usize, item: &Value) -> [Value; 2] {
    let kind = |name: &str| json!({"type": format!("response.output_item.{name}"), "output_index": index, "item": item});
    let mut added = kind("added");
    for field in ["content", "summary", "arguments", "encrypted_content"] {
        added["item"].as_object_mut().unwrap().remove(field);
    }
    [added, kind("done")]
}

fn completed(output: &[Value]) -> Value {
    json!({"type": "response.completed", "response": {"status": "completed", "output": output, "usage": usage()}})
}

/// Returns the events of an answer with these items.
fn answer(items: &[Value]) -> Vec<String> {
    let mut data = vec![
        json!({"type": "response.created", "response": {"status": "in_progress", "output": []}}),
    ];
    data.extend(
        items
            .iter()
            .enumerate()
            .flat_map(|(index, item)| done(index, item)),
    );
    data.push(completed(items));
    events(&data)
}

fn reasoning_answer() -> Vec<String> {
    let items = [
        reasoning_item(Some("ENC")),
        message_item("Reading."),
        call_item(1, "fs__read", "{\"path\": \"a\"}"),
        call_item(2, "list", "{}"),
    ];
    let delta = |kind: &str, index: u32, delta: &str| json!({"type": kind, "output_index": index, "delta": delta});
    let mut summary = delta("response.reasoning_summary_text.delta", 0, "look.");
    summary["summary_index"] = 1.into();
    let [[r1, r2], [m1, m2], [c1, c2], [d1, d2]] =
        [0, 1, 2, 3].map(|index| done(index, &items[index]));
    events(&[
        r1,
        delta("response.reasoning_summary_text.delta", 0, "Let me"),
        summary,
        r2,
        m1,
        json!({"type": "response.content_part.added", "output_index": 1, "part": {"type": "output_text", "text": ""}}),
        delta("response.output_text.delta", 1, "Read"),
        delta("response.output_text.delta", 1, ""),
        delta("response.output_text.delta", 1, "ing."),
        m2,
        c1,
        delta(
            "response.function_call_arguments.delta",
            2,
            "{\"path\": \"a\"}",
        ),
        c2,
        d1,
        d2,
        json!({"type": "response.news", "anything": 1}),
        completed(&items),
    ])
}

#[tokio::test]
async fn answer_streams_and_is_returned_as_it_was() {
    let server = ScriptedServer::start(|request| match request.number {
        0 => Reply::stream(reasoning_answer()),
        _ => Reply::stream(answer(&[message_item("Done.")])),
    });
    let service = service::<Responses>(&server, MODEL);
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
        ("Reading.", Some("Let me\n\nlook."))
    );
    assert_eq!(
        first.tool_calls,
        [
            call("call_1", "fs.read", "{\"path\": \"a\"}"),
            call("call_2", "list", "{}")
        ]
    );
    assert_eq!(
        (first.usage, first.finish_reason.as_str()),
        (Some(usage), "tool_calls")
    );
    assert_eq!(data_of(&first).source.dialect, "openai-responses");

    request
        .messages
        .extend([stored(&first), result("call_1", "A"), result("call_2", "")].map(Arc::new));
    assert_eq!(ask(&service, &request).await.unwrap().text, "Done.");
    let sent = server.requests()[1].body["input"]
        .as_array()
        .unwrap()
        .clone();
    let mut reasoning = reasoning_item(Some("ENC"));
    reasoning.as_object_mut().unwrap().remove("status");
    assert_eq!(
        sent[2..],
        [
            reasoning,
            message_item("Reading."),
            call_item(1, "fs__read", "{\"path\": \"a\"}"),
            call_item(2, "list", "{}"),
            json!({"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "A"}]}),
            json!({"type": "function_call_output", "call_id": "call_2", "output": ""}),
        ]
    );
}

#[tokio::test]
async fn request_has_the_form_of_the_api() {
    let server = ScriptedServer::start(|_| Reply::stream(answer(&[message_item("ok")])));
    let request = ModelRequest {
        effort: Some(Effort::Minimal),
        temperature: Some(0.5),
        ..full_request()
    };
    ask(&service::<Responses>(&server, MODEL), &request)
        .await
        .unwrap();
    let received = &server.requests()[0];
    assert_eq!(received.path, "/v1/responses");
    assert_eq!(
        received.headers["authorization"],
        format!("Bearer {}", crate::service::testing::KEY)
    );
    let image =
        json!({"type": "input_image", "image_url": "data:image/png;base64,AAEC", "detail": "auto"});
    let text = |text: &str| json!({"type": "input_text", "text": text});
    let marked = |text: &str| json!({"type": "input_text", "text": text, "prompt_cache_breakpoint": {"mode": "explicit"}});
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let tool = |name: &str| json!({"type": "function", "name": name, "description": "A tool.", "parameters": schema, "strict": false});
    let call = |id: &str, name: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments});
    assert_eq!(
        received.body,
        json!({
            "model": MODEL,
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"effort": "none", "summary": "auto"},
            "max_output_tokens": 4096,
            "temperature": 0.5,
            "tools": [tool("fs__read"), tool("list")],
            "input": [
                {"type": "message", "role": "developer", "content": [text("be brief"), marked("use tools")]},
                {"type": "message", "role": "user", "content": [image, marked("Compare.")]},
                {"type": "message", "role": "assistant", "content": "I look."},
                call("call_1", "fs__read", "{\"path\":\"a\"}"),
                call("call_2", "list", "{}"),
                {"type": "function_call_output", "call_id": "call_1", "output": [text("text of a")]},
                {"type": "function_call_output", "call_id": "call_2", "output": [text("`b.x`:"), image]},
                {"type": "message", "role": "user", "content": [marked("And now?")]},
            ],
        })
    );
}

#[tokio::test]
async fn cache_has_a_key_and_breakpoints_that_later_requests_read() {
    let server = ScriptedServer::start(|_| Reply::stream(answer(&[message_item("ok")])));
    let service = service::<Responses>(&server, MODEL);
    let cache = CacheHints {
        key: Some("k".into()),
        shared_messages: 1,
        is_long_lived: true,
    };
    let mut request = ModelRequest {
        cache,
        context_update: Some("Goals: 1".into()),
        ..request()
    };
    request.messages.push(Arc::new(message(Role::User, "task")));
    ask(&service, &request).await.unwrap();
    request.cache.is_long_lived = false;
    let earlier = Message {
        context_update: Some("Goals: 1".to_owned()),
        ..caller("", &[("c", "list", "{}")])
    };
    request
        .messages
        .extend([earlier, result("c", "A")].map(Arc::new));
    request
        .messages
        .extend([message(Role::Assistant, "A."), message(Role::User, "more")].map(Arc::new));
    request.context_update = None;
    ask(&service, &request).await.unwrap();
    let [first, second] = &server.requests()[..] else {
        panic!("two requests")
    };
    assert_eq!(
        (
            &first.body["prompt_cache_key"],
            &first.body["prompt_cache_options"]["ttl"]
        ),
        (&json!("k"), &json!("12h"))
    );
    assert_eq!(
        (
            &second.body["prompt_cache_key"],
            &second.body["prompt_cache_options"]
        ),
        (&json!("k"), &Value::Null)
    );
    let marked = |body: &Value| -> Vec<String> {
        let items = body["input"].as_array().unwrap().iter();
        let parts = items.flat_map(|item| {
            item["content"]
                .as_array()
                .or_else(|| item["output"].as_array())
        });
        let marked = parts
            .flatten()
            .filter(|part| part.get("prompt_cache_breakpoint").is_some());
        marked
            .map(|part| part["text"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        marked(&first.body),
        ["use tools", "hello", "task", "Goals: 1"]
    );
    assert_eq!(
        marked(&second.body),
        ["use tools", "hello", "task", "A", "more"]
    );
}

#[tokio::test]
async fn model_without_reasoning_gets_no_reasoning_settings() {
    let server = ScriptedServer::start(|_| Reply::stream(answer(&[message_item("ok")])));
    let request = ModelRequest {
        effort: Some(Effort::High),
        ..request()
    };
    ask(&service::<Responses>(&server, "gpt-4.1-mini"), &request)
        .await
        .unwrap();
    let body = &server.requests()[0].body;
    assert!(
        body.get("reasoning").is_none() && body.get("include").is_none(),
        "{body}"
    );
    assert!(
        body["input"][0]["content"][1]
            .get("prompt_cache_breakpoint")
            .is_none(),
        "{body}"
    );
}

#[tokio::test]
async fn encrypted_content_may_arrive_at_the_end() {
    let early = reasoning_item(None);
    let late = reasoning_item(Some("ENC"));
    let mut data = done(0, &early).to_vec();
    data.extend(done(1, &message_item("hi")));
    data.push(completed(&[late, message_item("hi")]));
    let server = ScriptedServer::start(move |_| Reply::stream(events(&data)));
    let first = ask(&service::<Responses>(&server, MODEL), &request())
        .await
        .unwrap();
    let items = serde_json::to_value(&data_of(&first).items).unwrap();
    assert_eq!(items[0]["reasoning"]["data"]["encrypted_content"], "ENC");
    assert_eq!(items[1]["text"]["data"]["id"], "msg_1");
}

#[tokio::test]
async fn reasoning_without_encrypted_content_is_not_returned() {
    let items = [reasoning_item(None), message_item("hi")];
    let server = ScriptedServer::start(move |_| Reply::stream(answer(&items)));
    let service = service::<Responses>(&server, MODEL);
    let mut request = request();
    let first = ask(&service, &request).await.unwrap();
    request.messages.push(Arc::new(stored(&first)));
    request.messages.push(request.messages[0].clone());
    ask(&service, &request).await.unwrap();
    let answer = &server.requests()[1].body["input"][2];
    assert_eq!(
        *answer,
        json!({"type": "message", "role": "assistant", "content": "hi", "phase": "commentary"})
    );
}

#[tokio::test]
async fn rejected_parts_are_left_out() {
    for (message, present, absent) in [
        (
            "The encrypted content for item rs_1 could not be verified.",
            "/include",
            "/input/2/encrypted_content",
        ),
        (
            "Your organization must be verified to generate reasoning summaries.",
            "/include",
            "/reasoning/summary",
        ),
        (
            "Encrypted content is not supported with this model.",
            "/input/2/encrypted_content",
            "/include",
        ),
        (
            "'input[0].prompt_cache_breakpoint' is not supported on this model.",
            "/include",
            "/input/0/content/1/prompt_cache_breakpoint",
        ),
    ] {
        let server = ScriptedServer::start(move |request| match request.number {
            1 => Reply::status(
                400,
                json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string(),
            ),
            _ => Reply::stream(reasoning_answer()),
        });
        let service = service::<Responses>(&server, MODEL);
        let mut request = request();
        let first = ask(&service, &request).await.unwrap();
        request
            .messages
            .extend([stored(&first), result("call_1", "A"), result("call_2", "B")].map(Arc::new));
        ask(&service, &request).await.unwrap();
        let body = &server.requests()[2].body;
        assert!(
            body.pointer(present).is_some() && body.pointer(absent).is_none(),
            "{message}: {body}"
        );
    }
}

/// Returns the events of an item with its text in two pieces.
fn streamed(index: usize, item: &Value) -> Vec<Value> {
    let (kind, whole) = match item["type"].as_str() {
        Some("message") => ("output_text", item["content"][0]["text"].as_str().unwrap()),
        Some("reasoning") => ("reasoning_summary_text", "Let me\n\nlook."),
        _ => (
            "function_call_arguments",
            item["arguments"].as_str().unwrap(),
        ),
    };
    let (first, second) = whole.split_at(3);
    let piece = |text: &str| {
        let kind = format!("response.{kind}.delta");
        json!({"type": kind, "output_index": index, "item_id": item["id"], "delta": text})
    };
    let [added, done] = done(index, item);
    vec![added, piece(first), piece(second), done]
}

/// Gives the fields with a name in all events another value, or removes them.
fn change(events: &mut [Value], field: &str, change: impl Fn(&Value) -> Option<Value>) {
    for event in events {
        let Some(event) = event.as_object_mut() else {
            continue;
        };
        let Some(value) = event.get(field).and_then(&change) else {
            event.remove(field);
            continue;
        };
        event.insert(field.to_owned(), value);
    }
}

/// Items are found by their ids, then by index and place: no text is lost, and no call is lost or
/// made twice.
#[tokio::test]
async fn index_of_an_item_only_tells_its_order() {
    type Shape = fn(&mut Vec<Value>);
    let shapes: [(&str, Shape); 11] = [
        ("as documented", |_| {}),
        ("no index", |events| {
            change(events, "output_index", |_| None)
        }),
        ("index null", |events| {
            change(events, "output_index", |_| Some(Value::Null))
        }),
        ("index as text", |events| {
            change(events, "output_index", |index| {
                Some(index.to_string().into())
            })
        }),
        ("all at 0", |events| {
            change(events, "output_index", |_| Some(0.into()))
        }),
        ("shifted by one", |events| {
            change(events, "output_index", |index| {
                index.as_u64().map(|index| json!(index + 1))
            });
        }),
        ("pieces without id", |events| {
            change(events, "item_id", |_| None)
        }),
        ("neither index nor id", |events| {
            change(events, "output_index", |_| None);
            change(events, "item_id", |_| None);
        }),
        ("pieces with other ids", |events| {
            change(events, "item_id", |_| Some("other".into()))
        }),
        ("ids that change", |events| {
            for (number, event) in events.iter_mut().enumerate() {
                if event["item"].is_object() {
                    event["item"]["id"] = format!("id_{number}").into();
                }
            }
        }),
        ("no ids", |events| {
            for event in events.iter_mut().filter(|event| event["item"].is_object()) {
                event["item"].as_object_mut().unwrap().remove("id");
            }
            change(events, "item_id", |_| None);
        }),
    ];
    let items = [
        reasoning_item(Some("ENC")),
        message_item("I look."),
        call_item(1, "list", "{\"path\": \"a\"}"),
        call_item(2, "list", "{\"path\": \"b\"}"),
    ];
    for (shape, change_events) in shapes {
        for has_output in [true, false] {
            let mut data: Vec<Value> = (0..)
                .zip(&items)
                .flat_map(|(index, item)| streamed(index, item))
                .collect();
            change_events(&mut data);
            data.push(completed(if has_output { &items } else { &[] }));
            let server = ScriptedServer::start(move |_| Reply::stream(events(&data)));
            let request = ModelRequest {
                tools: Arc::from([tool("list")]),
                ..request()
            };
            let answer = ask(&service::<Responses>(&server, MODEL), &request)
                .await
                .unwrap();
            let what = format!("{shape}, {has_output}");
            assert_eq!(answer.text, "I look.", "{what}");
            assert_eq!(
                answer.reasoning.as_deref(),
                Some("Let me\n\nlook."),
                "{what}"
            );
            let calls: Vec<(&str, &str)> = answer
                .tool_calls
                .iter()
                .map(|call| (call.id.as_str(), call.arguments.as_str()))
                .collect();
            assert_eq!(
                calls,
                [
                    ("call_1", "{\"path\": \"a\"}"),
                    ("call_2", "{\"path\": \"b\"}")
                ],
                "{what}"
            );
        }
    }
}

/// Two items whose pieces alternate keep their texts apart.
#[tokio::test]
async fn pieces_of_several_items_may_alternate() {
    let items = [
        call_item(1, "list", "{\"path\": \"a\"}"),
        call_item(2, "list", "{\"path\": \"b\"}"),
    ];
    let first = streamed(0, &items[0]);
    let second = streamed(1, &items[1]);
    let mut data: Vec<Value> = first
        .into_iter()
        .zip(second)
        .flat_map(|(first, second)| [first, second])
        .collect();
    for event in &mut data {
        // Only the pieces have the arguments.
        if event["type"] == "response.output_item.done" {
            event["item"]["arguments"] = "".into();
        }
    }
    data.push(completed(&[]));
    let server = ScriptedServer::start(move |_| Reply::stream(events(&data)));
    let request = ModelRequest {
        tools: Arc::from([tool("list")]),
        ..request()
    };
    let answer = ask(&service::<Responses>(&server, MODEL), &request)
        .await
        .unwrap();
    let arguments: Vec<&str> = answer
        .tool_calls
        .iter()
        .map(|call| call.arguments.as_str())
        .collect();
    assert_eq!(arguments, ["{\"path\": \"a\"}", "{\"path\": \"b\"}"]);
}

/// Returns text, ids and arguments of an answer with these events.
async fn outcome(data: Vec<Value>) -> (String, Vec<(String, String)>) {
    let server = ScriptedServer::start(move |_| Reply::stream(events(&data)));
    let request = ModelRequest {
        tools: Arc::from([tool("list")]),
        ..request()
    };
    let answer = ask(&service::<Responses>(&server, MODEL), &request)
        .await
        .unwrap();
    let calls = answer
        .tool_calls
        .into_iter()
        .map(|call| (call.id, call.arguments))
        .collect();
    (answer.text, calls)
}

#[tokio::test]
async fn text_is_neither_lost_nor_repeated() {
    let message = message_item("I look.");
    let [added, whole] = done(0, &message);
    let piece = |text: &str| json!({"type": "response.output_text.delta", "item_id": "msg_1", "delta": text});
    let mut half = whole.clone();
    half["item"]["content"][0]["text"] = "I ".into();
    for (what, data) in [
        ("pieces without the item", vec![piece("I "), piece("look.")]),
        (
            "pieces after the item is done",
            vec![added.clone(), piece("I "), half, piece("look.")],
        ),
        ("no pieces", vec![added.clone(), whole.clone()]),
        (
            "pieces, and the whole item",
            vec![added, piece("I "), piece("look."), whole],
        ),
    ] {
        for output in [vec![], vec![message.clone()]] {
            let mut data = data.clone();
            data.push(completed(&output));
            assert_eq!(outcome(data).await.0, "I look.", "{what}, {}", output.len());
        }
    }
    assert_eq!(
        outcome(vec![completed(&[message])]).await.0,
        "I look.",
        "only at the end"
    );
}

#[tokio::test]
async fn calls_are_neither_lost_nor_repeated() {
    let one = call_item(1, "list", r#"{"path": "a"}"#);
    let two = call_item(2, "list", r#"{"path": "b"}"#);
    let with_id = |item: &Value, id: &str| {
        let mut item = item.clone();
        item["call_id"] = id.into();
        item["id"] = format!("fc_{id}").into();
        item
    };
    let mut compact = with_id(&one, "other");
    compact["arguments"] = r#"{"path":"a"}"#.into();
    let mut same_id_as_message = one.clone();
    same_id_as_message["id"] = "msg_1".into();
    let stream = |items: &[&Value]| -> Vec<Value> {
        items
            .iter()
            .enumerate()
            .flat_map(|(index, item)| streamed(index, item))
            .collect()
    };
    for (what, items, output, calls) in [
        (
            "two calls with one id",
            vec![one.clone(), with_id(&two, "call_1")],
            vec![],
            2,
        ),
        (
            "two calls with one id, also at the end",
            vec![one.clone(), with_id(&two, "call_1")],
            vec![one.clone(), with_id(&two, "call_1")],
            2,
        ),
        ("one call twice", vec![one.clone(), one.clone()], vec![], 1),
        (
            "other ids and notation at the end",
            vec![one.clone()],
            vec![compact],
            1,
        ),
        (
            "two calls that do the same",
            vec![one.clone(), with_id(&one, "call_2")],
            vec![one.clone(), with_id(&one, "call_2")],
            2,
        ),
        (
            "the id of a message",
            vec![message_item("I look."), same_id_as_message],
            vec![],
            1,
        ),
    ] {
        let items: Vec<&Value> = items.iter().collect();
        let mut data = stream(&items);
        data.push(completed(&output));
        let (text, made) = outcome(data).await;
        assert_eq!(made.len(), calls, "{what}: {made:?}");
        let has_message = items[0]["type"] == "message";
        assert_eq!(text, if has_message { "I look." } else { "" }, "{what}");
    }
    // A call of which only the arguments arrived is no text.
    let mut pieces = stream(&[&one]);
    pieces.retain(|event| event["type"] == "response.function_call_arguments.delta");
    pieces.push(completed(std::slice::from_ref(&one)));
    assert_eq!(
        outcome(pieces).await,
        (
            String::new(),
            vec![("call_1".to_owned(), r#"{"path": "a"}"#.to_owned())]
        )
    );
}

#[tokio::test]
async fn counts_are_read_leniently() {
    for (counts, expected) in [
        (
            json!({"input_tokens": 20.0, "output_tokens": "5"}),
            Some((20, 5)),
        ),
        (
            json!({"input_tokens": "20.0", "output_tokens": "N/A"}),
            Some((20, 0)),
        ),
        (
            json!({"input_tokens": 1e30, "output_tokens": true}),
            Some((u64::MAX, 0)),
        ),
        (
            json!({"input_tokens": 20, "output_tokens": null, "input_tokens_details": null}),
            Some((20, 0)),
        ),
        (
            json!({"input_tokens": null, "output_tokens": null, "total_tokens": null}),
            None,
        ),
        (Value::Null, None),
    ] {
        let item = message_item("ok");
        let mut data: Vec<Value> = done(0, &item).into();
        let mut end = completed(&[item]);
        end["response"]["usage"] = counts.clone();
        data.push(end);
        let server = ScriptedServer::start(move |_| Reply::stream(events(&data)));
        let answer = ask(&service::<Responses>(&server, MODEL), &request())
            .await
            .unwrap();
        let usage = answer
            .usage
            .map(|usage| (usage.prompt_tokens, usage.completion_tokens));
        assert_eq!(usage, expected, "{counts}");
    }
}

#[tokio::test]
async fn odd_streams_and_errors_have_clear_results() {
    let incomplete = |reason: &str| json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": reason}}});
    let failed = json!({"code": "rate_limit_exceeded", "message": "Slow down"});
    let refusal = json!({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]});
    for (reply, expected) in [
        (
            Reply::stream(events(&[incomplete("max_output_tokens")])),
            Ok("length"),
        ),
        (
            Reply::stream(events(&[incomplete("content_filter")])),
            Ok("content_filter"),
        ),
        (Reply::stream(answer(&[refusal])), Ok("refusal")),
        (
            Reply::stream(events(&[
                json!({"type": "response.failed", "response": {"error": failed}}),
            ])),
            Err((
                Failure::RateLimited {
                    retry_after_ms: None,
                },
                "Slow down",
            )),
        ),
        (
            Reply::stream(events(&[
                json!({"type": "error", "error": {"code": "server_error", "message": "Oops"}}),
            ])),
            Err((Failure::Unavailable, "Oops")),
        ),
        (
            Reply::stream(events(&[
                json!({"type": "error", "code": "context_length_exceeded", "message": "Too long"}),
            ])),
            Err((Failure::PromptTooLong, "Too long")),
        ),
        (
            Reply::stream(events(&done(0, &message_item("hi")))),
            Err((Failure::InvalidResponse, "ended before")),
        ),
        (
            Reply::status(
                200,
                json!({"object": "response", "output": [message_item("hi")]}).to_string(),
            ),
            Ok("stop"),
        ),
        (
            Reply::status(
                429,
                json!({"error": {"code": "insufficient_quota", "message": "Empty"}}).to_string(),
            ),
            Err((Failure::Rejected, "no credit")),
        ),
    ] {
        let server = ScriptedServer::start(move |_| reply.clone());
        match (
            ask(&service::<Responses>(&server, MODEL), &request()).await,
            expected,
        ) {
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
