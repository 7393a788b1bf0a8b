//! The task of a job: it polls the body, and owns cancellation, panics, budget and time. It always
//! reports an outcome, unless the runtime closes.
//!
//! A job may outlive its run, because nothing waits for it. While the run is live, it records the
//! outcome. A run that completes first detaches the job, which then ends after the time of its
//! policy at the latest, or when the runtime closes, and the task records the outcome as an event of
//! the trace.
//!
//! Elsewhere: the jobs (`machine/jobs.rs`).

use std::{
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use ractor::ActorRef;
use soong_protocol::{ErrorCode, ErrorInfo, Event, EventDraft, Role, SessionWrite, Write};
use soong_storage::store::{Append, StoreError};
use tokio::time::sleep;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::task_tracker::TaskTrackerToken,
};

use crate::{
    clock::now,
    run::{
        machine::{
            auxiliary_call::{AuxiliaryAnswer, AuxiliaryCall},
            input::RunInput,
            jobs::{JobKind, JobRequest, JobTools},
            spec::RunSpec,
        },
        message::RunMsg,
        tasks::{RunTasks, TaskServices, model_call::CallObserver, until_cancelled},
    },
};

/// A job in progress. Dropping it cancels the job.
pub(super) struct OpenJob {
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
    spec: Arc<RunSpec>,
    observer: CallObserver,
}

impl JobTools for Tools {
    fn ask_utility_model(
        &mut self,
        call: AuxiliaryCall,
    ) -> BoxFuture<'_, Result<AuxiliaryAnswer, ErrorInfo>> {
        let messages = vec![(Role::User, call.user)];
        let utility = &self.spec.auxiliary_models.utility;
        let observer = &mut self.observer;
        self.services
            .models
            .call_auxiliary(&self.spec, utility, call.system, messages, observer)
            .boxed()
    }
}

impl RunTasks {
    /// Starts a job; reports its outcome.
    pub(crate) fn start_job(
        &mut self,
        myself: ActorRef<RunMsg>,
        spec: &Arc<RunSpec>,
        request: JobRequest,
    ) {
        let kind = request.kind();
        let policy = kind.policy();
        let services = Arc::clone(&self.services);
        let spec = Arc::clone(spec);
        let mailbox = self.mailbox(myself);
        // Not a child of the token of the tasks: that one is cancelled when the actor of an ended
        // run stops.
        let token = self.entry.control.token.child_token();
        let detachment = Arc::new(Detachment::default());
        self.jobs.push(OpenJob {
            kind,
            cancellation: token.clone().drop_guard(),
            detachment: Arc::clone(&detachment),
        });
        let mut tools = Tools {
            observer: CallObserver::new(
                &services.journal,
                &self.entry,
                &spec,
                policy.model_call,
                mailbox.clone(),
            ),
            services: Arc::clone(&services),
            spec: Arc::clone(&spec),
        };
        let task_of_run = self.tracker.token();
        let lifetime = self.services.lifetime.clone();
        lifetime.spawn(async move {
            let result = {
                let body = pin!(request.run(&mut tools));
                let work = until_cancelled(policy.component, &token, &services.redactor, body);
                tokio::select! {
                    biased;
                    // The next process records that the job was interrupted if the run has not
                    // ended.
                    () = services.lifetime.closing().cancelled() => return,
                    result = work => result.flatten(),
                    error = end_of_time(&detachment.run_ended, policy.max_time_after_run) => Err(error),
                }
            };
            let observer = &mut tools.observer;
            let outcome = result.unwrap_or_else(|error| {
                let used = observer.meter.used_by_failure(&error);
                kind.failed(spec.redactor.redact_error(error), used)
            });
            let late_event = outcome.late_event();
            mailbox.send(RunMsg::ModelCallEnded {
                input: Box::new(RunInput::Job(outcome)),
                reservation: observer.reservation.take(),
            });
            drop(task_of_run);
            // The run records the outcome, or it has ended without it.
            tokio::select! {
                biased;
                () = detachment.run_ended.cancelled() => record(&services, &spec, late_event).await,
                () = token.cancelled() => {}
                () = services.lifetime.closing().cancelled() => {}
            }
        });
    }

    /// Lets a job continue after the end of the run.
    pub(crate) fn detach_job(&mut self, kind: JobKind) {
        let Some(index) = self.jobs.iter().position(|open| open.kind == kind) else {
            return;
        };
        let OpenJob {
            cancellation,
            detachment,
            ..
        } = self.jobs.remove(index);
        let _ = detachment.count.set(self.services.detached_jobs.token());
        detachment.run_ended.cancel();
        cancellation.disarm();
    }
}

/// Waits until a detached job has taken too long. Returns the error of the job.
async fn end_of_time(run_ended: &CancellationToken, max_time: Duration) -> ErrorInfo {
    run_ended.cancelled().await;
    sleep(max_time).await;
    let limit_s = max_time.as_secs();
    let message = format!("the model did not answer within {limit_s} s after the end of the run");
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
        match services.journal.append_and_wait(append).await {
            // The session was deleted meanwhile.
            Err(StoreError::SessionDeleting(_) | StoreError::NotFound(_)) | Ok(_) => Ok(()),
            Err(error) => Err(ErrorInfo::from(&error)),
        }
    };
    // It fails only if the runtime closes.
    let _ = services
        .lifetime
        .keep_trying("recording the outcome of a job", append)
        .await;
}
