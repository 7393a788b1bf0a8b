//! Tests of the Gemini API against a scripted service.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use serde_json::{Value, json};
use soong_protocol::{Effort, ModelConfig, Provider, ToolCall, Usage};
use soong_text::Environment;

use super::Gemini;
use crate::{
    Completion, Failure, ModelRequest,
    service::{
        Service,
        testing::{
            KEY, ask, caller, config, data_of, events, full_request, request, result,
            scripted::{Reply, ScriptedServer},
            service, stored, tool,
        },
    },
};

const MODEL: &str = "gemini-3.8-flash";

fn chunk(parts: Value, finish_reason: Option<&str>) -> Value {
    let usage = json!({"promptTokenCount": 20, "cachedContentTokenCount": 7, "candidatesTokenCount": 15,
        "thoughtsTokenCount": 5, "totalTokenCount": 40});
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(reason) = finish_reason {
        candidate["finishReason"] = reason.into();
    }
    json!({"candidates": [candidate], "usageMetadata": usage})
}

fn thinking_answer() -> Vec<String> {
    let call = |id: &str, name: &str, args: Value| json!({"functionCall": {"id": id, "name": name, "args": args}});
    let mut first = call("c1", "fs__read", json!({"path": "a"}));
    first["thoughtSignature"] = "SIG1".into();
    let second = json!({"functionCall": {"id": "c2", "name": "list"}});
    events(&[
        chunk(json!([{"text": "Let me", "thought": true}]), None),
        chunk(json!([{"text": " look.", "thought": true}]), None),
        chunk(json!([{"text": "Read"}]), None),
        chunk(json!([{"text": "ing."}]), None),
        chunk(json!([first, second]), None),
        chunk(
            json!([{"text": "", "thoughtSignature": "SIG2"}]),
            Some("STOP"),
        ),
    ])
}

fn answer(text: &str) -> Vec<String> {
    events(&[chunk(json!([{ "text": text }]), Some("STOP"))])
}

#[tokio::test]
async fn answer_streams_and_is_returned_as_it_was() {
    let server = ScriptedServer::start(|request| match request.number {
        0 => Reply::stream(thinking_answer()),
        _ => Reply::stream(answer("Done.")),
    });
    let service = service::<Gemini>(&server, MODEL);
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
        reasoning_tokens: 5,
        ..Usage::default()
    };
    assert_eq!(
        (first.text.as_str(), first.reasoning.as_deref()),
        ("Reading.", Some("Let me look."))
    );
    assert_eq!(
        first.tool_calls,
        [
            call("c1", "fs.read", "{\"path\":\"a\"}"),
            call("c2", "list", "{}")
        ]
    );
    assert_eq!(
        (first.usage, first.finish_reason.as_str()),
        (Some(usage), "tool_calls")
    );
    assert_eq!(data_of(&first).source.dialect, "gemini");

    request
        .messages
        .extend([stored(&first), result("c1", "A"), result("c2", "")].map(Arc::new));
    assert_eq!(ask(&service, &request).await.unwrap().text, "Done.");
    let result = |id: &str, name: &str, output: &str| json!({"functionResponse": {"id": id, "name": name, "response": {"output": output}}});
    assert_eq!(
        server.requests()[1].body["contents"],
        json!([
            {"role": "user", "parts": [{"text": "hello"}]},
            {"role": "model", "parts": [
                {"text": "Let me look.", "thought": true},
                {"text": "Reading."},
                {"functionCall": {"id": "c1", "name": "fs__read", "args": {"path": "a"}}, "thoughtSignature": "SIG1"},
                {"functionCall": {"id": "c2", "name": "list", "args": {}}},
                {"text": "", "thoughtSignature": "SIG2"},
            ]},
            {"role": "user", "parts": [result("c1", "fs__read", "A"), result("c2", "list", "")]},
        ])
    );
}

#[tokio::test]
async fn request_has_the_form_of_the_api() {
    let server = ScriptedServer::start(|_| Reply::stream(answer("ok")));
    let request = ModelRequest {
        effort: Some(Effort::Minimal),
        temperature: Some(0.5),
        ..full_request()
    };
    ask(&service::<Gemini>(&server, MODEL), &request)
        .await
        .unwrap();
    let received = &server.requests()[0];
    assert_eq!(
        received.path,
        "/v1/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
    );
    assert_eq!(received.headers["x-goog-api-key"], KEY);
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "AAEC"}});
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let tool = |name: &str| json!({"name": name, "description": "A tool.", "parametersJsonSchema": schema});
    assert_eq!(
        received.body,
        json!({
            "systemInstruction": {"parts": [{"text": "be brief"}, {"text": "use tools"}]},
            "tools": [{"functionDeclarations": [tool("fs__read"), tool("list")]}],
            "generationConfig": {"maxOutputTokens": 4096,
                "thinkingConfig": {"includeThoughts": true, "thinkingLevel": "low"}},
            "contents": [
                {"role": "user", "parts": [image, {"text": "Compare."}]},
                {"role": "model", "parts": [
                    {"text": "I look."},
                    {"functionCall": {"id": "call_1", "name": "fs__read", "args": {"path": "a"}},
                        "thoughtSignature": "skip_thought_signature_validator"},
                    {"functionCall": {"id": "call_2", "name": "list", "args": {}}},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"id": "call_1", "name": "fs__read", "response": {"output": "text of a"}}},
                    {"functionResponse": {"id": "call_2", "name": "list",
                        "response": {"output": "`b.x`:\n[image b.x, image/png, 3 bytes]"}, "parts": [image]}},
                ]},
                {"role": "user", "parts": [{"text": "And now?"}]},
            ],
        })
    );
}

#[tokio::test]
async fn older_model_gets_files_after_the_results_and_a_budget() {
    let server = ScriptedServer::start(|_| Reply::stream(answer("ok")));
    let request = ModelRequest {
        reasoning_budget_tokens: Some(500),
        ..full_request()
    };
    ask(&service::<Gemini>(&server, "gemini-2.5-flash"), &request)
        .await
        .unwrap();
    let body = &server.requests()[0].body;
    assert_eq!(
        body["generationConfig"]["thinkingConfig"],
        json!({"includeThoughts": true, "thinkingBudget": 500})
    );
    assert!(
        body["contents"][1]["parts"][1]
            .get("thoughtSignature")
            .is_none(),
        "{body}"
    );
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "AAEC"}});
    let files = json!([{"text": "Files of the tool results above:"}, image, {"text": "And now?"}]);
    assert_eq!(body["contents"][3]["parts"], files);
}

#[tokio::test]
async fn rejected_signature_is_replaced() {
    let server = ScriptedServer::start(|request| match request.number {
        1 => {
            let error = json!({"code": 400, "message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"});
            Reply::status(400, json!([{ "error": error }]).to_string())
        }
        _ => Reply::stream(thinking_answer()),
    });
    let service = service::<Gemini>(&server, MODEL);
    let mut request = request();
    let first = ask(&service, &request).await.unwrap();
    request
        .messages
        .extend([stored(&first), result("c1", "A"), result("c2", "B")].map(Arc::new));
    assert!(
        ask(&service, &request)
            .await
            .unwrap()
            .provider_data_rejected
    );
    let parts = &server.requests()[2].body["contents"][1]["parts"];
    assert_eq!(
        parts[1]["thoughtSignature"],
        "skip_thought_signature_validator"
    );
}

/// Vertex AI takes ids of models that send some. Without ids, only the order of the results tells
/// to which call each belongs.
#[tokio::test]
async fn calls_have_ids_if_the_service_takes_them() {
    let rejects_ids = Arc::new(AtomicBool::new(false));
    let rejects = Arc::clone(&rejects_ids);
    let server = ScriptedServer::start(move |request| {
        if !rejects.load(SeqCst) || !request.body.to_string().contains("\"id\"") {
            return Reply::stream(answer("ok"));
        }
        let message = "Invalid JSON payload received. Unknown name \"id\" at 'contents[1].parts[0].function_call': Cannot \
                       find field.";
        Reply::status(
            400,
            json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})
                .to_string(),
        )
    });
    let vertex = format!("{}/aiplatform.googleapis.com/v1", server.base_url());
    for (model, base_url, rejects, expected) in [
        (MODEL, server.base_url(), false, vec![true]),
        ("gemini-2.5-flash", server.base_url(), false, vec![true]),
        (MODEL, vertex.clone(), false, vec![true]),
        ("gemini-2.5-flash", vertex.clone(), false, vec![false]),
        // The second request of the same service has learned it.
        (MODEL, vertex, true, vec![true, false, false]),
    ] {
        rejects_ids.store(rejects, SeqCst);
        let seen = server.requests().len();
        let config = ModelConfig {
            provider: Some(Provider::Gemini),
            name: Some(model.to_owned()),
            ..config(base_url)
        };
        let service = Service::<Gemini>::new(&config, &Environment::default()).unwrap();
        let mut request = request();
        request.messages.push(Arc::new(caller(
            "",
            &[("c1", "read", "{}"), ("c2", "read", "{}")],
        )));
        request
            .messages
            .extend([result("c2", "B"), result("c1", "A")].map(Arc::new));
        for _ in 0..expected.len().div_ceil(2) {
            ask(&service, &request).await.unwrap();
        }
        let mut with_ids = Vec::new();
        for received in &server.requests()[seen..] {
            let parts = &received.body["contents"][2]["parts"];
            let outputs: Vec<&Value> = (0..2)
                .map(|n| &parts[n]["functionResponse"]["response"]["output"])
                .collect();
            assert_eq!(
                outputs,
                [&json!("A"), &json!("B")],
                "in the order of the calls"
            );
            with_ids.push(parts[0]["functionResponse"]["id"] == "c1");
        }
        assert_eq!(with_ids, expected, "{model}");
    }
}

#[test]
fn address_follows_the_base_url() {
    for (base_url, expected) in [
        (
            "https://h",
            "https://h/v1beta/models/m:streamGenerateContent?alt=sse",
        ),
        (
            "https://h/v1",
            "https://h/v1/models/m:streamGenerateContent?alt=sse",
        ),
        (
            "https://h/gemini/v1beta?x=1",
            "https://h/gemini/v1beta/models/m:streamGenerateContent?alt=sse&x=1",
        ),
        (
            "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google",
            "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google/models/m:streamGenerateContent?alt=sse",
        ),
    ] {
        let config = ModelConfig {
            provider: Some(Provider::Gemini),
            ..config(base_url.into())
        };
        let service = Service::<Gemini>::new(&config, &Environment::default()).unwrap();
        assert_eq!(service.endpoint("models/m").unwrap().as_str(), expected);
    }
}

#[tokio::test]
async fn odd_streams_and_errors_have_clear_results() {
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}});
    let error = json!({"error": {"code": 503, "message": "High demand", "status": "UNAVAILABLE"}});
    // The service writes an error within a stream without `data:`.
    let mut with_bare_error = events(&[chunk(json!([{"text": "x"}]), None)]);
    with_bare_error.push(format!("{error:#}\n"));
    let delay = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.7s"});
    let limited = json!({"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED", "details": [delay]}});
    for (reply, expected) in [
        (Reply::stream(events(&[blocked])), Ok("content_filter")),
        (
            Reply::stream(events(&[chunk(json!([]), Some("SAFETY"))])),
            Ok("safety"),
        ),
        (
            Reply::stream(events(&[chunk(
                json!([{"text": "cut"}]),
                Some("MAX_TOKENS"),
            )])),
            Ok("length"),
        ),
        (
            Reply::status(
                200,
                json!([chunk(json!([{"text": "hi"}]), Some("STOP"))]).to_string(),
            ),
            Ok("stop"),
        ),
        (
            Reply::stream(events(&[chunk(json!([]), Some("MALFORMED_FUNCTION_CALL"))])),
            Err((Failure::InvalidResponse, "malformed tool call")),
        ),
        (
            Reply::stream(events(&[chunk(json!([{"text": "x"}]), None), error])),
            Err((Failure::Unavailable, "High demand")),
        ),
        (
            Reply::status(429, limited.to_string()),
            Err((
                Failure::RateLimited {
                    retry_after_ms: Some(3_700),
                },
                "delay of 4 s",
            )),
        ),
        (
            Reply::stream(events(&[chunk(json!([{"text": "x"}]), None)])),
            Err((Failure::InvalidResponse, "ended before")),
        ),
        (
            Reply::stream(with_bare_error),
            Err((Failure::Unavailable, "High demand")),
        ),
    ] {
        let server = ScriptedServer::start(move |_| reply.clone());
        match (
            ask(&service::<Gemini>(&server, MODEL), &request()).await,
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

#[tokio::test]
async fn parameters_that_a_known_model_rejects_are_not_sent() {
    let server = ScriptedServer::start(|_| Reply::stream(answer("ok")));
    let params = json!({"top_p": 0.9}).as_object().unwrap().clone();
    let request = ModelRequest {
        temperature: Some(0.5),
        params,
        ..request()
    };
    for model in [MODEL, "gemini-2.5-flash"] {
        ask(&service::<Gemini>(&server, model), &request)
            .await
            .unwrap();
    }
    let sent: Vec<bool> = server
        .requests()
        .iter()
        .map(|received| received.body.to_string().contains("0.5"))
        .collect();
    let params: Vec<bool> = server
        .requests()
        .iter()
        .map(|received| received.body.to_string().contains("0.9"))
        .collect();
    assert_eq!((sent, params), (vec![false, true], vec![false, true]));
}
