//! Passivation: the actor of a run that has waited for a long time stops, and the next message
//! starts a new one (ACT-7).
//!
//! The state of a run that waits only for children or users is stored completely. Its actor makes
//! the address buffer new messages, handles the messages sent before, and stops. The supervisor
//! keeps the run, and starts the next actor when a message arrives. To all others the run looks the
//! same. Elsewhere: the address (`registry/address.rs`), the supervisor's side
//! (`supervision/spawner.rs`).

use std::{sync::Arc, time::Duration};

use ractor::ActorRef;

use crate::{
    actor_base::Lifetime,
    run::{
        actor::{RunActor, RunActorState},
        machine::RunState,
        message::RunMsg,
        registry::{RunRegistry, entry::RunEntry},
    },
};

/// Minimum and maximum interval between two checks for waiting runs.
const CHECK_INTERVAL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(30));

/// Asks the actors of runs that have waited for `runtime.idle_session_s` to passivate, until the
/// runtime closes.
pub(crate) async fn watch(runs: Arc<RunRegistry>, lifetime: Lifetime, idle_after: Duration) {
    let every = (idle_after / 4).clamp(CHECK_INTERVAL.0, CHECK_INTERVAL.1);
    let idle_after_ms = u64::try_from(idle_after.as_millis()).unwrap_or(u64::MAX);
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = lifetime.closing().cancelled() => return,
        }
        for run in runs.select(|run| has_waited(run, idle_after_ms)) {
            run.address.request_passivation();
        }
    }
}

fn has_waited(entry: &RunEntry, idle_after_ms: u64) -> bool {
    entry.published().phase.is_waiting() && entry.control.clock.quiet_ms() >= idle_after_ms
}

impl RunActor {
    /// Starts to passivate the actor if the complete state of the run is stored. Messages sent
    /// before are handled first.
    pub(in crate::run) fn begin_passivation(
        &self,
        myself: &ActorRef<RunMsg>,
        state: &mut RunActorState,
    ) {
        if !state.passivation.is_in_progress && self.can_passivate(state) {
            state.passivation.is_in_progress = true;
            state.passivation.attempt += 1;
            self.entry.address.start_buffering(state.user_wait.take());
            self.mailbox(myself)
                .send(RunMsg::FinishPassivation(state.passivation.attempt));
        }
    }

    /// Stops the actor, unless the passivation was aborted because an earlier message arrived.
    pub(in crate::run) fn finish_passivation(
        &self,
        myself: &ActorRef<RunMsg>,
        attempt: u32,
        state: &mut RunActorState,
    ) {
        if state.passivation.is_in_progress && attempt == state.passivation.attempt {
            tracing::debug!(run = %self.entry.identity.run_id, "passivating the actor of a waiting run");
            self.entry.status.update_run(|view| view.passive = true);
            myself.stop(None);
        }
    }

    /// Aborts the passivation, and receives the messages that were buffered meanwhile.
    pub(in crate::run) fn abort_passivation(
        &self,
        myself: &ActorRef<RunMsg>,
        state: &mut RunActorState,
    ) {
        state.passivation.is_in_progress = false;
        self.connect_address(myself, state);
    }

    pub(in crate::run) fn connect_address(
        &self,
        myself: &ActorRef<RunMsg>,
        state: &mut RunActorState,
    ) {
        state.user_wait = self.entry.address.open(self.mailbox(myself));
        self.entry.status.update_run(|view| view.passive = false);
    }

    fn can_passivate(&self, state: &RunActorState) -> bool {
        let waits =
            |run: &RunState| run.only_waits_for_others() && !run.is_ending() && !run.is_ended();
        state.run.as_ref().is_some_and(waits)
            && state.is_idle()
            // A child that has not returned its slot would keep it forever.
            && state.slot.is_returned == self.entry.identity.parent.is_some()
            && !self.entry.control.token.is_cancelled()
    }
}
