//! Decides which records the monitor must read, a few at a time. Performs no I/O.
//!
//! Records of ended runs are read if the event that reports the end was missed, for example while
//! the owner process was unreachable. Elsewhere: which records are missing (`state.rs`).

use std::{collections::HashMap, hash::Hash};

use soong_protocol::{RunId, SessionId, Timestamp};

/// Limits of reads, so that many missing records do not overload the owner of the home.
#[derive(Debug)]
struct ReadLimits {
    /// Maximum number of concurrent reads.
    concurrent: usize,
    /// Minimum interval between two batches of reads, in milliseconds.
    batch_interval_ms: u64,
    /// Delay before a read that gave no complete record is repeated, in milliseconds.
    retry_delay_ms: u64,
}

/// State of the reads of one kind of records, each of which has the key `K`.
#[derive(Debug)]
pub(crate) struct RecordReads<K> {
    limits: ReadLimits,
    /// Records that are being read.
    pending: Vec<K>,
    /// Time at which the last batch of reads was started.
    asked_at: Timestamp,
    /// Records that could not be read completely, and the times of the attempts.
    incomplete: HashMap<K, Timestamp>,
}

impl RecordReads<RunId> {
    /// Reads of runs that have ended.
    pub(crate) fn of_runs() -> Self {
        Self::new(ReadLimits {
            concurrent: 4,
            batch_interval_ms: 200,
            retry_delay_ms: 30_000,
        })
    }
}

impl RecordReads<SessionId> {
    /// Reads of sessions. The actor of a new session may start before its record is complete.
    pub(crate) fn of_sessions() -> Self {
        Self::new(ReadLimits {
            concurrent: 16,
            batch_interval_ms: 0,
            retry_delay_ms: 2_000,
        })
    }
}

impl<K: Clone + Eq + Hash> RecordReads<K> {
    fn new(limits: ReadLimits) -> Self {
        Self {
            limits,
            pending: Vec::new(),
            asked_at: Timestamp::default(),
            incomplete: HashMap::new(),
        }
    }

    /// Returns those of the `missing` records that the caller must read now, each once, and
    /// remembers them as pending.
    pub(crate) fn due(&mut self, missing: impl Iterator<Item = K>, now: Timestamp) -> Vec<K> {
        if now.millis_since(self.asked_at) < self.limits.batch_interval_ms {
            return Vec::new();
        }
        let mut due = Vec::new();
        for key in missing {
            if self.pending.len() >= self.limits.concurrent {
                break;
            }
            let waits = self
                .incomplete
                .get(&key)
                .is_some_and(|at| now.millis_since(*at) < self.limits.retry_delay_ms);
            if !waits && !self.pending.contains(&key) {
                self.pending.push(key.clone());
                due.push(key);
            }
        }
        if !due.is_empty() {
            self.asked_at = now;
        }
        due
    }

    /// Ends a pending read. If it gave no complete record, it is repeated later.
    pub(crate) fn store_result(&mut self, key: &K, is_complete: bool, now: Timestamp) {
        self.pending.retain(|pending| pending != key);
        if !is_complete {
            self.incomplete
                .retain(|_, at| now.millis_since(*at) < self.limits.retry_delay_ms);
            self.incomplete.insert(key.clone(), now);
        }
    }

    /// Forgets all pending and failed reads, because the monitor may now be connected to another
    /// process.
    pub(crate) fn reset(&mut self) {
        self.pending.clear();
        self.incomplete.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_records_are_read_at_a_time_and_failed_reads_wait() {
        let at = Timestamp::from_millis;
        let ids: Vec<RunId> = (0..6).map(|n| RunId::new(format!("r{n}"))).collect();
        let missing = || ids.iter().chain(&ids).cloned();
        let mut reads = RecordReads::of_runs();
        assert_eq!(reads.due(missing(), at(1_000)), ids[..4]);
        reads.store_result(&ids[0], false, at(1_002));
        assert!(
            reads.due(missing(), at(1_002)).is_empty(),
            "the next batch waits"
        );
        assert_eq!(
            reads.due(missing(), at(1_200)),
            ids[4..5],
            "no read is repeated at once"
        );
        reads.store_result(&ids[4], false, at(1_300));
        reads.store_result(&ids[1], false, at(1_300));
        assert_eq!(
            reads.due(missing(), at(40_000)),
            ids[..2],
            "failed reads are repeated later"
        );
    }
}
