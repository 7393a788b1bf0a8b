//! Cleanup of a session's artifacts when the session is deleted (SES-4): working set, inventory,
//! files.
//!
//! Elsewhere: the rows, and the order of the deletion (`session/deletion.rs`).

use soong_protocol::SessionId;
use soong_storage::blob::UndeletedFile;

use crate::artifact::{ArtifactStore, ArtifactStoreSupervisorMsg};

impl ArtifactStore {
    /// Removes a session's artifacts from memory.
    pub(crate) fn evict_session(&self, session: &SessionId) {
        self.evict_inventory(session);
        if let Some(supervisor) = self.working_sets.supervisor() {
            // If the supervisor is being restarted, its sets have ended with it.
            let _ = supervisor.cast(ArtifactStoreSupervisorMsg::Close(session.clone()));
        }
    }

    /// Deletes all files of a session, or none. Returns those that could not be deleted.
    pub(crate) async fn remove_session(
        &self,
        id: &SessionId,
        versions: &[String],
    ) -> Result<(), Vec<UndeletedFile>> {
        self.blobs.delete_session_files(id, versions).await
    }
}
