//! The tasks of one incarnation of a run: model calls, tool calls, loading and storing.
//!
//! Each task is tracked by its incarnation, ends when the run is cancelled or the incarnation is
//! dropped, and always reports its outcome (R4). Some jobs may outlive their run
//! (`tasks/job.rs`). A task of a dead incarnation reports to a dead mailbox, so its input cannot
//! reach the next incarnation.

pub(super) mod authorize;
mod auxiliary_call;
mod call_meter;
pub(super) mod callbacks;
mod checked_call;
pub(super) mod child_starter;
mod context_update;
mod control;
mod fallback;
pub(super) mod finalize;
pub(super) mod hook_calls;
pub(super) mod job;
pub(super) mod load;
pub(super) mod model_call;
pub(super) mod panicked;
mod prompt_cache;
mod queued_children;
mod text_calls;
pub(super) mod tool_call;
pub(super) mod tool_output;

use std::{
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use ractor::ActorRef;
use soong_protocol::{AnswerCheck, ErrorCode, ErrorInfo, ModelCallKind, RunWrite, TraceId, Write};
use soong_storage::store::Append;
use soong_text::Redactor;
use soong_tool::{ToolOutput, artifact::ArtifactOwner};
use tokio::time::Instant;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tracing::Instrument;

use crate::{
    actor_base::Mailbox,
    hook::HookInput,
    memory::MemoryFiles,
    run::{
        core::Core,
        machine::{
            effect::{ModelCall, OversizedResults, ToolCallRequest},
            input::{EndInput, ModelInput, RunInput, ToolInput},
            outcome,
            spec::RunSpec,
        },
        message::{LoadedRun, RunMsg},
        otel_spans,
        registry::entry::RunEntry,
        tasks::{
            callbacks::{CallbackCalls, CallbackRun},
            checked_call::{check_answer, check_call},
            hook_calls::HookCalls,
            job::DetachableJob,
            load::{last_settings, read_stored},
            model_call::{CallObserver, ModelCaller},
            panicked::panic_error,
            text_calls::take_text_calls,
            tool_call::{ToolAttempt, ToolRunner, resolved_path},
            tool_output::TextSource,
        },
    },
};

/// The handles that the tasks of runs use.
pub(crate) struct TaskServices {
    pub(crate) core: Arc<Core>,
    pub(crate) models: ModelCaller,
    pub(crate) tools: ToolRunner,
    pub(crate) hooks: HookCalls,
    pub(crate) callbacks: Arc<CallbackCalls>,
    pub(crate) memory: Arc<MemoryFiles>,
    /// Number of experiences that a run gets when it starts (`memory.top_k`).
    pub(crate) max_recalled: usize,
    /// The jobs that have outlived their runs.
    pub(crate) detached_jobs: TaskTracker,
}

/// The tasks of one incarnation. Dropping it cancels all of them.
pub(crate) struct RunTasks {
    services: Arc<TaskServices>,
    entry: Arc<RunEntry>,
    tracker: TaskTracker,
    /// Cancelled when the run is cancelled, its tasks are cut off, or this incarnation dies.
    token: CancellationToken,
    /// The jobs that may outlive the run; some may have ended.
    jobs: Vec<DetachableJob>,
    _guard: DropGuard,
}

impl RunTasks {
    pub(crate) fn new(
        services: &Arc<TaskServices>,
        entry: &Arc<RunEntry>,
        tracker: TaskTracker,
    ) -> Self {
        let token = entry.control.token.child_token();
        let services = Arc::clone(services);
        let entry = Arc::clone(entry);
        Self {
            services,
            entry,
            tracker,
            _guard: token.clone().drop_guard(),
            token,
            jobs: Vec::new(),
        }
    }

    /// Returns whether no task is running.
    pub(crate) fn is_empty(&self) -> bool {
        self.tracker.is_empty()
    }

    /// Cancels all running tasks, and every task that starts later.
    pub(crate) fn abort(&mut self) {
        self.token.cancel();
        self.jobs.clear();
    }

    fn mailbox(&self, myself: ActorRef<RunMsg>) -> Mailbox<RunMsg> {
        Mailbox::new(myself, Arc::clone(&self.entry.status))
    }

    /// Spawns a task. Its future has several kilobytes, so it is boxed before the layers of the
    /// spawn move it. This way, those layers are also compiled once, and not for each task.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task: BoxFuture<'static, ()> = Box::pin(task);
        self.tracker.spawn(task);
    }

    /// Calls the model; reports the answer or the error.
    pub(crate) fn call_model(
        &self,
        myself: ActorRef<RunMsg>,
        spec: &Arc<RunSpec>,
        call: ModelCall,
    ) {
        let services = Arc::clone(&self.services);
        let entry = Arc::clone(&self.entry);
        let token = self.token.clone();
        let spec = Arc::clone(spec);
        let mailbox = self.mailbox(myself);
        let has_called_tools = call.has_called_tools;
        self.spawn(async move {
            let mut observer = CallObserver::new(
                &services.core.journal,
                &entry,
                &spec,
                ModelCallKind::Turn,
                mailbox.clone(),
            );
            let start = Instant::now();
            let span = otel_spans::model_span(&spec, &entry.span());
            let calling = services
                .models
                .call_model(&spec, call, &mut observer)
                .instrument(span.clone());
            let mut outcome =
                until_cancelled(MODEL, &token, &services.core.redactor, pin!(calling))
                    .await
                    .flatten();
            let mut answer_check = None;
            let mut text_call_form = None;
            if let Ok(completion) = &mut outcome {
                answer_check = check_answer(&spec, completion).await;
                let is_text =
                    has_called_tools || matches!(answer_check, Some(AnswerCheck::Match { .. }));
                match take_text_calls(&spec, completion, is_text) {
                    Ok(form) => text_call_form = form,
                    Err(error) => outcome = Err(error),
                }
            }
            if text_call_form.is_some() {
                answer_check = None;
            }
            otel_spans::model_ended(
                &span,
                &spec.model_or_fallback(observer.fallback).name,
                &outcome,
            );
            let waited_ms = observer.waited_ms;
            let input = match outcome {
                Ok(completion) => {
                    let limited_by = observer
                        .reservation
                        .as_ref()
                        .and_then(|reservation| reservation.limited_by.clone());
                    RunInput::Model(ModelInput::Answered {
                        completion: Box::new(completion),
                        fallback: observer.fallback,
                        context_update: observer.context_update.take(),
                        duration_ms: elapsed_ms(start),
                        waited_ms,
                        short_of: limited_by,
                        answer_check,
                        text_call_form,
                    })
                }
                Err(error) => {
                    let used = observer.meter.used_by_failure(&error);
                    let error = spec.redactor.redact_error(error);
                    RunInput::Model(ModelInput::Failed {
                        error,
                        partial: observer.partial,
                        used,
                        waited_ms,
                    })
                }
            };
            mailbox.send(RunMsg::ModelCallEnded {
                input: Box::new(input),
                reservation: observer.reservation,
            });
        });
    }

    /// Checks the arguments of a call and runs its tool; reports the outcome.
    pub(crate) fn run_tool(
        &self,
        myself: ActorRef<RunMsg>,
        spec: &Arc<RunSpec>,
        request: ToolCallRequest,
    ) {
        let services = Arc::clone(&self.services);
        let entry = Arc::clone(&self.entry);
        let token = self.token.clone();
        let spec = Arc::clone(spec);
        let mailbox = self.mailbox(myself);
        self.spawn(async move {
            let start = Instant::now();
            let id = request.id.clone();
            let send = |input: RunInput| {
                mailbox.send(RunMsg::Input(Box::new(input)));
            };
            let (job, coercion_note) = match check_call(request, &spec).await {
                Ok(checked) => checked,
                Err(error) => {
                    return send(RunInput::Tool(ToolInput::Ended {
                        id,
                        result: Box::new(Err(error)),
                        reports: Vec::new(),
                        duration_ms: elapsed_ms(start),
                        coercion_note: None,
                    }));
                }
            };
            let turn = job.request.turn;
            let writes = job.request.spec.effect.is_mutating();
            // Writes that the call has started are completed before its outcome is reported,
            // whatever the outcome is.
            let storing = TaskTracker::new();
            let context = services
                .tools
                .context(&entry, &spec, &job, &token, &storing);
            let after = hook_calls::after_call(&spec, &job, resolved_path(&spec, &job, &context));
            let note = |event| send(RunInput::Report(Box::new(event)));
            let span = otel_spans::tool_span(job.id(), job.name(), &entry.span());
            let run = CallbackRun {
                spec: &spec,
                entry: &entry,
                token: &token,
            };
            let work = services
                .tools
                .run(run, job, context, note)
                .instrument(span.clone());
            let attempt =
                until_cancelled("the tool", &token, &services.core.redactor, pin!(work)).await;
            let (result, reports) =
                match attempt.unwrap_or_else(|error| ToolAttempt::ended(Err(error))) {
                    ToolAttempt::Ended(result, reports) => {
                        otel_spans::record_error(&span, result.as_ref().as_ref().err());
                        (*result, reports)
                    }
                    ToolAttempt::HooksAllowed => {
                        return send(RunInput::Tool(ToolInput::HooksPassed { id }));
                    }
                    ToolAttempt::Changed(reports) => {
                        return send(RunInput::Tool(ToolInput::Changed { id, reports }));
                    }
                    ToolAttempt::ApprovalRequired(permission) => {
                        return send(RunInput::Tool(ToolInput::PermissionRequired(permission)));
                    }
                    ToolAttempt::RunFailed(error, reports) => {
                        send(RunInput::End(EndInput::CallbackFailed { error, reports }));
                        (Err(cancelled()), Vec::new())
                    }
                };
            storing.close();
            storing.wait().await;
            let result = match result {
                Err(error) if writes => services
                    .tools
                    .recorded_outcome(&spec, &id, turn)
                    .await
                    .ok_or(error),
                result => result,
            };
            if let Some(hook_input) = after {
                let outcome = Some(hook_calls::outcome(&result, |text| {
                    services.core.redactor.redact(text)
                }));
                services.hooks.notify(
                    &entry,
                    &spec,
                    HookInput {
                        outcome,
                        ..hook_input
                    },
                );
            }
            send(RunInput::Tool(ToolInput::Ended {
                id,
                result: Box::new(result),
                reports,
                duration_ms: elapsed_ms(start),
                coercion_note,
            }));
        });
    }

    /// Reads the settings of the last run of a sub-trace; reports them.
    pub(crate) fn read_settings(&self, myself: ActorRef<RunMsg>, id: String, trace_id: TraceId) {
        let services = Arc::clone(&self.services);
        let mailbox = self.mailbox(myself);
        let token = self.token.clone();
        self.spawn(async move {
            let attempt = || last_settings(&services.core.reader, &trace_id);
            let read = services
                .core
                .lifetime
                .keep_trying("reading a sub-trace", attempt);
            let settings = tokio::select! {
                biased;
                () = token.cancelled() => Err(cancelled()),
                settings = read => settings,
            };
            if !services.core.lifetime.is_closing() {
                mailbox.send(RunMsg::Input(Box::new(RunInput::Tool(
                    ToolInput::SettingsRead { id, settings },
                ))));
            }
        });
    }

    /// Stores the results of a call's children, which are too long for the conversation; reports
    /// the call's outcome.
    pub(crate) fn store_results(
        &self,
        myself: ActorRef<RunMsg>,
        spec: &Arc<RunSpec>,
        results: OversizedResults,
    ) {
        let services = Arc::clone(&self.services);
        let mailbox = self.mailbox(myself);
        let spec = Arc::clone(spec);
        self.spawn(async move {
            let start = Instant::now();
            let OversizedResults {
                id,
                message_sequence: asked_in,
                title,
                full_text: whole,
                shortened_text: short,
            } = results;
            let about = TextSource {
                title: &title,
                message_sequence: asked_in,
                tool_call_id: Some(&id),
            };
            let output =
                match tool_output::store_text(&services.core.artifacts, &spec, &about, whole).await
                {
                    Ok(reference) => {
                        let note = tool_output::shortened_note(
                            &reference,
                            spec.tool("read_artifact").is_some(),
                        );
                        ToolOutput {
                            artifact_ref: Some(reference),
                            ..ToolOutput::text(title, outcome::with_note(&note, &short))
                        }
                    }
                    // The results are recorded with the children, so a failure to store them does not
                    // fail the call.
                    Err(error) => {
                        let note = format!(
                            "summaries are shortened; the whole could not be stored: {error}"
                        );
                        ToolOutput::text(title, outcome::with_note(&note, &short))
                    }
                };
            let input = RunInput::Tool(ToolInput::Ended {
                id,
                result: Box::new(Ok(output)),
                reports: Vec::new(),
                duration_ms: elapsed_ms(start),
                coercion_note: None,
            });
            mailbox.send(RunMsg::Input(Box::new(input)));
        });
    }

    /// Opens the run in the journal and reads its stored state after the tasks of the previous
    /// incarnation have ended. Retries while the disk refuses. Reports the stored state, or an
    /// error that no retry can fix.
    pub(crate) fn load(
        &self,
        myself: ActorRef<RunMsg>,
        previous_tasks: TaskTracker,
        wait: Duration,
    ) {
        let services = Arc::clone(&self.services);
        let entry = Arc::clone(&self.entry);
        let mailbox = self.mailbox(myself);
        previous_tasks.close();
        self.spawn(async move {
            previous_tasks.wait().await;
            tokio::time::sleep(wait).await;
            let attempt = || async {
                let loaded = load(&services, &entry).await;
                if loaded.as_ref().is_err_and(|error| error.retryable) {
                    entry.status.set_state("waiting", "storage");
                }
                loaded
            };
            mailbox.send(
                match services
                    .core
                    .lifetime
                    .keep_trying("reading a run", attempt)
                    .await
                {
                    Ok(loaded) => RunMsg::Loaded(Box::new(loaded)),
                    Err(error) => RunMsg::LoadFailed(Box::new(error)),
                },
            );
        });
    }
}

/// The component that panics if a model call does.
const MODEL: &str = "the model provider";

/// Awaits work of a component until it ends or is cancelled. Cancellation, and a panic of the
/// component, are errors. The caller pins the work, because a future that is passed by value is
/// stored twice.
async fn until_cancelled<T>(
    component: &str,
    token: &CancellationToken,
    redactor: &Redactor,
    work: Pin<&mut impl Future<Output = T>>,
) -> Result<T, ErrorInfo> {
    tokio::select! {
        biased;
        () = token.cancelled() => Err(cancelled()),
        ended = AssertUnwindSafe(work).catch_unwind() => {
            ended.map_err(|panic| panic_error(redactor, component, &*panic))
        }
    }
}

pub(crate) fn cancelled() -> ErrorInfo {
    ErrorInfo::new(ErrorCode::Cancelled, "cancelled")
}

fn elapsed_ms(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Returns the owner of the artifacts that a run writes.
pub(crate) fn artifact_owner(spec: &RunSpec) -> ArtifactOwner {
    ArtifactOwner {
        session_id: spec.identity.session_id.clone(),
        uid: spec.identity.uid.to_string(),
    }
}

async fn load(services: &TaskServices, entry: &RunEntry) -> Result<LoadedRun, ErrorInfo> {
    let open = Append {
        fence: None,
        writes: vec![Write::Run(RunWrite::NewEpoch(
            entry.identity.run_id.clone(),
        ))],
    };
    let ack = services
        .core
        .journal
        .append_and_wait(open)
        .await
        .map_err(|error| ErrorInfo::from(&error))?;
    let run_id = entry.identity.run_id.clone();
    let trace_id = entry.identity.trace_id.clone();
    let (mut stored, children) = services
        .core
        .reader
        .read(move |reader| {
            Ok((
                read_stored(reader, &run_id, &trace_id)?.1,
                reader.children(&run_id)?,
            ))
        })
        .await?;
    if let Some(Ok(way_back)) = &mut stored.rewind {
        let run_id = &entry.identity.run_id;
        let planned = services
            .core
            .artifacts
            .plan_restore(&entry.identity.trace_id, run_id, Some(run_id), way_back.lsn)
            .await;
        match planned {
            Ok(plan) => {
                way_back.document_writes = plan.writes;
                way_back.restored = plan.restored;
                way_back.unchanged = plan.unchanged;
            }
            Err(error) if error.retryable => return Err(error),
            // The run ends with this error, because the document cannot be restored.
            Err(error) => stored.rewind = Some(Err(error)),
        }
    }
    let children = children
        .into_iter()
        .filter(|child| !child.status.is_terminal())
        .collect();
    Ok(LoadedRun {
        epoch: ack.epoch.unwrap_or_default(),
        stored,
        children,
    })
}
