//! Calls hooks for a run (HOOK-1).
//!
//! Before a tool call and before the end of a user run, the run waits for the hooks' answer. At all
//! other points, hooks are only notified, and the run does not wait. Elsewhere: the consequences of
//! their answers (`machine/hooks.rs`), the hooks themselves (`hook.rs`).

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value, json};
use soong_protocol::{ErrorCode, ErrorInfo, Event, HookEvent};
use soong_tool::ToolResult;

use crate::{
    hook::{HookInput, HookPoint, HookResult},
    run::{
        core::Core,
        debug_artifacts::DebugArtifacts,
        machine::{input::RunInput, spec::RunSpec},
        registry::entry::RunEntry,
        tasks::checked_call::CheckedToolCall,
    },
};

fn run_input(spec: &RunSpec, event: HookPoint) -> HookInput {
    HookInput {
        event,
        session_id: spec.identity.session_id.clone(),
        trace_id: spec.identity.trace_id.clone(),
        run_id: spec.identity.run_id.clone(),
        tool: None,
        arguments: None,
        resolved_path: None,
        outcome: None,
        prompt: None,
        reason: None,
        tags: Vec::new(),
    }
}

fn call_input(
    spec: &RunSpec,
    call: &CheckedToolCall,
    event: HookPoint,
    resolved_path: Option<PathBuf>,
) -> HookInput {
    HookInput {
        resolved_path,
        tool: Some(call.name().to_owned()),
        arguments: Some(call.arguments.clone()),
        tags: call.request.spec.tags.clone(),
        ..run_input(spec, event)
    }
}

/// Returns the hook input for a call that has an outcome; `None` if no hook listens.
pub(crate) fn after_call(
    spec: &RunSpec,
    call: &CheckedToolCall,
    resolved_path: Option<PathBuf>,
) -> Option<HookInput> {
    let event = HookPoint::PostToolUse;
    spec.hooks
        .has_hooks(event)
        .then(|| call_input(spec, call, event, resolved_path))
}

/// Formats an outcome for hooks.
pub(crate) fn outcome(result: &ToolResult, redact: impl Fn(&mut String)) -> Value {
    let (key, mut text) = match result {
        Ok(output) => ("output", output.output.clone()),
        Err(error) => ("error", error.to_string()),
    };
    redact(&mut text);
    json!({ key: text })
}

/// Calls the hooks of runs.
#[derive(Clone)]
pub(crate) struct HookCalls {
    pub(crate) core: Arc<Core>,
    /// Stores what hooks received and answered; present if `runtime.debug_artifacts` is set.
    pub(crate) debug_artifacts: Option<Arc<DebugArtifacts>>,
}

impl HookCalls {
    /// Asks hooks whether a call may run. Passes events for the run to `on_event`.
    pub(crate) async fn before_call(
        &self,
        spec: &RunSpec,
        call: &CheckedToolCall,
        project: &Path,
        resolved_path: Option<PathBuf>,
        mut on_event: impl FnMut(Event),
    ) -> Result<(), ErrorInfo> {
        let event = HookPoint::PreToolUse;
        // A call that has passed its hooks and was then approved is not checked by them again.
        if call.request.permission_id.is_some() || !spec.hooks.has_hooks(event) {
            return Ok(());
        }
        let HookResult {
            denied: refused,
            failures,
            ..
        } = Box::pin(self.call(spec, &call_input(spec, call, event, resolved_path), project)).await;
        let event = event.as_str().to_owned();
        failures.into_iter().for_each(|error| {
            on_event(
                HookEvent::Failed {
                    event: event.clone(),
                    error,
                }
                .into(),
            )
        });
        let Some(reason) = refused else { return Ok(()) };
        on_event(
            HookEvent::Denied {
                event,
                reason: reason.clone(),
            }
            .into(),
        );
        let message = format!(
            "`{}` was not run: a hook denied it: {reason}. Find another way, or report what you could not do",
            call.name()
        );
        Err(ErrorInfo {
            details: json!({ "by": "hook" }),
            ..ErrorInfo::new(ErrorCode::PermissionDenied, message)
        })
    }

    /// Calls the hooks of an event, and stores what they received and answered, if that is wanted.
    async fn call(&self, spec: &RunSpec, input: &HookInput, project: &Path) -> HookResult {
        let result = spec.hooks.call(input, project).await;
        if let Some(debug_artifacts) = &self.debug_artifacts {
            debug_artifacts
                .store_hook_calls(&spec.identity, input.event, &result.records)
                .await;
        }
        result
    }

    /// Notifies hooks in the background. Failures of hooks are reported to the run if it has not
    /// ended.
    pub(crate) fn notify(&self, entry: &Arc<RunEntry>, spec: &Arc<RunSpec>, input: HookInput) {
        let hooks = self.clone();
        let entry = Arc::clone(entry);
        let spec = Arc::clone(spec);
        self.core.lifetime.spawn(async move {
            let project = hooks.core.runs.project_dir(&spec.identity.session_id);
            let result = tokio::select! {
                result = hooks.call(&spec, &input, &project) => result,
                () = hooks.core.lifetime.closing().cancelled() => return,
            };
            for error in result.failures {
                let event = input.event.as_str().to_owned();
                tracing::warn!(hook = event, error, "hook failed");
                let failed = Box::new(HookEvent::Failed { event, error }.into());
                hooks.core.runs.notify(&entry, RunInput::Report(failed));
            }
        });
    }

    /// Notifies hooks that a user run has started.
    pub(crate) fn notify_of_start(
        &self,
        entry: &Arc<RunEntry>,
        spec: &Arc<RunSpec>,
        point: HookPoint,
        prompt: Option<String>,
    ) {
        self.notify(
            entry,
            spec,
            HookInput {
                prompt,
                ..run_input(spec, point)
            },
        );
    }

    /// Asks hooks whether a run may end with this answer.
    pub(crate) async fn before_end(&self, spec: &RunSpec, answer: String) -> HookResult {
        let input = HookInput {
            outcome: Some(json!({ "output": answer })),
            ..run_input(spec, HookPoint::Stop)
        };
        self.call(
            spec,
            &input,
            &self.core.runs.project_dir(&spec.identity.session_id),
        )
        .await
    }
}
