//! Usage in each of the last seconds.
//!
//! Pure: time is an argument. Invariant: at most [`SECONDS`] seconds are stored.

use std::collections::VecDeque;

use soong_protocol::Timestamp;

/// Number of stored seconds.
pub(crate) const SECONDS: usize = 60;

/// Tokens and events per second.
#[derive(Debug, Default, Clone)]
pub(crate) struct UsageHistory {
    /// Second of the newest entry, since the epoch.
    last: i64,
    /// Tokens and events of each second since the first recorded usage, the newest last. Seconds
    /// without usage are included.
    beats: VecDeque<(u64, u64)>,
}

fn second(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(1_000)
}

impl UsageHistory {
    /// Records used tokens and new events.
    pub(crate) fn record(&mut self, now: Timestamp, tokens: u64, events: u64) {
        let now = second(now);
        if self.beats.is_empty() {
            self.last = now;
            self.beats = VecDeque::from([(0, 0)]);
        }
        // If the clock was set back, usage is added to the newest second.
        let passed = usize::try_from(now - self.last).unwrap_or(0).min(SECONDS);
        self.beats.extend(std::iter::repeat_n((0, 0), passed));
        self.beats.drain(..self.beats.len().saturating_sub(SECONDS));
        self.last = self.last.max(now);
        if let Some(newest) = self.beats.back_mut() {
            newest.0 += tokens;
            newest.1 += events;
        }
    }

    /// Returns the last `count` whole seconds before `now`, the newest last.
    pub(crate) fn samples(&self, now: Timestamp, count: usize) -> Vec<(u64, u64)> {
        let end = second(now) - 1;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        (end - count + 1..=end)
            .map(|second| self.at(second))
            .collect()
    }

    fn at(&self, second: i64) -> (u64, u64) {
        let back = usize::try_from(self.last - second).ok();
        let index = back.and_then(|back| self.beats.len().checked_sub(back + 1));
        index
            .and_then(|index| self.beats.get(index))
            .copied()
            .unwrap_or_default()
    }

    /// Returns the mean per second over the last whole seconds.
    pub(crate) fn rate(&self, now: Timestamp, seconds: usize) -> (u64, u64) {
        let beats = self.samples(now, seconds);
        let sum = beats
            .iter()
            .fold((0, 0), |sum, beat| (sum.0 + beat.0, sum.1 + beat.1));
        let count = u64::try_from(seconds.max(1)).unwrap_or(1);
        (sum.0 / count, sum.1 / count)
    }

    #[cfg(test)]
    pub(crate) fn sum(&self) -> (u64, u64) {
        self.beats
            .iter()
            .fold((0, 0), |sum, beat| (sum.0 + beat.0, sum.1 + beat.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_counted_per_second_and_old_seconds_are_dropped() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000 + 300);
        let mut pulse = UsageHistory::default();
        assert_eq!(pulse.samples(at(5), 2), [(0, 0), (0, 0)]);
        for (second, tokens) in [(10, 1), (10, 2), (12, 4), (11, 8)] {
            pulse.record(at(second), tokens, 1);
        }
        assert_eq!(pulse.samples(at(13), 4), [(0, 0), (3, 2), (0, 0), (12, 2)]);
        assert_eq!(pulse.samples(at(15), 4), [(0, 0), (12, 2), (0, 0), (0, 0)]);
        assert_eq!(pulse.rate(at(13), 3), (5, 1));
        pulse.record(at(1_000), 1, 0);
        assert_eq!((pulse.sum(), pulse.beats.len()), ((1, 0), SECONDS));
    }
}
