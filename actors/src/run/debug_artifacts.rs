//! Debug artifacts: what happened behind a run, stored if `runtime.debug_artifacts` is set
//! (ART-13).
//!
//! They have no name, are marked as debug artifacts, and are cleaned up first. A failure to store
//! one is only logged.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use soong_model::{Completion, Exchange, ModelRequest};
use soong_protocol::{ErrorInfo, Provenance};
use soong_text::Redactor;
use soong_tool::artifact::{ArtifactOwner, ArtifactService, Save};

use crate::{
    actor_base::panic_log,
    hook::{HookCallRecord, HookPoint},
    run::{core::Core, machine::spec::RunIdentity},
};

/// Stores debug artifacts.
pub(crate) struct DebugArtifacts {
    core: Arc<Core>,
}

impl DebugArtifacts {
    /// Creates it, and keeps the backtraces of panics from now on.
    pub(crate) fn new(core: &Arc<Core>) -> Arc<Self> {
        panic_log::keep_backtraces();
        Arc::new(Self {
            core: Arc::clone(core),
        })
    }

    /// Stores the request and the answer of a model call, and what was exchanged with its service
    /// in all attempts. `purpose`: the turn, or the work besides the turns.
    pub(crate) async fn store_model_call(
        &self,
        run: &RunIdentity,
        purpose: &str,
        model: &str,
        request: &ModelRequest,
        outcome: &Result<Completion, ErrorInfo>,
    ) {
        let tools: Vec<&str> = request
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        let log = request.exchanges.as_deref();
        let answer = match outcome {
            Ok(answer) => json!({
                "text": answer.text,
                "reasoning": answer.reasoning,
                "tool_calls": answer.tool_calls,
                "usage": answer.usage,
                "finish_reason": answer.finish_reason,
            }),
            Err(error) => json!({ "error": error }),
        };
        let request = json!({
            "model": model,
            "temperature": request.temperature,
            "params": request.params,
            "system": request.system,
            "messages": request.messages,
            "tools": tools,
        });
        let exchanges = log.map(|log| log.take()).unwrap_or_default();
        let exchanges: Vec<Value> = exchanges
            .iter()
            .map(|exchange| exchange_json(exchange, &self.core.redactor))
            .collect();
        let traffic = json!({ "request": request, "answer": answer, "exchanges": exchanges });
        self.store_json(run, format!("model call: {purpose}"), traffic)
            .await;
    }

    /// Stores what hooks of an event received and answered. Does nothing if none was called.
    pub(crate) async fn store_hook_calls(
        &self,
        run: &RunIdentity,
        point: HookPoint,
        calls: &[HookCallRecord],
    ) {
        if !calls.is_empty() {
            self.store_json(run, format!("hooks: {}", point.as_str()), json!(calls))
                .await;
        }
    }

    /// Stores the error and the backtrace of an actor that crashed while it executed a run. Does
    /// not wait.
    pub(crate) fn store_crash(self: &Arc<Self>, run: &RunIdentity, actor: &str, error: &str) {
        let backtrace =
            panic_log::take_backtrace(error).unwrap_or_else(|| "without a backtrace\n".to_owned());
        let text = self
            .core
            .redactor
            .text(&format!(
                "{actor} of run {} crashed: {error}\n{backtrace}",
                run.run_id
            ))
            .into_owned();
        let store = Arc::clone(self);
        let run = run.clone();
        let title = format!("crash: {actor}");
        self.core
            .lifetime
            .spawn(async move { store.store(&run, title, "text/plain", text).await });
    }

    async fn store_json(&self, run: &RunIdentity, title: String, mut value: Value) {
        // Redacted before serialization, because serialization escapes the text within arguments
        // once more.
        self.core.redactor.redact_json(&mut value);
        self.store(run, title, "application/json", format!("{value:#}"))
            .await;
    }

    async fn store(&self, run: &RunIdentity, title: String, content_type: &str, text: String) {
        let provenance = Provenance {
            run_id: Some(run.run_id.clone()),
            trace_id: Some(run.trace_id.clone()),
            ..Provenance::default()
        };
        let save = Save {
            key: None,
            title,
            provenance,
            debug: true,
            ..Save::new("", content_type, text)
        };
        let owner = ArtifactOwner {
            session_id: run.session_id.clone(),
            uid: run.uid.to_string(),
        };
        if let Err(error) = self.core.artifacts.save(&owner, save).await {
            tracing::warn!(run = %run.run_id, %error, "failed to store a debug artifact");
        }
    }
}

/// Returns an exchange for an artifact. Bodies that are JSON become values, whose texts are
/// redacted. A stream with a secret is left out: its parts may be in several events, where the
/// redaction does not find them.
fn exchange_json(exchange: &Exchange, redactor: &Redactor) -> Value {
    let mut response = body_json(&exchange.response);
    if response.is_string() && has_secret(&exchange.response, redactor) {
        response = json!("left out: it has a secret");
    }
    json!({
        "url": exchange.url,
        "request": body_json(&exchange.request),
        "status": exchange.status,
        "response": response,
    })
}

fn body_json(body: &[u8]) -> Value {
    serde_json::from_slice(body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()))
}

/// Returns whether the texts in a stream have a secret. Texts in the same field of consecutive
/// events are one text.
fn has_secret(stream: &[u8], redactor: &Redactor) -> bool {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for line in stream.split(|byte| *byte == b'\n') {
        let data = line.strip_prefix(b"data:").unwrap_or(line);
        if let Ok(event) = serde_json::from_slice::<Value>(data) {
            add_texts(&event, String::new(), &mut texts);
        }
    }
    texts
        .values()
        .any(|text| matches!(redactor.text(text), Cow::Owned(_)))
}

/// Adds the texts in an event to those of earlier events, by their path.
fn add_texts(value: &Value, path: String, texts: &mut BTreeMap<String, String>) {
    match value {
        Value::String(text) => texts.entry(path).or_default().push_str(text),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                add_texts(item, format!("{path}/{index}"), texts);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                add_texts(field, format!("{path}/{name}"), texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
