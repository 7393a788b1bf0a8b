//! What a run knows of the documents that it wrote: from their events, on rebuild, and at its end (ART-4).
//!
//! Pure, part of the run machine. Not here: what documents hold; that is the working set's.

use std::collections::BTreeMap;

use soong_protocol::{ArtifactEvent, EndReason, FlushFailure, RunStatus};

use super::state::{Ending, RunState};

impl RunState {
    pub(crate) fn apply_artifact(&mut self, event: &ArtifactEvent) {
        match event {
            ArtifactEvent::Edited { name, .. } => drop(self.documents.entry(name.clone()).or_default()),
            ArtifactEvent::Saved { name: Some(name), version, .. } => {
                if let Some(stored) = self.documents.get_mut(name) {
                    *stored = *version;
                }
            }
            ArtifactEvent::Flushed { versions, failed } => self.apply_flushed(versions, failed),
            ArtifactEvent::Saved { name: None, .. }
            | ArtifactEvent::Withdrawn { .. }
            | ArtifactEvent::Deleted { .. } => {}
        }
    }

    /// Takes what became of the run's documents. One that could not be stored makes the run fail, unless it is
    /// ended from outside (ART-4).
    fn apply_flushed(&mut self, versions: &BTreeMap<String, u64>, failed: &[FlushFailure]) {
        self.flushed = true;
        for reference in &mut self.artifacts {
            if let Some(version) = versions.get(reference.label()) {
                reference.version = *version;
            }
        }
        let from_outside = |ending: &Ending| matches!(ending.reason, EndReason::Interrupted | EndReason::ActorCrashed);
        if !failed.is_empty() && !self.ending.as_ref().is_some_and(from_outside) {
            let error = Some(super::outcome::not_flushed(failed));
            self.ending = Some(Ending { status: RunStatus::Failed, reason: EndReason::Failed, error });
        }
    }
}
