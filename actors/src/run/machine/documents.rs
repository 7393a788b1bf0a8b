//! The documents that a run wrote: tracked from events, on rebuild, and when the run ends (ART-4).
//!
//! Pure; part of the run state machine. Elsewhere: the content of documents (the working set).

use std::collections::BTreeMap;

use soong_protocol::{ArtifactEvent, EndReason, FlushFailure, RunStatus};

use crate::run::machine::{RunState, ending::Ending, errors::documents_not_stored};

impl RunState {
    pub(crate) fn apply_artifact(&mut self, event: &ArtifactEvent) {
        match event {
            // An edit after a stored version is not stored yet.
            ArtifactEvent::Edited { name, .. } => {
                self.edited_documents.versions.insert(name.clone(), 0);
            }
            ArtifactEvent::Saved {
                name: Some(name),
                version,
                ..
            } => {
                if let Some(stored) = self.edited_documents.versions.get_mut(name) {
                    *stored = *version;
                }
            }
            ArtifactEvent::Flushed { versions, failed } => self.apply_flushed(versions, failed),
            // The answer of a child is one of them (`machine/jobs/store_answer.rs`).
            ArtifactEvent::Saved { name: None, .. }
            | ArtifactEvent::Withdrawn { .. }
            | ArtifactEvent::Deleted { .. } => {}
        }
    }

    /// Applies the outcome of storing the run's documents. If a document could not be stored, the
    /// run fails, unless it was ended by a crash or an interruption (ART-4).
    fn apply_flushed(&mut self, versions: &BTreeMap<String, u64>, failed: &[FlushFailure]) {
        self.edited_documents.flushed = true;
        self.edited_documents.versions.clear();
        for reference in &mut self.edited_documents.artifacts {
            if let Some(version) = versions.get(reference.label()) {
                reference.version = *version;
            }
        }
        let is_external = |ending: &Ending| {
            matches!(
                ending.reason,
                EndReason::Interrupted | EndReason::ActorCrashed
            )
        };
        if !failed.is_empty() && !self.end.ending.as_ref().is_some_and(is_external) {
            let error = Some(documents_not_stored(failed));
            self.end.ending = Some(Ending {
                status: RunStatus::Failed,
                reason: EndReason::Failed,
                error,
            });
        }
    }
}
