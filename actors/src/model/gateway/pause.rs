//! The pause of a profile: what a 429 means for everybody (MOD-3).
//!
//! Pure: time is an argument, counted from when the gateway was made. A service that limits speaks of
//! the account, not of one call: nobody begins before the pause is over. A *round* is one pause with
//! all the 429s that belong to it; a round is *dry* where nobody has got through since the one before,
//! and nobody who was let in before it is still being answered.
//! Invariants: a pause is never cut short; rounds are counted once, however many calls they turn away.
//! Not here: how long a pause is (`retry.rs`), and who gives up (`ledger.rs`).

use std::time::Duration;

/// After so long without anybody who got through, dry rounds count as tries.
///
/// Services count in minutes. Whoever was let in within the last two is limited, not shut out: with
/// that, a service may say nothing of when, or too little, and calls wait for the next minute all the same.
pub(super) const DROUGHT: Duration = Duration::from_secs(120);

/// When calls may begin again, and what has got through since when.
#[derive(Debug, Default)]
pub(super) struct Pause {
    until: Duration,
    /// When the first 429 of the present round came.
    round_at: Option<Duration>,
    /// When somebody got through, the last time.
    through_at: Option<Duration>,
    /// Dry rounds in all; only grows.
    dry: u64,
    /// How many of them there were when somebody got through, the last time.
    dry_before: u64,
}

impl Pause {
    /// Until when nobody may begin; `None` = now.
    pub(super) fn until(&self, now: Duration) -> Option<Duration> {
        (self.until > now).then_some(self.until)
    }

    /// Dry rounds so far, for [`dry_rounds`](Self::dry_rounds) to count from.
    pub(super) fn mark(&self) -> u64 {
        self.dry
    }

    /// How many dry rounds there were since `mark` that count as tries: those after which nobody got through.
    pub(super) fn dry_rounds(&self, mark: u64, now: Duration) -> u32 {
        if self.is_moving(now) {
            return 0;
        }
        u32::try_from(self.dry - mark.max(self.dry_before)).unwrap_or(u32::MAX)
    }

    /// Whether somebody got through lately.
    pub(super) fn is_moving(&self, now: Duration) -> bool {
        self.through_at.is_some_and(|at| now.saturating_sub(at) <= DROUGHT)
    }

    /// Somebody got through.
    pub(super) fn through(&mut self, now: Duration) {
        self.through_at = Some(now);
        self.dry_before = self.dry;
    }

    /// A call that began at `begun` was turned away.
    ///
    /// `at_work` is when the eldest of those began that are still being answered; `length` tells how long
    /// the pause is in the n-th dry round in a row.
    pub(super) fn turned_away(
        &mut self,
        begun: Duration,
        at_work: Option<Duration>,
        now: Duration,
        length: impl FnOnce(u32) -> Duration,
    ) {
        // Whoever began before this round did belongs to it: it went out together with the first.
        let is_new = self.round_at.is_none_or(|at| begun > at);
        if is_new {
            let last = self.round_at.unwrap_or(Duration::ZERO);
            let got_through = self.through_at.is_some_and(|at| at >= last);
            let is_answered = self.round_at.is_some() && at_work.is_some_and(|at| at <= last);
            self.dry += u64::from(!got_through && !is_answered);
            self.round_at = Some(now);
        }
        let in_a_row = u32::try_from(self.dry - self.dry_before).unwrap_or(u32::MAX).max(1);
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
    fn a_pause_holds_until_the_last_that_was_asked_for() {
        let mut pause = Pause::default();
        for (begun, now, length, want) in [(0, 1, 10, 11), (0, 2, 3, 11), (0, 3, 30, 33), (33, 34, 1, 35)] {
            pause.turned_away(at(begun), None, at(now), |_| at(length));
            assert_eq!(pause.until(at(now)), Some(at(want)), "turned away at {now}");
        }
        assert_eq!(pause.until(at(35)), None);
    }

    #[test]
    fn rounds_are_dry_where_nobody_gets_through() {
        let mut pause = Pause::default();
        let mut turned_away = |begun, at_work: Option<u64>, now| {
            pause.turned_away(at(begun), at_work.map(at), at(now), |_| at(2));
            pause.mark()
        };
        for (begun, at_work, now, want, why) in [
            (0, None, 1, 1, "nobody ever got through"),
            (0, None, 2, 1, "one of the same wave"),
            (4, None, 5, 2, "the next round"),
            (8, Some(4), 9, 2, "somebody is being answered since before the last round"),
            (12, Some(11), 13, 3, "that one began after it"),
        ] {
            assert_eq!(turned_away(begun, at_work, now), want, "{why}");
        }
        pause.through(at(14));
        pause.turned_away(at(16), None, at(17), |round| at(u64::from(round)));
        assert_eq!((pause.mark(), pause.until(at(17))), (3, Some(at(18))), "somebody got through since");
        pause.turned_away(at(18), None, at(19), |round| at(u64::from(round)));
        pause.turned_away(at(20), None, at(21), |round| at(u64::from(round)));
        assert_eq!((pause.mark(), pause.until(at(21))), (5, Some(at(23))), "two dry ones in a row");
    }

    #[test]
    fn dry_rounds_count_only_after_a_drought_and_since_the_call_came() {
        let mut pause = Pause::default();
        for second in 0..4 {
            pause.turned_away(at(10 * second + 1), None, at(10 * second + 2), |_| at(3));
        }
        assert_eq!((pause.dry_rounds(0, at(40)), pause.dry_rounds(3, at(40))), (4, 1), "nobody ever got through");
        pause.through(at(50));
        pause.turned_away(at(60), None, at(61), |_| at(3));
        pause.turned_away(at(70), None, at(71), |_| at(3));
        assert_eq!(pause.dry_rounds(0, at(80)), 0, "somebody got through half a minute ago");
        assert_eq!(pause.dry_rounds(0, at(171)), 1, "what was before counts no more");
    }
}
