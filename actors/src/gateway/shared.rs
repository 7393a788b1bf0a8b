//! Shared state of a gateway: its accounting under a lock, the clock, permits, and the mailbox of
//! its actor.
//!
//! The state outlives the actor: whatever happens to the actor, permits are returned, and the used
//! rate stays known.
//!
//! Invariant: a permit is a guard that is returned when dropped, in every case.
//!
//! Elsewhere: the rules of the accounting (`ledger.rs`).

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use soong_model::{Completion, ModelError, limits::AnswerLimits};
use soong_protocol::{ErrorInfo, ModelConfig, Provider, SessionId, Timestamp};
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use super::{
    cool_downs::CoolDowns,
    ledger::{Attempts, Blocked, Ledger, Load, RetryDecision},
    prefix_cache::{OPENAI_REQUESTS_PER_KEY, PrefixCaches},
};
use crate::{
    actor_base::Mailbox,
    actor_tree::{ActorView, GatewayView, StatusSource},
    clock,
    metrics::count,
};

/// Messages of the gateway actor.
pub(crate) enum GatewayMsg {
    /// From a call: requests a permit.
    Acquire(AcquireRequest),
    /// From a call: it stops waiting.
    Cancel { session: SessionId, ticket: u64 },
    /// From a permit: its call has begun.
    Begun,
    /// From a permit: it was returned.
    Returned,
    /// From the actor's timer: a call may be admissible now.
    Tick,
    /// For tests: crash the actor.
    Crash,
}

/// Request for admission of a call.
pub(crate) struct AcquireRequest {
    pub(super) session: SessionId,
    pub(super) ticket: u64,
    /// Maximum number of tokens that the call may use.
    pub(super) tokens: u64,
    /// Whether the call was admitted before without success.
    pub(super) is_requeued: bool,
    pub(super) reply: oneshot::Sender<Permit>,
}

/// State of a gateway, independent of the actor that serves it.
pub(super) struct GatewayShared {
    /// Maximum size of an answer.
    pub(super) limits: AnswerLimits,
    pub(super) prefix_caches: PrefixCaches,
    /// Cool-downs of models, by name.
    pub(super) cool_downs: CoolDowns<String>,
    ledger: Mutex<Ledger>,
    /// Time of creation, by both clocks.
    created: Instant,
    origin_at: Timestamp,
    next_ticket: AtomicU64,
    actor: RwLock<Option<Mailbox<GatewayMsg>>>,
    /// Number of queued calls, as the actor last reported it.
    waiting: AtomicU64,
    /// Whether an answer that repeats a passage without an end is stopped.
    stops_endless_text: AtomicBool,
    /// Why the gateway was given up; then no actor is started any more.
    failure: watch::Sender<Option<ErrorInfo>>,
}

impl GatewayShared {
    pub(super) fn new(config: &ModelConfig) -> Self {
        Self {
            limits: AnswerLimits::of(config),
            prefix_caches: PrefixCaches::new(match config.provider() {
                Provider::Openai | Provider::OpenaiResponses => OPENAI_REQUESTS_PER_KEY,
                _ => usize::MAX,
            }),
            cool_downs: CoolDowns::default(),
            ledger: Mutex::new(Ledger::new(config)),
            created: Instant::now(),
            origin_at: clock::now(),
            next_ticket: AtomicU64::new(0),
            actor: RwLock::new(None),
            waiting: AtomicU64::new(0),
            stops_endless_text: AtomicBool::new(false),
            failure: watch::Sender::new(None),
        }
    }

    /// Returns the time since the gateway was created.
    pub(super) fn now(&self) -> Duration {
        self.created.elapsed()
    }

    /// Converts a time since creation to wall-clock time.
    fn wall_time(&self, time: Duration) -> Timestamp {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.origin_at.as_millis().saturating_add(millis))
    }

    fn load(&self) -> Load {
        let now = self.now();
        self.ledger().load(now)
    }

    /// Returns the next ticket. A smaller ticket means that the call arrived earlier.
    pub(super) fn ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Relaxed)
    }

    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    pub(super) fn stops_endless_text(&self) -> bool {
        self.stops_endless_text.load(Relaxed)
    }

    pub(super) fn stop_endless_text(&self) {
        self.stops_endless_text.store(true, Relaxed);
    }

    pub(super) fn set_waiting(&self, calls: usize) {
        self.waiting.store(count(calls), Relaxed);
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Each change of the ledger completes before anything can panic.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a call that may use this many tokens.
    pub(super) fn admit(self: &Arc<Self>, tokens: u64) -> Result<Permit, Blocked> {
        let id = self.ledger().admit(tokens, self.now())?;
        Ok(Permit {
            id,
            shared: Arc::clone(self),
            ended: false,
        })
    }

    /// Records that the provider has begun to answer a call, and so is not down.
    pub(super) fn answer_started(&self) {
        if self.ledger().answer_started(self.now()) {
            self.cast(GatewayMsg::Returned);
        }
    }

    pub(super) fn actor(&self) -> Option<Mailbox<GatewayMsg>> {
        self.actor
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn attach(&self, actor: Mailbox<GatewayMsg>) {
        *self.actor.write().unwrap_or_else(PoisonError::into_inner) = Some(actor);
    }

    pub(super) fn give_up(&self, failure: ErrorInfo) {
        self.failure.send_replace(Some(failure));
    }

    pub(super) fn failure(&self) -> Option<ErrorInfo> {
        self.failure.borrow().clone()
    }

    /// Waits until the gateway is given up, and returns the reason.
    pub(super) async fn given_up(&self) -> ErrorInfo {
        let mut failure = self.failure.subscribe();
        let known = failure
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|failure| failure.clone());
        match known {
            Some(failure) => failure,
            // Unreachable: the sender lives as long as this state.
            None => std::future::pending().await,
        }
    }

    /// Sends a message to the gateway's actor. `false` if there is none.
    pub(super) fn cast(&self, message: GatewayMsg) -> bool {
        self.actor().is_some_and(|gateway| gateway.send(message))
    }
}

/// Status source of the gateway's actor. The state is outside the actor and changes without it.
pub(super) struct GatewayStatusSource(pub(super) Arc<GatewayShared>);

impl StatusSource for GatewayStatusSource {
    fn revision(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0.load(), self.0.waiting()).hash(&mut hasher);
        hasher.finish()
    }

    fn fill(&self, view: &mut ActorView) {
        let shared = &self.0;
        let Load {
            in_flight,
            max_concurrency,
            sent,
            blocked,
            rate,
            pause,
            is_down,
        } = shared.load();
        let limit = |limit: u64| Some(limit).filter(|limit| *limit > 0);
        let waiting = shared.waiting();
        let blocked = blocked.filter(|_| waiting > 0);
        view.gateway = Some(GatewayView {
            in_flight: count(in_flight),
            max_concurrency: count(max_concurrency),
            waiting,
            waits_for: blocked.map(|blocked| blocked.reason.as_str().to_owned()),
            waits_until: blocked
                .and_then(|blocked| blocked.until)
                .map(|until| shared.wall_time(until)),
            sent,
            requests: rate.requests,
            requests_per_minute: limit(rate.max_requests),
            tokens: rate.tokens,
            tokens_per_minute: limit(rate.max_tokens),
            retry_after: pause.map(|until| shared.wall_time(until)),
            is_down,
        });
    }
}

/// Permission to make one of the concurrent calls, with its reserved share of the rate.
pub(crate) struct Permit {
    id: u64,
    shared: Arc<GatewayShared>,
    ended: bool,
}

impl Permit {
    /// Starts the call. `false` if it may not begin any more, because another call was rate limited
    /// or the provider failed since the permit was granted: then drop the permit.
    pub(super) fn begin(&self) -> bool {
        let may_start = self.shared.ledger().begin(self.id, self.shared.now());
        if may_start {
            self.shared.cast(GatewayMsg::Begun);
        }
        may_start
    }

    /// Records the outcome of the call, and returns the permit.
    pub(super) fn end(
        mut self,
        tries: &mut Attempts,
        outcome: &Result<Completion, ModelError>,
    ) -> RetryDecision {
        self.ended = true;
        self.shared
            .ledger()
            .end(self.id, tries, outcome, jitter(), self.shared.now())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.ledger().give_back(self.id, self.shared.now());
        }
        // Goes to the current actor. An actor that is started later reads the state anyway.
        self.shared.cast(GatewayMsg::Returned);
    }
}

/// Returns a number from 0 to 1 that differs between calls, to spread retries. Not
/// cryptographically random.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0_u8);
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}
