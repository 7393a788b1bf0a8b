//! Calls the callbacks of the program around the steps of runs (HOOK-2).
//!
//! Elsewhere: the callbacks and their order (`callback.rs`), and the consequences for a run
//! (`machine/callbacks.rs`).

use std::sync::Arc;

use serde_json::{Value, json};
use soong_model::{Completion, ModelRequest};
use soong_protocol::{ErrorCode, ErrorInfo, Provenance, ToolSpec, Usage};
use soong_tool::{ToolResult, artifact::NamedArtifacts};
use tokio_util::sync::CancellationToken;

use crate::{
    callback::{
        AfterResult, BeforeResult, CallbackContext, CallbackStep, CallbackToolCall, Reports,
    },
    gateway::make_ids_unique,
    run::{
        core::Core,
        machine::spec::RunSpec,
        registry::entry::RunEntry,
        tasks::{
            artifact_owner, checked_call::CheckedToolCall, child_starter::ChildStarter,
            control::RunAccess,
        },
    },
};

/// Calls the callbacks of runs.
pub(crate) struct CallbackCalls {
    pub(crate) core: Arc<Core>,
    pub(crate) starter: Arc<ChildStarter>,
}

/// The run, and the token that cancels its tasks.
#[derive(Clone, Copy)]
pub(in crate::run) struct CallbackRun<'a> {
    pub(in crate::run) spec: &'a RunSpec,
    pub(in crate::run) entry: &'a Arc<RunEntry>,
    pub(in crate::run) token: &'a CancellationToken,
}

impl CallbackCalls {
    fn context(&self, run: CallbackRun<'_>, call: Option<&CheckedToolCall>) -> CallbackContext {
        let CallbackRun { spec, entry, token } = run;
        let identity = &spec.identity;
        CallbackContext {
            session_id: identity.session_id.clone(),
            trace_id: identity.trace_id.clone(),
            run_id: identity.run_id.clone(),
            parent_run_id: identity.parent_id().cloned(),
            uid: Arc::clone(&identity.uid),
            depth: identity.depth,
            agent_type: spec.preset.name.clone(),
            model: spec.model.name.clone(),
            cancel: token.clone(),
            artifacts: NamedArtifacts {
                service: Arc::new(self.core.artifacts.clone()),
                owner: artifact_owner(spec),
                provenance: Provenance {
                    run_id: Some(identity.run_id.clone()),
                    trace_id: Some(identity.trace_id.clone()),
                    message_sequence: call.and_then(|call| call.request.message_sequence),
                    tool_call_id: call.map(|call| call.request.id.clone()),
                },
            },
            control: Arc::new(RunAccess {
                starter: Arc::clone(&self.starter),
                entry: Arc::clone(entry),
                call: None,
            }),
        }
    }

    pub(super) async fn before_agent(
        &self,
        run: CallbackRun<'_>,
        task: String,
    ) -> (BeforeResult<String, String>, Reports) {
        let step = CallbackStep {
            point: "before_agent",
            context: &self.context(run, None),
            tool_call_id: None,
        };
        let change = |task: &mut String, changed: String| {
            *task = changed;
            Some(json!(task))
        };
        let callbacks = &run.spec.catalog.callbacks;
        callbacks
            .before(
                &step,
                |functions| functions.before_agent.as_ref(),
                task,
                change,
            )
            .await
    }

    pub(super) async fn after_agent(
        &self,
        run: CallbackRun<'_>,
        answer: String,
    ) -> (AfterResult<String>, Reports) {
        let step = CallbackStep {
            point: "after_agent",
            context: &self.context(run, None),
            tool_call_id: None,
        };
        let callbacks = &run.spec.catalog.callbacks;
        callbacks
            .after(
                &step,
                |functions| functions.after_agent.as_ref(),
                (),
                answer,
            )
            .await
    }

    /// Calls the callbacks before a model call. Returns the request to send, or the answer of a
    /// callback.
    pub(super) async fn before_model(
        &self,
        run: CallbackRun<'_>,
        request: ModelRequest,
    ) -> (Result<ModelRequest, Result<Completion, ErrorInfo>>, Reports) {
        let callbacks = &run.spec.catalog.callbacks;
        let step = CallbackStep {
            point: "before_model",
            context: &self.context(run, None),
            tool_call_id: None,
        };
        let change = |request: &mut ModelRequest, changed| {
            *request = changed;
            None
        };
        let (result, reports) = callbacks
            .before(
                &step,
                |functions| functions.before_model.as_ref(),
                request,
                change,
            )
            .await;
        let result = match result {
            BeforeResult::Proceed { input, .. } => Ok(input),
            BeforeResult::Answered(mut completion) => {
                completion.usage.get_or_insert(Usage::default());
                make_ids_unique(&mut completion);
                Err(Ok(completion))
            }
            BeforeResult::Refused(error) | BeforeResult::Failed(error) => Err(Err(error)),
        };
        (result, reports)
    }

    /// Calls the callbacks after a model call.
    pub(super) async fn after_model(
        &self,
        run: CallbackRun<'_>,
        completion: Completion,
    ) -> (Result<Completion, ErrorInfo>, Reports) {
        let callbacks = &run.spec.catalog.callbacks;
        let step = CallbackStep {
            point: "after_model",
            context: &self.context(run, None),
            tool_call_id: None,
        };
        let usage = completion.usage;
        let (result, reports) = callbacks
            .after(
                &step,
                |functions| functions.after_model.as_ref(),
                (),
                completion,
            )
            .await;
        let result = match result {
            AfterResult::Result {
                result,
                is_replaced: false,
            } => Ok(result),
            AfterResult::Result {
                mut result,
                is_replaced: true,
            } => {
                make_ids_unique(&mut result);
                result.usage = result.usage.or(usage);
                result.provider_data = None; // it contains the answer before the change
                Ok(result)
            }
            AfterResult::Failed(error) => Err(error),
        };
        (result, reports)
    }

    pub(super) async fn before_tool(
        &self,
        run: CallbackRun<'_>,
        call: &CheckedToolCall,
    ) -> (BeforeResult<CallbackToolCall, ToolResult>, Reports) {
        let proposed_call = tool_call(call.id(), &call.request.spec, &call.arguments);
        let context = self.context(run, Some(call));
        let step = CallbackStep {
            point: "before_tool",
            context: &context,
            tool_call_id: Some(call.id()),
        };
        let change = |call: &mut CallbackToolCall, arguments: Value| {
            call.arguments = arguments;
            Some(call.arguments.clone())
        };
        run.spec
            .catalog
            .callbacks
            .before(
                &step,
                |functions| functions.before_tool.as_ref(),
                proposed_call,
                change,
            )
            .await
    }

    pub(super) async fn after_tool(
        &self,
        run: CallbackRun<'_>,
        call: &CheckedToolCall,
        result: ToolResult,
    ) -> (AfterResult<ToolResult>, Reports) {
        let proposed_call = tool_call(call.id(), &call.request.spec, &call.arguments);
        let context = self.context(run, Some(call));
        let step = CallbackStep {
            point: "after_tool",
            context: &context,
            tool_call_id: Some(call.id()),
        };
        run.spec
            .catalog
            .callbacks
            .after(
                &step,
                |functions| functions.after_tool.as_ref(),
                proposed_call,
                result,
            )
            .await
    }
}

fn tool_call(id: &str, spec: &ToolSpec, arguments: &Value) -> CallbackToolCall {
    CallbackToolCall {
        id: id.to_owned(),
        name: spec.name.clone(),
        arguments: arguments.clone(),
    }
}

/// Returns the result of a tool call that is refused because a callback failed.
pub(super) fn refused_call(tool: &str, error: &ErrorInfo) -> ErrorInfo {
    let message = format!(
        "`{tool}` was not run: {}. Continue without it, and report what you could not do",
        error.message
    );
    ErrorInfo {
        details: json!({ "by": "callback" }),
        ..ErrorInfo::new(ErrorCode::PermissionDenied, message)
    }
}
