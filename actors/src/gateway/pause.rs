//! Pause of a profile after a rate-limit response (HTTP 429) (MOD-3).
//!
//! Pure: the time since the gateway was created is an argument. A rate limit applies to the
//! account, not to one call, so no call of the profile begins before the pause has ended. A *round*
//! is one pause with all the 429 responses that belong to it. A round is *dry* (unsuccessful) if no
//! call succeeded since the previous round, and no call that began before that round is still in
//! flight.
//!
//! Invariants: a pause is never shortened; a round is counted once, however many calls it rejects.
//!
//! Elsewhere: the length of a pause (`actors/model/src/retry.rs`), and which calls give up
//! (`ledger.rs`).

use std::time::Duration;

/// Time without a successful call after which dry rounds count as attempts.
///
/// Services limit per minute. If a call succeeded within the last two minutes, the account is
/// limited, not locked out: the service may name no time, or too short a time, and calls wait for
/// the next minute anyway.
pub(super) const SUCCESS_WINDOW: Duration = Duration::from_secs(120);

/// End of the pause, and the outcome of past rounds.
#[derive(Debug, Default)]
pub(super) struct Pause {
    until: Duration,
    /// When the first 429 response of the current round arrived.
    round_started_at: Option<Duration>,
    /// When a call last succeeded.
    last_success_at: Option<Duration>,
    /// Number of dry rounds. Never decreases.
    failed_rounds: u64,
    /// Number of dry rounds when a call last succeeded.
    failed_rounds_at_success: u64,
}

impl Pause {
    /// Returns the end of the pause. `None` if calls may begin now.
    pub(super) fn until(&self, now: Duration) -> Option<Duration> {
        (self.until > now).then_some(self.until)
    }

    /// Returns the number of failed rounds so far, as the start of a count by
    /// [`Self::failed_rounds_since`].
    pub(super) fn round_mark(&self) -> u64 {
        self.failed_rounds
    }

    /// Returns the number of dry rounds since `mark` that count as attempts: those without a
    /// success since.
    pub(super) fn failed_rounds_since(&self, mark: u64, now: Duration) -> u32 {
        if self.succeeded_recently(now) {
            return 0;
        }
        u32::try_from(self.failed_rounds - mark.max(self.failed_rounds_at_success))
            .unwrap_or(u32::MAX)
    }

    /// Whether a call succeeded within [`SUCCESS_WINDOW`].
    pub(super) fn succeeded_recently(&self, now: Duration) -> bool {
        self.last_success_at
            .is_some_and(|at| now.saturating_sub(at) <= SUCCESS_WINDOW)
    }

    /// Records that a call succeeded.
    pub(super) fn call_succeeded(&mut self, now: Duration) {
        self.last_success_at = Some(now);
        self.failed_rounds_at_success = self.failed_rounds;
    }

    /// Records that the service rate limited a call that began at `begun`.
    ///
    /// `at_work` is when the oldest call in flight began. `length` returns the length of the pause
    /// for the n-th dry round in a row.
    pub(super) fn call_rate_limited(
        &mut self,
        begun: Duration,
        at_work: Option<Duration>,
        now: Duration,
        length: impl FnOnce(u32) -> Duration,
    ) {
        // A call that began before the current round belongs to that round.
        let is_new = self.round_started_at.is_none_or(|at| begun > at);
        if is_new {
            let last = self.round_started_at.unwrap_or(Duration::ZERO);
            let got_through = self.last_success_at.is_some_and(|at| at >= last);
            let is_answered =
                self.round_started_at.is_some() && at_work.is_some_and(|at| at <= last);
            self.failed_rounds += u64::from(!got_through && !is_answered);
            self.round_started_at = Some(now);
        }
        let in_a_row = u32::try_from(self.failed_rounds - self.failed_rounds_at_success)
            .unwrap_or(u32::MAX)
            .max(1);
        self.until = self.until.max(now.saturating_add(length(in_a_row)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pause_lasts_until_latest_requested_end() {
        let mut pause = Pause::default();
        for (begun, now, length, want) in [
            (0, 1, 10, 11),
            (0, 2, 3, 11),
            (0, 3, 30, 33),
            (33, 34, 1, 35),
        ] {
            pause.call_rate_limited(at(begun), None, at(now), |_| at(length));
            assert_eq!(pause.until(at(now)), Some(at(want)), "turned away at {now}");
        }
        assert_eq!(pause.until(at(35)), None);
    }

    #[test]
    fn round_is_unsuccessful_if_no_call_succeeded() {
        let mut pause = Pause::default();
        let mut turned_away = |begun, at_work: Option<u64>, now| {
            pause.call_rate_limited(at(begun), at_work.map(at), at(now), |_| at(2));
            pause.round_mark()
        };
        for (begun, at_work, now, want, why) in [
            (0, None, 1, 1, "nobody ever got through"),
            (0, None, 2, 1, "one of the same wave"),
            (4, None, 5, 2, "the next round"),
            (
                8,
                Some(4),
                9,
                2,
                "another call is being answered since before the last round",
            ),
            (12, Some(11), 13, 3, "that one began after it"),
        ] {
            assert_eq!(turned_away(begun, at_work, now), want, "{why}");
        }
        pause.call_succeeded(at(14));
        pause.call_rate_limited(at(16), None, at(17), |round| at(u64::from(round)));
        assert_eq!(
            (pause.round_mark(), pause.until(at(17))),
            (3, Some(at(18))),
            "a call succeeded since"
        );
        pause.call_rate_limited(at(18), None, at(19), |round| at(u64::from(round)));
        pause.call_rate_limited(at(20), None, at(21), |round| at(u64::from(round)));
        assert_eq!(
            (pause.round_mark(), pause.until(at(21))),
            (5, Some(at(23))),
            "two dry ones in a row"
        );
    }

    #[test]
    fn unsuccessful_rounds_count_per_call_without_recent_success() {
        let mut pause = Pause::default();
        for second in 0..4 {
            pause.call_rate_limited(at(10 * second + 1), None, at(10 * second + 2), |_| at(3));
        }
        assert_eq!(
            (
                pause.failed_rounds_since(0, at(40)),
                pause.failed_rounds_since(3, at(40))
            ),
            (4, 1),
            "nobody ever got through"
        );
        pause.call_succeeded(at(50));
        pause.call_rate_limited(at(60), None, at(61), |_| at(3));
        pause.call_rate_limited(at(70), None, at(71), |_| at(3));
        assert_eq!(
            pause.failed_rounds_since(0, at(80)),
            0,
            "a call succeeded half a minute ago"
        );
        assert_eq!(
            pause.failed_rounds_since(0, at(171)),
            1,
            "what was before counts no more"
        );
    }
}
