//! What a child tells its parent, and what the parent remembers of it.
//!
//! A line of JSON each. What the parent has read was acknowledged: it must survive.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hasher},
    io::Write,
};

use serde::{Deserialize, Serialize};
use soong::protocol::{Artifact, ArtifactEvent, ArtifactId, Event, EventRecord, TraceId};

pub(crate) use super::random::Random;

/// Bytes in short.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// What a child tells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// The home is open.
    Opened,
    /// A run's documents are about to be stored as versions.
    Flushing,
    /// A product is about to be stored.
    Saving,
    /// A version was stored: what it holds.
    Saved { artifact_id: ArtifactId, version: u64, size: u64, hash: u64 },
    /// An artifact is about to be deleted.
    Deleting { artifact_id: ArtifactId },
    /// It was deleted.
    Deleted { artifact_id: ArtifactId },
    /// An event came on a stream.
    Event(Box<EventRecord>),
}

impl Told {
    /// Tells that a version was stored.
    pub(crate) fn saved(artifact: &Artifact, bytes: &[u8]) -> Self {
        Self::Saved {
            artifact_id: artifact.artifact_id.clone(),
            version: artifact.current_version,
            size: artifact.size,
            hash: hash(bytes),
        }
    }

    /// Writes it as a line to stdout at once.
    pub(crate) fn say(&self) {
        let Ok(mut line) = serde_json::to_string(self) else { return };
        line.push('\n');
        // A parent that is gone needs to know nothing.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }

    /// Reads a line.
    pub(crate) fn read(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }

    /// Returns its name.
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

/// A number of an artifact.
pub(crate) type Place = (ArtifactId, u64);

/// Everything that was acknowledged of a home.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Size and hash of stored versions.
    pub(crate) saved: BTreeMap<Place, (u64, u64)>,
    /// The texts after edits, as their events showed them.
    pub(crate) edited: BTreeMap<Place, String>,
    /// What may be gone: its deletion had begun.
    pub(crate) deleting: BTreeSet<ArtifactId>,
    /// What must be gone.
    pub(crate) deleted: BTreeSet<ArtifactId>,
    /// The events that were seen, with their data.
    pub(crate) events: BTreeMap<(TraceId, u64), (String, String)>,
}

impl Ledger {
    /// Remembers what a child told.
    pub(crate) fn take(&mut self, told: Vec<Told>) {
        for one in told {
            match one {
                Told::Opened | Told::Flushing | Told::Saving => {}
                Told::Saved { artifact_id, version, size, hash } => {
                    self.saved.insert((artifact_id, version), (size, hash));
                }
                Told::Deleting { artifact_id } => drop(self.deleting.insert(artifact_id)),
                Told::Deleted { artifact_id } => drop(self.deleted.insert(artifact_id)),
                Told::Event(record) => self.event(*record),
            }
        }
    }

    fn event(&mut self, record: EventRecord) {
        if let Event::Artifact(ArtifactEvent::Edited { snapshot, .. }) = &record.event
            && let Some(content) = &snapshot.content
        {
            self.edited.insert((snapshot.artifact_id.clone(), snapshot.version), content.clone());
        }
        let kind = record.event.kind().to_owned();
        self.events.insert((record.trace_id, record.event_id), (kind, record.data));
    }
}
