//! Adds children to a run that has not started: they are recorded at once, and start with the run
//! (RT-4).
//!
//! A queued run has no actor, so its state is read, changed by the same state machine, and written
//! here. Nothing is sent to the sub-agent supervisor. When the actor of the run has recorded its
//! start, it restores the children that it finds in the store (`actor.rs`).
//!
//! Elsewhere: which children a run accepts (`machine/sub_agents/spawn.rs`), ending a queued run
//! with its children (`finalize.rs`).

use soong_protocol::{ErrorCode, ErrorInfo, Run, RunWrite, Write};
use soong_storage::store::{Append, Fence, StoreError};

use crate::run::{
    machine::{
        effect::{ChildEffect, Effect, RequestedChild},
        errors::run_has_ended,
        input::{ChildInput, RunInput, SpawnRequest},
    },
    registry::entry::RunEntry,
    step::run_step,
    tasks::finalize::Finalizer,
};

/// Maximum number of attempts. An attempt fails if another run of the trace has just used the id
/// that was chosen for a new sub-trace.
const MAX_ATTEMPTS: usize = 10;

impl Finalizer {
    /// Records children of a run that has not started, all or none. Returns `None` if its actor was
    /// started: then the actor accepts children.
    ///
    /// # Errors
    /// Those of the request; `storage_error`; `nothing_running` if the run is being ended.
    pub(crate) async fn add_children_of_queued(
        &self,
        parent: &RunEntry,
        request: &SpawnRequest,
    ) -> Result<Option<Vec<Run>>, ErrorInfo> {
        let mut opening = parent.opening.lock().await;
        if parent.is_ending() || parent.control.token.is_cancelled() {
            return Err(run_has_ended());
        }
        if opening.is_opened {
            return Ok(None);
        }
        // Also if no answer arrives, an append may be durable.
        opening.has_children = true;
        for _ in 0..MAX_ATTEMPTS {
            match self.record_children(parent, request.clone()).await {
                Err(StoreOrRequestError::Store(StoreError::AlreadyExists(_))) => {}
                Err(StoreOrRequestError::Store(error)) => return Err(ErrorInfo::from(&error)),
                Err(StoreOrRequestError::Request(error)) => return Err(error),
                Ok(children) => {
                    for run in &children {
                        self.core.runs.register(run);
                    }
                    return Ok(Some(children));
                }
            }
        }
        let message = "the children could not be recorded, because other runs of the session add children: try again";
        Err(ErrorInfo::retryable(ErrorCode::Overloaded, message))
    }

    async fn record_children(
        &self,
        parent: &RunEntry,
        request: SpawnRequest,
    ) -> Result<Vec<Run>, StoreOrRequestError> {
        let identity = &parent.identity;
        let open = Append {
            fence: None,
            writes: vec![Write::Run(RunWrite::NewEpoch(identity.run_id.clone()))],
        };
        let ack = self
            .core
            .journal
            .append_and_wait(open)
            .await
            .map_err(StoreOrRequestError::Store)?;
        let mut state = self
            .read_queued(parent)
            .await
            .map_err(StoreOrRequestError::Request)?;
        let consumed_before = state.consumed();
        let input = RunInput::Child(ChildInput::Spawn { request, ticket: 0 });
        let step = run_step(&mut state, input, Some(parent));
        let children = accepted_children(step.effects).map_err(StoreOrRequestError::Request)?;
        let epoch = ack.epoch.unwrap_or_default();
        let fence = Fence {
            run_id: identity.run_id.clone(),
            epoch,
            number: 1,
            active_ms: None,
        };
        let appended = self
            .core
            .journal
            .append_and_wait(Append {
                fence: Some(fence),
                writes: step.writes,
            })
            .await;
        if let Err(error) = appended {
            // The children that were counted do not exist.
            if let Some(account) = &parent.control.budget {
                account.report(consumed_before);
            }
            return Err(StoreOrRequestError::Store(error));
        }
        Ok(children)
    }
}

/// Error of the store, or of the request.
enum StoreOrRequestError {
    Store(StoreError),
    Request(ErrorInfo),
}

/// Returns the children of the answer to the request.
fn accepted_children(effects: Vec<Effect>) -> Result<Vec<Run>, ErrorInfo> {
    for effect in effects {
        if let Effect::Child(ChildEffect::AnswerSpawn { answer, .. }) = effect {
            let children = answer?.into_iter().filter_map(|child| match child {
                RequestedChild::New(run) => Some(*run),
                // Only tool calls are repeated, and a queued run has none.
                RequestedChild::Earlier { .. } => None,
            });
            return Ok(children.collect());
        }
    }
    Err(run_has_ended())
}
