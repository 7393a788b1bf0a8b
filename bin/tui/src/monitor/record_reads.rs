//! Decides which run records the monitor must read to learn how runs ended, and when.
//!
//! This module performs no I/O. Usually a tree event reports how a run ended. The monitor misses that event while the
//! owner process is unreachable, or if a snapshot replaces the changes; then it reads the record of the run. It reads
//! only a few records at a time, so that the end of a thousand runs does not overload the owner. A read that failed is
//! repeated after 30 s.

use std::collections::HashMap;

use soong_protocol::{RunId, Timestamp};

use super::actor_index::ActorIndex;

/// Maximum number of concurrent reads.
const MAX_CONCURRENT_READS: usize = 4;
/// Minimum interval between two batches of reads, in milliseconds.
const BATCH_INTERVAL_MS: u64 = 200;
/// Delay before a failed read is repeated, in milliseconds.
const RETRY_DELAY_MS: u64 = 30_000;

/// State of the reads of run records.
#[derive(Debug, Default)]
pub(crate) struct FinishedRuns {
    /// Runs whose records are being read.
    pending: Vec<RunId>,
    /// Time at which the last batch of reads was started.
    asked_at: Timestamp,
    /// Runs whose records could not be read, and the times of the failures.
    unreadable: HashMap<RunId, Timestamp>,
}

impl FinishedRuns {
    /// Returns the runs whose records the caller must read now, the newest first, and remembers them as pending.
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

    /// Ends a pending read. If it failed, the record is read again after [`RETRY_DELAY_MS`].
    pub(crate) fn store_result(&mut self, run: &RunId, is_read: bool, now: Timestamp) {
        self.pending.retain(|out| out != run);
        if !is_read {
            self.unreadable.retain(|_, at| now.millis_since(*at) < RETRY_DELAY_MS);
            self.unreadable.insert(run.clone(), now);
        }
    }

    /// Forgets all pending and failed reads, because the monitor may now be connected to another process.
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
