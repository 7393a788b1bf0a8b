//! The gateway of a model profile: shared by all runs, it bounds and repeats calls (MOD-3).
//!
//! The actor lets calls in, fair between sessions (`actor.rs`, `line.rs`), as far as the books allow:
//! calls at the same time, requests and tokens per minute, pauses that the service asked for, a provider
//! that is down (`ledger.rs`, `pause.rs`, `../limiter.rs`, `../breaker.rs`). A call itself runs in its
//! caller's task (`call.rs`), so the actor never waits for a model. The books lie beside the actor
//! (`books.rs`): a restarted one finds what is out, and what was used of the rate.
//! All time is tokio's. Not here: how one attempt is made (the providers), how long to wait (`retry.rs`).

mod actor;
mod books;
mod call;
mod ledger;
mod line;
mod pause;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use soong_protocol::{ErrorCode, ErrorInfo, ModelConfig, ModelEvent, SessionId};

pub(crate) use self::{actor::GatewayActor, books::GatewayMsg};
use self::{
    books::{Books, Shown},
    call::Call,
};
use super::{Completion, DeltaSink, Model, ModelRequest};
use crate::{
    actor_base::Mailbox,
    meter::{GatewayMetrics, count},
    observatory::Gauge,
};

/// The door to a gateway; names a profile, not an incarnation. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) profile: Arc<str>,
    model: Arc<dyn Model>,
    books: Arc<Books>,
}

/// How a call ended, and how long it did nothing but wait.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) outcome: Result<Completion, ErrorInfo>,
    /// In the line, for limits, pauses and a provider that is down, and between tries; in milliseconds.
    pub(crate) waited_ms: u64,
}

/// Takes what a call has to say before it ends.
pub(crate) trait CallSink: DeltaSink {
    /// The call waits, or will be tried again.
    fn note(&mut self, event: ModelEvent);
    /// What the call waits for at the moment; `None` = it goes on. Time in between is the gateway's.
    /// A further reason replaces the one before; `None` may come without any.
    fn waits(&mut self, reason: Option<String>);
    /// A request is on its way to the provider.
    fn sends(&mut self);
    /// What streamed so far is void: the call starts over.
    fn start_over(&mut self);
}

impl Gateway {
    /// Makes the gateway of a profile; its actor is started by whoever supervises it.
    pub(crate) fn new(profile: &str, model: Arc<dyn Model>, config: &ModelConfig) -> Self {
        Self { profile: profile.into(), model, books: Arc::new(Books::new(config)) }
    }

    /// Makes an actor for the gateway, to be seated once it is started.
    pub(crate) fn actor(&self, gauge: Arc<Gauge>) -> GatewayActor {
        gauge.set_face(Shown(Arc::clone(&self.books)));
        GatewayActor { books: Arc::clone(&self.books), gauge }
    }

    /// Returns whether the gateway's actor has been started.
    pub(crate) fn is_seated(&self) -> bool {
        self.books.seated().is_some()
    }

    /// Puts the gateway's actor in place.
    pub(crate) fn sit(&self, actor: Mailbox<GatewayMsg>) {
        self.books.sit(actor);
    }

    /// Gives the gateway up: calls that wait, and those that come, end with this error.
    pub(crate) fn give_up(&self, failure: ErrorInfo) {
        self.books.give_up(failure);
    }

    /// Returns why the gateway was given up, if it was.
    pub(crate) fn failure(&self) -> Option<ErrorInfo> {
        self.books.failure()
    }

    /// Returns how many calls are on their way, and how many wait.
    pub(crate) fn metrics(&self) -> GatewayMetrics {
        GatewayMetrics { in_flight: count(self.books.ledger().out()), waiting: self.books.waiting() }
    }

    /// Makes the gateway's actor crash; permits that are out stay out.
    pub(crate) fn crash(&self) -> bool {
        self.books.cast(GatewayMsg::Crash)
    }

    /// Completes a request within the profile's limits, trying again where that may help.
    ///
    /// `estimated_tokens` is what the request may use: its prompt, and the longest answer. What it really
    /// used takes its place when it is known. Cancelled by dropping the future; what it held comes back.
    pub(crate) async fn complete(
        &self,
        session: &SessionId,
        request: &ModelRequest,
        estimated_tokens: u64,
        sink: &mut dyn CallSink,
    ) -> Called {
        if !request.tools.is_empty() && !self.model.supports_tools() {
            let message = format!("model {} takes no tools: use another profile", self.model.name());
            let outcome = Err(ErrorInfo::new(ErrorCode::UnsupportedCapability, message));
            return Called { outcome, waited_ms: 0 };
        }
        Call::new(&self.books, session, estimated_tokens, sink).complete(&*self.model, request).await
    }
}
