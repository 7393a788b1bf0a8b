//! The call for a name of the trace. It may outlive its run, because nothing waits for a name.
//!
//! While the run is live, it records the outcome. A run that completes first detaches the call,
//! which then ends after 20 s at the latest, or when the runtime closes, and its task records the
//! outcome as an event of the trace.
//!
//! Elsewhere: when a name is requested (`machine/jobs/name_trace.rs`).

use std::{
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use ractor::ActorRef;
use soong_protocol::{
    ErrorCode, ErrorInfo, EventDraft, ModelCallKind, ModelEvent, Role, SessionWrite, Write,
};
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
            auxiliary_call::AuxiliaryCall, input::RunInput, jobs::name_trace::name_of,
            spec::RunSpec,
        },
        message::RunMsg,
        tasks::{MODEL, RunTasks, TaskServices, model_call::CallObserver, until_cancelled},
    },
};

/// Maximum time that the call takes after the end of its run.
const MAX_TIME_AFTER_RUN: Duration = Duration::from_secs(20);

/// The call for a name. Dropping it cancels the call.
pub(super) struct NamingCall {
    cancellation: DropGuard,
    detachment: Arc<Detachment>,
}

/// Tells the task of a call that its run has ended, and counts the call from then on.
#[derive(Default)]
struct Detachment {
    run_ended: CancellationToken,
    /// Held until the task ends.
    count: OnceLock<TaskTrackerToken>,
}

impl RunTasks {
    /// Requests a name for the trace; reports the answer or the error.
    pub(crate) fn name_trace(
        &mut self,
        myself: ActorRef<RunMsg>,
        spec: &Arc<RunSpec>,
        call: AuxiliaryCall,
    ) {
        let services = Arc::clone(&self.services);
        let entry = Arc::clone(&self.entry);
        let spec = Arc::clone(spec);
        let mailbox = self.mailbox(myself);
        // Not a child of the token of the tasks: that one is cancelled when the actor of an ended
        // run stops.
        let token = entry.control.token.child_token();
        let detachment = Arc::new(Detachment::default());
        self.naming = Some(NamingCall {
            cancellation: token.clone().drop_guard(),
            detachment: Arc::clone(&detachment),
        });
        let task_of_run = self.tracker.token();
        let lifetime = self.services.lifetime.clone();
        lifetime.spawn(async move {
            let mut observer =
                CallObserver::new(&services.journal, &entry, &spec, ModelCallKind::Naming, mailbox.clone());
            let messages = vec![(Role::User, call.user)];
            let utility = &spec.auxiliary_models.utility;
            let result = {
                let calling = pin!(services.models.call_auxiliary(&spec, utility, call.system, messages, &mut observer));
                tokio::select! {
                    biased;
                    // The next process records that the call was interrupted if the run has not
                    // ended.
                    () = services.lifetime.closing().cancelled() => return,
                    result = until_cancelled(MODEL, &token, &services.redactor, calling) => result.flatten(),
                    error = end_of_time(&detachment.run_ended) => Err(error),
                }
            };
            let used = result.as_ref().err().and_then(|error| observer.meter.used_by_failure(error));
            let result = result.map_err(|error| spec.redactor.redact_error(error));
            let name = match &result {
                Ok(answer) => name_of(&answer.completion),
                Err(error) => Err(error.clone()),
            };
            let input = RunInput::Named { result: Box::new(result), used };
            mailbox.send(RunMsg::ModelCallEnded { input: Box::new(input), reservation: observer.reservation });
            drop(task_of_run);
            // The run records the outcome, or it has ended without it.
            tokio::select! {
                biased;
                () = detachment.run_ended.cancelled() => record_name(&services, &spec, name).await,
                () = token.cancelled() => {}
                () = services.lifetime.closing().cancelled() => {}
            }
        });
    }

    /// Lets the call for a name continue after the end of the run.
    pub(crate) fn detach_naming(&mut self) {
        if let Some(NamingCall {
            cancellation,
            detachment,
        }) = self.naming.take()
        {
            let _ = detachment.count.set(self.services.pending_names.token());
            detachment.run_ended.cancel();
            cancellation.disarm();
        }
    }
}

/// Waits until a detached call has taken too long. Returns the error of the call.
async fn end_of_time(run_ended: &CancellationToken) -> ErrorInfo {
    run_ended.cancelled().await;
    sleep(MAX_TIME_AFTER_RUN).await;
    let limit_s = MAX_TIME_AFTER_RUN.as_secs();
    let message = format!("the model did not answer within {limit_s} s after the end of the run");
    ErrorInfo::new(ErrorCode::Timeout, message)
}

/// Records the outcome of a detached call.
async fn record_name(services: &TaskServices, spec: &RunSpec, name: Result<String, ErrorInfo>) {
    let trace_id = spec.identity.trace_id.clone();
    let (name, error) = match name {
        Ok(name) => (Some(name), None),
        Err(error) => (None, Some(Box::new(error))),
    };
    let event = ModelEvent::NamingEnded {
        name,
        usage: None,
        cost: None,
        error,
    };
    let mut draft = EventDraft::new(trace_id, None, now(), event);
    spec.redactor.redact_draft(&mut draft);
    let identity = &spec.identity;
    let same_session = Write::Session(SessionWrite::Require {
        session_id: identity.session_id.clone(),
        incarnation: identity.session_incarnation,
    });
    let append = || async {
        let writes = vec![same_session.clone(), Write::Event(draft.clone())];
        match services
            .journal
            .append_and_wait(Append {
                fence: None,
                writes,
            })
            .await
        {
            // The session was deleted meanwhile: there is nothing to name.
            Err(StoreError::SessionDeleting(_) | StoreError::NotFound(_)) | Ok(_) => Ok(()),
            Err(error) => Err(ErrorInfo::from(&error)),
        }
    };
    // It fails only if the runtime closes.
    let _ = services
        .lifetime
        .keep_trying("recording a name", append)
        .await;
}
