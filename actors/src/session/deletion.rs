//! Deletion of a session: first it is marked, then its files are removed, then its rows (SES-4,
//! DUR-8).
//!
//! A marked session is no longer accessible. Either all of its files are removed, or none. If they
//! cannot be removed, the mark is cleared, and the session is unchanged. After its files are
//! removed, the deletion cannot be undone: the rows are removed in batches, one append each, and
//! the session's row, which holds the mark, is in the last batch. Every step can be repeated, so an
//! interrupted deletion is completed by the next call, or by the next owner of the home.
//!
//! Elsewhere: the meaning of the mark (`storage`), rejecting start requests meanwhile
//! (`supervisor.rs`).

use std::sync::Arc;

use serde_json::json;
use soong_protocol::{ErrorCode, ErrorInfo, SessionId, SessionWrite, Write};
use soong_storage::{
    blob::UndeletedFile,
    store::{Append, DeletionStage, StoreError},
};
use tokio::sync::oneshot;

use super::message::{SessionMsg, SessionSupervisorMsg};
use crate::{actor_base::Mailbox, permission::Permissions, run::Core, session::SessionRegistry};

/// Maximum number of rows removed by one append. This takes a few milliseconds of the writer
/// thread's time.
const BATCH_ROWS: u64 = 500;

/// Deletes sessions.
pub(crate) struct SessionDeleter {
    pub(crate) core: Arc<Core>,
    pub(crate) sessions: Arc<SessionRegistry>,
    pub(crate) permissions: Arc<Permissions>,
}

impl SessionDeleter {
    /// Deletes a session in the background, and notifies the callers that wait for it. `session`:
    /// its actor, if it has one.
    ///
    /// The caller must have registered the deletion, so that nothing is started in the session
    /// meanwhile.
    pub(super) fn start(self: &Arc<Self>, id: SessionId, session: Option<Mailbox<SessionMsg>>) {
        let deleter = Arc::clone(self);
        self.core.lifetime.spawn(async move {
            let outcome = deleter.delete(&id, session).await;
            match &outcome {
                Ok(()) => tracing::info!(session = %id, "session deleted"),
                Err(error) => tracing::info!(session = %id, %error, "failed to delete session"),
            }
            for reply in deleter.sessions.end_deletion(&id) {
                let _ = reply.send(outcome.clone());
            }
        });
    }

    async fn delete(
        &self,
        id: &SessionId,
        session: Option<Mailbox<SessionMsg>>,
    ) -> Result<(), ErrorInfo> {
        if let Some(session) = session {
            let (reply, is_idle) = oneshot::channel();
            session.send(SessionMsg::QueryIdle(reply));
            // If the actor crashed while it handled this message, its accepted runs are in the
            // store, which is checked next.
            if !is_idle.await.unwrap_or(true) {
                return Err(ErrorInfo::from(&StoreError::SessionActive(id.clone())));
            }
        }
        self.mark(id).await?;
        self.wait_for_ended_runs(id).await;
        self.sessions
            .send_to_supervisor(SessionSupervisorMsg::Deleted(id.clone()));
        self.core.artifacts.store().evict_session(id);
        self.permissions.revoke_session_grants(id);
        let stage = self
            .core
            .lifetime
            .keep_trying("reading the progress of a deletion", || self.read_stage(id))
            .await;
        match stage? {
            Some(DeletionStage::Files) => self.remove_files(id).await?,
            Some(DeletionStage::Rows) => {}
            None => return Ok(()),
        }
        while self
            .core
            .lifetime
            .keep_trying("removing rows of a session", || self.remove_batch(id))
            .await?
        {}
        self.core.bus.end_session(id);
        Ok(())
    }

    /// Waits until the callers of all runs have their outcome. All runs of a marked session have
    /// recorded their end, but an actor may not have reported it yet. Stopping the session's actor
    /// stops that actor too, and the callers would wait for ever.
    async fn wait_for_ended_runs(&self, id: &SessionId) {
        for run in self.core.runs.select(|run| run.identity.session_id == *id) {
            tokio::select! {
                _ = run.wait_outcome() => {}
                () = self.core.lifetime.closing().cancelled() => return,
            }
        }
    }

    async fn append(&self, write: Write) -> Result<(), StoreError> {
        self.core
            .journal
            .append_and_wait(Append {
                fence: None,
                writes: vec![write],
            })
            .await
            .map(|_| ())
    }

    async fn read_stage(&self, id: &SessionId) -> Result<Option<DeletionStage>, ErrorInfo> {
        let all = self
            .core
            .reader
            .read(|reader| reader.session_deletions())
            .await?;
        Ok(all
            .into_iter()
            .find(|removal| removal.session_id == *id)
            .map(|removal| removal.stage))
    }

    async fn mark(&self, id: &SessionId) -> Result<(), ErrorInfo> {
        match self
            .append(Write::Session(SessionWrite::BeginRemoval(id.clone())))
            .await
        {
            Ok(()) => Ok(()),
            Err(StoreError::NotFound(_)) => Err(ErrorInfo::new(
                ErrorCode::SessionNotFound,
                format!("there is no session {id}"),
            )),
            // The mark may have been written anyway.
            Err(error)
                if error.is_transient() && matches!(self.read_stage(id).await, Ok(Some(_))) =>
            {
                Ok(())
            }
            Err(error) => Err(ErrorInfo::from(&error)),
        }
    }

    /// Removes the session's files. If they cannot be removed, keeps the session and returns an
    /// error.
    async fn remove_files(&self, id: &SessionId) -> Result<(), ErrorInfo> {
        let attempt = || {
            let session_id = id.clone();
            self.core
                .reader
                .read(move |reader| reader.deletion_blob_paths(&session_id))
        };
        let versions = self
            .core
            .lifetime
            .keep_trying("reading the file paths of a session", attempt)
            .await?;
        let Err(failed) = self
            .core
            .artifacts
            .store()
            .remove_session(id, &versions)
            .await
        else {
            return Ok(());
        };
        let attempt = || async {
            match self
                .append(Write::Session(SessionWrite::EndRemoval(id.clone())))
                .await
            {
                Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
                Err(error) => Err(ErrorInfo::from(&error)),
            }
        };
        self.core
            .lifetime
            .keep_trying("restoring a session after a failed deletion", attempt)
            .await?;
        Err(not_removed(id, &failed))
    }

    /// Removes a batch of rows. Returns whether rows remain.
    async fn remove_batch(&self, id: &SessionId) -> Result<bool, ErrorInfo> {
        match self
            .append(Write::Session(SessionWrite::RemoveRows {
                session_id: id.clone(),
                limit: BATCH_ROWS,
            }))
            .await
        {
            Ok(()) => Ok(self.read_stage(id).await?.is_some()),
            // Removed by an earlier append whose reply was lost.
            Err(StoreError::NotFound(_)) => Ok(false),
            Err(error) => Err(ErrorInfo::from(&error)),
        }
    }
}

fn not_removed(id: &SessionId, failed: &[UndeletedFile]) -> ErrorInfo {
    let first = failed
        .first()
        .map(|failure| format!("{}: {}", failure.path, failure.reason))
        .unwrap_or_default();
    let more = match failed.len() {
        0 | 1 => String::new(),
        many => format!(" (and {} more)", many - 1),
    };
    let message = format!(
        "session {id} was not deleted: some of its files cannot be removed: {first}{more}; retry the deletion"
    );
    let files: Vec<_> = failed
        .iter()
        .map(|one| json!({ "path": one.path, "reason": one.reason }))
        .collect();
    ErrorInfo {
        details: json!({ "files": files }),
        ..ErrorInfo::retryable(ErrorCode::StorageError, message)
    }
}
