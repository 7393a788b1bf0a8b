//! The books under their lock, with a clock; permits, and where the gateway's actor sits.
//!
//! They lie beside the actor: whatever becomes of it, permits come back, and what was used of the rate
//! stays known. Invariant: a permit is a guard; it comes back when dropped, whatever happens.
//! Not here: what the books say (`ledger.rs`).

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use soong_protocol::{ErrorInfo, ModelConfig, Timestamp};
use tokio::{sync::watch, time::Instant};

use super::ledger::{Blocked, Ledger, Load, Next, Tries};
use crate::{
    actor_base::Mailbox,
    clock,
    meter::count,
    model::{Completion, ModelError, limits::AnswerLimits},
    observatory::{ActorView, Face, GatewayView},
};
use soong_protocol::SessionId;
use tokio::sync::oneshot;

/// Mailbox of the gateway actor.
pub(crate) enum GatewayMsg {
    /// From a call: wants a permit.
    Acquire(Wish),
    /// From a call: waits no longer.
    Leave { session: SessionId, ticket: u64 },
    /// From a permit: its call has begun.
    Begun,
    /// From a permit: it is free again.
    Returned,
    /// From its own timer: a call may be admitted by now.
    Look,
    /// For drills: die here.
    Crash,
}

/// A call that wants to be let in.
pub(crate) struct Wish {
    pub(super) session: SessionId,
    pub(super) ticket: u64,
    /// Maximum number of tokens that the call may use.
    pub(super) tokens: u64,
    /// Whether it was let in before, and did not get through.
    pub(super) again: bool,
    pub(super) reply: oneshot::Sender<Permit>,
}

/// What a gateway knows, whichever actor serves.
pub(super) struct Books {
    /// How large an answer may be.
    pub(super) limits: AnswerLimits,
    ledger: Mutex<Ledger>,
    /// When time began, by both clocks.
    origin: Instant,
    origin_at: Timestamp,
    tickets: AtomicU64,
    seat: RwLock<Option<Mailbox<GatewayMsg>>>,
    /// How many calls stand in the line, as its keeper saw it last.
    waiting: AtomicU64,
    /// Why there is no actor any more, and never will be.
    failure: watch::Sender<Option<ErrorInfo>>,
}

impl Books {
    pub(super) fn new(config: &ModelConfig) -> Self {
        Self {
            limits: AnswerLimits::of(config),
            ledger: Mutex::new(Ledger::new(config)),
            origin: Instant::now(),
            origin_at: clock::now(),
            tickets: AtomicU64::new(0),
            seat: RwLock::new(None),
            waiting: AtomicU64::new(0),
            failure: watch::Sender::new(None),
        }
    }

    /// Returns the time since the gateway was made.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Returns when a time since the gateway was made is by the clock on the wall.
    fn on_the_wall(&self, time: Duration) -> Timestamp {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.origin_at.as_millis().saturating_add(millis))
    }

    fn load(&self) -> Load {
        let now = self.now();
        self.ledger().load(now)
    }

    /// Returns the next number; whoever has the smaller one came first.
    pub(super) fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Relaxed)
    }

    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    pub(super) fn see_waiting(&self, calls: usize) {
        self.waiting.store(count(calls), Relaxed);
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Each change of the books is whole before anything could panic.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call in that may use this many tokens.
    pub(super) fn admit(self: &Arc<Self>, tokens: u64) -> Result<Permit, Blocked> {
        let id = self.ledger().admit(tokens, self.now())?;
        Ok(Permit { id, books: Arc::clone(self), ended: false })
    }

    /// The provider begins to answer somebody: it is not down.
    pub(super) fn heard(&self) {
        if self.ledger().heard(self.now()) {
            self.cast(GatewayMsg::Returned);
        }
    }

    pub(super) fn seated(&self) -> Option<Mailbox<GatewayMsg>> {
        self.seat.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn sit(&self, actor: Mailbox<GatewayMsg>) {
        *self.seat.write().unwrap_or_else(PoisonError::into_inner) = Some(actor);
    }

    pub(super) fn give_up(&self, failure: ErrorInfo) {
        self.failure.send_replace(Some(failure));
    }

    pub(super) fn failure(&self) -> Option<ErrorInfo> {
        self.failure.borrow().clone()
    }

    /// Waits until the gateway is given up; returns why.
    pub(super) async fn given_up(&self) -> ErrorInfo {
        let mut failure = self.failure.subscribe();
        let known = failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match known {
            Some(failure) => failure,
            // Not reached: the sender lives as long as the books.
            None => std::future::pending().await,
        }
    }

    /// Sends to the gateway's actor; `false` = it is gone.
    pub(super) fn cast(&self, message: GatewayMsg) -> bool {
        self.seated().is_some_and(|gateway| gateway.cast(message))
    }
}

/// What a gateway's actor shows: the books lie beside it, and change without it.
pub(super) struct Shown(pub(super) Arc<Books>);

impl Face for Shown {
    fn stamp(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0.load(), self.0.waiting()).hash(&mut hasher);
        hasher.finish()
    }

    fn fill(&self, view: &mut ActorView) {
        let books = &self.0;
        let Load { in_flight, max_concurrency, sent, blocked, rate, pause, is_down } = books.load();
        let limit = |limit: u64| Some(limit).filter(|limit| *limit > 0);
        let waiting = books.waiting();
        let blocked = blocked.filter(|_| waiting > 0);
        view.gateway = Some(GatewayView {
            in_flight: count(in_flight),
            max_concurrency: count(max_concurrency),
            waiting,
            waits_for: blocked.map(|blocked| blocked.reason.as_str().to_owned()),
            waits_until: blocked.and_then(|blocked| blocked.until).map(|until| books.on_the_wall(until)),
            sent,
            requests: rate.requests,
            requests_per_minute: limit(rate.max_requests),
            tokens: rate.tokens,
            tokens_per_minute: limit(rate.max_tokens),
            retry_after: pause.map(|until| books.on_the_wall(until)),
            is_down,
        });
    }
}

/// A place among the calls that are made at the same time, with room in the rate.
pub(crate) struct Permit {
    id: u64,
    books: Arc<Books>,
    ended: bool,
}

impl Permit {
    /// The call begins now; `false` = somebody was turned away since the permit was given: drop it.
    pub(super) fn begin(&self) -> bool {
        let begins = self.books.ledger().begin(self.id, self.books.now());
        if begins {
            self.books.cast(GatewayMsg::Begun);
        }
        begins
    }

    /// Books how the call ended; the permit is free then.
    pub(super) fn end(mut self, tries: &mut Tries, outcome: &Result<Completion, ModelError>) -> Next {
        self.ended = true;
        self.books.ledger().end(self.id, tries, outcome, jitter(), self.books.now())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.ended {
            self.books.ledger().give_back(self.id, self.books.now());
        }
        // Whoever sits there now: an actor that takes over later reads the books by itself.
        self.books.cast(GatewayMsg::Returned);
    }
}

/// A number in 0..1 that differs from call to call; spreads retries, no more.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0_u8);
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}
