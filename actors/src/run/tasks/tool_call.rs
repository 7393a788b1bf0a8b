//! Runs one tool call: hooks, permission, the tool itself, and its output.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use soong_protocol::{
    ArtifactSource, Delta, ErrorCode, ErrorInfo, Event, MessageContent, Permission,
};
use soong_text::StreamRedactor;
use soong_tool::{OutputLimit, Progress, Tool, ToolContext, ToolOutput, ToolResult, ToolServices};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    callback::{AfterResult, BeforeResult, Reports},
    clock::now,
    events::LiveDelta,
    hook::HookPoint,
    message_files::MessageFiles,
    run::{
        core::Core,
        machine::{inline::InlineLimits, spec::RunSpec, tools::is_internal_tool},
        registry::entry::RunEntry,
        tasks::{
            artifact_owner,
            authorize::{Authorization, Authorizer},
            callbacks::{CallbackCalls, CallbackRun, refused_call},
            checked_call::CheckedToolCall,
            child_starter::ChildStarter,
            control::RunAccess,
            hook_calls::HookCalls,
            load::recorded_outcomes,
            tool_output,
        },
    },
};

/// The outcome of an attempt to run a call.
pub(super) enum ToolAttempt {
    /// The call has an outcome, and callbacks did this.
    Ended(Box<ToolResult>, Reports),
    /// Not executed: hooks passed, and the run executes the call itself.
    HooksAllowed,
    /// Not executed: the call requires approval.
    ApprovalRequired(Box<Permission>),
    /// Not executed: callbacks have changed the arguments, which must be recorded first.
    Changed(Reports),
    /// Not executed, or its result is dropped: a callback fails the run.
    RunFailed(ErrorInfo, Reports),
}

impl ToolAttempt {
    /// Returns the attempt of a call with this outcome, in which no callback did anything.
    pub(super) fn ended(result: ToolResult) -> Self {
        Self::Ended(Box::new(result), Vec::new())
    }
}

/// Returns the path that a call would open now; `None` if no hook needs it.
pub(super) fn resolved_path(
    spec: &RunSpec,
    call: &CheckedToolCall,
    context: &ToolContext,
) -> Option<PathBuf> {
    if !spec.hooks.has_hooks(HookPoint::PreToolUse) && !spec.hooks.has_hooks(HookPoint::PostToolUse)
    {
        return None;
    }
    spec.catalog
        .registry
        .get(call.name())?
        .tool
        .as_ref()?
        .resolved_path(context, &call.arguments)
}

/// Returns the error of a call whose path changed after its hooks were asked.
fn path_changed(tool: &str) -> ErrorInfo {
    let message = format!(
        "`{tool}` was not run: its path leads to a different file than when the hooks were called. Call it again"
    );
    ErrorInfo::new(ErrorCode::PermissionDenied, message)
}

/// Runs the tool calls of a runtime.
pub(crate) struct ToolRunner {
    pub(crate) core: Arc<Core>,
    pub(crate) authorizer: Authorizer,
    pub(crate) starter: Arc<ChildStarter>,
    pub(crate) hooks: HookCalls,
    pub(crate) callbacks: Arc<CallbackCalls>,
}

impl ToolRunner {
    /// Creates the context of a call. `storing` tracks what the call stores in the background.
    pub(super) fn context(
        &self,
        entry: &Arc<RunEntry>,
        spec: &RunSpec,
        call: &CheckedToolCall,
        token: &CancellationToken,
        storing: &TaskTracker,
    ) -> ToolContext {
        let project_dir = self.core.runs.project_dir(&spec.identity.session_id);
        let artifact_service = self.core.artifacts.with_tasks(storing);
        let limits = call.request.output_limits;
        ToolContext {
            session_incarnation: spec.identity.session_incarnation,
            session_id: spec.identity.session_id.clone(),
            trace_id: spec.identity.trace_id.clone(),
            run_id: spec.identity.run_id.clone(),
            uid: Arc::clone(&spec.identity.uid),
            turn: call.request.turn,
            message_sequence: call.request.message_sequence,
            tool_call_id: call.id().to_owned(),
            goal_id: call.request.goal_id.clone(),
            project_dir,
            output_limit: OutputLimit {
                kinds: Arc::clone(&spec.model.input.kinds),
                bytes: self.core.config.tools.output_limit_bytes.min(limits.bytes),
                tokens: limits.tokens,
            },
            cancel: token.clone(),
            granted_access: None,
            progress: self.progress(entry, call.id()),
            cleanup_tasks: storing.clone(),
            services: ToolServices {
                artifacts: Some(Arc::new(artifact_service)),
                run: Some(Arc::new(RunAccess {
                    starter: Arc::clone(&self.starter),
                    entry: Arc::clone(entry),
                    call: Some(call.id().to_owned()),
                })),
            },
        }
    }

    /// Returns the handle with which a call streams its progress.
    fn progress(&self, entry: &Arc<RunEntry>, tool_call_id: &str) -> Progress {
        let journal = self.core.journal.clone();
        let entry = Arc::clone(entry);
        let tool_call_id = tool_call_id.to_owned();
        let stream_redactor = Mutex::new(StreamRedactor::new(&self.core.redactor));
        Progress::new(move |text| {
            let at = now();
            entry.control.clock.progress(at);
            // Text that is held back for the next delta is in the outcome anyway.
            let text = stream_redactor
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(&text);
            if text.is_empty() {
                return;
            }
            journal.publish_delta(|| LiveDelta {
                trace_id: entry.identity.trace_id.clone(),
                session_id: entry.identity.session_id.clone(),
                run_id: entry.identity.run_id.clone(),
                ts: at,
                delta: Delta::ToolProgress {
                    tool_call_id: tool_call_id.clone(),
                    text,
                },
            });
        })
    }

    pub(super) async fn run(
        &self,
        run: CallbackRun<'_>,
        call: CheckedToolCall,
        mut context: ToolContext,
        mut on_event: impl FnMut(Event),
    ) -> ToolAttempt {
        let spec = run.spec;
        if !call.request.has_passed_callbacks
            && spec.has_callback(|functions| functions.before_tool.as_ref())
            && let Some(decided) =
                Box::pin(self.before_callbacks(run, &call, &context, &mut on_event)).await
        {
            return decided;
        }
        let hooked_path = resolved_path(spec, &call, &context);
        if let Err(error) = self
            .hooks
            .before_call(
                spec,
                &call,
                &context.project_dir,
                hooked_path.clone(),
                &mut on_event,
            )
            .await
        {
            return ToolAttempt::ended(Err(error));
        }
        if is_internal_tool(call.name()) {
            return ToolAttempt::HooksAllowed;
        }
        let Some(tool) = spec
            .catalog
            .registry
            .get(call.name())
            .and_then(|entry| entry.tool.as_ref())
        else {
            let message = format!("tool {} is not registered", call.name());
            return ToolAttempt::ended(Err(ErrorInfo::new(ErrorCode::ToolNotAvailable, message)));
        };
        // Read after hooks and callbacks: they may have taken a while.
        let mode = self.core.runs.permission_mode(run.entry);
        match self
            .authorizer
            .authorize(spec, mode, &call, tool, &context)
            .await
        {
            Authorization::Allowed(granted) => context.granted_access = granted,
            Authorization::NeedsApproval(permission) => {
                return ToolAttempt::ApprovalRequired(permission);
            }
            Authorization::Denied(error) => return ToolAttempt::ended(Err(error)),
        }
        if hooked_path != resolved_path(spec, &call, &context) {
            return ToolAttempt::ended(Err(path_changed(call.name())));
        }
        let result = self.call_tool(&call, tool, &context).await;
        let (result, reports) = self.after_callbacks(run, &call, result).await;
        match result {
            Ok(result) => ToolAttempt::Ended(
                Box::new(self.finish_output(run, &call, &context, result).await),
                reports,
            ),
            Err(error) => ToolAttempt::RunFailed(error, reports),
        }
    }

    /// Calls the callbacks before a call. Returns `None` if it is to be executed as it is.
    async fn before_callbacks(
        &self,
        run: CallbackRun<'_>,
        call: &CheckedToolCall,
        context: &ToolContext,
        mut on_event: impl FnMut(Event),
    ) -> Option<ToolAttempt> {
        let (result, reports) = self.callbacks.before_tool(run, call).await;
        if let BeforeResult::Proceed {
            is_changed: true, ..
        } = result
        {
            return Some(ToolAttempt::Changed(reports));
        }
        match result {
            BeforeResult::Proceed { .. } => {
                reports
                    .into_iter()
                    .for_each(|report| on_event(report.into()));
                None
            }
            BeforeResult::Answered(result) => {
                let result = self.finish_output(run, call, context, result).await;
                Some(ToolAttempt::Ended(Box::new(result), reports))
            }
            BeforeResult::Refused(error) => Some(ToolAttempt::Ended(
                Box::new(Err(refused_call(call.name(), &error))),
                reports,
            )),
            BeforeResult::Failed(error) => Some(ToolAttempt::RunFailed(error, reports)),
        }
    }

    /// Calls the callbacks after a call. The result is an error if one of them fails the run.
    async fn after_callbacks(
        &self,
        run: CallbackRun<'_>,
        call: &CheckedToolCall,
        result: ToolResult,
    ) -> (Result<ToolResult, ErrorInfo>, Reports) {
        if !run
            .spec
            .has_callback(|functions| functions.after_tool.as_ref())
        {
            return (Ok(result), Vec::new());
        }
        let (result, reports) = Box::pin(self.callbacks.after_tool(run, call, result)).await;
        let result = match result {
            AfterResult::Result { result, .. } => Ok(result),
            AfterResult::Failed(error) => Err(error),
        };
        (result, reports)
    }

    async fn call_tool(
        &self,
        call: &CheckedToolCall,
        tool: &Arc<dyn Tool>,
        context: &ToolContext,
    ) -> ToolResult {
        let limit_ms = call
            .request
            .spec
            .timeout_ms
            .unwrap_or(self.core.config.tools.default_timeout_ms);
        let calling = tool.call(context.clone(), call.arguments.clone());
        let Ok(result) = tokio::time::timeout(Duration::from_millis(limit_ms), calling).await
        else {
            return Err(ErrorInfo::new(
                ErrorCode::Timeout,
                format!("the tool took longer than {limit_ms} ms"),
            ));
        };
        result
    }

    /// Redacts the output of a call, and stores its files and what is too large for the
    /// conversation.
    async fn finish_output(
        &self,
        CallbackRun { spec, token, .. }: CallbackRun<'_>,
        call: &CheckedToolCall,
        context: &ToolContext,
        result: ToolResult,
    ) -> ToolResult {
        let mut output = result.map_err(|mut error| {
            // Only cancellation of the run counts as cancelled. A tool that stopped without it has
            // failed.
            if error.code == ErrorCode::Cancelled && !token.is_cancelled() {
                error.code = ErrorCode::Interrupted;
            }
            error
        })?;
        output.redact(&self.core.redactor); // before it is shortened
        let limits = InlineLimits {
            bytes: context.output_limit.bytes,
            tokens: context.output_limit.tokens,
            stored_bytes: call.request.output_limits.stored_bytes,
        };
        if !output.files.is_empty() {
            Box::pin(self.store_files(&mut output, spec, context)).await;
        }
        tool_output::store_if_needed(
            output,
            &call.request.spec,
            context,
            limits,
            spec.tool("read_artifact").is_some(),
        )
        .await
    }

    /// Stores the images and files of an output. A file that cannot be stored is described in the
    /// output: the effect of the tool has happened, so the call does not fail.
    async fn store_files(&self, output: &mut ToolOutput, spec: &RunSpec, context: &ToolContext) {
        let files = MessageFiles {
            artifacts: &self.core.artifacts,
            owner: artifact_owner(spec),
        };
        let provenance = tool_output::provenance(context);
        let mut stored = Vec::with_capacity(output.files.len());
        for part in std::mem::take(&mut output.files) {
            let description = part.description();
            let content = MessageContent::from_parts(vec![part]);
            let saved = match files.fit(content, &spec.model.input).await {
                Ok(fitted) => {
                    files
                        .save(fitted, ArtifactSource::Tool, &provenance, &mut Vec::new())
                        .await
                }
                Err(error) => Err(error),
            };
            match saved {
                Ok(content) => stored.extend(content.into_parts()),
                Err(error) => output
                    .output
                    .push_str(&format!("\n[{description}; could not be stored: {error}]")),
            }
        }
        output.files = stored;
    }

    /// Reads the recorded outcome of a call that was cut off or timed out while its edit was being
    /// written.
    pub(super) async fn recorded_outcome(
        &self,
        spec: &RunSpec,
        call: &str,
        turn: u32,
    ) -> Option<ToolOutput> {
        let run = spec.identity.run_id.clone();
        let recorded = self
            .core
            .reader
            .read(move |reader| recorded_outcomes(reader, &run, turn))
            .await;
        recorded.ok()?.remove(call)
    }
}
