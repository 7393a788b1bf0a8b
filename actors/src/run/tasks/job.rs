//! The task of a job: it polls the body, and owns cancellation, panics, budget and time. It reports
//! one outcome; the policy says whether also while the runtime closes.
//!
//! A job with `max_time_after_run` may outlive its run. While the run is live, it records the
//! outcome. A run that completes first detaches the job, which then ends after the time of its
//! policy at the latest, and the task records the outcome as an event of the trace. If the runtime
//! closes first, nothing is recorded.
//!
//! Elsewhere: the jobs (`machine/jobs.rs`).

use std::{
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, pending, ready},
};
use ractor::ActorRef;
use soong_protocol::{
    ArtifactRef, ErrorCode, ErrorInfo, Event, EventDraft, FlushReport, Role, SessionWrite, Write,
};
use soong_storage::store::{Append, StoreError};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::task_tracker::TaskTrackerToken,
};

use crate::{
    actor_base::Mailbox,
    callback::{AfterResult, BeforeResult, Reports},
    clock::now,
    hook::HookResult,
    memory::{Changes, ExperienceText},
    run::{
        machine::{
            auxiliary_call::{AuxiliaryAnswer, AuxiliaryRole, UsedByCalls},
            input::RunInput,
            jobs::{
                JobKind, JobOutcome, JobPolicy, JobRequest, JobTools, LearnedChanges, OnCancel,
            },
            spec::RunSpec,
        },
        message::RunMsg,
        registry::entry::RunEntry,
        tasks::{
            RunTasks, TaskServices,
            callbacks::CallbackRun,
            model_call::CallObserver,
            panicked::failed_task,
            tool_output::{TextSource, store_text},
            until_cancelled,
        },
    },
};

/// A job that may outlive its run. Dropping it cancels the job.
pub(super) struct DetachableJob {
    kind: JobKind,
    cancellation: DropGuard,
    detachment: Arc<Detachment>,
}

/// Tells the task of a job that its run has ended, and counts the job from then on.
#[derive(Default)]
struct Detachment {
    run_ended: CancellationToken,
    /// Held until the task ends.
    count: OnceLock<TaskTrackerToken>,
}

/// The services that the body of a job uses.
struct Tools {
    services: Arc<TaskServices>,
    entry: Arc<RunEntry>,
    spec: Arc<RunSpec>,
    mailbox: Mailbox<RunMsg>,
    /// `None` if the job calls no model.
    observer: Option<CallObserver>,
    /// The model calls that are charged so far.
    model_calls: UsedByCalls,
    policy: JobPolicy,
    /// Cancelled when the tasks of the run are cut off.
    token: CancellationToken,
    /// Turn in which the job was started.
    turn: u32,
}

impl JobTools for Tools {
    fn ask_model(
        &mut self,
        role: AuxiliaryRole,
        system: String,
        messages: Vec<(Role, String)>,
    ) -> BoxFuture<'_, Result<AuxiliaryAnswer, ErrorInfo>> {
        let Some(observer) = &mut self.observer else {
            let message = "the job has not declared that it calls a model";
            return ready(Err(ErrorInfo::new(ErrorCode::InternalError, message))).boxed();
        };
        let spec = &self.spec;
        let model = match role {
            AuxiliaryRole::Summary => &spec.auxiliary_models.summary,
            AuxiliaryRole::Utility => &spec.auxiliary_models.utility,
        };
        let models = &self.services.models;
        let model_calls = &mut self.model_calls;
        let policy = self.policy;
        let token = match policy.on_cancel {
            OnCancel::CutOffCalls => self.token.clone(),
            // The whole job is cut off, or nothing of it.
            OnCancel::CutOff | OnCancel::Complete => CancellationToken::new(),
        };
        async move {
            // The usage of an earlier call of the job is known, and it makes one at a time.
            if let Some(reservation) = observer.reservation.take() {
                reservation.settle();
            }
            let redactor = spec.redactor.clone();
            let calling = models.call_auxiliary(spec, model, system, messages, observer);
            let calling = within_time(policy, calling);
            let answer = until_cancelled(policy.component, &token, &redactor, pin!(calling))
                .await
                .flatten()?;
            let used = answer.used();
            observer.meter.add_answered(used);
            model_calls.add(used);
            Ok(answer)
        }
        .boxed()
    }

    fn read_experiences(&mut self) -> BoxFuture<'_, Result<Arc<ExperienceText>, ErrorInfo>> {
        async move {
            let memory = self.services.memory.of(&self.spec.identity.uid);
            let read = spawn_blocking(move || memory.read_and_log()).await;
            read.map_err(|error| failed_task(&self.services.core.redactor, "the memory", error))?
        }
        .boxed()
    }

    fn max_recalled(&self) -> usize {
        self.services.max_recalled
    }

    fn change_experiences(
        &mut self,
        changes: Changes,
    ) -> BoxFuture<'_, Result<LearnedChanges, ErrorInfo>> {
        async move {
            let memory = self.services.memory.of(&self.spec.identity.uid);
            let writing = spawn_blocking(move || (memory.change(&changes), changes));
            let (added, changes) = writing
                .await
                .map_err(|error| failed_task(&self.services.core.redactor, "the memory", error))?;
            Ok(LearnedChanges {
                added: added?,
                changes,
            })
        }
        .boxed()
    }

    fn call_before_agent(
        &mut self,
        task: String,
    ) -> BoxFuture<'_, (BeforeResult<String, String>, Reports)> {
        let callbacks = &self.services.callbacks;
        callbacks.before_agent(self.callback_run(), task).boxed()
    }

    fn call_after_agent(
        &mut self,
        answer: String,
    ) -> BoxFuture<'_, (AfterResult<String>, Reports)> {
        let callbacks = &self.services.callbacks;
        callbacks.after_agent(self.callback_run(), answer).boxed()
    }

    fn call_stop_hooks(&mut self, answer: String) -> BoxFuture<'_, HookResult> {
        self.services.hooks.before_end(&self.spec, answer).boxed()
    }

    fn flush_documents(&mut self) -> BoxFuture<'_, Result<FlushReport, ErrorInfo>> {
        async move {
            let identity = &self.spec.identity;
            let artifacts = &self.services.core.artifacts;
            let flush = || artifacts.flush_run(&identity.trace_id, &identity.run_id);
            let lifetime = &self.services.core.lifetime;
            lifetime
                .keep_trying("storing a run's documents", flush)
                .await
        }
        .boxed()
    }

    fn store_text(
        &mut self,
        title: &'static str,
        text: String,
    ) -> BoxFuture<'_, Result<ArtifactRef, ErrorInfo>> {
        async move {
            let source = TextSource {
                title,
                message_sequence: None,
                tool_call_id: None,
            };
            store_text(&self.services.core.artifacts, &self.spec, &source, text).await
        }
        .boxed()
    }
}

impl Tools {
    /// Runs the body of a job. Cancellation, a panic, and the end of its time are errors.
    async fn run(
        &mut self,
        request: JobRequest,
        end_of_time: impl Future<Output = ErrorInfo>,
    ) -> JobOutcome {
        let kind = request.kind();
        let policy = self.policy;
        let redactor = self.services.core.redactor.clone();
        let token = match policy.on_cancel {
            OnCancel::CutOff => self.token.clone(),
            OnCancel::CutOffCalls | OnCancel::Complete => CancellationToken::new(),
        };
        let result = {
            // The body is created where its panics are caught.
            let turn = self.turn;
            let body = pin!(async { request.run(turn, self).await });
            tokio::select! {
                biased;
                result = until_cancelled(policy.component, &token, &redactor, body) => {
                    result.flatten()
                }
                error = end_of_time => Err(error),
            }
        };
        let mut outcome = result.unwrap_or_else(|error| {
            if let Some(observer) = &mut self.observer
                && let Some(used) = observer.meter.used_by_failure(&error)
            {
                self.model_calls.add(used);
            }
            kind.failed(self.turn, self.spec.redactor.redact_error(error))
        });
        outcome.set_model_calls(self.model_calls);
        outcome
    }

    fn callback_run(&self) -> CallbackRun<'_> {
        CallbackRun {
            spec: &self.spec,
            entry: &self.entry,
            token: &self.token,
        }
    }

    /// Reports the outcome to the run.
    fn report(&mut self, outcome: JobOutcome) {
        let input = Box::new(RunInput::Job(outcome));
        let message = match &mut self.observer {
            Some(observer) => RunMsg::ModelCallEnded {
                input,
                reservation: observer.reservation.take(),
            },
            None => RunMsg::Input(input),
        };
        self.mailbox.send(message);
    }
}

impl RunTasks {
    /// Starts a job; reports its outcome. `turn`: that of the run.
    pub(crate) fn start_job(
        &mut self,
        myself: ActorRef<RunMsg>,
        spec: &Arc<RunSpec>,
        turn: u32,
        request: JobRequest,
    ) {
        let policy = request.kind().policy();
        let mailbox = self.mailbox(myself);
        let services = &self.services;
        let observer = policy.model_call.map(|kind| {
            CallObserver::new(
                &services.core.journal,
                &self.entry,
                spec,
                kind,
                mailbox.clone(),
            )
        });
        let mut tools = Tools {
            services: Arc::clone(services),
            entry: Arc::clone(&self.entry),
            spec: Arc::clone(spec),
            mailbox,
            observer,
            model_calls: UsedByCalls::default(),
            policy,
            token: self.token.clone(),
            turn,
        };
        if let Some(max_time) = policy.max_time_after_run {
            return self.spawn_detachable(tools, request, max_time);
        }
        self.spawn(async move {
            let outcome = tools.run(request, pending()).await;
            let is_closing = tools.services.core.lifetime.is_closing();
            if !(policy.is_silent_at_close && is_closing) {
                tools.report(outcome);
            }
        });
    }

    /// Spawns the task of a job that may outlive its run.
    fn spawn_detachable(&mut self, mut tools: Tools, request: JobRequest, max_time: Duration) {
        // Not a child of the token of the tasks: that one is cancelled when the actor of an ended
        // run stops.
        let token = self.entry.control.token.child_token();
        tools.token = token.clone();
        let detachment = Arc::new(Detachment::default());
        let kind = request.kind();
        // The earlier job of this kind has ended: dropping a running one would cancel the run.
        self.jobs.retain(|job| job.kind != kind);
        self.jobs.push(DetachableJob {
            kind,
            cancellation: token.clone().drop_guard(),
            detachment: Arc::clone(&detachment),
        });
        let component = kind.policy().component;
        let task_of_run = self.tracker.token();
        let lifetime = self.services.core.lifetime.clone();
        let closing = lifetime.closing().clone();
        let run_ended = detachment.run_ended.clone();
        lifetime.spawn(async move {
            let timeout = end_of_time(&run_ended, component, max_time);
            let outcome = tokio::select! {
                biased;
                // The next process records that the job was interrupted if the run has not ended.
                () = closing.cancelled() => return,
                outcome = tools.run(request, timeout) => outcome,
            };
            let late_event = outcome.late_event();
            tools.report(outcome);
            drop(task_of_run);
            // The run records the outcome, or it has ended without it.
            tokio::select! {
                biased;
                () = run_ended.cancelled() => {
                    if let Some(event) = late_event {
                        record(&tools.services, &tools.spec, event).await;
                    }
                }
                () = token.cancelled() => {}
                () = closing.cancelled() => {}
            }
            // Counts the job until here.
            drop(detachment);
        });
    }

    /// Lets a job continue after the end of the run.
    pub(crate) fn detach_job(&mut self, kind: JobKind) {
        let Some(index) = self.jobs.iter().position(|job| job.kind == kind) else {
            return;
        };
        let DetachableJob {
            cancellation,
            detachment,
            ..
        } = self.jobs.remove(index);
        let _ = detachment.count.set(self.services.detached_jobs.token());
        detachment.run_ended.cancel();
        cancellation.disarm();
    }
}

/// Awaits a model call of a job, at most for the time of its policy.
async fn within_time<T>(
    policy: JobPolicy,
    calling: impl Future<Output = Result<T, ErrorInfo>>,
) -> Result<T, ErrorInfo> {
    let Some(max_time) = policy.max_call_time else {
        return calling.await;
    };
    let in_time = timeout(max_time, calling).await;
    in_time.unwrap_or_else(|_| {
        let component = policy.component;
        let limit_s = max_time.as_secs();
        let message = format!("{component} did not answer within {limit_s} s");
        Err(ErrorInfo::new(ErrorCode::Timeout, message))
    })
}

/// Waits until a detached job has taken too long. Returns the error of the job.
async fn end_of_time(
    run_ended: &CancellationToken,
    component: &str,
    max_time: Duration,
) -> ErrorInfo {
    run_ended.cancelled().await;
    sleep(max_time).await;
    let limit_s = max_time.as_secs();
    let message = format!("{component} did not answer within {limit_s} s after the end of the run");
    ErrorInfo::new(ErrorCode::Timeout, message)
}

/// Records the outcome of a detached job.
async fn record(services: &TaskServices, spec: &RunSpec, event: Event) {
    let identity = &spec.identity;
    let mut draft = EventDraft::new(identity.trace_id.clone(), None, now(), event);
    spec.redactor.redact_draft(&mut draft);
    let same_session = Write::Session(SessionWrite::Require {
        session_id: identity.session_id.clone(),
        incarnation: identity.session_incarnation,
    });
    let append = || async {
        let writes = vec![same_session.clone(), Write::Event(draft.clone())];
        let append = Append {
            fence: None,
            writes,
        };
        match services.core.journal.append_and_wait(append).await {
            // The session was deleted meanwhile.
            Err(StoreError::SessionDeleting(_) | StoreError::NotFound(_)) | Ok(_) => Ok(()),
            Err(error) => Err(ErrorInfo::from(&error)),
        }
    };
    let lifetime = &services.core.lifetime;
    let recorded = lifetime
        .keep_trying("recording the outcome of a job", append)
        .await;
    if let Err(error) = recorded
        && !lifetime.is_closing()
    {
        let run = &identity.run_id;
        tracing::warn!(%run, %error, "failed to record the outcome of a job");
    }
}
