//! Sums over all runs of a table, and their display on one line.
//!
//! Pure. Invariant: a cost is shown only if all parts of it are known.

use soong_protocol::Timestamp;

use super::run_table::{DisplayState, RunTable};
use crate::{format, spent::Spent};

/// Number of runs in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Active runs.
    pub working: usize,
    /// Waiting and interrupted runs.
    pub waiting: usize,
    /// Queued runs.
    pub queued: usize,
    /// Completed runs.
    pub done: usize,
    /// Failed runs.
    pub failed: usize,
    /// Cancelled runs.
    pub cancelled: usize,
}

impl Counts {
    /// Counts states.
    pub fn of(states: impl Iterator<Item = DisplayState>) -> Self {
        let mut counts = Self::default();
        for state in states {
            *match state {
                DisplayState::Active => &mut counts.working,
                DisplayState::Waiting => &mut counts.waiting,
                DisplayState::Queued => &mut counts.queued,
                DisplayState::Done => &mut counts.done,
                DisplayState::Failed => &mut counts.failed,
                DisplayState::Cancelled => &mut counts.cancelled,
            } += 1;
        }
        counts
    }

    /// Formats the counts that are not 0: `2 queued, 3 done`.
    pub fn summary(&self) -> String {
        let named = [
            (self.working, "active"),
            (self.waiting, "waiting"),
            (self.queued, "queued"),
            (self.done, "done"),
            (self.failed, "failed"),
            (self.cancelled, "cancelled"),
        ];
        let parts: Vec<String> = named
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{n} {what}"))
            .collect();
        parts.join(", ")
    }
}

/// Sums over all runs of a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTotals {
    /// Number of runs in each state.
    pub counts: Counts,
    /// Tokens and cost.
    pub spent: Spent,
    /// From the first start to the last end, or to now while a run has not ended, in milliseconds.
    pub elapsed_ms: u64,
}

impl RunTable {
    /// Returns the sums over all runs.
    pub fn totals(&self, now: Timestamp) -> RunTotals {
        let spent = self
            .entries
            .iter()
            .map(|entry| entry.spent)
            .filter(|spent| spent.tokens > 0);
        let is_open = self.entries.iter().any(|entry| !entry.state.has_ended());
        let started = self
            .entries
            .iter()
            .filter_map(|entry| entry.started_at)
            .min();
        let ended = self
            .entries
            .iter()
            .filter_map(|entry| entry.ended_at)
            .max()
            .filter(|_| !is_open);
        RunTotals {
            counts: Counts::of(self.entries.iter().map(|entry| entry.state)),
            spent: spent.fold(Spent::NOTHING, Spent::plus),
            elapsed_ms: started.map_or(0, |started| ended.unwrap_or(now).millis_since(started)),
        }
    }
}

impl RunTotals {
    /// Formats the sums as parts: `12 s`, `1 queued, 2 done`, `5.1k tok`, `$0.0123`.
    pub fn summary_parts(&self) -> Vec<String> {
        let mut parts = vec![format::duration(self.elapsed_ms), self.counts.summary()];
        if self.spent.tokens > 0 {
            parts.push(format!("{} tok", self.spent.tokens()));
            parts.push(self.spent.usd_or("cost unknown"));
        }
        parts.retain(|part| !part.is_empty());
        parts
    }
}

#[cfg(test)]
mod tests {
    use soong_protocol::{RunId, Usd};

    use super::*;

    /// State, tokens, cents, start, end.
    type Used = (DisplayState, u64, Option<u64>, i64, Option<i64>);

    fn board(runs: &[Used]) -> RunTable {
        let mut board = RunTable::default();
        for (n, (state, tokens, cents, start, end)) in runs.iter().enumerate() {
            let mut one = RunTable::with_root(RunId::new(n.to_string()), "explore", "look")
                .entries
                .remove(0);
            one.state = *state;
            one.spent.tokens = *tokens;
            one.spent.cost = cents.map(|cents| Usd::from_nanos(cents * 10_000_000));
            one.started_at = Some(Timestamp::from_millis(*start));
            one.ended_at = end.map(Timestamp::from_millis);
            board.entries.push(one);
        }
        board
    }

    #[test]
    fn totals_cover_all_runs() {
        let now = Timestamp::from_millis(60_000);
        for (runs, want) in [
            (vec![], "0.0 s"),
            (
                vec![(DisplayState::Active, 0, None, 48_000, None)],
                "12 s   1 active",
            ),
            (
                vec![
                    (DisplayState::Active, 5_000, Some(1), 1_000, None),
                    (DisplayState::Done, 100, Some(2), 2_000, Some(3_000)),
                ],
                "59 s   1 active, 1 done   5.1k tok   $0.0300",
            ),
            (
                vec![
                    (DisplayState::Failed, 5, Some(1), 1_000, Some(2_000)),
                    (DisplayState::Done, 5, None, 2_000, Some(5_000)),
                ],
                "4.0 s   1 done, 1 failed   10 tok   cost unknown",
            ),
            (
                // A run without usage has no unknown cost.
                vec![
                    (DisplayState::Cancelled, 0, None, 1_000, Some(2_000)),
                    (DisplayState::Queued, 9, Some(0), 2_000, None),
                ],
                "59 s   1 queued, 1 cancelled   9 tok   $0.00",
            ),
        ] {
            assert_eq!(
                board(&runs).totals(now).summary_parts().join("   "),
                want,
                "{runs:?}"
            );
        }
    }
}
