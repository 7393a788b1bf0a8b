//! When a failed model call is retried, and after which delay (MOD-3).
//!
//! Pure: no clock, no randomness, no waiting; the jitter is an argument. A failure concerns one
//! call, and that call waits. A 429 response concerns the account: the whole profile pauses
//! ([`pause`]).
//!
//! Elsewhere: which failures are retryable ([`ModelError::is_retryable`]), and who waits
//! (`actors/src/gateway.rs`).

use std::time::Duration;

use soong_protocol::RetryConfig;

use super::{Failure, ModelError};

/// Maximum pause of a profile, whatever `Retry-After` asks for. If a service asks for a day, it is
/// tried again sooner, in case the account has been topped up.
pub const MAX_PAUSE: Duration = Duration::from_secs(300);

/// Returns the delay before the next attempt. `None`: give up.
///
/// `attempt` is the number of the attempt that failed, starting at 1. The delay doubles with each
/// attempt, from `initial_backoff_ms` up to `max_backoff_ms`. `jitter` (0 to 1) reduces it to
/// between 50 % and 100 %, so that calls that failed together do not retry together. The delay is
/// never shorter than `Retry-After`. If that is longer than both `longest_ms` and `max_backoff_ms`,
/// the call ends.
pub fn wait_before_retry(
    config: &RetryConfig,
    longest_ms: u64,
    attempt: u32,
    error: &ModelError,
    jitter: f64,
) -> Option<Duration> {
    if !error.is_retryable() || attempt >= config.max_attempts {
        return None;
    }
    let asked_ms = match error.failure {
        Failure::RateLimited { retry_after_ms } => retry_after_ms.unwrap_or(0),
        _ => 0,
    };
    if asked_ms > longest_ms.max(config.max_backoff_ms) {
        return None;
    }
    let wait = backoff(config, attempt, jitter);
    Some(wait.max(Duration::from_millis(asked_ms)))
}

/// Returns how long the calls of a profile pause after a 429 response. `round` is the number of
/// pauses in a row, starting at 1.
///
/// The pause is the longer of `Retry-After` and the backoff, but at most [`MAX_PAUSE`].
pub fn pause(
    config: &RetryConfig,
    round: u32,
    retry_after_ms: Option<u64>,
    jitter: f64,
) -> Duration {
    let retry_after = Duration::from_millis(retry_after_ms.unwrap_or(0));
    backoff(config, round, jitter)
        .max(retry_after)
        .min(MAX_PAUSE)
}

/// Returns the sum of the delays that a call would have between its remaining attempts, after
/// `attempts` of them.
///
/// This is how long the call waits for a provider that is down: no longer than if it had retried
/// all the time.
pub fn max_outage_wait(config: &RetryConfig, attempts: u32) -> Duration {
    let max_ms = config.max_backoff_ms;
    let mut left_ms = 0_u64;
    for attempt in attempts.saturating_add(1)..config.max_attempts {
        let full_ms = full_backoff_ms(config, attempt);
        left_ms = left_ms.saturating_add(full_ms);
        if full_ms >= max_ms || full_ms == 0 {
            // The delays do not grow any further.
            let rest = u64::from(config.max_attempts - 1 - attempt);
            return Duration::from_millis(left_ms.saturating_add(rest.saturating_mul(full_ms)));
        }
    }
    Duration::from_millis(left_ms)
}

/// Returns the delay after an attempt, before jitter.
fn full_backoff_ms(config: &RetryConfig, attempt: u32) -> u64 {
    let doublings = attempt.saturating_sub(1).min(63);
    config
        .initial_backoff_ms
        .saturating_mul(1 << doublings)
        .min(config.max_backoff_ms)
}

fn backoff(config: &RetryConfig, attempt: u32, jitter: f64) -> Duration {
    let full_ms = full_backoff_ms(config, attempt);
    // Rounding could exceed the full delay, so it is bounded.
    let spread_ms = (full_ms.div_ceil(2) as f64 * jitter.clamp(0.0, 1.0)) as u64;
    Duration::from_millis((full_ms / 2).saturating_add(spread_ms).min(full_ms))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: RetryConfig = RetryConfig {
        max_attempts: 5,
        initial_backoff_ms: 500,
        max_backoff_ms: 3_000,
    };

    fn failed(failure: Failure) -> ModelError {
        ModelError::new(failure, "it failed")
    }

    #[test]
    fn failures_map_to_retry_delays() {
        let limited = |retry_after_ms| Failure::RateLimited { retry_after_ms };
        for (failure, attempt, jitter, want_ms) in [
            (Failure::Unavailable, 1, 1.0, Some(500)),
            (Failure::Unavailable, 1, 0.0, Some(250)),
            (Failure::InvalidResponse, 2, 1.0, Some(1_000)),
            (Failure::Timeout, 3, 1.0, Some(2_000)),
            (Failure::Timeout, 4, 1.0, Some(3_000)), // capped
            (Failure::Timeout, 4, 0.5, Some(2_250)), // jitter after the cap
            (Failure::Timeout, 5, 1.0, None),        // no attempts left
            (limited(None), 1, 0.0, Some(250)),      // no `Retry-After`: like any failure
            (limited(Some(2_000)), 1, 0.0, Some(2_000)), // a minimum
            (limited(Some(10)), 1, 1.0, Some(500)),
            (limited(Some(3_000)), 1, 0.0, Some(3_000)),
            (limited(Some(3_001)), 1, 0.0, Some(3_001)), // longer than the longest backoff
            (limited(Some(9_000)), 1, 0.0, Some(9_000)),
            (limited(Some(9_001)), 1, 0.0, None), // longer than a call may take
            (limited(Some(10)), 5, 0.0, None),
            (Failure::Unauthorized, 1, 1.0, None),
            (Failure::Rejected, 1, 1.0, None),
            (Failure::PromptTooLong, 1, 1.0, None),
            (Failure::Unsupported, 1, 1.0, None),
        ] {
            let wait = wait_before_retry(&CONFIG, 9_000, attempt, &failed(failure), jitter);
            assert_eq!(
                wait,
                want_ms.map(Duration::from_millis),
                "{failure:?}, attempt {attempt}, jitter {jitter}"
            );
        }
    }

    #[test]
    fn zero_max_attempts_means_no_retry() {
        let config = RetryConfig {
            max_attempts: 0,
            ..CONFIG
        };
        assert_eq!(
            wait_before_retry(&config, 9_000, 1, &failed(Failure::InvalidResponse), 0.5),
            None
        );
    }

    #[test]
    fn rounds_and_retry_after_map_to_pause() {
        for (round, retry_after_ms, want_ms) in [
            (1, None, 500),
            (3, None, 2_000),
            (9, None, 3_000),
            (1, Some(0), 500),
            (1, Some(20_000), 20_000), // longer than the longest backoff
            (4, Some(1_000), 3_000),
            (1, Some(86_400_000), 300_000),
        ] {
            let wait = pause(&CONFIG, round, retry_after_ms, 1.0);
            assert_eq!(
                wait,
                Duration::from_millis(want_ms),
                "round {round}, {retry_after_ms:?}"
            );
        }
    }

    #[test]
    fn total_delay_is_the_sum_of_remaining_delays() {
        for (max_attempts, attempts, want_ms) in [
            (5, 0, 500 + 1_000 + 2_000 + 3_000),
            (5, 2, 2_000 + 3_000),
            (5, 4, 0),
            (5, 9, 0),
            (1, 0, 0),
            (0, 0, 0),
            (1_000_003, 0, 500 + 1_000 + 2_000 + 999_999 * 3_000),
        ] {
            let config = RetryConfig {
                max_attempts,
                ..CONFIG
            };
            assert_eq!(
                max_outage_wait(&config, attempts),
                Duration::from_millis(want_ms),
                "{attempts} of {max_attempts}"
            );
        }
    }

    proptest! {
        #[test]
        fn retry_delay_stays_in_bounds_for_any_configuration(
            max_attempts in any::<u32>(), initial_backoff_ms in any::<u64>(), max_backoff_ms in any::<u64>(),
            longest_ms in any::<u64>(), attempt in any::<u32>(), retry_after_ms in any::<Option<u64>>(), jitter in any::<f64>(),
        ) {
            let config = RetryConfig { max_attempts, initial_backoff_ms, max_backoff_ms };
            let error = failed(Failure::RateLimited { retry_after_ms });
            if let Some(wait) = wait_before_retry(&config, longest_ms, attempt, &error, jitter) {
                let wait_ms = u64::try_from(wait.as_millis()).unwrap();
                prop_assert!(attempt < max_attempts);
                prop_assert!(wait_ms <= max_backoff_ms.max(longest_ms));
                prop_assert!(wait_ms >= retry_after_ms.unwrap_or(0));
                prop_assert!(wait_ms >= initial_backoff_ms.min(max_backoff_ms) / 2);
            }
        }
    }
}
