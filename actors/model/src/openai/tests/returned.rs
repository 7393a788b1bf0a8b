//! Data of earlier answers: returned to the service and model that sent it, replaced for others, omitted if rejected.

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
    let results: Vec<Message> = answer.tool_calls.iter().map(|call| result(&call.id)).collect();
    let messages = [message(Role::User, "go"), answer].into_iter().chain(results).map(Arc::new).collect();
    ModelRequest { messages, model: Some(model.into()), ..ModelRequest::default() }
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
    let calls = |extra: Value| [call(0, extra), call(1, Value::Null), delta(json!({}), "tool_calls".into())];
    match model.contains("gemini") {
        true => Reply::sse(calls(json!({"google": {"thought_signature": "sig"}}))),
        false => {
            let reasoning = delta(json!({"reasoning_content": "Because."}), Value::Null);
            Reply::sse([reasoning].into_iter().chain(calls(Value::Null)))
        }
    }
}

/// Sends a conversation with an answer of `from` to `to`, and returns the answer as the service receives it.
async fn sent(from: &str, to: &str) -> Value {
    let model = from.to_owned();
    let server = ScriptedServer::start(move |asked| match asked.body["messages"].as_array().unwrap().len() {
        1 => answer_of(&model),
        _ => Reply::answer("ok"),
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
        ("gemini-3-pro", "gemini-3-pro", Value::Null, signature("sig")),
        ("deepseek-v4", "deepseek-v4", json!("Because."), Value::Null),
        ("kimi-k3", "kimi-k3", json!("Because."), Value::Null),
        ("gemini-3-pro", "deepseek-v4", json!("(not recorded)"), Value::Null),
        ("deepseek-v4", "gemini-3-pro", Value::Null, signature("skip_thought_signature_validator")),
        ("gemini-3-pro", "gemini-3-flash", Value::Null, signature("skip_thought_signature_validator")),
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
    let first = ModelRequest { model: Some("kimi-k3".into()), ..request() };
    let answer = as_message(ask(&provider(&server), &first).await.unwrap());
    ask(&provider(&other), &conversation("kimi-k3", answer.clone())).await.unwrap();
    let changed = Message { reasoning: Some("[redacted:KEY]".into()), ..answer };
    ask(&provider(&server), &conversation("kimi-k3", changed)).await.unwrap();
    for request in [&other.requests()[0], &server.requests()[1]] {
        assert!(request.body["messages"][1].get("reasoning_content").is_none(), "{}", request.body);
    }
}

#[tokio::test]
async fn first_tool_call_changes_no_earlier_message() {
    let server = ScriptedServer::start(|_| Reply::answer("ok"));
    let provider = provider(&server);
    let mut request = conversation("deepseek-v4", message(Role::Assistant, "hello"));
    ask(&provider, &request).await.unwrap();
    let mut caller = message(Role::Assistant, "");
    caller.tool_calls = vec![ToolCall { id: "c1".into(), name: "read".into(), arguments: "{}".into() }];
    request.messages.extend([message(Role::User, "and"), caller, result("c1")].map(Arc::new));
    ask(&provider, &request).await.unwrap();
    let sent = |call: usize| server.requests()[call].body["messages"].as_array().unwrap().clone();
    assert_eq!(sent(0)[..], sent(1)[..2]);
}

#[tokio::test]
async fn rejected_data_is_omitted_from_then_on_and_reported_once() {
    let server = ScriptedServer::start(|asked| {
        let messages = asked.body["messages"].as_array().unwrap();
        match messages.iter().any(|message| message.get("reasoning_content").is_some()) {
            true => Reply::status(400, r#"{"error": {"message": "unexpected field reasoning_content"}}"#),
            false if messages.len() == 1 => answer_of("kimi"),
            false => Reply::answer("ok"),
        }
    });
    let provider = provider(&server);
    let first = ModelRequest {
        messages: vec![Arc::new(message(Role::User, "go"))],
        model: Some("kimi-k3".into()),
        ..ModelRequest::default()
    };
    let request = conversation("kimi-k3", as_message(ask(&provider, &first).await.unwrap()));
    assert!(ask(&provider, &request).await.unwrap().provider_data_rejected);
    assert!(!ask(&provider, &request).await.unwrap().provider_data_rejected);
    assert_eq!(server.requests().len(), 4, "the answer, the rejected request, its repetition, and one more");
}
