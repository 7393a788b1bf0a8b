//! What artifacts leave behind when their session is deleted (SES-4): a working set, an inventory, files.
//!
//! Not here: rows, and the order of it all (`session/removal.rs`).

use soong_protocol::SessionId;
use soong_storage::blob::NotRemoved;

use crate::artifact::{ArtifactStore, ArtifactStoreSupervisorMsg};

impl ArtifactStore {
    /// Lets go of what is in memory of a session's artifacts.
    pub(crate) fn close(&self, session: &SessionId) {
        self.forget(session);
        if let Some(supervisor) = self.working.supervisor() {
            // One that is being replaced takes its sets along.
            let _ = supervisor.cast(ArtifactStoreSupervisorMsg::Close(session.clone()));
        }
    }

    /// Removes all files of a session, or none; says which could not be removed.
    pub(crate) async fn remove_session(&self, id: &SessionId, versions: &[String]) -> Result<(), Vec<NotRemoved>> {
        self.blobs.remove_session(id, versions).await
    }
}
