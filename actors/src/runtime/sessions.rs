//! Deleting sessions, one or all that are old: the library's doors (RT-5, SES-4).
//!
//! Not here: the order of its steps (`session/removal.rs`), and which are old (`session/cleanup.rs`).

use soong_protocol::{ErrorCode, ErrorInfo, Session, SessionId};
use soong_storage::store::SessionFilter;
use tokio::sync::oneshot;

use super::Runtime;
use crate::{
    actor_base::closing,
    clock::now,
    session::{SessionCleanup, SessionCleanupFailure, SessionCleanupReport, SessionSupervisorMsg},
};

/// How many sessions are read at a time.
const PAGE: usize = 100;

impl Runtime {
    /// Reads to which users sessions belong, at once; those that are not there are left out.
    ///
    /// # Errors
    /// `storage_error`.
    pub async fn session_owners(&self, ids: Vec<SessionId>) -> Result<Vec<(SessionId, String)>, ErrorInfo> {
        self.inner.services.reader.read(move |reader| reader.session_owners(&ids)).await
    }

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
        let services = &self.inner.services;
        if services.lifetime.is_closing() {
            return Err(closing());
        }
        let (reply, gone) = oneshot::channel();
        if !services.sessions.to_supervisor(SessionSupervisorMsg::Delete { session: id.clone(), reply }) {
            return Err(closing());
        }
        gone.await.unwrap_or_else(|_| {
            let message = format!("it crashed before it was known what becomes of session {id}: delete it again");
            Err(ErrorInfo::retryable(ErrorCode::InternalError, message))
        })
    }

    /// Lists the sessions in which nothing has happened for long, and deletes them one after the other unless it
    /// is a dry run, each as [`Runtime::delete_session`] does. What is at work is left, and so is one in which
    /// something happens meanwhile; where one cannot be deleted, the others go on.
    ///
    /// # Errors
    /// Where the sessions cannot be listed; what became of each is in the report.
    pub async fn cleanup_sessions(&self, wish: SessionCleanup) -> Result<SessionCleanupReport, ErrorInfo> {
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
        let mut report = wish.choose(all, now());
        if wish.dry_run {
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

    /// Deletes a session unless something has happened in it, or it is gone; returns whether it did.
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
