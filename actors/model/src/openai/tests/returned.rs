//! Data of earlier answers: returned to the service and model that sent it, replaced for others,
//! omitted if rejected.

use super::*;

/// Returns an answer as the next request contains it.
fn as_message(completion: Completion) -> Message {
    let mut message = message(Role::Assistant, &completion.text);
    message.reasoning = completion.reasoning;
    message.tool_calls = completion.tool_calls;
    message.provider_data = completion.provider_data;
    message
}

fn result(id: &str) -> Message {
    let mut result = message(Role::Tool, "done");
    result.tool_call_id = Some(id.into());
    result
}

fn conversation(model: &str, answer: Message) -> ModelRequest {
    let results: Vec<Message> = answer
        .tool_calls
        .iter()
        .map(|call| result(&call.id))
        .collect();
    let messages = [message(Role::User, "go"), answer]
        .into_iter()
        .chain(results)
        .map(Arc::new)
        .collect();
    ModelRequest {
        messages,
        model: Some(model.into()),
        ..ModelRequest::default()
    }
}

/// Returns the stream of an answer with reasoning and two calls, as a model of this name sends it.
fn answer_of(model: &str) -> Reply {
    let call = |index: u64, extra: Value| {
        let function = json!({"name": "read", "arguments": "{}"});
        let mut piece = json!({"index": index, "id": format!("c{index}"), "function": function});
        if !extra.is_null() {
            piece["extra_content"] = extra;
        }
        call_piece(piece)
    };
    let calls = |extra: Value| {
        [
            call(0, extra),
            call(1, Value::Null),
            delta(json!({}), "tool_calls".into()),
        ]
    };
    if model.contains("gemini") {
        Reply::sse(calls(json!({"google": {"thought_signature": "sig"}})))
    } else {
        let reasoning = delta(json!({"reasoning_content": "Because."}), Value::Null);
        Reply::sse([reasoning].into_iter().chain(calls(Value::Null)))
    }
}

/// Sends a conversation with an answer of `from` to `to`, and returns the answer as the service
/// receives it.
async fn sent(from: &str, to: &str) -> Value {
    let model = from.to_owned();
    let server = ScriptedServer::start(move |request| {
        match request.body["messages"].as_array().unwrap().len() {
            1 => answer_of(&model),
            _ => Reply::answer("ok"),
        }
    });
    let provider = provider(&server);
    let first = ModelRequest {
        messages: vec![Arc::new(message(Role::User, "go"))],
        model: Some(from.into()),
        ..ModelRequest::default()
    };
    let answer = as_message(ask(&provider, &first).await.unwrap());
    ask(&provider, &conversation(to, answer)).await.unwrap();
    server.requests()[1].body["messages"][1].clone()
}

#[tokio::test]
async fn data_returns_to_its_model_and_is_replaced_for_others() {
    let signature = |of: &str| json!({"google": {"thought_signature": of}});
    for (from, to, reasoning, first_call) in [
        (
            "gemini-3-pro",
            "gemini-3-pro",
            Value::Null,
            signature("sig"),
        ),
        ("deepseek-v4", "deepseek-v4", json!("Because."), Value::Null),
        ("kimi-k3", "kimi-k3", json!("Because."), Value::Null),
        (
            "gemini-3-pro",
            "deepseek-v4",
            json!("(not recorded)"),
            Value::Null,
        ),
        (
            "deepseek-v4",
            "gemini-3-pro",
            Value::Null,
            signature("skip_thought_signature_validator"),
        ),
        (
            "gemini-3-pro",
            "gemini-3-flash",
            Value::Null,
            signature("skip_thought_signature_validator"),
        ),
        ("deepseek-v4", "gpt-5", Value::Null, Value::Null),
        ("gemini-3-pro", "gpt-5", Value::Null, Value::Null),
    ] {
        let message = sent(from, to).await;
        assert_eq!(message["reasoning_content"], reasoning, "{from} {to}");
        let calls = message["tool_calls"].as_array().unwrap();
        let extras = [&calls[0]["extra_content"], &calls[1]["extra_content"]];
        assert_eq!(extras, [&first_call, &Value::Null], "{from} {to}");
    }
}

#[tokio::test]
async fn data_of_another_service_or_of_changed_text_is_not_sent() {
    let server = ScriptedServer::start(|_| answer_of("deepseek-v4"));
    let other = ScriptedServer::start(|_| Reply::answer("ok"));
    let first = ModelRequest {
        model: Some("kimi-k3".into()),
        ..request()
    };
    let answer = as_message(ask(&provider(&server), &first).await.unwrap());
    ask(&provider(&other), &conversation("kimi-k3", answer.clone()))
        .await
        .unwrap();
    let changed = Message {
        reasoning: Some("[redacted:KEY]".into()),
        ..answer
    };
    ask(&provider(&server), &conversation("kimi-k3", changed))
        .await
        .unwrap();
    for request in [&other.requests()[0], &server.requests()[1]] {
        assert!(
            request.body["messages"][1]
                .get("reasoning_content")
                .is_none(),
            "{}",
            request.body
        );
    }
}

#[tokio::test]
async fn first_tool_call_changes_no_earlier_message() {
    let server = ScriptedServer::start(|_| Reply::answer("ok"));
    let provider = provider(&server);
    let mut request = conversation("deepseek-v4", message(Role::Assistant, "hello"));
    ask(&provider, &request).await.unwrap();
    let mut caller = message(Role::Assistant, "");
    caller.tool_calls = vec![ToolCall {
        id: "c1".into(),
        name: "read".into(),
        arguments: "{}".into(),
    }];
    request
        .messages
        .extend([message(Role::User, "and"), caller, result("c1")].map(Arc::new));
    ask(&provider, &request).await.unwrap();
    let sent = |call: usize| {
        server.requests()[call].body["messages"]
            .as_array()
            .unwrap()
            .clone()
    };
    assert_eq!(sent(0)[..], sent(1)[..2]);
}

#[tokio::test]
async fn rejected_data_is_omitted_from_then_on_and_reported_once() {
    let server = ScriptedServer::start(|request| {
        let messages = request.body["messages"].as_array().unwrap();
        let has_reasoning = |message: &Value| message.get("reasoning_content").is_some();
        if messages.iter().any(has_reasoning) {
            let body = r#"{"error": {"message": "unexpected field reasoning_content"}}"#;
            return Reply::status(400, body);
        }
        if messages.len() == 1 {
            return answer_of("kimi");
        }
        Reply::answer("ok")
    });
    let provider = provider(&server);
    let first = ModelRequest {
        messages: vec![Arc::new(message(Role::User, "go"))],
        model: Some("kimi-k3".into()),
        ..ModelRequest::default()
    };
    let request = conversation("kimi-k3", as_message(ask(&provider, &first).await.unwrap()));
    assert!(
        ask(&provider, &request)
            .await
            .unwrap()
            .provider_data_rejected
    );
    assert!(
        !ask(&provider, &request)
            .await
            .unwrap()
            .provider_data_rejected
    );
    assert_eq!(
        server.requests().len(),
        4,
        "the answer, the rejected request, its repetition, and one more"
    );
}

/// Sends an answer of these deltas back, and returns the answer as the service receives it.
async fn returned(deltas: Vec<Value>) -> (Message, Value) {
    let server = ScriptedServer::start(move |request| {
        match request.body["messages"].as_array().unwrap().len() {
            1 => {
                let call = call_piece(
                    json!({"index": 0, "id": "c", "function": {"name": "read", "arguments": "{}"}}),
                );
                let end = delta(json!({}), "tool_calls".into());
                Reply::sse(
                    deltas
                        .iter()
                        .map(|piece| delta(piece.clone(), Value::Null))
                        .chain([call, end]),
                )
            }
            _ => Reply::answer("ok"),
        }
    });
    let provider = provider(&server);
    let first = ModelRequest {
        messages: vec![Arc::new(message(Role::User, "go"))],
        ..ModelRequest::default()
    };
    let answer = as_message(ask(&provider, &first).await.unwrap());
    let request = ModelRequest {
        model: None,
        ..conversation("", answer.clone())
    };
    ask(&provider, &request).await.unwrap();
    (answer, server.requests()[1].body["messages"][1].clone())
}

#[tokio::test]
async fn reasoning_details_are_returned_as_they_arrived() {
    let text = |index: u64, text: &str| json!({"type": "reasoning.text", "text": text, "format": "f", "index": index});
    let encrypted =
        json!({"type": "reasoning.encrypted", "data": "SIG", "id": "c", "format": "f", "index": 1});
    let signed = json!({"type": "reasoning.text", "signature": "S", "index": 0});
    for (name, deltas, reasoning, expected) in [
        (
            "pieces of one part, beside the text",
            vec![
                json!({"reasoning": "I ", "reasoning_details": [text(0, "I ")]}),
                json!({"reasoning": "read.", "reasoning_details": [text(0, "read.")]}),
                json!({"reasoning_details": [signed]}),
                json!({"reasoning_details": [encrypted]}),
            ],
            Some("I read."),
            json!([
                {"type": "reasoning.text", "text": "I read.", "format": "f", "index": 0, "signature": "S"},
                encrypted,
            ]),
        ),
        (
            "details alone",
            vec![json!({"reasoning_details": [text(0, "One."), text(1, "Two.")]})],
            Some("One.Two."),
            json!([text(0, "One."), text(1, "Two.")]),
        ),
        (
            "a summary that differs from the text",
            vec![json!({
                "reasoning": "other words",
                "reasoning_details": [{"type": "reasoning.summary", "summary": "short", "index": 0}],
            })],
            Some("other words"),
            json!([{"type": "reasoning.summary", "summary": "short", "index": 0}]),
        ),
        (
            "only encrypted parts",
            vec![json!({"reasoning_details": [encrypted]})],
            None,
            json!([encrypted]),
        ),
        (
            "no list",
            vec![json!({"reasoning_details": "x"})],
            None,
            Value::Null,
        ),
    ] {
        let (answer, sent) = returned(deltas).await;
        assert_eq!(answer.reasoning.as_deref(), reasoning, "{name}");
        assert_eq!(sent["reasoning_details"], expected, "{name}");
        assert_eq!(sent["reasoning_content"], Value::Null, "{name}");
    }
}

#[tokio::test]
async fn ids_of_calls_that_are_too_long_are_replaced_in_call_and_result() {
    let server = ScriptedServer::start(|_| Reply::answer("ok"));
    let provider = provider(&server);
    let ids = [
        "x".repeat(64),
        "call_1".to_owned(),
        "functions.read:0".to_owned(),
        "y".repeat(41),
    ];
    let mut answer = message(Role::Assistant, "");
    answer.tool_calls = ids
        .iter()
        .map(|id| ToolCall {
            id: id.clone(),
            name: "read".into(),
            arguments: "{}".into(),
        })
        .collect();
    ask(&provider, &conversation("gpt-5", answer))
        .await
        .unwrap();
    let sent = server.requests()[0].body["messages"]
        .as_array()
        .unwrap()
        .clone();
    let calls: Vec<&str> = sent[1]["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["id"].as_str().unwrap())
        .collect();
    let results: Vec<&str> = sent[2..]
        .iter()
        .map(|result| result["tool_call_id"].as_str().unwrap())
        .collect();
    assert_eq!(
        calls,
        ["soong_call_1", "call_1", "functions.read:0", "soong_call_2"]
    );
    assert_eq!(calls, results);
}
