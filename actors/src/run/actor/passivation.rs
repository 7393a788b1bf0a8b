//! Passivation: the actor of a run that has waited for long stops, and the next message starts another one (ACT-7).
//!
//! A run that waits only for children or people has no state that is not stored. Its actor makes the address buffer new
//! messages, handles those sent before, and stops. The supervisor keeps the run, and starts the next actor when a message
//! arrives. To all others the run looks the same. Elsewhere: the address (`registry/address.rs`), the supervisor's side
//! (`supervision/spawner.rs`).

use std::{sync::Arc, time::Duration};

use ractor::ActorRef;

use crate::{
    actor_base::Lifetime,
    run::{
        actor::{RunActor, RunActorState},
        machine::state::RunState,
        message::RunMsg,
        registry::{RunRegistry, entry::RunEntry},
    },
};

/// How often runs are looked at, at the shortest and at the longest.
const EVERY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(30));

/// Asks the actors of runs that have waited for `runtime.idle_session_s` to leave, until the runtime closes.
pub(crate) async fn watch(runs: Arc<RunRegistry>, lifetime: Lifetime, idle_after: Duration) {
    let every = (idle_after / 4).clamp(EVERY.0, EVERY.1);
    let idle_after_ms = u64::try_from(idle_after.as_millis()).unwrap_or(u64::MAX);
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = lifetime.closing().cancelled() => return,
        }
        for run in runs.select(|run| has_waited(run, idle_after_ms)) {
            run.door.ask_to_leave();
        }
    }
}

fn has_waited(run: &RunEntry, idle_after_ms: u64) -> bool {
    run.published().phase.is_waiting() && run.clock.quiet_ms() >= idle_after_ms
}

impl RunActor {
    /// Begins to leave, if all that the run knows is stored: what was sent before is handled first.
    pub(in crate::run) fn begin_to_leave(&self, myself: &ActorRef<RunMsg>, state: &mut RunActorState) {
        if !state.leaving && self.may_leave(state) {
            state.leaving = true;
            state.departures += 1;
            self.live.door.let_wait(state.waits_for_people.take());
            self.mailbox(myself).cast(RunMsg::Leave(state.departures));
        }
    }

    /// Leaves, unless something came that was sent before the door was closed.
    pub(in crate::run) fn leave(&self, myself: &ActorRef<RunMsg>, departure: u32, state: &mut RunActorState) {
        if state.leaving && departure == state.departures {
            tracing::debug!(run = %self.live.run_id, "the actor of a run that waits leaves");
            self.live.gauge.show_run(|view| view.passive = true);
            myself.stop(None);
        }
    }

    /// Stays after all, and takes in what has come meanwhile.
    pub(in crate::run) fn stay(&self, myself: &ActorRef<RunMsg>, state: &mut RunActorState) {
        state.leaving = false;
        self.open_door(myself, state);
    }

    pub(in crate::run) fn open_door(&self, myself: &ActorRef<RunMsg>, state: &mut RunActorState) {
        state.waits_for_people = self.live.door.open(self.mailbox(myself));
        self.live.gauge.show_run(|view| view.passive = false);
    }

    fn may_leave(&self, state: &RunActorState) -> bool {
        let waits = |run: &RunState| run.only_waits_for_others() && !run.is_ending() && !run.is_ended();
        state.run.as_ref().is_some_and(waits)
            && state.is_at_rest()
            // One that gave no slot back would take one away for good.
            && state.yielded == self.live.parent_run_id.is_some()
            && !self.live.token.is_cancelled()
    }
}
