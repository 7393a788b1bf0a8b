//! The restart policy: how often an actor may be restarted within a time window (ACT-1).
//!
//! Pure: time arrives as an argument.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// A restart limit: at most `restarts` within `window`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RestartLimit {
    pub(crate) restarts: u32,
    pub(crate) window: Duration,
    /// The limit for display: `restarts/window`.
    pub(crate) label: &'static str,
}

/// Limit of runs: 3 restarts in 60 s. After that, the run ends with `actor_crashed`.
pub(crate) const RUN: RestartLimit = RestartLimit {
    restarts: 3,
    window: Duration::from_secs(60),
    label: "3/60s",
};
/// Limit of sessions, gateways and supervisors: 5 restarts in 30 s.
pub(crate) const SUPERVISOR: RestartLimit = RestartLimit {
    restarts: 5,
    window: Duration::from_secs(30),
    label: "5/30s",
};
/// Limit of MCP servers: 5 restarts in 60 s. After that, their tools are unavailable.
#[cfg_attr(not(feature = "mcp"), allow(dead_code))]
pub(crate) const MCP_SERVER: RestartLimit = RestartLimit {
    restarts: 5,
    window: Duration::from_secs(60),
    label: "5/60s",
};
/// Limit of actors that are never restarted automatically.
pub(crate) const NEVER: RestartLimit = RestartLimit {
    restarts: 0,
    window: Duration::ZERO,
    label: "never",
};

/// The crashes of one child within its window.
#[derive(Debug)]
pub(crate) struct CrashHistory {
    intensity: RestartLimit,
    times: VecDeque<Instant>,
}

impl CrashHistory {
    pub(crate) fn new(intensity: RestartLimit) -> Self {
        Self {
            intensity,
            times: VecDeque::new(),
        }
    }

    /// Returns whether the child has exceeded its restart limit and must not be restarted now.
    pub(crate) fn is_exhausted(&self, now: Instant) -> bool {
        let recent = self
            .times
            .iter()
            .filter(|time| now.duration_since(**time) <= self.intensity.window);
        recent.count() > self.intensity.restarts as usize
    }

    /// Records a crash. Returns its number within the window, or `None` if the child must not be
    /// restarted.
    pub(crate) fn record(&mut self, now: Instant) -> Option<u32> {
        while self
            .times
            .front()
            .is_some_and(|time| now.duration_since(*time) > self.intensity.window)
        {
            self.times.pop_front();
        }
        self.times.push_back(now);
        let count = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        (count <= self.intensity.restarts).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fourth_crash_within_a_minute_exceeds_restart_limit() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (times, last) in [
            (vec![0, 1, 2, 3], None),
            (vec![0, 20, 40, 61], Some(3)),
            (vec![0, 100, 200, 300], Some(1)),
            (vec![0, 0, 0], Some(3)),
        ] {
            let mut crashes = CrashHistory::new(RUN);
            let verdicts: Vec<_> = times
                .iter()
                .map(|second| crashes.record(at(*second)))
                .collect();
            assert_eq!(verdicts.last(), Some(&last), "{times:?}");
        }
    }
}
