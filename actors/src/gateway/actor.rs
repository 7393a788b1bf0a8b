//! The gateway actor: holds the queue, and admits the next call as soon as the limits allow it.
//!
//! It never waits for a model, since a call runs in its caller's task. It holds only the queue: if
//! it crashes, the waiting calls queue again with the next actor under their old tickets.
//!
//! Elsewhere: the state that outlives the actor (`shared.rs`).

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use soong_protocol::SessionId;
use tokio::task::JoinHandle;

use super::{
    ledger::Blocked,
    queue::CallQueue,
    shared::{AcquireRequest, GatewayMsg, GatewayShared},
};
use crate::actor_tree::ActorStatus;

/// Maximum time between two checks while calls wait for a point in time, so that the tree shows the
/// remaining time.
const MAX_TICK_INTERVAL: Duration = Duration::from_secs(1);

/// The gateway actor.
pub(crate) struct GatewayActor {
    pub(super) shared: Arc<GatewayShared>,
    pub(super) status: Arc<ActorStatus>,
}

/// State of the gateway actor.
pub(crate) struct GatewayState {
    queue: CallQueue<SessionId, AcquireRequest>,
    wake_timer: Option<WakeTimer>,
}

/// A timer that is aborted when dropped.
struct WakeTimer {
    at: Duration,
    timer: JoinHandle<()>,
}

impl Drop for WakeTimer {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl GatewayActor {
    fn serve(&self, myself: &ActorRef<GatewayMsg>, state: &mut GatewayState) {
        let blocked = loop {
            let Some(tokens) = state.queue.head().map(|request| request.tokens) else {
                break None;
            };
            // Calls begin one after the other: the response to one may block the next, and
            // admitting many calls that are then sent back would disturb the order of turns.
            if self.shared.ledger().has_pending_start() {
                break None;
            }
            match self.shared.admit(tokens) {
                // If the caller is gone, the permit is dropped, which returns it.
                Ok(permit) => drop(state.queue.pop().map(|request| request.reply.send(permit))),
                Err(blocked) => break Some(blocked),
            }
        };
        let out = {
            let mut ledger = self.shared.ledger();
            ledger.set_blocked(blocked);
            ledger.permit_count()
        };
        self.shared.set_waiting(state.queue.len());
        let now = self.shared.now();
        self.status
            .set_state("running", activity(out, state.queue.len(), blocked, now));
        match blocked.and_then(|blocked| blocked.until) {
            Some(until) => self.wake_at(myself, state, until.min(now + MAX_TICK_INTERVAL), now),
            None => state.wake_timer = None,
        }
    }

    fn wake_at(
        &self,
        myself: &ActorRef<GatewayMsg>,
        state: &mut GatewayState,
        at: Duration,
        now: Duration,
    ) {
        if state
            .wake_timer
            .as_ref()
            .is_some_and(|alarm| alarm.at <= at)
        {
            return;
        }
        let myself = myself.clone();
        let wait = at.saturating_sub(now);
        let timer = tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = myself.cast(GatewayMsg::Tick); // the actor may be gone
        });
        state.wake_timer = Some(WakeTimer { at, timer });
    }
}

/// Describes the calls in flight, the waiting calls, the reason, and the remaining time.
fn activity(out: usize, waiting: usize, blocked: Option<Blocked>, now: Duration) -> String {
    match (out, waiting, blocked) {
        (0, 0, _) => String::new(),
        (_, 0, _) => format!("{out} in flight"),
        (_, _, None) => format!("{out} in flight, {waiting} waiting"),
        (_, _, Some(blocked)) => format!(
            "{out} in flight, {waiting} waiting ({})",
            format_reason(blocked, now)
        ),
    }
}

/// Formats a reason for waiting: `concurrency`, `requests_per_minute, 23 s`.
pub(super) fn format_reason(blocked: Blocked, now: Duration) -> String {
    let reason = blocked.reason.as_str();
    match blocked
        .until
        .map(|until| until.saturating_sub(now).as_millis().div_ceil(1000))
    {
        Some(seconds @ 1..) => format!("{reason}, {seconds} s"),
        _ => reason.to_owned(),
    }
}

impl Actor for GatewayActor {
    type Msg = GatewayMsg;
    type State = GatewayState;
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ActorRef<GatewayMsg>,
        (): (),
    ) -> Result<GatewayState, ActorProcessingErr> {
        self.status.set_state("running", "");
        let most_out = self.shared.ledger().max_permits();
        Ok(GatewayState {
            queue: CallQueue::new(most_out),
            wake_timer: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<GatewayMsg>,
        message: GatewayMsg,
        state: &mut GatewayState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            GatewayMsg::Tick => state.wake_timer = None,
            _ => self.status.message_handled(),
        }
        match message {
            GatewayMsg::Acquire(request) => {
                let session = request.session.clone();
                let ticket = request.ticket;
                let is_requeued = request.is_requeued;
                state.queue.push(session, ticket, request, is_requeued);
            }
            GatewayMsg::Cancel { session, ticket } => state.queue.remove(&session, ticket),
            GatewayMsg::Begun | GatewayMsg::Returned | GatewayMsg::Tick => {}
            GatewayMsg::Crash => return Err("crashed on request".into()),
        }
        self.serve(&myself, state);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::ledger::WaitReason, *};

    #[test]
    fn activity_shows_calls_in_flight_and_wait_reason() {
        let blocked = |reason, until: Option<u64>| {
            Some(Blocked {
                reason,
                until: until.map(Duration::from_millis),
            })
        };
        for (out, waiting, blocked, want) in [
            (0, 0, None, ""),
            (3, 0, None, "3 in flight"),
            (0, 2, None, "0 in flight, 2 waiting"),
            (
                5,
                9,
                blocked(WaitReason::Concurrency, None),
                "5 in flight, 9 waiting (concurrency)",
            ),
            (
                12,
                488,
                blocked(WaitReason::RequestsPerMinute, Some(32_500)),
                "12 in flight, 488 waiting (requests_per_minute, 23 s)",
            ),
            (
                0,
                1,
                blocked(WaitReason::RetryAfter, Some(9_000)),
                "0 in flight, 1 waiting (retry_after)",
            ),
        ] {
            assert_eq!(
                activity(out, waiting, blocked, Duration::from_secs(10)),
                want
            );
        }
    }
}
