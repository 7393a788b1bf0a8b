//! Reports of a child to its parent, one line of JSON each, and the parent's record of them.
//!
//! A report that the parent has read is acknowledged: its data must survive unchanged.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hasher},
    io::Write,
};

use serde::{Deserialize, Serialize};
use soong::{
    RunOutcome,
    protocol::{EndReason, EventRecord, RunStatus, StatsPair, TraceId},
};

use super::invariants::Violation;

/// Returns a hash of event data.
pub(crate) fn hash(data: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(data.as_bytes());
    hasher.finish()
}

/// An observed event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObservedEvent {
    pub(crate) lsn: u64,
    pub(crate) kind: String,
    pub(crate) hash: u64,
}

impl ObservedEvent {
    pub(crate) fn of(record: &EventRecord) -> Self {
        Self {
            lsn: record.lsn,
            kind: record.event.kind().to_owned(),
            hash: hash(&record.data),
        }
    }
}

/// End of the job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobEnd {
    pub(crate) status: RunStatus,
    pub(crate) reason: EndReason,
    pub(crate) output: String,
    pub(crate) stats: StatsPair,
}

impl From<&RunOutcome> for JobEnd {
    fn from(outcome: &RunOutcome) -> Self {
        let RunOutcome {
            status,
            end_reason,
            output,
            stats,
            ..
        } = outcome;
        Self {
            status: *status,
            reason: *end_reason,
            output: output.clone(),
            stats: *stats,
        }
    }
}

/// Report of a child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The home is open.
    Opened,
    /// An event arrived on the session's stream.
    Event {
        trace: TraceId,
        event_id: u64,
        seen: ObservedEvent,
    },
    /// Number of times that each fault point was reached.
    Met(BTreeMap<String, u64>),
    /// The job is done.
    Ended(Box<JobEnd>),
}

impl Report {
    /// Writes the report to stdout as one line, immediately.
    pub(crate) fn say(&self) {
        let Ok(mut line) = serde_json::to_string(self) else {
            return;
        };
        line.push('\n');
        // If the parent is gone, no report is needed.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}

/// All reports of the children of a cycle.
#[derive(Debug, Default)]
pub(crate) struct ReportLedger {
    pub(crate) events: BTreeMap<(TraceId, u64), ObservedEvent>,
    pub(crate) met: BTreeMap<String, u64>,
    pub(crate) ended: Option<JobEnd>,
}

impl ReportLedger {
    /// Records a report. Returns a violation if an event differs from an earlier report of it.
    pub(crate) fn take(&mut self, report: Report) -> Option<Violation> {
        match report {
            Report::Opened => {}
            Report::Met(met) => self.met = met,
            Report::Ended(ended) => self.ended = Some(*ended),
            Report::Event {
                trace,
                event_id,
                seen,
            } => {
                let before = self.events.insert((trace.clone(), event_id), seen.clone());
                if let Some(before) = before.filter(|before| *before != seen) {
                    let what =
                        format!("event {event_id} of {trace} was {before:?} and is {seen:?}");
                    return Some(Violation::new("acknowledged event changed", what));
                }
            }
        }
        None
    }
}
