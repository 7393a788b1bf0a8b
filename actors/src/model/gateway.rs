//! The gateway of a model profile: shared by all runs, it bounds and repeats calls (MOD-3).
//!
//! The actor hands out permits, fair between sessions; a call itself runs in its caller's task, so
//! the actor never waits for a model. A permit is a guard: it comes back when dropped, whatever
//! happens. Permits outlive the actor: a restarted one counts those that are still out.
//! Not here: how one attempt is made (the providers), how long to wait (`retry.rs`).

use std::{
    collections::HashSet,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire},
    },
    time::Instant,
};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use soong_protocol::{Delta, ErrorCode, ErrorInfo, ModelEvent, RetryConfig, SessionId};
use tokio::sync::oneshot;

use super::{Completion, DeltaSink, Failure, Model, ModelError, ModelRequest, retry};
use crate::{fair_queue::FairQueue, mailbox::Mailbox, observatory::Gauge};

/// A place among the calls that are made at the same time.
pub(crate) struct Permit {
    out: Arc<AtomicUsize>,
    seat: Seat,
}

/// Where the gateway's current actor is found.
pub(crate) type Seat = Arc<RwLock<Option<Mailbox<GatewayMsg>>>>;

fn seated(seat: &Seat) -> Option<Mailbox<GatewayMsg>> {
    seat.read().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.out.fetch_sub(1, AcqRel);
        // Whoever sits there now: an actor that takes over later counts what is out by itself.
        if let Some(gateway) = seated(&self.seat) {
            gateway.cast(GatewayMsg::Returned);
        }
    }
}

/// Mailbox of the gateway actor.
pub(crate) enum GatewayMsg {
    /// From a call: wants a permit.
    Acquire { session: SessionId, reply: oneshot::Sender<Permit> },
    /// From a permit: it is free again.
    Returned,
    /// For drills: die here.
    Crash,
}

/// Calls that wait for a permit.
type Waiting = FairQueue<SessionId, oneshot::Sender<Permit>>;

/// The gateway actor.
pub(crate) struct GatewayActor {
    pub(crate) max_concurrency: usize,
    pub(crate) out: Arc<AtomicUsize>,
    pub(crate) seat: Seat,
    pub(crate) gauge: Arc<Gauge>,
}

impl GatewayActor {
    fn serve(&self, waiting: &mut Waiting) {
        while self.out.load(Acquire) < self.max_concurrency {
            let Some(reply) = waiting.pop() else { break };
            self.out.fetch_add(1, AcqRel);
            // A caller that has left drops the permit, which brings it back.
            let _ = reply.send(Permit { out: Arc::clone(&self.out), seat: Arc::clone(&self.seat) });
        }
        let activity = match (self.out.load(Acquire), waiting.len()) {
            (0, 0) => String::new(),
            (out, 0) => format!("{out} in flight"),
            (out, waiting) => format!("{out} in flight, {waiting} waiting"),
        };
        self.gauge.show("running", activity);
    }
}

impl Actor for GatewayActor {
    type Msg = GatewayMsg;
    type State = Waiting;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<GatewayMsg>, (): ()) -> Result<Self::State, ActorProcessingErr> {
        self.gauge.show("running", "");
        Ok(FairQueue::default())
    }

    async fn handle(
        &self,
        _: ActorRef<GatewayMsg>,
        message: GatewayMsg,
        waiting: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        self.gauge.took();
        match message {
            GatewayMsg::Acquire { session, reply } => waiting.push(session, reply),
            GatewayMsg::Returned => {}
            GatewayMsg::Crash => return Err("crashed on request".into()),
        }
        self.serve(waiting);
        Ok(())
    }
}

/// The door to a gateway; names a profile, not an incarnation. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) profile: Arc<str>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) retry: RetryConfig,
    pub(crate) seat: Seat,
}

/// Takes what a call has to say before it ends.
pub(crate) trait CallSink: DeltaSink {
    /// The call waits, or will be tried again.
    fn note(&mut self, event: ModelEvent);
    /// What the call waits for at the moment; `None` = it goes on.
    fn waits(&mut self, reason: Option<String>);
    /// A request is on its way to the provider.
    fn sends(&mut self);
    /// What streamed so far is void: the call starts over.
    fn start_over(&mut self);
}

impl Gateway {
    /// Returns whether the gateway's actor has been started.
    pub(crate) fn is_seated(&self) -> bool {
        seated(&self.seat).is_some()
    }

    /// Puts the gateway's actor in place.
    pub(crate) fn sit(&self, actor: Mailbox<GatewayMsg>) {
        *self.seat.write().unwrap_or_else(PoisonError::into_inner) = Some(actor);
    }

    /// Makes the gateway's actor crash; permits that are out stay out.
    pub(crate) fn crash(&self) -> bool {
        seated(&self.seat).is_some_and(|gateway| gateway.cast(GatewayMsg::Crash))
    }

    /// Completes a request within the profile's limits, trying again where that may help.
    ///
    /// Cancelled by dropping the future.
    pub(crate) async fn complete(
        &self,
        session: &SessionId,
        request: &ModelRequest,
        sink: &mut dyn CallSink,
    ) -> Result<Completion, ErrorInfo> {
        if !request.tools.is_empty() && !self.model.supports_tools() {
            let message = format!("model {} takes no tools: use another profile", self.model.name());
            return Err(ErrorInfo::new(ErrorCode::UnsupportedCapability, message));
        }
        let mut attempt = 1;
        loop {
            let permit = self.permit(session, sink).await?;
            sink.sends();
            let outcome = self.attempt(request, sink).await;
            drop(permit);
            let error = match outcome {
                Ok(completion) => return Ok(completion),
                Err(error) => error,
            };
            let Some(wait) = retry::wait_before_retry(&self.retry, attempt, &error, jitter()) else {
                return Err(ErrorInfo::from(&error));
            };
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let error = ErrorInfo::from(&error);
            sink.note(ModelEvent::Retrying { attempt, error, wait_ms, usage: None, cost: None });
            sink.waits(Some(format!("waits {:.1} s, then try {}", wait.as_secs_f64(), attempt + 1)));
            tokio::time::sleep(wait).await;
            sink.waits(None);
            sink.start_over();
            attempt += 1;
        }
    }

    async fn attempt(&self, request: &ModelRequest, sink: &mut dyn CallSink) -> Result<Completion, ModelError> {
        struct Deltas<'a>(&'a mut dyn CallSink);
        impl DeltaSink for Deltas<'_> {
            fn push(&mut self, delta: Delta) {
                self.0.push(delta);
            }
        }
        let mut completion = self.model.complete(request, &mut Deltas(sink)).await?;
        if completion.text.is_empty() && completion.tool_calls.is_empty() && completion.finish_reason != "length" {
            return Err(ModelError::new(Failure::Broken, "the model answered with neither text nor tool calls"));
        }
        make_ids_unique(&mut completion);
        Ok(completion)
    }

    /// Waits for a permit; a gateway that crashes meanwhile is asked again.
    async fn permit(&self, session: &SessionId, sink: &mut dyn CallSink) -> Result<Permit, ErrorInfo> {
        let start = Instant::now();
        let mut gone_since = None;
        let mut told = false;
        loop {
            let (reply, mut answer) = oneshot::channel();
            let asked = seated(&self.seat)
                .is_some_and(|gateway| gateway.cast(GatewayMsg::Acquire { session: session.clone(), reply }));
            if !asked {
                if gone_since.get_or_insert_with(Instant::now).elapsed().as_secs() > 30 {
                    return Err(ErrorInfo::retryable(ErrorCode::Overloaded, "the model gateway does not come back"));
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                continue;
            }
            // A free permit comes within a moment; whoever waits longer is shown as waiting.
            tokio::select! {
                biased;
                permit = &mut answer => {
                    if let Ok(permit) = permit {
                        return Ok(permit);
                    }
                    continue;
                }
                () = tokio::time::sleep(std::time::Duration::from_millis(200)), if !told => {}
            }
            told = true;
            let waited = |start: Instant| u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
            sink.note(ModelEvent::Waiting { reason: "concurrency".to_owned(), for_ms: waited(start) });
            sink.waits(Some("waits for a free model call".to_owned()));
            let granted = answer.await;
            sink.waits(None);
            if let Ok(permit) = granted {
                return Ok(permit);
            }
        }
    }
}

/// Gives calls with an empty id, or one that an earlier call of the answer has, an id of their own:
/// answers refer to calls by it.
fn make_ids_unique(completion: &mut Completion) {
    let mut seen = HashSet::new();
    for place in 0..completion.tool_calls.len() {
        let mut id = completion.tool_calls[place].id.clone();
        let mut suffix = place;
        while id.is_empty() || !seen.insert(id.clone()) {
            suffix += 1;
            id = format!("call_{suffix}");
        }
        completion.tool_calls[place].id = id;
    }
}

/// A number in 0..1 that differs from call to call; spreads retries, no more.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0_u8);
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use soong_protocol::ToolCall;

    use super::*;

    #[test]
    fn calls_of_an_answer_get_ids_of_their_own() {
        for (ids, want) in [
            (vec!["a", "b"], vec!["a", "b"]),
            (vec!["a", "a", "a"], vec!["a", "call_2", "call_3"]),
            (vec!["", "call_1", ""], vec!["call_1", "call_2", "call_3"]),
        ] {
            let call = |id: &&str| ToolCall { id: (*id).to_owned(), name: "x".into(), arguments: "{}".into() };
            let mut completion = Completion { tool_calls: ids.iter().map(call).collect(), ..Completion::default() };
            make_ids_unique(&mut completion);
            let got: Vec<&str> = completion.tool_calls.iter().map(|call| call.id.as_str()).collect();
            assert_eq!(got, want, "{ids:?}");
        }
    }
}
