//! What a child tells its parent, a line of JSON each, and what the parent remembers of it.
//!
//! What the parent has read was acknowledged: it must survive, unchanged.

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

use super::check::Violation;

/// Data in short.
pub(crate) fn hash(data: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(data.as_bytes());
    hasher.finish()
}

/// An event as it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) lsn: u64,
    pub(crate) kind: String,
    pub(crate) hash: u64,
}

impl Seen {
    pub(crate) fn of(record: &EventRecord) -> Self {
        Self { lsn: record.lsn, kind: record.event.kind().to_owned(), hash: hash(&record.data) }
    }
}

/// How the job ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) status: RunStatus,
    pub(crate) reason: EndReason,
    pub(crate) output: String,
    pub(crate) stats: StatsPair,
}

impl From<&RunOutcome> for Ended {
    fn from(outcome: &RunOutcome) -> Self {
        let RunOutcome { status, end_reason, output, stats, .. } = outcome;
        Self { status: *status, reason: *end_reason, output: output.clone(), stats: *stats }
    }
}

/// What a child tells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// The home is open.
    Opened,
    /// An event came on the session's stream.
    Event { trace: TraceId, event_id: u64, seen: Seen },
    /// How often each fault point was met.
    Met(BTreeMap<String, u64>),
    /// The job is done.
    Ended(Box<Ended>),
}

impl Told {
    /// Writes it as a line to stdout at once.
    pub(crate) fn say(&self) {
        let Ok(mut line) = serde_json::to_string(self) else { return };
        line.push('\n');
        // A parent that is gone needs to know nothing.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}

/// Everything that the children of a cycle told.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) events: BTreeMap<(TraceId, u64), Seen>,
    pub(crate) met: BTreeMap<String, u64>,
    pub(crate) ended: Option<Ended>,
}

impl Ledger {
    /// Remembers what was told; says so where it is not what was told before.
    pub(crate) fn take(&mut self, told: Told) -> Option<Violation> {
        match told {
            Told::Opened => {}
            Told::Met(met) => self.met = met,
            Told::Ended(ended) => self.ended = Some(*ended),
            Told::Event { trace, event_id, seen } => {
                let before = self.events.insert((trace.clone(), event_id), seen.clone());
                if let Some(before) = before.filter(|before| *before != seen) {
                    let what = format!("event {event_id} of {trace} was {before:?} and is {seen:?}");
                    return Some(Violation::new("acknowledged event changed", what));
                }
            }
        }
        None
    }
}
