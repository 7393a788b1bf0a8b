//! The books of a gateway: what is out, what was used of the rate, and what keeps a call waiting.
//!
//! Pure: time is an argument, counted from when the gateway was made; jitter too. A call asks to be let
//! in, begins, and ends; at each of these something else may keep it.
//! Invariants: never more permits out than there may be; whatever is let in is ended or given back, and
//! then nothing of it is held, except what was really sent; nobody begins in a pause, nor while the
//! provider is down. Rules of ending: being limited counts as a try only in a dry round (`pause.rs`),
//! but then for everybody who waits, so a service that turns everything away ends all calls after
//! `max_attempts` rounds; a failure counts for its own call.
//! Not here: who is next (`line.rs`), clocks and locks (`books.rs`).

use std::{collections::BTreeMap, time::Duration};

use soong_protocol::{ErrorCode, ErrorInfo, ModelConfig, RetryConfig};

use super::pause::Pause;
use crate::model::{
    Completion, Failure, ModelError,
    breaker::{Breaker, Down},
    limiter::{Limit, Limiter, Rate},
    retry,
};

/// What a service that counts by the minute may ask for, even where `max_backoff_ms` is less.
const MINUTE_MS: u64 = 60_000;
/// How many backoffs the first pause for a provider that is down is long.
const FIRST_BREAK: u64 = 4;

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    Concurrency,
    RequestsPerMinute,
    TokensPerMinute,
    RetryAfter,
    ProviderDown,
}

impl Reason {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::RequestsPerMinute => "requests_per_minute",
            Self::TokensPerMinute => "tokens_per_minute",
            Self::RetryAfter => "retry_after",
            Self::ProviderDown => "provider_down",
        }
    }
}

/// Why nobody is let in at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Blocked {
    pub(super) reason: Reason,
    /// Until when at least, where that is known.
    pub(super) until: Option<Duration>,
}

/// How a gateway stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Load {
    pub(super) in_flight: usize,
    pub(super) max_concurrency: usize,
    /// Calls sent so far.
    pub(super) sent: u64,
    /// Why the head of the line waits.
    pub(super) blocked: Option<Blocked>,
    pub(super) rate: Rate,
    /// Until when nobody may begin, because the service asked for it.
    pub(super) pause: Option<Duration>,
    pub(super) is_down: bool,
}

/// What one call has behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tries {
    /// Tries made, limited ones included.
    pub(super) made: u32,
    /// Those that failed.
    failed: u32,
    /// Dry rounds before it came.
    mark: u64,
}

/// What becomes of a call after a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It has ended, well or not.
    Ends,
    /// It was limited: it goes back into the line; nobody begins before this time is over.
    Queues(Duration),
    /// It waits by itself, then goes back into the line.
    BacksOff(Duration),
}

/// The books.
#[derive(Debug)]
pub(super) struct Ledger {
    max_concurrency: usize,
    retry: RetryConfig,
    /// Longest `Retry-After` that a call waits for, in milliseconds.
    longest_ms: u64,
    limiter: Limiter,
    pause: Pause,
    breaker: Breaker,
    /// The calls that hold a permit, and when they began.
    out: BTreeMap<u64, Option<Duration>>,
    last_id: u64,
    /// How many calls were sent.
    sent: u64,
    /// Why the head of the line was not let in, when it was looked at.
    blocked: Option<Blocked>,
    /// What the service said when it turned somebody away, the last time.
    limited_by: Option<ModelError>,
    /// What the last failure of the provider was.
    down_by: Option<ModelError>,
}

impl Ledger {
    pub(super) fn new(config: &ModelConfig) -> Self {
        let retry = config.retry;
        let first_break = Duration::from_millis(retry.initial_backoff_ms.saturating_mul(FIRST_BREAK));
        Self {
            max_concurrency: config.max_concurrency.max(1),
            retry,
            longest_ms: config.timeout_ms,
            limiter: Limiter::new(config.requests_per_minute, config.tokens_per_minute),
            pause: Pause::default(),
            breaker: Breaker::new(first_break, Duration::from_millis(retry.max_backoff_ms)),
            out: BTreeMap::new(),
            last_id: 0,
            sent: 0,
            blocked: None,
            limited_by: None,
            down_by: None,
        }
    }

    /// A call comes; what happened before does not count against it.
    pub(super) fn join(&self) -> Tries {
        Tries { made: 0, failed: 0, mark: self.pause.mark() }
    }

    /// Lets a call in that may use this many tokens: takes a permit, and room in the rate.
    pub(super) fn admit(&mut self, tokens: u64, now: Duration) -> Result<u64, Blocked> {
        if let Some(blocked) = self.closed(now) {
            return Err(blocked);
        }
        if self.out.len() >= self.max_concurrency {
            return Err(Blocked { reason: Reason::Concurrency, until: None });
        }
        let id = self.last_id + 1;
        self.limiter.reserve(id, tokens, now).map_err(|full| {
            let reason = match full.limit {
                Limit::Requests => Reason::RequestsPerMinute,
                Limit::Tokens => Reason::TokensPerMinute,
            };
            Blocked { reason, until: Some(full.until) }
        })?;
        self.breaker.enter(id);
        self.last_id = id;
        self.out.insert(id, None);
        Ok(id)
    }

    /// A call that was let in begins; `false` = not now after all: it gives its permit back.
    pub(super) fn begin(&mut self, id: u64, now: Duration) -> bool {
        if self.pause.until(now).is_some() || !self.breaker.lets_begin(id) {
            return false;
        }
        let Some(begun) = self.out.get_mut(&id) else { return false };
        *begun = Some(now);
        self.sent += 1;
        self.limiter.begin(id, now);
        true
    }

    /// A permit comes back without any news: the call was never made, or was cut off.
    ///
    /// What was sent stays counted: the service has counted it too.
    pub(super) fn give_back(&mut self, id: u64, now: Duration) {
        if self.out.remove(&id).is_some() {
            self.limiter.give_back(id);
            self.breaker.lost(id, now);
        }
    }

    /// A try ended: books what it says about the service, and decides what becomes of the call.
    pub(super) fn end(
        &mut self,
        id: u64,
        tries: &mut Tries,
        outcome: &Result<Completion, ModelError>,
        jitter: f64,
        now: Duration,
    ) -> Next {
        let begun = self.out.remove(&id).flatten().unwrap_or(now);
        tries.made += 1;
        let error = match outcome {
            Ok(completion) => {
                if let Some(usage) = &completion.usage {
                    self.limiter.settle(id, begun, usage.total_tokens());
                }
                self.pause.through(now);
                self.breaker.answered();
                return Next::Ends;
            }
            Err(error) => error,
        };
        match error.failure {
            Failure::Unavailable | Failure::Timeout => {
                self.down_by = Some(error.clone());
                self.breaker.failed(id, now);
            }
            // It answered, and may have used what was reserved.
            Failure::Broken | Failure::AnswerTooLarge => self.breaker.answered(),
            Failure::RateLimited { .. }
            | Failure::Auth
            | Failure::Refused
            | Failure::PromptTooLong
            | Failure::Unsupported => {
                self.limiter.settle(id, begun, 0);
                self.breaker.answered();
            }
        }
        if let Failure::RateLimited { retry_after_ms } = error.failure {
            return self.turned_away(tries, error, begun, retry_after_ms, jitter, now);
        }
        tries.failed += 1;
        let attempts = self.attempts(tries, now);
        retry::wait_before_retry(&self.retry, self.longest_ms, attempts, error, jitter)
            .map_or(Next::Ends, Next::BacksOff)
    }

    fn turned_away(
        &mut self,
        tries: &Tries,
        error: &ModelError,
        begun: Duration,
        asked_ms: Option<u64>,
        jitter: f64,
        now: Duration,
    ) -> Next {
        let at_work = self.out.values().flatten().min().copied();
        let length = |round| retry::pause(&self.retry, round, asked_ms, jitter);
        self.pause.turned_away(begun, at_work, now, length);
        self.limited_by = Some(error.clone());
        let ends = if self.pause.is_moving(now) {
            // A minute's limit does its work; it asks for what is left of the minute.
            asked_ms.unwrap_or(0) > self.retry.max_backoff_ms.max(self.longest_ms).max(MINUTE_MS)
        } else {
            // The first time may be no dry round, but it is a try.
            let attempts = self.attempts(tries, now).max(1);
            retry::wait_before_retry(&self.retry, self.longest_ms, attempts, error, jitter).is_none()
        };
        if ends {
            return Next::Ends;
        }
        Next::Queues(self.pause.until(now).unwrap_or(now) - now)
    }

    /// Tells a call that waits what for, or why it does so no longer; `down_for` = how long it has
    /// waited for a provider that is down.
    pub(super) fn look(
        &self,
        tries: &Tries,
        down_for: Duration,
        now: Duration,
    ) -> Result<Option<Blocked>, Box<ErrorInfo>> {
        let attempts = self.attempts(tries, now);
        if attempts >= self.retry.max_attempts
            && let Some(error) = &self.limited_by
        {
            let message = format!("nobody gets through to the model: {error}");
            return Err(Box::new(ErrorInfo::retryable(ErrorCode::ProviderRateLimited, message)));
        }
        // While somebody tries whether it is back, everybody waits for what comes of that.
        if let Some(down) = self.breaker.down(now).filter(|down| down.until.is_some())
            && down_for >= self.patience(tries, now)
            && let Some(error) = &self.down_by
        {
            return Err(Box::new(provider_down(&down, error, now)));
        }
        Ok(self.blocked)
    }

    /// How long a call waits for a provider that is down.
    pub(super) fn patience(&self, tries: &Tries, now: Duration) -> Duration {
        retry::patience(&self.retry, self.attempts(tries, now))
    }

    /// The provider begins to answer; returns whether that is news.
    pub(super) fn heard(&mut self, now: Duration) -> bool {
        let was_down = self.breaker.down(now).is_some();
        self.breaker.answered();
        was_down
    }

    /// Whether the provider is down.
    pub(super) fn is_down(&self, now: Duration) -> bool {
        self.breaker.down(now).is_some()
    }

    /// Notes why the head of the line waits.
    pub(super) fn note(&mut self, blocked: Option<Blocked>) {
        self.blocked = blocked;
    }

    /// Whether the head of the line waits.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Whether a call was let in that has not begun yet.
    pub(super) fn is_one_beginning(&self) -> bool {
        self.out.values().any(Option::is_none)
    }

    /// Returns how many permits may be out.
    pub(super) fn most_out(&self) -> usize {
        self.max_concurrency
    }

    /// Returns how many permits are out.
    pub(super) fn out(&self) -> usize {
        self.out.len()
    }

    /// Says how the gateway stands, for people.
    pub(super) fn load(&self, now: Duration) -> Load {
        Load {
            in_flight: self.out.len(),
            max_concurrency: self.max_concurrency,
            sent: self.sent,
            blocked: self.blocked,
            rate: self.limiter.rate(now),
            pause: self.pause.until(now),
            is_down: self.is_down(now),
        }
    }

    /// The tries of a call that count.
    fn attempts(&self, tries: &Tries, now: Duration) -> u32 {
        tries.failed.saturating_add(self.pause.dry_rounds(tries.mark, now))
    }

    /// What keeps everybody out, whatever their number.
    fn closed(&self, now: Duration) -> Option<Blocked> {
        if let Some(until) = self.pause.until(now) {
            return Some(Blocked { reason: Reason::RetryAfter, until: Some(until) });
        }
        self.breaker.down(now).map(|down| Blocked { reason: Reason::ProviderDown, until: down.until })
    }
}

fn provider_down(down: &Down, error: &ModelError, now: Duration) -> ErrorInfo {
    let code = ErrorInfo::from(error).code;
    let (seconds, failures) = (now.saturating_sub(down.since).as_secs(), down.failures);
    let message =
        format!("the provider has been failing for {seconds} s, {failures} calls in a row; the last one: {error}");
    ErrorInfo::retryable(code, message)
}

#[cfg(test)]
mod tests;
