//! Reports of a child to its parent, and the parent's record of them.
//!
//! Each report is a line of JSON. A report that the parent has read is acknowledged: its data must
//! survive.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hasher},
    io::Write,
};

use serde::{Deserialize, Serialize};
use soong::protocol::{Artifact, ArtifactEvent, ArtifactId, Event, EventRecord, TraceId};

pub(crate) use super::random::Random;

/// Returns a hash of bytes.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Report of a child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The home is open.
    Opened,
    /// The documents of a run are about to be stored as versions.
    Flushing,
    /// A product is about to be stored.
    Saving,
    /// A version was stored, with its size and hash.
    Saved {
        artifact_id: ArtifactId,
        version: u64,
        size: u64,
        hash: u64,
    },
    /// An artifact is about to be deleted.
    Deleting { artifact_id: ArtifactId },
    /// The artifact was deleted.
    Deleted { artifact_id: ArtifactId },
    /// An event arrived on a stream.
    Event(Box<EventRecord>),
}

impl Report {
    /// Returns the report for a stored version.
    pub(crate) fn saved(artifact: &Artifact, bytes: &[u8]) -> Self {
        Self::Saved {
            artifact_id: artifact.artifact_id.clone(),
            version: artifact.current_version,
            size: artifact.size,
            hash: hash(bytes),
        }
    }

    /// Writes the report to stdout as one line, immediately.
    pub(crate) fn write(&self) {
        let Ok(mut line) = serde_json::to_string(self) else {
            return;
        };
        line.push('\n');
        // If the parent is gone, no report is needed.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }

    /// Parses a report.
    pub(crate) fn read(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }

    /// Returns the name of the report, for an event its kind.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Opened => "opened",
            Self::Flushing => "flushing",
            Self::Saving => "saving",
            Self::Saved { .. } => "saved",
            Self::Deleting { .. } => "deleting",
            Self::Deleted { .. } => "deleted",
            Self::Event(record) => record.event.kind(),
        }
    }
}

/// An artifact with the number of one of its versions or edits.
pub(crate) type ArtifactRevision = (ArtifactId, u64);

/// All acknowledged reports about a home.
#[derive(Debug, Default)]
pub(crate) struct ReportLedger {
    /// Size and hash of stored versions.
    pub(crate) saved: BTreeMap<ArtifactRevision, (u64, u64)>,
    /// Texts after edits, as their events showed them.
    pub(crate) edited: BTreeMap<ArtifactRevision, String>,
    /// Artifacts that may be gone, since their deletion had started.
    pub(crate) deleting: BTreeSet<ArtifactId>,
    /// Artifacts that must be gone.
    pub(crate) deleted: BTreeSet<ArtifactId>,
    /// Observed events with their kind and data.
    pub(crate) events: BTreeMap<(TraceId, u64), (String, String)>,
}

impl ReportLedger {
    /// Records the reports of a child.
    pub(crate) fn take(&mut self, reports: Vec<Report>) {
        for one in reports {
            match one {
                Report::Opened | Report::Flushing | Report::Saving => {}
                Report::Saved {
                    artifact_id,
                    version,
                    size,
                    hash,
                } => {
                    self.saved.insert((artifact_id, version), (size, hash));
                }
                Report::Deleting { artifact_id } => drop(self.deleting.insert(artifact_id)),
                Report::Deleted { artifact_id } => drop(self.deleted.insert(artifact_id)),
                Report::Event(record) => self.event(*record),
            }
        }
    }

    fn event(&mut self, record: EventRecord) {
        if let Event::Artifact(ArtifactEvent::Edited { snapshot, .. }) = &record.event
            && let Some(content) = &snapshot.content
        {
            self.edited.insert(
                (snapshot.artifact_id.clone(), snapshot.version),
                content.clone(),
            );
        }
        let kind = record.event.kind().to_owned();
        self.events
            .insert((record.trace_id, record.event_id), (kind, record.data));
    }
}
