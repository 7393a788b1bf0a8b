//! Debug artifacts: stores the request and the answer of each model call if `runtime.debug_artifacts` is set (ART-13).
//!
//! They have no name, are marked as debug artifacts, and are cleaned up first. A failure to store one is only logged.

use serde_json::json;
use soong_model::{Completion, ModelRequest};
use soong_protocol::{ErrorInfo, Provenance};
use soong_text::Redactor;
use soong_tool::artifact::{ArtifactOwner, ArtifactService, Save};

use crate::{artifact::ArtifactHandle, run::machine::spec::RunSpec};

/// Stores the traffic of model calls.
pub(crate) struct TrafficDump {
    pub(crate) artifacts: ArtifactHandle,
    pub(crate) redactor: Redactor,
}

impl TrafficDump {
    /// Stores the traffic of a call of the model.
    pub(crate) async fn store(
        &self,
        spec: &RunSpec,
        (turn, model): (u32, &str),
        request: &ModelRequest,
        outcome: &Result<Completion, ErrorInfo>,
    ) {
        let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
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
        let mut traffic = json!({
            "request": {
                "model": model,
                "temperature": request.temperature,
                "params": request.params,
                "system": request.system,
                "messages": request.messages,
                "tools": tools,
            },
            "answer": answer,
        });
        // Redacted before serialization, because serialization escapes the text within arguments once more.
        self.redactor.redact_json(&mut traffic);
        let save = Save {
            key: None,
            title: format!("model call of turn {turn}"),
            provenance: Provenance {
                run_id: Some(spec.identity.run_id.clone()),
                trace_id: Some(spec.identity.trace_id.clone()),
                ..Provenance::default()
            },
            debug: true,
            ..Save::new("", "application/json", format!("{traffic:#}"))
        };
        let place = ArtifactOwner { session_id: spec.identity.session_id.clone(), uid: spec.identity.uid.to_string() };
        if let Err(error) = self.artifacts.save(&place, save).await {
            tracing::warn!(run = %spec.identity.run_id, turn, %error, "failed to store the traffic of a model call");
        }
    }
}
