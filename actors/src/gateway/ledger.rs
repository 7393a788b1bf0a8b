//! Accounting of a gateway: outstanding permits, the used rate, and why a call has to wait.
//!
//! Pure: the time since the gateway was created and the jitter are arguments. A call is admitted,
//! begins and ends; each step can be blocked for a different reason.
//!
//! Invariants:
//! - Never more permits are outstanding than the limit allows.
//! - Each admitted call is ended or given back. After that it holds nothing, but tokens that were
//!   sent stay counted.
//! - No call begins during a pause, or while the provider is down.
//!
//! How calls end: a rate-limited attempt counts as a try only in an unsuccessful ("dry") round
//! (`pause.rs`), but then for every waiting call. So a service that rejects everything ends all
//! calls after `max_attempts` rounds. Any other failure counts only for its own call.
//!
//! Elsewhere: which call is next (`queue.rs`), clocks and locks (`shared.rs`).

use std::{collections::BTreeMap, time::Duration};

use soong_model::{
    Completion, Failure, ModelError,
    breaker::{Breaker, Outage},
    limiter::{Limit, Limiter, Rate},
    retry,
};
use soong_protocol::{ErrorCode, ErrorInfo, ModelConfig, RetryConfig};

use super::pause::Pause;

/// Minimum limit for `Retry-After`, in milliseconds: a service that limits per minute may ask for a
/// minute, even if `max_backoff_ms` is less.
const MIN_RETRY_AFTER_LIMIT_MS: u64 = 60_000;
/// Length of the first pause while the provider is down, in initial backoffs.
const FIRST_OUTAGE_PAUSE_BACKOFFS: u64 = 4;

/// Reason why a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WaitReason {
    Concurrency,
    RequestsPerMinute,
    TokensPerMinute,
    RetryAfter,
    ProviderDown,
}

impl WaitReason {
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

/// Why no call is admitted at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Blocked {
    pub(super) reason: WaitReason,
    /// The earliest end, if it is known.
    pub(super) until: Option<Duration>,
}

/// Current load of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Load {
    pub(super) in_flight: usize,
    pub(super) max_concurrency: usize,
    /// Number of requests sent so far.
    pub(super) sent: u64,
    /// Why the first call of the queue waits.
    pub(super) blocked: Option<Blocked>,
    pub(super) rate: Rate,
    /// End of the pause that the service requested. `None` if there is none.
    pub(super) pause: Option<Duration>,
    pub(super) is_down: bool,
}

/// Maximum time for which a call waits for a server that is loading the model.
const MAX_LOADING_WAIT: Duration = Duration::from_secs(120);
/// Time before the second attempt of such a call. It doubles with each attempt, up to eight times
/// as long.
const LOADING_WAIT: Duration = Duration::from_secs(1);

/// Attempts of one call so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempts {
    /// Number of attempts, including rate-limited ones.
    pub(super) made: u32,
    /// Number of failed attempts, without rate-limited ones.
    failed: u32,
    /// Number of dry rounds before the call arrived.
    dry_rounds_before: u64,
    /// When the server first said that it is still loading the model.
    loading_since: Option<Duration>,
}

/// Decision about a call after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryDecision {
    /// The call has ended, with or without success.
    GiveUp,
    /// The call was rate limited and is queued again. No call begins for this time.
    Requeue(Duration),
    /// The call waits for this time, and is then queued again.
    Backoff(Duration),
}

/// Accounting of a gateway.
#[derive(Debug)]
pub(super) struct Ledger {
    max_concurrency: usize,
    retry: RetryConfig,
    /// Longest `Retry-After` that a call waits for, in milliseconds (`timeout_ms`).
    max_retry_after_ms: u64,
    limiter: Limiter,
    pause: Pause,
    breaker: Breaker,
    /// Calls that hold a permit, with the time when each began; `None` if it has not begun.
    permits: BTreeMap<u64, Option<Duration>>,
    last_id: u64,
    /// Number of requests sent so far.
    sent: u64,
    /// Why the first call of the queue was not admitted at the last check.
    blocked: Option<Blocked>,
    /// The service's error when it last rate limited a call.
    last_rate_limit: Option<ModelError>,
    /// The last failure of the provider.
    last_failure: Option<ModelError>,
    /// When the provider last began or ended an answer.
    last_answer: Option<Duration>,
}

impl Ledger {
    pub(super) fn new(config: &ModelConfig) -> Self {
        let retry = config.retry;
        let first_break = Duration::from_millis(
            retry
                .initial_backoff_ms
                .saturating_mul(FIRST_OUTAGE_PAUSE_BACKOFFS),
        );
        Self {
            max_concurrency: config.max_concurrency().max(1),
            retry,
            max_retry_after_ms: config.timeout_ms,
            limiter: Limiter::new(config.requests_per_minute, config.tokens_per_minute),
            pause: Pause::default(),
            breaker: Breaker::new(first_break, Duration::from_millis(retry.max_backoff_ms)),
            permits: BTreeMap::new(),
            last_id: 0,
            sent: 0,
            blocked: None,
            last_rate_limit: None,
            last_failure: None,
            last_answer: None,
        }
    }

    /// Registers a new call. Earlier dry rounds do not count against it.
    pub(super) fn register(&self) -> Attempts {
        Attempts {
            made: 0,
            failed: 0,
            dry_rounds_before: self.pause.round_mark(),
            loading_since: None,
        }
    }

    /// Admits a call that may use this many tokens: takes a permit and reserves its share of the
    /// rate.
    pub(super) fn admit(&mut self, tokens: u64, now: Duration) -> Result<u64, Blocked> {
        if let Some(blocked) = self.global_block(now) {
            return Err(blocked);
        }
        if self.permits.len() >= self.max_concurrency {
            return Err(Blocked {
                reason: WaitReason::Concurrency,
                until: None,
            });
        }
        let id = self.last_id + 1;
        self.limiter.reserve(id, tokens, now).map_err(|full| {
            let reason = match full.limit {
                Limit::Requests => WaitReason::RequestsPerMinute,
                Limit::Tokens => WaitReason::TokensPerMinute,
            };
            Blocked {
                reason,
                until: Some(full.until),
            }
        })?;
        self.breaker.admit(id);
        self.last_id = id;
        self.permits.insert(id, None);
        Ok(id)
    }

    /// Starts an admitted call. `false` if it may not begin any more; then it must give its permit
    /// back.
    pub(super) fn begin(&mut self, id: u64, now: Duration) -> bool {
        if self.pause.until(now).is_some() || !self.breaker.may_begin(id) {
            return false;
        }
        let Some(begun) = self.permits.get_mut(&id) else {
            return false;
        };
        *begun = Some(now);
        self.sent += 1;
        self.limiter.begin(id, now);
        true
    }

    /// Returns a permit without an outcome: the call was never made, or was cancelled.
    ///
    /// Tokens that were sent stay counted, since the service has counted them too.
    pub(super) fn give_back(&mut self, id: u64, now: Duration) {
        if self.permits.remove(&id).is_some() {
            self.limiter.give_back(id);
            self.breaker.record_unknown(id, now);
        }
    }

    /// Records the outcome of an attempt, and decides how the call continues.
    pub(super) fn end(
        &mut self,
        id: u64,
        tries: &mut Attempts,
        outcome: &Result<Completion, ModelError>,
        jitter: f64,
        now: Duration,
    ) -> RetryDecision {
        let begun = self.permits.remove(&id).flatten().unwrap_or(now);
        tries.made += 1;
        let error = match outcome {
            Ok(completion) => {
                if let Some(usage) = &completion.usage {
                    self.limiter.settle(id, begun, usage.total_tokens());
                }
                self.pause.call_succeeded(now);
                self.last_answer = Some(now);
                self.breaker.record_answer();
                return RetryDecision::GiveUp;
            }
            Err(error) => error,
        };
        if error.is_loading {
            self.limiter.settle(id, begun, 0);
            // The server answered.
            self.breaker.record_answer();
            let since = *tries.loading_since.get_or_insert(now);
            if now.saturating_sub(since) < MAX_LOADING_WAIT {
                let doublings = tries.made.saturating_sub(1).min(3);
                return RetryDecision::Backoff(LOADING_WAIT * (1 << doublings));
            }
            return RetryDecision::GiveUp;
        }
        match error.failure {
            // A busy server answers the other calls first.
            Failure::Timeout if self.last_answer.is_some_and(|at| at >= begun) => {
                self.last_failure = Some(error.clone());
                self.breaker.record_unknown(id, now);
            }
            Failure::Unavailable | Failure::Timeout => {
                self.last_failure = Some(error.clone());
                self.breaker.record_failure(id, now);
            }
            // The service answered, and may have used the reserved tokens.
            Failure::InvalidResponse | Failure::AnswerTooLarge | Failure::EndlessAnswer => {
                self.breaker.record_answer()
            }
            Failure::RateLimited { .. }
            | Failure::Unauthorized
            | Failure::Rejected
            | Failure::PromptTooLong
            | Failure::Unsupported => {
                self.limiter.settle(id, begun, 0);
                self.breaker.record_answer();
            }
        }
        if let Failure::RateLimited { retry_after_ms } = error.failure {
            return self.rate_limited(tries, error, begun, retry_after_ms, jitter, now);
        }
        tries.failed += 1;
        let attempts = self.counted_attempts(tries, now);
        retry::wait_before_retry(
            &self.retry,
            self.max_retry_after_ms,
            attempts,
            error,
            jitter,
        )
        .map_or(RetryDecision::GiveUp, RetryDecision::Backoff)
    }

    fn rate_limited(
        &mut self,
        tries: &Attempts,
        error: &ModelError,
        begun: Duration,
        asked_ms: Option<u64>,
        jitter: f64,
        now: Duration,
    ) -> RetryDecision {
        let at_work = self.permits.values().flatten().min().copied();
        let length = |round| retry::pause(&self.retry, round, asked_ms, jitter);
        self.pause.call_rate_limited(begun, at_work, now, length);
        self.last_rate_limit = Some(error.clone());
        let ends = if self.pause.succeeded_recently(now) {
            // Other calls succeed, so this is the limit per minute: the service may ask for the
            // rest of the minute.
            asked_ms.unwrap_or(0)
                > self
                    .retry
                    .max_backoff_ms
                    .max(self.max_retry_after_ms)
                    .max(MIN_RETRY_AFTER_LIMIT_MS)
        } else {
            // The first rejection may not complete a dry round, but counts as a try.
            let attempts = self.counted_attempts(tries, now).max(1);
            retry::wait_before_retry(
                &self.retry,
                self.max_retry_after_ms,
                attempts,
                error,
                jitter,
            )
            .is_none()
        };
        if ends {
            return RetryDecision::GiveUp;
        }
        RetryDecision::Requeue(self.pause.until(now).unwrap_or(now) - now)
    }

    /// Returns why a call waits, or an error if it must stop waiting. `down_for` is how long it has
    /// waited for a provider that is down.
    pub(super) fn check_wait(
        &self,
        tries: &Attempts,
        down_for: Duration,
        now: Duration,
    ) -> Result<Option<Blocked>, Box<ErrorInfo>> {
        let attempts = self.counted_attempts(tries, now);
        if attempts >= self.retry.max_attempts
            && let Some(error) = &self.last_rate_limit
        {
            let message =
                format!("the model keeps rejecting calls because of rate limits: {error}");
            return Err(Box::new(ErrorInfo::retryable(
                ErrorCode::ProviderRateLimited,
                message,
            )));
        }
        // While a probe is in flight, all calls wait for its result.
        if let Some(down) = self.breaker.outage(now).filter(|down| down.until.is_some())
            && down_for >= self.max_outage_wait(tries, now)
            && let Some(error) = &self.last_failure
        {
            return Err(Box::new(provider_down(&down, error, now)));
        }
        Ok(self.blocked)
    }

    /// Returns the error of a call that stops waiting although its retries are not used up.
    pub(super) fn blocked_error(&self, reason: WaitReason, now: Duration) -> ErrorInfo {
        match (reason, self.breaker.outage(now), &self.last_failure) {
            (WaitReason::ProviderDown, Some(down), Some(error)) => provider_down(&down, error, now),
            (WaitReason::ProviderDown, ..) => {
                ErrorInfo::retryable(ErrorCode::ProviderError, "the provider is down")
            }
            _ => {
                let message = match &self.last_rate_limit {
                    Some(error) => {
                        format!("the model rejects calls because of rate limits: {error}")
                    }
                    None => "the service limits the rate of the calls".to_owned(),
                };
                ErrorInfo::retryable(ErrorCode::ProviderRateLimited, message)
            }
        }
    }

    /// Returns how long a call waits for a provider that is down.
    pub(super) fn max_outage_wait(&self, tries: &Attempts, now: Duration) -> Duration {
        retry::max_outage_wait(&self.retry, self.counted_attempts(tries, now))
    }

    /// Records that the provider has begun to answer. Returns whether it had counted as down.
    pub(super) fn answer_started(&mut self, now: Duration) -> bool {
        self.last_answer = Some(now);
        let was_down = self.breaker.outage(now).is_some();
        self.breaker.record_answer();
        was_down
    }

    /// Whether the provider is down.
    pub(super) fn is_down(&self, now: Duration) -> bool {
        self.breaker.outage(now).is_some()
    }

    /// Records why the first call of the queue waits.
    pub(super) fn set_blocked(&mut self, blocked: Option<Blocked>) {
        self.blocked = blocked;
    }

    /// Whether the first call of the queue waits.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Whether an admitted call has not begun yet.
    pub(super) fn has_pending_start(&self) -> bool {
        self.permits.values().any(Option::is_none)
    }

    /// Sets the maximum number of outstanding permits. Returns whether it has changed.
    pub(super) fn set_max_permits(&mut self, permits: usize) -> bool {
        let before = std::mem::replace(&mut self.max_concurrency, permits.max(1));
        before != self.max_concurrency
    }

    /// Returns the maximum number of outstanding permits.
    pub(super) fn max_permits(&self) -> usize {
        self.max_concurrency
    }

    /// Returns the number of outstanding permits.
    pub(super) fn permit_count(&self) -> usize {
        self.permits.len()
    }

    /// Returns the current load, for display.
    pub(super) fn load(&self, now: Duration) -> Load {
        Load {
            in_flight: self.permits.len(),
            max_concurrency: self.max_concurrency,
            sent: self.sent,
            blocked: self.blocked,
            rate: self.limiter.rate(now),
            pause: self.pause.until(now),
            is_down: self.is_down(now),
        }
    }

    /// Returns the number of a call's attempts that count towards `max_attempts`.
    fn counted_attempts(&self, tries: &Attempts, now: Duration) -> u32 {
        tries
            .failed
            .saturating_add(self.pause.failed_rounds_since(tries.dry_rounds_before, now))
    }

    /// Returns the reason that blocks all calls regardless of the limits, if there is one.
    fn global_block(&self, now: Duration) -> Option<Blocked> {
        if let Some(until) = self.pause.until(now) {
            return Some(Blocked {
                reason: WaitReason::RetryAfter,
                until: Some(until),
            });
        }
        self.breaker.outage(now).map(|down| Blocked {
            reason: WaitReason::ProviderDown,
            until: down.until,
        })
    }
}

fn provider_down(down: &Outage, error: &ModelError, now: Duration) -> ErrorInfo {
    let last = ErrorInfo::from(error);
    let seconds = now.saturating_sub(down.since).as_secs();
    let failures = down.failures;
    let message = format!(
        "the provider has been failing for {seconds} s, {failures} calls in a row; last error: {error}"
    );
    ErrorInfo {
        details: last.details,
        ..ErrorInfo::retryable(last.code, message)
    }
}

#[cfg(test)]
mod tests;
