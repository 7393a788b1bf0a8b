//! Deleting sessions: the library's door (RT-5, SES-4).
//!
//! Not here: the order of its steps (`session/removal.rs`).

use soong_protocol::{ErrorCode, ErrorInfo, SessionId};
use tokio::sync::oneshot;

use super::Runtime;
use crate::{live::closing, session::SessionSupervisorMsg};

impl Runtime {
    /// Deletes a session: its traces with those of its sub-agents, runs, messages, events, goals and artifacts,
    /// rows and files. Its streams end. What belongs to its user stays, also what its runs made of it, and so
    /// do files in projects.
    ///
    /// Returns when it is gone; then its id is free. Meanwhile nobody finds it, and a start under its id is
    /// refused as `session_active`, to be tried again. Once begun, it is finished even if the caller leaves or
    /// the process ends: then by the next owner of the home.
    ///
    /// # Errors
    /// `session_active` with a run that waits or is at work, `session_not_found`: nothing has changed.
    /// `storage_error` with `details.files` where files cannot be removed: the session is there as before, and
    /// can be deleted again. Of local files none is gone then, unless the disk failed while they were unlinked;
    /// in a bucket, which has no way back, those that are not named are gone.
    pub async fn delete_session(&self, id: &SessionId) -> Result<(), ErrorInfo> {
        let shared = &self.inner.shared;
        if shared.is_closing() {
            return Err(closing());
        }
        let (reply, gone) = oneshot::channel();
        if !shared.to_sessions(SessionSupervisorMsg::Delete { session: id.clone(), reply }) {
            return Err(closing());
        }
        gone.await.unwrap_or_else(|_| {
            let message = format!("it crashed before it was known what becomes of session {id}: delete it again");
            Err(ErrorInfo::retryable(ErrorCode::InternalError, message))
        })
    }
}
