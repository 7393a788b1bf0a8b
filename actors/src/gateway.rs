//! Gateway of a model profile: limits and retries the model calls of all runs (MOD-3).
//!
//! The actor admits calls fairly between sessions (`actor.rs`, `queue.rs`), within these limits:
//! concurrent calls, requests and tokens per minute, pauses that the service requested, and a
//! provider that is down (`ledger.rs`, `pause.rs`, `actors/model/src/limiter.rs`,
//! `actors/model/src/breaker.rs`). A call itself runs in its caller's task (`call.rs`), so the
//! actor never waits for a model. The state is kept outside the actor (`shared.rs`): a restarted
//! actor finds the outstanding permits and the rate that was used.
//!
//! Runs with the same beginning of the prompt share the caches of the service (`prefix_cache.rs`).
//!
//! All times are those of tokio's clock. Elsewhere: how one attempt is made (the providers), how
//! long to wait (`actors/model/src/retry.rs`).

mod actor;
mod call;
mod cool_downs;
mod ledger;
mod pause;
mod prefix_cache;
mod queue;
mod shared;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use soong_model::{Completion, DeltaSink, Model, ModelRequest, ReasoningSupport};
use soong_protocol::{
    ErrorCode, ErrorInfo, FallbackReason, InputKind, ModelConfig, ModelEvent, SessionId,
};

pub(crate) use self::{
    actor::GatewayActor,
    call::make_ids_unique,
    cool_downs::CoolDowns,
    prefix_cache::{PrefixCache, WarmUp},
    shared::GatewayMsg,
};
use self::{
    call::Call,
    shared::{GatewayShared, GatewayStatusSource},
};

use crate::{
    actor_base::Mailbox,
    actor_tree::ActorStatus,
    metrics::{GatewayMetrics, count},
};

/// Handle of a gateway. It identifies a profile, not an actor incarnation. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) profile: Arc<str>,
    model: Arc<dyn Model>,
    shared: Arc<GatewayShared>,
}

/// Outcome of a call, and how long the call only waited.
#[derive(Debug)]
pub(crate) struct CallResult {
    pub(crate) outcome: Result<Completion, ErrorInfo>,
    /// Time in the queue (for limits, pauses and a provider that is down) and between attempts, in
    /// milliseconds.
    pub(crate) waited_ms: u64,
}

/// Limits of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits<'a> {
    /// Session of the run, which shares the gateway fairly with other sessions.
    pub(crate) session: &'a SessionId,
    /// Maximum number of tokens that the request may use: its prompt and the longest answer. It is
    /// replaced by the actual usage when that is known.
    pub(crate) estimated_tokens: u64,
    /// Maximum time for which the call waits for the service if it fails for a reason that has a
    /// fallback.
    pub(crate) max_service_wait: Duration,
    /// The reasons that have a fallback. For others, the call waits as long as the retries of the
    /// profile take.
    pub(crate) fallback_reasons: &'a [FallbackReason],
}

/// HTTP statuses of a service that has too many requests: unavailable, and overloaded.
const OVERLOADED: [u64; 2] = [503, 529];

/// Returns the reason for which a fallback is tried after an error. `None`: a fallback would fail
/// too, because the request or the key was rejected.
pub(crate) fn fallback_reason(error: &ErrorInfo) -> Option<FallbackReason> {
    let status = error
        .details
        .get("status")
        .and_then(serde_json::Value::as_u64);
    match error.code {
        ErrorCode::ProviderRateLimited => Some(FallbackReason::RateLimited),
        ErrorCode::ProviderTimeout => Some(FallbackReason::Down),
        ErrorCode::ProviderError if status.is_some_and(|status| OVERLOADED.contains(&status)) => {
            Some(FallbackReason::Overloaded)
        }
        ErrorCode::ProviderError if error.retryable => Some(FallbackReason::Down),
        ErrorCode::PromptTooLong => Some(FallbackReason::ContextTooLong),
        _ => None,
    }
}

/// Receiver of what a call reports before it ends.
pub(crate) trait CallSink: DeltaSink {
    /// The call is waiting, or will be retried.
    fn record(&mut self, event: ModelEvent);
    /// The current reason for waiting; `None`: the call continues. The time in between is spent in
    /// the gateway. Another reason replaces the previous one. `None` may be reported without a
    /// preceding reason.
    fn set_wait_reason(&mut self, reason: Option<String>);
    /// A request is being sent to the provider.
    fn request_sent(&mut self);
    /// Text streamed so far is invalid: the call starts over.
    fn start_over(&mut self);
}

impl Gateway {
    /// Creates the gateway of a profile. Its supervisor starts the actor.
    pub(crate) fn new(profile: &str, model: Arc<dyn Model>, config: &ModelConfig) -> Self {
        Self {
            profile: profile.into(),
            model,
            shared: Arc::new(GatewayShared::new(config)),
        }
    }

    /// Creates an actor of the gateway. After it is started, pass its mailbox to
    /// [`attach`](Self::attach).
    pub(crate) fn actor(&self, status: Arc<ActorStatus>) -> GatewayActor {
        status.set_source(GatewayStatusSource(Arc::clone(&self.shared)));
        GatewayActor {
            shared: Arc::clone(&self.shared),
            status,
        }
    }

    /// Returns whether an actor of the gateway has been started.
    pub(crate) fn is_running(&self) -> bool {
        self.shared.actor().is_some()
    }

    /// Sets the mailbox of the gateway's actor.
    pub(crate) fn attach(&self, actor: Mailbox<GatewayMsg>) {
        self.shared.attach(actor);
    }

    /// Gives up the gateway: waiting calls and all later calls fail with this error.
    pub(crate) fn give_up(&self, failure: ErrorInfo) {
        self.shared.give_up(failure);
    }

    /// Sets the maximum number of concurrent calls. Calls in flight continue.
    pub(crate) fn set_max_concurrency(&self, calls: usize) {
        if self.shared.ledger().set_max_permits(calls) {
            // Calls may be waiting for the additional permits.
            self.shared.cast(GatewayMsg::Returned);
        }
    }

    /// Stops answers that repeat a passage without an end from now on.
    pub(crate) fn stop_endless_text(&self) {
        self.shared.stop_endless_text();
    }

    /// Returns the kinds of content that the model takes.
    pub(crate) fn inputs(&self) -> &[InputKind] {
        self.model.inputs()
    }

    /// Returns what a model accepts about its reasoning.
    pub(crate) fn reasoning(&self, model: &str) -> ReasoningSupport {
        self.model.reasoning(model)
    }

    /// Starts a cool-down: until it ends, calls that have a fallback skip this model.
    pub(crate) fn cool_down(&self, model: &str, reason: FallbackReason, time: Duration) {
        self.shared.cool_downs.start(model.to_owned(), reason, time);
    }

    /// Returns the reason of the model's cool-down, if one is active.
    pub(crate) fn cooling(&self, model: &str) -> Option<FallbackReason> {
        self.shared.cool_downs.reason(&model.to_owned())
    }

    /// Returns the cache of the service for a run whose prompt begins with the text of this hash.
    pub(crate) fn prefix_cache(&self, prefix: u64) -> Arc<PrefixCache> {
        self.shared.prefix_caches.cache_for(prefix)
    }

    /// Returns the reason if the gateway was given up.
    pub(crate) fn failure(&self) -> Option<ErrorInfo> {
        self.shared.failure()
    }

    /// Returns the number of calls in flight and of waiting calls.
    pub(crate) fn metrics(&self) -> GatewayMetrics {
        GatewayMetrics {
            in_flight: count(self.shared.ledger().permit_count()),
            waiting: self.shared.waiting(),
        }
    }

    /// Crashes the gateway's actor. Outstanding permits stay valid. Returns whether there is an
    /// actor.
    pub(crate) fn crash(&self) -> bool {
        self.shared.cast(GatewayMsg::Crash)
    }

    /// Completes a request within the profile's limits, with retries if the failure allows them.
    ///
    /// Dropping the future cancels the call and releases what it held.
    pub(crate) async fn complete(
        &self,
        limits: CallLimits<'_>,
        request: &ModelRequest,
        sink: &mut dyn CallSink,
    ) -> CallResult {
        if !request.tools.is_empty() && !self.model.supports_tools() {
            let message = format!(
                "model {} does not support tools: use another profile",
                self.model.name()
            );
            let outcome = Err(ErrorInfo::new(ErrorCode::UnsupportedCapability, message));
            return CallResult {
                outcome,
                waited_ms: 0,
            };
        }
        Call::new(&self.shared, limits, sink)
            .complete(&*self.model, request)
            .await
    }
}
