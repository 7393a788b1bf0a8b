//! Deletion of sessions: of one session, or of all old ones (RT-5, SES-4).
//!
//! Elsewhere: the order of the deletion steps (`session/deletion.rs`), and which sessions are old
//! (`session/cleanup.rs`).

use soong_protocol::{ErrorCode, ErrorInfo, Session, SessionId};
use soong_storage::store::SessionFilter;
use tokio::sync::oneshot;

use super::Runtime;
use crate::{
    actor_base::closing,
    clock::now,
    session::{SessionCleanup, SessionCleanupFailure, SessionCleanupReport, SessionSupervisorMsg},
};

/// Number of sessions read at a time.
const PAGE: usize = 100;

impl Runtime {
    /// Reads the users that own the given sessions, in one query. Unknown sessions are omitted.
    ///
    /// # Errors
    /// `storage_error`.
    pub async fn session_owners(&self, ids: Vec<SessionId>) -> Result<Vec<(SessionId, String)>, ErrorInfo> {
        self.inner.services.reader.read(move |reader| reader.session_owners(&ids)).await
    }

    /// Deletes a session: its traces and those of its sub-agents, runs, messages, events, goals and artifacts, both
    /// rows and files. Its streams end. User-level artifacts and files in projects are kept, including those that its
    /// runs created.
    ///
    /// Returns when the session is deleted; then its id is free. While the deletion runs, the session is not found,
    /// and a start with its id is rejected with `session_active` (retryable). Once started, the deletion completes
    /// even if the caller is dropped. If the process ends, the next owner of the home completes it.
    ///
    /// # Errors
    /// `session_active` if a run is queued or running, `session_not_found`: nothing has changed. `storage_error` with
    /// `details.files` if files cannot be removed: the session still exists and can be deleted again. No local file
    /// is removed then, unless the disk failed during the removal. In a bucket, where removal cannot be undone, all
    /// files except the listed ones are removed.
    pub async fn delete_session(&self, id: &SessionId) -> Result<(), ErrorInfo> {
        let services = &self.inner.services;
        if services.lifetime.is_closing() {
            return Err(closing());
        }
        let (reply, gone) = oneshot::channel();
        if !services.sessions.send_to_supervisor(SessionSupervisorMsg::Delete { session: id.clone(), reply }) {
            return Err(closing());
        }
        gone.await.unwrap_or_else(|_| {
            let message = format!("it crashed before it was known what becomes of session {id}: delete it again");
            Err(ErrorInfo::retryable(ErrorCode::InternalError, message))
        })
    }

    /// Lists the sessions that have been inactive for long, and deletes them one by one, as
    /// [`Runtime::delete_session`] does, unless it is a dry run. Sessions with active runs and sessions that became
    /// active meanwhile are skipped. If one cannot be deleted, the cleanup continues with the others.
    ///
    /// # Errors
    /// Fails if the sessions cannot be listed. The outcome for each session is in the report.
    pub async fn cleanup_sessions(&self, request: SessionCleanup) -> Result<SessionCleanupReport, ErrorInfo> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.sessions(SessionFilter::default(), PAGE, cursor).await?;
            all.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        let mut report = request.choose(all, now());
        if request.dry_run {
            return Ok(report);
        }
        for candidate in &report.candidates {
            let id = &candidate.session_id;
            match self.delete_unchanged(candidate).await {
                Ok(true) => report.deleted.push(id.clone()),
                Ok(false) => {}
                Err(error) if error.code == ErrorCode::SessionActive => report.busy.push(id.clone()),
                Err(error) => report.failed.push(SessionCleanupFailure { session_id: id.clone(), error }),
            }
        }
        Ok(report)
    }

    /// Deletes a session if it exists and has had no events since it was listed. Returns whether it was deleted.
    async fn delete_unchanged(&self, session: &Session) -> Result<bool, ErrorInfo> {
        match self.session(&session.session_id).await {
            Ok(now) if now.last_session_seq == session.last_session_seq => {}
            Ok(_) => return Ok(false),
            Err(error) if error.code == ErrorCode::SessionNotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        self.delete_session(&session.session_id).await.map(|()| true)
    }
}
