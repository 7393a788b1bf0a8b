//! The appends of a run actor: submitting them, and handling their results.
//!
//! An append that fails for a transient reason is retried until it is durable or the runtime
//! closes. The append that opens a run is not retried: its caller gets the error, or the actor
//! reads what is stored.

use std::time::Duration;

use ractor::{ActorProcessingErr, ActorRef};
use soong_protocol::ErrorInfo;
use soong_storage::{
    fault::FaultPoint,
    store::{Ack, Append, StoreError},
    writer::AppendCallback,
};

use super::{RunActor, RunActorState, state::FailedAppend};
use crate::run::{machine::RunState, message::RunMsg};

/// Delay before a refused append is retried: initial and maximum. It doubles with each retry.
const STORAGE_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl RunActor {
    pub(super) fn submit(&self, myself: &ActorRef<RunMsg>, append: Append) {
        let mailbox = self.mailbox(myself);
        let done: AppendCallback = Box::new(move |outcome| {
            mailbox.send(RunMsg::Appended(Box::new(outcome)));
        });
        self.services.core.journal.append(append, done);
    }

    pub(super) fn appended(
        &self,
        myself: &ActorRef<RunMsg>,
        outcome: Result<Ack, (StoreError, Append)>,
        state: &mut RunActorState,
    ) -> Result<(), ActorProcessingErr> {
        let ack = match outcome {
            Ok(ack) => {
                state.appends.failed = None;
                ack
            }
            Err((error, append)) => return self.append_failed(myself, error, append, state),
        };
        if let Some(epoch) = ack.epoch {
            state.appends.epoch = epoch;
        }
        if let Some(last) = ack.events.iter().rev().find(|event| event.run_seq > 0) {
            self.entry
                .status
                .update_run(|view| view.events = last.run_seq);
        }
        if let Some(first) = ack.events.first() {
            self.entry.set_first_event(first.event_id);
        }
        if let Some(accepted) = state.accepted.take() {
            let _ = accepted.send(Ok(()));
        }
        state.reservations.settle_appended();
        // At this point, everything applied to the state is durable.
        if state
            .run
            .as_ref()
            .is_some_and(RunState::is_cancel_requested)
        {
            self.entry.set_cancel_recorded();
        }
        state.has_started = true;
        self.entry.set_interrupted(false);
        if std::mem::take(&mut state.has_added_children) {
            self.restore_added_children();
        }
        if self.entry.claim_journal() {
            self.services
                .task_journals
                .start(&self.entry.identity.run_id);
        }
        let effects = state.appends.in_flight.take().unwrap_or_default();
        self.services
            .faults
            .at_run_point(&self.entry.identity.run_id, FaultPoint::AfterAppend);
        self.perform(myself, effects, state);
        if state.run.as_ref().is_some_and(RunState::is_ended) {
            self.notify_end(myself, state);
        }
        Ok(())
    }

    /// Handles an append that did not become durable.
    fn append_failed(
        &self,
        myself: &ActorRef<RunMsg>,
        error: StoreError,
        append: Append,
        state: &mut RunActorState,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(accepted) = state.accepted.take() {
            // The caller gets the error. If the run was recorded anyway, it is ended.
            let error = ErrorInfo::from(&error);
            let _ = accepted.send(Err(error.clone()));
            self.finalize_and_stop(myself, error);
            return Ok(());
        }
        match error {
            StoreError::StaleIncarnation(_) | StoreError::Closed => {
                // A newer incarnation is running, or the runtime is closing: nothing more to do
                // here.
                myself.stop(None);
                Ok(())
            }
            error if error.is_transient() => {
                let failed = state.appends.failed.take();
                let wait = failed.as_ref().map_or(STORAGE_BACKOFF.0, |failed| {
                    (failed.delay * 2).min(STORAGE_BACKOFF.1)
                });
                // The writer logs this once for all runs; here it concerns one run only.
                tracing::debug!(run = %self.entry.identity.run_id, %error, ?wait, "append failed; retrying");
                self.entry.status.set_state("waiting", "storage");
                if append.fence.is_some() {
                    let waiting = self.services.core.journal.storage_waits().begin(&error);
                    state.appends.failed = Some(FailedAppend {
                        append,
                        delay: wait,
                        _wait: waiting,
                    });
                    myself.send_after(wait, || RunMsg::RetryAppend);
                } else {
                    // It is unclear whether the run was opened: read what is stored (DUR-6).
                    state.run = None;
                    state.appends.in_flight = None;
                    state.tasks.load(myself.clone(), Default::default(), wait);
                }
                Ok(())
            }
            // The conversation, or a document to be rewound with it, has changed since it was read.
            StoreError::HeadMoved(_) | StoreError::AlreadyExists(_) if !state.has_started => {
                state.run = None;
                state.appends.in_flight = None;
                state.appends.number = 0;
                state
                    .tasks
                    .load(myself.clone(), Default::default(), STORAGE_BACKOFF.0);
                Ok(())
            }
            error => Err(format!("could not append to the journal: {error}").into()),
        }
    }

    pub(super) fn retry_append(&self, myself: &ActorRef<RunMsg>, state: &mut RunActorState) {
        if let Some(failed) = &state.appends.failed {
            let append = failed.append.clone();
            self.submit(myself, append);
        }
    }
}
