//! Circuit breaker of a profile: when its provider counts as down, and when it is tried again
//! (MOD-3).
//!
//! Pure: the time since the gateway was created is an argument; calls are identified by number.
//!
//! Invariants: while the breaker is open, no call begins before the pause has ended; after that,
//! one probe at a time decides; any answer closes the breaker.
//!
//! Elsewhere: which failures count, and how long a call waits (`actors/src/gateway/ledger.rs`).

use std::time::Duration;

/// Number of consecutive failures after which the provider counts as down.
pub const FAILURE_THRESHOLD: u32 = 5;

/// Status of a provider that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Time of the first failure.
    pub since: Duration,
    /// Failures in a row.
    pub failures: u32,
    /// When the provider is tried again. `None` while a probe is in flight.
    pub until: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open { until: Duration, pause: Duration },
    HalfOpen { probe: u64, pause: Duration },
}

/// Holds calls back from a provider that is down.
#[derive(Debug)]
pub struct Breaker {
    first_pause: Duration,
    max_pause: Duration,
    state: State,
    /// Number of consecutive failures.
    failures: u32,
    /// Time of the first of these failures.
    since: Duration,
}

impl Breaker {
    /// Creates a closed breaker. Pauses double from `first_pause` up to `longest_pause`.
    pub fn new(first_pause: Duration, longest_pause: Duration) -> Self {
        let first_pause = first_pause.min(longest_pause);
        Self {
            first_pause,
            max_pause: longest_pause,
            state: State::Closed,
            failures: 0,
            since: Duration::ZERO,
        }
    }

    /// Returns why no call may pass at the moment, or `None` if calls may pass.
    pub fn outage(&self, now: Duration) -> Option<Outage> {
        let until = match self.state {
            State::Closed => return None,
            State::Open { until, .. } if until <= now => return None,
            State::Open { until, .. } => Some(until),
            State::HalfOpen { .. } => None,
        };
        Some(Outage {
            since: self.since,
            failures: self.failures,
            until,
        })
    }

    /// Records that a call was admitted. After a pause, this call is the probe.
    pub fn admit(&mut self, id: u64) {
        if let State::Open { pause, .. } = self.state {
            self.state = State::HalfOpen { probe: id, pause };
        }
    }

    /// Whether an admitted call may begin: the provider may have failed since it was admitted.
    pub fn may_begin(&self, id: u64) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { .. } => false,
            State::HalfOpen { probe, .. } => probe == id,
        }
    }

    /// Records a failure that indicates that the provider is down.
    pub fn record_failure(&mut self, id: u64, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            self.since = now;
        }
        let open = |pause: Duration| State::Open {
            until: now.saturating_add(pause),
            pause,
        };
        self.state = match self.state {
            State::Closed if self.failures >= FAILURE_THRESHOLD => open(self.first_pause),
            State::HalfOpen { probe, pause } if probe == id => {
                open(pause.saturating_mul(2).min(self.max_pause))
            }
            // Failures of calls that began earlier carry no new information.
            state => state,
        };
    }

    /// Records that the provider answered, with any content.
    pub fn record_answer(&mut self) {
        self.failures = 0;
        self.state = State::Closed;
    }

    /// Records that a call ended without information about the provider. If it was the probe, the
    /// next call becomes the probe.
    pub fn record_unknown(&mut self, id: u64, now: Duration) {
        if let State::HalfOpen { probe, pause } = self.state
            && probe == id
        {
            self.state = State::Open { until: now, pause };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const FIRST: Duration = Duration::from_secs(2);
    const LONGEST: Duration = Duration::from_secs(7);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Returns a breaker that was opened at 10 s.
    fn tripped() -> Breaker {
        let mut breaker = Breaker::new(FIRST, LONGEST);
        (0..FAILURE_THRESHOLD.into()).for_each(|id| breaker.record_failure(id, at(10)));
        breaker
    }

    #[test]
    fn state_transitions_follow_the_table() {
        type Step = fn(&mut Breaker);
        let down = |failures, until: Option<u64>| {
            Some(Outage {
                since: at(10),
                failures,
                until: until.map(at),
            })
        };
        let half_open: Step = |b| b.admit(9);
        let cases: Vec<(&str, Vec<Step>, u64, Option<Outage>)> = vec![
            ("it opens", vec![], 11, down(5, Some(12))),
            ("the pause is over", vec![], 12, None),
            ("one probe", vec![half_open], 12, down(5, None)),
            (
                "late news are none",
                vec![|b| b.record_failure(3, at(11))],
                11,
                down(6, Some(12)),
            ),
            (
                "late good news close it",
                vec![Breaker::record_answer],
                11,
                None,
            ),
            (
                "the probe fails: twice as long",
                vec![half_open, |b| b.record_failure(9, at(12))],
                12,
                down(6, Some(16)),
            ),
            (
                "not beyond the longest",
                vec![
                    half_open,
                    |b| b.record_failure(9, at(12)),
                    |b| b.admit(10),
                    |b| b.record_failure(10, at(16)),
                ],
                16,
                down(7, Some(23)),
            ),
            (
                "another call's failure",
                vec![half_open, |b| b.record_failure(3, at(12))],
                12,
                down(6, None),
            ),
            (
                "the probe answers",
                vec![half_open, Breaker::record_answer],
                12,
                None,
            ),
            (
                "the probe is lost: the next one",
                vec![half_open, |b| b.record_unknown(9, at(13))],
                13,
                None,
            ),
            (
                "another call is lost",
                vec![half_open, |b| b.record_unknown(3, at(13))],
                13,
                down(5, None),
            ),
        ];
        for (name, steps, now, want) in cases {
            let mut breaker = tripped();
            steps.into_iter().for_each(|step| step(&mut breaker));
            assert_eq!(breaker.outage(at(now)), want, "{name}");
        }
    }

    #[test]
    fn breaker_stays_closed_below_failure_threshold() {
        let mut breaker = Breaker::new(FIRST, LONGEST);
        for id in 0..100 {
            breaker.record_failure(id, at(id));
            if id % u64::from(FAILURE_THRESHOLD - 1) == 0 {
                breaker.record_answer();
            }
            assert!(
                breaker.outage(at(id)).is_none() && breaker.may_begin(id),
                "after {id}"
            );
        }
    }

    proptest! {
        #[test]
        fn open_breaker_admits_one_probe_after_its_pause(
            steps in vec((0_u8..5, 0_u64..4_000), 0..200),
        ) {
            let mut breaker = Breaker::new(FIRST, LONGEST);
            let mut now = Duration::ZERO;
            let mut next = 0;
            let mut failures = 0;
            let mut out: Vec<u64> = Vec::new();
            let mut probe: Option<u64> = None;
            for (what, number) in steps {
                let picked = (!out.is_empty()).then(|| out[number as usize % out.len()]);
                match (what, picked) {
                    (0, _) => now += Duration::from_millis(number),
                    (1, _) if breaker.outage(now).is_none() => {
                        let is_probe = failures >= FAILURE_THRESHOLD;
                        prop_assert!(!is_probe || probe.is_none(), "two probes");
                        breaker.admit(next);
                        probe = is_probe.then_some(next);
                        prop_assert!(breaker.may_begin(next));
                        out.push(next);
                        next += 1;
                    }
                    (1, _) => {
                        let down = breaker.outage(now).unwrap();
                        prop_assert!(failures >= FAILURE_THRESHOLD);
                        prop_assert!(down.until.is_none_or(|until| until <= now + LONGEST));
                        prop_assert_eq!(down.until.is_none(), probe.is_some());
                    }
                    (_, None) => {}
                    (what, Some(id)) => {
                        out.retain(|other| *other != id);
                        let was_probe = probe.take_if(|probe| *probe == id).is_some();
                        match what {
                            2 => {
                                breaker.record_failure(id, now);
                                failures += 1;
                                if was_probe {
                                    prop_assert!(breaker.outage(now).unwrap().until.unwrap() > now);
                                }
                            }
                            3 => {
                                breaker.record_answer();
                                failures = 0;
                                probe = None;
                                prop_assert!(breaker.outage(now).is_none());
                            }
                            _ => breaker.record_unknown(id, now),
                        }
                    }
                }
            }
        }
    }
}
