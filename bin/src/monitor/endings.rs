//! Decides which records of ended runs must be read, and when.
//!
//! Pure. The tree reports how a run ended, except if the event was missed: while the owner was unreachable, or if a
//! snapshot replaced the changes. Only a few records are read at a time, so that the end of a thousand runs does not
//! overload the owner. A record that could not be read is retried after 30 s.

use std::collections::HashMap;

use soong::protocol::{RunId, Timestamp};

use super::forest::ActorIndex;

/// Maximum number of concurrent reads.
const MAX_CONCURRENT_READS: usize = 4;
/// Minimum interval between two batches of reads, in milliseconds.
const BATCH_INTERVAL_MS: u64 = 200;
/// Delay before a failed read is repeated, in milliseconds.
const RETRY_DELAY_MS: u64 = 30_000;

#[derive(Debug, Default)]
pub(crate) struct FinishedRuns {
    pending: Vec<RunId>,
    asked_at: Timestamp,
    /// Runs whose records could not be read, and when.
    unreadable: HashMap<RunId, Timestamp>,
}

impl FinishedRuns {
    /// Returns the runs whose records are to be read now, the newest first.
    pub(crate) fn due_reads(&mut self, forest: &ActorIndex, now: Timestamp) -> Vec<RunId> {
        if now.millis_since(self.asked_at) < BATCH_INTERVAL_MS {
            return Vec::new();
        }
        let room = MAX_CONCURRENT_READS.saturating_sub(self.pending.len());
        let may = |run: &RunId| {
            let rests = self.unreadable.get(run).is_some_and(|at| now.millis_since(*at) < RETRY_DELAY_MS);
            !rests && !self.pending.contains(run)
        };
        let wanted: Vec<RunId> = forest.unrecorded().filter(may).take(room).collect();
        if !wanted.is_empty() {
            self.asked_at = now;
        }
        self.pending.extend(wanted.iter().cloned());
        wanted
    }

    /// Stores whether a record could be read.
    pub(crate) fn store_result(&mut self, run: &RunId, is_read: bool, now: Timestamp) {
        self.pending.retain(|out| out != run);
        if !is_read {
            self.unreadable.retain(|_, at| now.millis_since(*at) < RETRY_DELAY_MS);
            self.unreadable.insert(run.clone(), now);
        }
    }

    /// Drops all pending reads, because they belong to another process.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::sample::{changed, run, tree};

    #[test]
    fn newest_runs_are_read_first_and_failed_reads_wait() {
        let at = Timestamp::from_millis;
        let mut forest = ActorIndex::default();
        let ids: Vec<String> = (0..6).map(|n| format!("r{n}")).collect();
        forest.apply(tree(ids.iter().map(|id| run(id, None)).collect()), at(0));
        let gone: Vec<String> = ids.iter().map(|id| format!("run:{id}")).collect();
        forest.apply(changed(vec![], &gone.iter().map(String::as_str).collect::<Vec<_>>()), at(1));
        let mut endings = FinishedRuns::default();
        let first = endings.due_reads(&forest, at(1_000));
        assert_eq!(first, ["r5", "r4", "r3", "r2"].map(RunId::new));
        endings.store_result(&first[0], false, at(1_002));
        assert!(endings.due_reads(&forest, at(1_002)).is_empty(), "not one after the other as fast as it goes");
        assert_eq!(endings.due_reads(&forest, at(1_200)), [RunId::new("r1")], "not the same again");
        endings.store_result(&RunId::new("r1"), false, at(1_300));
        endings.store_result(&RunId::new("r4"), false, at(1_300));
        assert_eq!(endings.due_reads(&forest, at(40_000)), ["r5", "r4"].map(RunId::new), "after a while");
    }
}
