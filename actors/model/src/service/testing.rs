//! Parts of the tests of all APIs: a scripted service, requests, and a conversation with everything
//! in it.

#[path = "../../../../tests/support/scripted.rs"]
pub(crate) mod scripted;

use std::sync::Arc;

use serde_json::{Value, json};
use soong_protocol::{
    ArtifactId, ContentPart, Delta, Message, MessageContent, ModelConfig, PartFile, Provider,
    ProviderData, Role, Timestamp, ToolCall, ToolSpec, TraceId,
};
use soong_text::Environment;

use self::scripted::ScriptedServer;
use super::{Api, Service};
use crate::{Completion, DeltaSink, Model, ModelError, ModelRequest};

pub(crate) const KEY: &str = "sk-very-secret-0123456789";

/// The streamed text and reasoning.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) text: String,
    pub(crate) reasoning: String,
}

impl DeltaSink for Collected {
    fn push(&mut self, delta: Delta) {
        match delta {
            Delta::Text { text } => self.text.push_str(&text),
            Delta::Reasoning { text } => self.reasoning.push_str(&text),
            Delta::ToolProgress { .. } => unreachable!("a model runs no tools"),
        }
    }
}

pub(crate) fn config(base_url: String) -> ModelConfig {
    ModelConfig {
        base_url: Some(base_url),
        name: Some("m".into()),
        max_output_tokens: Some(4096),
        timeout_ms: 5_000,
        ..ModelConfig::default()
    }
}

/// Returns a service with an API at the scripted one, for a model.
pub(crate) fn service<A: Api>(server: &ScriptedServer, model: &str) -> Service<A> {
    let provider: Provider = A::PROVIDER;
    let key = provider.api_key_env();
    let config = ModelConfig {
        provider: Some(provider),
        name: Some(model.into()),
        ..config(server.base_url())
    };
    Service::new(&config, &Environment::of([(key, KEY)])).unwrap()
}

pub(crate) fn message(role: Role, content: &str) -> Message {
    Message::new(
        TraceId::new("t"),
        1,
        None,
        role,
        content,
        Timestamp::default(),
    )
}

pub(crate) fn request() -> ModelRequest {
    ModelRequest {
        system: vec!["be brief".into(), "".into(), "use tools".into()],
        messages: vec![Arc::new(message(Role::User, "hello"))],
        tools: Arc::from([]),
        ..ModelRequest::default()
    }
}

pub(crate) fn file(id: &str, content_type: &str) -> ContentPart {
    ContentPart::of_file(PartFile {
        artifact_id: ArtifactId::new(id),
        content_type: content_type.into(),
        size: 3,
        filename: Some(format!("{id}.x")),
        width: None,
        height: None,
        scaled_from: None,
    })
}

pub(crate) fn tool(name: &str) -> Arc<ToolSpec> {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    Arc::new(ToolSpec::read(name, name, "A tool.", schema))
}

/// Returns an answer that calls tools `(id, name, arguments)`.
pub(crate) fn caller(text: &str, calls: &[(&str, &str, &str)]) -> Message {
    let call = |(id, name, arguments): &(&str, &str, &str)| ToolCall {
        id: (*id).into(),
        name: (*name).into(),
        arguments: (*arguments).into(),
    };
    Message {
        tool_calls: calls.iter().map(call).collect(),
        ..message(Role::Assistant, text)
    }
}

pub(crate) fn result(id: &str, content: impl Into<MessageContent>) -> Message {
    Message {
        tool_call_id: Some(id.into()),
        content: content.into(),
        ..message(Role::Tool, "")
    }
}

/// Returns an answer of a model as the message that a run stores.
pub(crate) fn stored(completion: &Completion) -> Message {
    Message {
        reasoning: completion.reasoning.clone(),
        tool_calls: completion.tool_calls.clone(),
        provider_data: completion.provider_data.clone(),
        ..message(Role::Assistant, &completion.text)
    }
}

/// Returns a request with an image of the user, parallel calls of a model that another service
/// served, an image in a result, and a question after it.
pub(crate) fn full_request() -> ModelRequest {
    let image =
        MessageContent::from_parts(vec![ContentPart::text("`b.x`:"), file("b", "image/png")]);
    let question =
        MessageContent::from_parts(vec![file("a", "image/png"), ContentPart::text("Compare.")]);
    let messages = [
        Message {
            content: question,
            ..message(Role::User, "")
        },
        Message {
            reasoning: Some("hidden".into()),
            ..caller(
                "I look.",
                &[
                    ("call:1", "fs.read", "{\"path\":\"a\"}"),
                    ("call:2", "list", "{}"),
                ],
            )
        },
        result("call:1", "text of a"),
        result("call:2", image),
        message(Role::User, "And now?"),
    ];
    ModelRequest {
        messages: messages.map(Arc::new).to_vec(),
        files: ["a", "b"]
            .map(|id| (ArtifactId::new(id), "AAEC".into()))
            .into(),
        tools: Arc::from([tool("fs.read"), tool("list")]),
        ..request()
    }
}

/// Completes one request. The streamed text must equal the answer.
pub(crate) async fn ask(
    provider: &impl Model,
    request: &ModelRequest,
) -> Result<Completion, ModelError> {
    let mut deltas = Collected::default();
    let completion = provider.complete(request, &mut deltas).await?;
    assert_eq!(completion.text, deltas.text);
    assert_eq!(
        completion.reasoning.as_deref().unwrap_or(""),
        deltas.reasoning
    );
    Ok(completion)
}

/// Returns the data of an answer, which must have some.
pub(crate) fn data_of(completion: &Completion) -> &ProviderData {
    completion.provider_data.as_deref().unwrap()
}

/// Returns events with the type of each as its name.
pub(crate) fn events(data: &[Value]) -> Vec<String> {
    let event = |data: &Value| match data["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    };
    data.iter().map(event).collect()
}
