//! Checks of what models write against the schemas of others: arguments of tool calls, and answers.
//!
//! Such a schema may use up the whole bound of steps, so a check that takes long runs on a blocking
//! thread, and none runs in an actor.
//!
//! Elsewhere: the call (`tool_call.rs`), the bound (`json_schema` of `soong_tool`).

use std::{fmt::Display, sync::Arc};

use serde_json::Value;
use soong_model::Completion;
use soong_protocol::{AnswerCheck, ErrorCode, ErrorInfo};

use crate::run::machine::{effect::ToolCallRequest, spec::RunSpec};

/// A tool call whose arguments match the schema of its tool.
pub(crate) struct CheckedToolCall {
    pub(in crate::run) request: ToolCallRequest,
    pub(in crate::run) arguments: Value,
}

impl CheckedToolCall {
    /// Returns the id of the call.
    pub(in crate::run) fn id(&self) -> &str {
        &self.request.id
    }

    /// Returns the name of the tool.
    pub(in crate::run) fn name(&self) -> &str {
        &self.request.spec.name
    }
}

fn did_not_finish(what: &str, why: &dyn Display) -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::InternalError,
        format!("the check of {what} did not finish: {why}"),
    )
}

/// Checks the arguments of a call. Also returns a note for the model if they were accepted in a
/// different shape than the model sent.
///
/// # Errors
/// `validation_error` with each violation, `tool_not_available` if the tool is not registered.
pub(super) async fn check_call(
    request: ToolCallRequest,
    spec: &Arc<RunSpec>,
) -> Result<(CheckedToolCall, Option<String>), ErrorInfo> {
    let registry = &spec.catalog.registry;
    let checked = if registry.is_fast_check(&request.spec.name, &request.raw_arguments) {
        registry.check_arguments(&request.spec.name, &request.raw_arguments)?
    } else {
        let spec = Arc::clone(spec);
        let tool = Arc::clone(&request.spec);
        let raw = request.raw_arguments.clone();
        let check = tokio::task::spawn_blocking(move || {
            spec.catalog.registry.check_arguments(&tool.name, &raw)
        });
        check
            .await
            .unwrap_or_else(|error| Err(did_not_finish("the arguments", &error)))?
    };
    Ok((
        CheckedToolCall {
            request,
            arguments: checked.value,
        },
        checked.coercion_note,
    ))
}

/// Checks an answer against the output schema. `None` without a schema, and if the answer contains
/// tool calls.
pub(super) async fn check_answer(
    spec: &Arc<RunSpec>,
    completion: &Completion,
) -> Option<AnswerCheck> {
    let schema = spec.output_schema.as_ref()?;
    if !completion.tool_calls.is_empty() {
        return None;
    }
    // The message contains the redacted text.
    let answer = spec.redactor.text(&completion.text).into_owned();
    if schema.is_fast_for(&answer) {
        return Some(schema.answer_check(&answer));
    }
    let spec = Arc::clone(spec);
    let check = tokio::task::spawn_blocking(move || {
        spec.output_schema
            .as_ref()
            .map(|schema| schema.answer_check(&answer))
    });
    check.await.unwrap_or_else(|error| {
        let violations = did_not_finish("the answer", &error).message;
        Some(AnswerCheck::Mismatch { violations })
    })
}
