//! Tests of the provider against a scripted service, by tables.

mod failures;
mod odd_answers;
mod profiles;
mod returned;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use soong_protocol::{
    ArtifactId, ContentPart, Message, MessageContent, ModelConfig, Role, ToolCall, ToolSpec, Usage,
};
use soong_text::Environment;

use super::ChatCompletions;
use crate::{
    CacheHints, Completion, Failure, Model, ModelError, ModelRequest,
    service::{
        MAX_ADAPTATIONS, Service,
        testing::{
            Collected, KEY, ask, caller, config, file, message, request, result,
            scripted::{Reply, ScriptedServer, delta},
        },
    },
};

type OpenAi = Service<ChatCompletions>;

fn open_ai(config: &ModelConfig, key: Option<&str>) -> Result<OpenAi, ModelError> {
    OpenAi::new(
        config,
        &Environment::of(key.map(|key| ("OPENAI_API_KEY", key))),
    )
}

fn provider(server: &ScriptedServer) -> OpenAi {
    open_ai(&config(server.base_url()), Some(KEY)).unwrap()
}

async fn answer_to(reply: Reply) -> Result<Completion, ModelError> {
    let server = ScriptedServer::start(move |_| reply.clone());
    ask(&provider(&server), &request()).await
}

fn text(content: &str) -> Value {
    delta(json!({"content": content}), Value::Null)
}

fn stop() -> Value {
    delta(json!({}), "stop".into())
}

fn call_piece(piece: Value) -> Value {
    delta(json!({"tool_calls": [piece]}), Value::Null)
}

fn completion(text: &str) -> Completion {
    Completion {
        text: text.into(),
        finish_reason: "stop".into(),
        ..Completion::default()
    }
}

#[tokio::test]
async fn an_answer_streams_and_ends_with_usage() {
    let usage = Some(Usage {
        prompt_tokens: 10,
        completion_tokens: 5,
        ..Usage::default()
    });
    let answer = answer_to(Reply::answer("one two three")).await.unwrap();
    assert_eq!(
        answer,
        Completion {
            usage,
            ..completion("one two three")
        }
    );
}

#[tokio::test]
async fn images_and_files_are_sent_as_parts() {
    let server = ScriptedServer::start(|_| Reply::answer("ok"));
    let all = [
        file("a", "image/png"),
        ContentPart::text("Compare."),
        file("b", "application/pdf"),
        file("c", "audio/wav"),
        file("gone", "image/png"),
    ];
    let mut caller = message(Role::Assistant, "");
    caller.tool_calls = vec![ToolCall {
        id: "c1".into(),
        name: "read".into(),
        arguments: "{}".into(),
    }];
    let mut outcome = message(Role::Tool, "");
    outcome.tool_call_id = Some("c1".into());
    outcome.content = MessageContent::from_parts(vec![
        ContentPart::text("`d.x`:"),
        file("d", "image/jpeg"),
        file("gone", "image/png"),
    ]);
    let mut user_message = message(Role::User, "");
    user_message.content = MessageContent::from_parts(all.to_vec());
    let mut given = message(Role::Assistant, "");
    given.content = MessageContent::from_parts(vec![file("a", "image/png")]);
    let request = ModelRequest {
        messages: [user_message, caller, outcome, given]
            .map(Arc::new)
            .to_vec(),
        files: ["a", "b", "c", "d"]
            .map(|id| (ArtifactId::new(id), "AAEC".into()))
            .into(),
        ..ModelRequest::default()
    };
    ask(&provider(&server), &request).await.unwrap();
    assert_eq!(
        server.requests()[0].body["messages"],
        json!([
            {"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}},
                {"type": "text", "text": "Compare."},
                {"type": "file", "file": {"filename": "b.x", "file_data": "data:application/pdf;base64,AAEC"}},
                {"type": "input_audio", "input_audio": {"data": "AAEC", "format": "wav"}},
                {"type": "text", "text": "[image gone.x, image/png, 3 bytes; not shown]"},
            ]},
            {"role": "assistant", "content": null, "tool_calls":
                [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "`d.x`:\n[image d.x, image/jpeg, 3 bytes; see below]\n\
                [image gone.x, image/png, 3 bytes; not shown]"},
            {"role": "user", "content": [
                {"type": "text", "text": "Files of the tool results above:"},
                {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAEC"}},
            ]},
            {"role": "assistant", "content": "[image a.x, image/png, 3 bytes; not shown]"},
        ])
    );
}

#[tokio::test]
async fn request_follows_openai_format() {
    let server = ScriptedServer::start(|_| Reply::answer("ok"));
    let mut caller = message(Role::Assistant, "");
    caller.reasoning = Some("never sent back".into());
    caller.tool_calls = vec![ToolCall {
        id: "c1".into(),
        name: "read".into(),
        arguments: "{\"path\": 1}".into(),
    }];
    let mut outcome = message(Role::Tool, "it says \"hi\"\n");
    outcome.tool_call_id = Some("c1".into());
    let mut request = request();
    request.messages.extend([
        Arc::new(caller),
        Arc::new(outcome),
        Arc::new(message(Role::Assistant, "")),
    ]);
    request.tools = Arc::from([Arc::new(ToolSpec::read(
        "read",
        "Read",
        "Reads.",
        json!({"type": "object"}),
    ))]);
    request.temperature = Some(0.5);
    request.model = Some("other".into());
    ask(&provider(&server), &request).await.unwrap();
    let received = &server.requests()[0];
    assert_eq!(received.path, "/v1/chat/completions");
    assert_eq!(received.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(received.headers["content-type"], "application/json");
    assert_eq!(
        received.body,
        json!({
            "model": "other",
            "messages": [
                {"role": "system", "content": "be brief\n\nuse tools"},
                {"role": "user", "content": "hello"},
                {"role": "assistant", "content": null, "tool_calls":
                    [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{\"path\": 1}"}}]},
                {"role": "tool", "content": "it says \"hi\"\n", "tool_call_id": "c1"},
                {"role": "assistant", "content": ""},
            ],
            "tools": [{"type": "function", "function":
                {"name": "read", "description": "Reads.", "parameters": {"type": "object"}}}],
            "max_tokens": 4096, "temperature": 0.5, "stream": true, "stream_options": {"include_usage": true},
        })
    );
}

#[tokio::test]
async fn unset_parameters_are_not_sent() {
    let server = ScriptedServer::start(|_| Reply::answer("ok"));
    let environment = Environment::of([("OPENAI_BASE_URL", "http://other")]);
    let local = OpenAi::new(
        &config(server.base_url() + "/chat/completions/"),
        &environment,
    )
    .unwrap();
    ask(
        &local,
        &ModelRequest {
            system: vec![],
            ..request()
        },
    )
    .await
    .unwrap();
    let received = &server.requests()[0];
    assert_eq!(
        (received.path.as_str(), &*received.headers["authorization"]),
        ("/v1/chat/completions", "Bearer none")
    );
    assert!(
        received.body.get("tools").is_none() && received.body.get("temperature").is_none(),
        "{}",
        received.body
    );
    assert_eq!(
        received.body["messages"],
        json!([{"role": "user", "content": "hello"}])
    );
}

#[tokio::test]
async fn rejected_parameter_is_replaced_once_and_remembered() {
    let refusals = [
        (
            "max_tokens",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        ),
        (
            "temperature",
            "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.",
        ),
        (
            "stream_options",
            "body.stream_options: Extra inputs are not permitted",
        ),
    ];
    let server = ScriptedServer::start(move |request| {
        match refusals
            .iter()
            .find(|(parameter, _)| request.body.get(parameter).is_some())
        {
            Some((_, message)) => {
                Reply::status(400, json!({"error": {"message": message}}).to_string())
            }
            None => Reply::answer("ok"),
        }
    });
    let provider = provider(&server);
    let request = ModelRequest {
        temperature: Some(0.5),
        ..request()
    };
    assert_eq!(ask(&provider, &request).await.unwrap().text, "ok");
    assert_eq!(server.requests().len(), 4);
    assert_eq!(ask(&provider, &request).await.unwrap().text, "ok");
    let requests = server.requests();
    assert_eq!(
        requests.len(),
        5,
        "what the first call learned serves the second"
    );
    assert_eq!(requests[4].body["max_completion_tokens"], 4096);
    // Adaptations are learned per model.
    ask(
        &provider,
        &ModelRequest {
            model: Some("other".into()),
            ..request
        },
    )
    .await
    .unwrap();
    assert_eq!(server.requests().len(), 9);
}

#[tokio::test]
async fn retries_end_if_service_rejects_every_variant() {
    let message =
        "unknown parameters: max_tokens, max_completion_tokens, temperature, stream_options";
    let server = ScriptedServer::start(move |_| Reply::status(400, message));
    let error = ask(&provider(&server), &request()).await.unwrap_err();
    assert_eq!(error.failure, Failure::Rejected);
    assert_eq!(server.requests().len(), 1 + MAX_ADAPTATIONS);
}

#[tokio::test]
async fn complete_answer_is_returned_if_server_keeps_connection_open() {
    let done = "data: [DONE]\n\n".to_owned();
    let reply = Reply::stream([
        format!("data: {}\n\n", text("hi")),
        format!("data: {}\n\n", stop()),
        done,
    ])
    .then_hang();
    assert_eq!(answer_to(reply).await, Ok(completion("hi")));
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    for reply in [Reply::hang(), Reply::sse([text("hi")]).then_hang()] {
        let server = ScriptedServer::start(move |_| reply.clone());
        let provider = provider(&server);
        let request = request();
        let mut deltas = Collected::default();
        tokio::select! {
            _ = provider.complete(&request, &mut deltas) => panic!("it hangs"),
            () = server.until_requests(1) => {}
        }
        tokio::time::timeout(Duration::from_secs(3), server.until_hung_up(1))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn connection_is_reused_by_sequential_calls() {
    let server = ScriptedServer::start(|request| match request.number % 3 {
        0 => Reply::answer("ok"),
        1 => Reply::calls(&[("a", "read", "{}")]),
        _ => Reply::status(503, "later"),
    });
    let provider = provider(&server);
    for _ in 0..9 {
        let _ = ask(&provider, &request()).await;
    }
    assert_eq!(
        (
            server.requests().len(),
            server.connections(),
            server.max_in_flight()
        ),
        (9, 1, 1)
    );
}

#[test]
fn invalid_base_url_or_key_is_rejected_at_creation() {
    let make = |key: Option<&str>, url: &str| open_ai(&config(url.into()), key).err();
    assert_eq!(make(Some(KEY), "https://host/v1/"), None);
    assert_eq!(make(Some("key\n"), "http://[::1]:80"), None);
    for url in ["host/v1", "localhost:8080", "file:///x"] {
        assert_eq!(make(None, url).unwrap().failure, Failure::Rejected, "{url}");
    }
    let error = make(Some("ke\ny"), "http://h").unwrap();
    assert_eq!(error.failure, Failure::Unauthorized);
    assert!(!error.message.contains("ke\ny"), "{error}");
}

#[tokio::test]
async fn dots_in_tool_names_are_encoded_and_restored() {
    let piece =
        json!({"index": 0, "id": "c2", "function": {"name": "mcp__s__add", "arguments": "{}"}});
    let server = ScriptedServer::start(move |_| {
        Reply::sse([
            call_piece(piece.clone()),
            delta(json!({}), "tool_calls".into()),
        ])
    });
    let mut caller = message(Role::Assistant, "");
    caller.tool_calls = vec![ToolCall {
        id: "c1".into(),
        name: "mcp.s.add".into(),
        arguments: "{}".into(),
    }];
    let mut outcome = message(Role::Tool, "3");
    outcome.tool_call_id = Some("c1".into());
    let mut request = request();
    request
        .messages
        .extend([Arc::new(caller), Arc::new(outcome)]);
    request.tools = Arc::from([Arc::new(ToolSpec::read(
        "mcp.s.add",
        "Add",
        "Adds.",
        json!({"type": "object"}),
    ))]);
    let answer = ask(&provider(&server), &request).await.unwrap();
    assert_eq!(
        answer.tool_calls,
        [ToolCall {
            id: "c2".into(),
            name: "mcp.s.add".into(),
            arguments: "{}".into()
        }]
    );
    let body = &server.requests()[0].body;
    assert_eq!(body["tools"][0]["function"]["name"], "mcp__s__add");
    assert_eq!(
        body["messages"][2]["tool_calls"][0]["function"]["name"],
        "mcp__s__add"
    );
}

#[tokio::test]
async fn context_of_the_run_joins_the_message_before_it() {
    let server = ScriptedServer::start(|_| Reply::answer("fine"));
    let mut request = request();
    request.messages.push(Arc::new(message(Role::User, "task")));
    let call = caller("", &[("c", "list", "{}")]);
    request.messages.push(Arc::new(Message {
        context_update: Some("Goals: 1".to_owned()),
        ..call
    }));
    request.messages.push(Arc::new(result("c", "a.txt")));
    request.context_update = Some("Goals: 2".into());
    ask(&provider(&server), &request).await.unwrap();
    let sent = server.requests()[0].body["messages"].clone();
    let sent: Vec<(&str, &str)> = sent.as_array().unwrap()[1..]
        .iter()
        .map(|message| {
            (
                message["role"].as_str().unwrap(),
                message["content"].as_str().unwrap_or(""),
            )
        })
        .collect();
    let expected = [
        ("user", "hello\n\ntask\n\nGoals: 1"),
        ("assistant", ""),
        ("tool", "a.txt\n\nGoals: 2"),
    ];
    assert_eq!(
        sent, expected,
        "neither two messages of the user in a row, nor one after a result"
    );
}

#[tokio::test]
async fn newer_models_get_breakpoints_that_later_requests_read() {
    let server = ScriptedServer::start(|_| Reply::answer("ok"));
    let cache = CacheHints {
        shared_messages: 1,
        ..CacheHints::default()
    };
    let model = Some("gpt-5.6-mini".to_owned());
    let mut request = ModelRequest {
        cache,
        model,
        context_update: Some("Goals: 1".into()),
        ..request()
    };
    request.messages.push(Arc::new(message(Role::User, "task")));
    ask(&provider(&server), &request).await.unwrap();
    let earlier = Message {
        context_update: Some("Goals: 1".to_owned()),
        ..caller("", &[("c", "list", "{}")])
    };
    request
        .messages
        .extend([earlier, result("c", "A"), message(Role::Assistant, "A.")].map(Arc::new));
    request.messages.push(Arc::new(message(Role::User, "more")));
    request.context_update = None;
    ask(&provider(&server), &request).await.unwrap();
    for older in ["gpt-5.4", "gpt-35-turbo"] {
        ask(
            &provider(&server),
            &ModelRequest {
                model: Some(older.into()),
                ..request.clone()
            },
        )
        .await
        .unwrap();
    }
    ask(
        &provider(&server),
        &ModelRequest {
            system: Vec::new(),
            ..request
        },
    )
    .await
    .unwrap();
    let [first, second, older @ .., no_system] = &server.requests()[..] else {
        panic!("five requests")
    };
    let parts = |body: &Value, is_marked: bool| -> Vec<String> {
        let parts = body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|message| message["content"].as_array());
        let breakpoint = json!({"mode": "explicit"});
        let parts = parts
            .flatten()
            .filter(|part| !is_marked || part["prompt_cache_breakpoint"] == breakpoint);
        parts
            .map(|part| part["text"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        parts(&first.body, false),
        ["be brief", "use tools", "hello", "task", "Goals: 1"]
    );
    assert_eq!(
        parts(&first.body, true),
        ["use tools", "hello", "task", "Goals: 1"]
    );
    assert_eq!(
        parts(&second.body, true),
        ["use tools", "hello", "task", "A", "more"]
    );
    assert_eq!(
        parts(&second.body, false)[..5],
        parts(&first.body, false),
        "what was sent does not change"
    );
    assert!(
        older
            .iter()
            .all(|older| !older.body.to_string().contains("prompt_cache_breakpoint")),
        "{older:?}"
    );
    assert_eq!(no_system.body["messages"][0]["role"], "user");
}

#[tokio::test]
async fn rejected_breakpoints_are_omitted_from_then_on() {
    let server = ScriptedServer::start(|request| {
        if request.body.to_string().contains("prompt_cache_breakpoint") {
            Reply::status(
                400,
                r#"{"error": {"message": "Unknown parameter: 'prompt_cache_breakpoint'"}}"#,
            )
        } else {
            Reply::answer("ok")
        }
    });
    let provider = provider(&server);
    let request = ModelRequest {
        model: Some("gpt-6".into()),
        ..request()
    };
    for expected in [2, 3] {
        assert_eq!(ask(&provider, &request).await.unwrap().text, "ok");
        assert_eq!(server.requests().len(), expected);
    }
    assert_eq!(
        server.requests()[2].body["messages"][0]["content"],
        "be brief\n\nuse tools"
    );
}
