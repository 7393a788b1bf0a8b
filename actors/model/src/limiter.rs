//! Rate limiter: requests and tokens that a profile may send per minute (MOD-3, ACT-4).
//!
//! Pure: the time since the gateway was created is an argument. Services count in different ways:
//! in fixed windows, sliding windows or token buckets. This limiter satisfies all of them: in any
//! 60 s, no more than the limit is sent, and all of it may be sent at once.
//!
//! Invariants: the limit holds in every window, in any order of reserving, beginning, giving back
//! and settling; a reservation counts until it is given back.
//!
//! Elsewhere: which call is next, and which calls wait (`actors/src/gateway/`).

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

/// Maximum number of tokens counted for one call. Protects the sums from overflow, whatever a
/// provider reports.
const MAX_TOKENS_PER_CALL: u64 = 1 << 40;
/// How long a call counts. Services count calls when they arrive, not when they are sent; the
/// second beyond the minute covers that difference and costs 1.6 % of the rate.
pub const WINDOW: Duration = Duration::from_secs(61);

/// A limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Requests per minute.
    Requests,
    /// Tokens per minute.
    Tokens,
}

/// Why a call does not fit at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitReached {
    /// The limit.
    pub limit: Limit,
    /// The earliest time at which the call fits, unless tokens are given back sooner.
    pub until: Duration,
}

/// Usage of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Requests of the last window.
    pub requests: u64,
    /// Maximum number of requests per window. 0: no limit.
    pub max_requests: u64,
    /// Tokens of the last window.
    pub tokens: u64,
    /// Maximum number of tokens per window. 0: no limit.
    pub max_tokens: u64,
}

/// Counts the calls of the last window, both sent and reserved.
#[derive(Debug)]
pub struct Limiter {
    /// 0 if there is no limit; the same applies to tokens.
    max_requests: u64,
    max_tokens: u64,
    /// Tokens of calls that have begun within the window, by time and call id.
    begun: BTreeMap<(Duration, u64), u64>,
    /// Tokens of calls that hold a permit but have not begun, by call id.
    reserved: HashMap<u64, u64>,
    /// Sum of the tokens in both maps.
    tokens: u64,
}

impl Limiter {
    /// Creates a limiter. 0 means no limit.
    pub fn new(requests_per_minute: u64, tokens_per_minute: u64) -> Self {
        Self {
            max_requests: requests_per_minute,
            max_tokens: tokens_per_minute,
            begun: BTreeMap::new(),
            reserved: HashMap::new(),
            tokens: 0,
        }
    }

    /// Reserves the tokens that a call may use.
    ///
    /// A call larger than the whole limit is admitted when nothing else counts, so that it runs
    /// alone instead of never.
    pub fn reserve(&mut self, id: u64, tokens: u64, now: Duration) -> Result<(), LimitReached> {
        if !self.has_limits() {
            return Ok(());
        }
        self.remove_expired(now);
        let tokens = self.cost(tokens);
        let by_requests = self.requests_free_at(now).map(|until| LimitReached {
            limit: Limit::Requests,
            until,
        });
        let by_tokens = self.tokens_free_at(tokens, now).map(|until| LimitReached {
            limit: Limit::Tokens,
            until,
        });
        if let Some(full) = [by_requests, by_tokens]
            .into_iter()
            .flatten()
            .max_by_key(|full| full.until)
        {
            return Err(full);
        }
        self.reserved.insert(id, tokens);
        self.tokens += tokens;
        Ok(())
    }

    /// Starts a call: its window starts now.
    pub fn begin(&mut self, id: u64, now: Duration) {
        if let Some(tokens) = self.reserved.remove(&id) {
            self.begun.insert((now, id), tokens);
        }
    }

    /// Releases the reservation of a call that was never made.
    pub fn give_back(&mut self, id: u64) {
        if let Some(tokens) = self.reserved.remove(&id) {
            self.tokens -= tokens;
        }
    }

    /// Sets the tokens that a call used, which began at `begun`. Calls that have left the window
    /// are ignored.
    pub fn settle(&mut self, id: u64, begun: Duration, used: u64) {
        let Some(tokens) = self.begun.get_mut(&(begun, id)) else {
            return;
        };
        if self.max_tokens > 0 {
            let used = used.min(MAX_TOKENS_PER_CALL);
            self.tokens = self.tokens - *tokens + used;
            *tokens = used;
        }
        if *tokens == 0 && self.max_requests == 0 {
            self.begun.remove(&(begun, id));
        }
    }

    /// Returns the current usage.
    pub fn rate(&self, now: Duration) -> Rate {
        let begun = || {
            self.begun
                .iter()
                .rev()
                .take_while(|((at, _), _)| *at + WINDOW > now)
                .map(|(_, tokens)| *tokens)
        };
        let (sent, sent_tokens) =
            begun().fold((0, 0), |(calls, sum), tokens| (calls + 1, sum + tokens));
        let held_tokens: u64 = self.reserved.values().sum();
        Rate {
            requests: sent + self.reserved.len() as u64,
            max_requests: self.max_requests,
            tokens: sent_tokens + held_tokens,
            max_tokens: self.max_tokens,
        }
    }

    fn has_limits(&self) -> bool {
        self.max_requests > 0 || self.max_tokens > 0
    }

    /// Returns the tokens that a call counts as: at least one, so that the number of remembered
    /// calls is bounded by the limit.
    fn cost(&self, tokens: u64) -> u64 {
        if self.max_tokens == 0 {
            0
        } else {
            tokens.clamp(1, self.max_tokens)
        }
    }

    fn remove_expired(&mut self, now: Duration) {
        while let Some(oldest) = self.begun.first_entry()
            && oldest.key().0 + WINDOW <= now
        {
            self.tokens -= oldest.remove();
        }
    }

    /// Returns when one more request fits; `None` if it fits now.
    fn requests_free_at(&self, now: Duration) -> Option<Duration> {
        let count = self.begun.len() + self.reserved.len();
        let max = usize::try_from(self.max_requests).unwrap_or(usize::MAX);
        if max == 0 || count < max {
            return None;
        }
        let oldest = self.begun.keys().nth(count - max).map(|(at, _)| *at);
        Some(oldest.unwrap_or(now) + WINDOW)
    }

    /// Returns when that many tokens fit; `None` if they fit now.
    fn tokens_free_at(&self, tokens: u64, now: Duration) -> Option<Duration> {
        let mut over = (self.tokens + tokens).saturating_sub(self.max_tokens);
        if self.max_tokens == 0 || over == 0 {
            return None;
        }
        for ((at, _), expired) in &self.begun {
            over = over.saturating_sub(*expired);
            if over == 0 {
                return Some(*at + WINDOW);
            }
        }
        Some(now + WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Sends calls with these tokens one after the other, each as soon as possible. Returns when
    /// each was sent, in seconds.
    fn sent_at(limiter: &mut Limiter, calls: &[u64]) -> Vec<u64> {
        let mut now = Duration::ZERO;
        let times = (0_u64..).zip(calls).map(|(id, tokens)| {
            while let Err(full) = limiter.reserve(id, *tokens, now) {
                assert!(full.until > now, "it would be asked for ever");
                now = full.until;
            }
            limiter.begin(id, now);
            now.as_secs()
        });
        times.collect()
    }

    #[test]
    fn calls_start_at_the_times_in_the_table() {
        for (requests, tokens, calls, want) in [
            (0, 0, vec![9; 4], vec![0, 0, 0, 0]),        // no limit
            (2, 0, vec![9; 5], vec![0, 0, 61, 61, 122]), // a burst, then the next window
            (0, 10, vec![4; 5], vec![0, 0, 61, 61, 122]),
            (3, 10, vec![4; 5], vec![0, 0, 61, 61, 122]), // the narrower limit applies
            (1, 10, vec![4; 3], vec![0, 61, 122]),
            (0, 10, vec![4, 50, 4], vec![0, 61, 122]), // larger than the limit: alone
            (0, 10, vec![0; 12], [vec![0; 10], vec![61; 2]].concat()), // unknown number of tokens: at least one
        ] {
            let mut limiter = Limiter::new(requests, tokens);
            assert_eq!(
                sent_at(&mut limiter, &calls),
                want,
                "{requests} requests, {tokens} tokens: {calls:?}"
            );
        }
    }

    #[test]
    fn actual_usage_replaces_the_estimate() {
        for (used, want) in [(2, None), (6, None), (7, Some(at(61))), (200, Some(at(61)))] {
            let mut limiter = Limiter::new(0, 10);
            limiter.reserve(1, 9, at(0)).unwrap();
            limiter.begin(1, at(0));
            limiter.settle(1, at(0), used);
            let room = limiter.reserve(2, 4, at(5));
            assert_eq!(
                room.err().map(|full| full.until),
                want,
                "{used} tokens used"
            );
        }
    }

    #[test]
    fn reservation_counts_until_released() {
        let mut limiter = Limiter::new(1, 0);
        limiter.reserve(1, 0, at(0)).unwrap();
        assert!(
            limiter.reserve(2, 0, at(500)).is_err(),
            "the first has not even begun"
        );
        limiter.give_back(1);
        limiter.reserve(2, 0, at(500)).unwrap();
    }

    #[test]
    fn no_state_is_kept_without_limits() {
        let mut limiter = Limiter::new(0, 0);
        for id in 0..100 {
            limiter.reserve(id, 5, at(0)).unwrap();
            limiter.begin(id, at(0));
        }
        assert!(limiter.begun.is_empty() && limiter.reserved.is_empty());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Reserve { tokens: u64 },
        Begin { which: usize },
        GiveBack { which: usize },
        Settle { which: usize, share: u64 },
        Later { ms: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u64..30).prop_map(|tokens| Step::Reserve { tokens }),
            4 => any::<usize>().prop_map(|which| Step::Begin { which }),
            1 => any::<usize>().prop_map(|which| Step::GiveBack { which }),
            1 => (any::<usize>(), 0_u64..=100).prop_map(|(which, share)| Step::Settle { which, share }),
            3 => (0_u64..40_000).prop_map(|ms| Step::Later { ms }),
        ]
    }

    proptest! {
        #[test]
        fn limit_holds_in_every_minute(
            max_requests in 0_u64..6, max_tokens in 0_u64..40, steps in vec(step(), 0..120),
        ) {
            let mut limiter = Limiter::new(max_requests, max_tokens);
            let mut now = Duration::ZERO;
            let mut waiting: Vec<(u64, u64)> = Vec::new();
            let mut begun: Vec<(Duration, u64, u64)> = Vec::new();
            for (id, step) in (0_u64..).zip(steps) {
                match step {
                    Step::Reserve { tokens } => match limiter.reserve(id, tokens, now) {
                        Ok(()) => waiting.push((id, tokens)),
                        Err(full) => prop_assert!(full.until > now, "an empty wait"),
                    },
                    Step::Begin { which } if !waiting.is_empty() => {
                        let (id, tokens) = waiting.remove(which % waiting.len());
                        limiter.begin(id, now);
                        begun.push((now, id, tokens));
                    }
                    Step::GiveBack { which } if !waiting.is_empty() => {
                        limiter.give_back(waiting.remove(which % waiting.len()).0);
                    }
                    // Estimates are upper bounds here: the limiter cannot prevent usage beyond an
                    // estimate.
                    Step::Settle { which, share } if !begun.is_empty() => {
                        let which = which % begun.len();
                        let (at, id, tokens) = &mut begun[which];
                        *tokens = *tokens * share / 100;
                        limiter.settle(*id, *at, *tokens);
                    }
                    Step::Later { ms } => now += Duration::from_millis(ms),
                    _ => {}
                }
            }
            for (end, _, _) in &begun {
                let window = || begun.iter().filter(|(at, _, _)| at <= end && *at + MINUTE > *end);
                let count = window().count();
                let used: u64 = window().map(|(_, _, tokens)| tokens).sum();
                prop_assert!(max_requests == 0 || count as u64 <= max_requests, "{count} within a minute of {end:?}");
                let is_alone = window().filter(|(_, _, tokens)| *tokens > 0).count() == 1;
                prop_assert!(max_tokens == 0 || used <= max_tokens || is_alone, "{used} tokens by {end:?}");
            }
            // When everything is given back and the window has passed, the whole limit is
            // available.
            for (id, _) in waiting {
                limiter.give_back(id);
            }
            now += WINDOW;
            let (calls, tokens) = if max_requests == 0 { (1, max_tokens) } else { (max_requests, 1) };
            for id in 1_000..1_000 + calls.min(if max_tokens == 0 { calls } else { max_tokens }) {
                prop_assert!(limiter.reserve(id, tokens, now).is_ok());
            }
        }
    }
}
