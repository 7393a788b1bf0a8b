//! Deleting a session: marked, its files gone, then its rows (SES-4, DUR-8).
//!
//! From the mark on the session is there for nobody. Its files go all or not at all; where they do not, the
//! mark is taken off and the session is as it was. Once they are gone there is no way back: rows go in pieces,
//! each an append of its own, and the session's row, which holds the mark, with the last. Every step can be
//! done again, so that whoever finds the mark goes on: another call, or the next owner of the home.
//! Not here: what a mark means (`storage`), keeping starts out meanwhile (`supervisor.rs`).

use std::sync::Arc;

use serde_json::json;
use soong_protocol::{ErrorCode, ErrorInfo, SessionId, Write};
use soong_storage::{
    blob::NotRemoved,
    store::{Append, RemovalStage, StoreError},
};
use tokio::sync::oneshot;

use super::message::{SessionMsg, SessionSupervisorMsg};
use crate::{
    actor_base::{Mailbox, keep_trying},
    live::Shared,
};

/// How many rows one append removes: a few milliseconds of the writer's time.
const PIECE_ROWS: u64 = 500;

/// Who waits for a session to be gone.
pub(crate) type Waiting = Vec<oneshot::Sender<Result<(), ErrorInfo>>>;

/// Deletes a session, and tells those who wait. `session` is its actor, if it has one.
///
/// The caller has entered it among those that leave, so that nothing is started in it meanwhile.
pub(super) fn begin(shared: &Arc<Shared>, id: SessionId, session: Option<Mailbox<SessionMsg>>) {
    let shared = Arc::clone(shared);
    let tasks = shared.tasks.clone();
    tasks.spawn(async move {
        let outcome = remove(&shared, &id, session).await;
        match &outcome {
            Ok(()) => tracing::info!(session = %id, "a session was deleted"),
            Err(error) => tracing::info!(session = %id, %error, "a session was not deleted"),
        }
        let (_, waiting) = shared.leaving.remove(&id).unzip();
        for reply in waiting.into_iter().flatten() {
            let _ = reply.send(outcome.clone());
        }
    });
}

async fn remove(shared: &Arc<Shared>, id: &SessionId, session: Option<Mailbox<SessionMsg>>) -> Result<(), ErrorInfo> {
    if let Some(session) = session {
        let (reply, free) = oneshot::channel();
        session.cast(SessionMsg::IsFree(reply));
        // An actor that crashed over it holds nothing: what it had accepted is in the store, which is asked next.
        if !free.await.unwrap_or(true) {
            return Err(ErrorInfo::from(&StoreError::Active(id.clone())));
        }
    }
    mark(shared, id).await?;
    shared.to_sessions(SessionSupervisorMsg::Leaves(id.clone()));
    shared.artifacts.close(id);
    shared.permissions.forget(id);
    let stage = keep_trying(&shared.closing, "reading how far a deletion came", || stage(shared, id)).await;
    match stage? {
        Some(RemovalStage::Files) => remove_files(shared, id).await?,
        Some(RemovalStage::Rows) => {}
        None => return Ok(()),
    }
    while keep_trying(&shared.closing, "removing rows of a session", || remove_piece(shared, id)).await? {}
    shared.hub.end_session(id);
    Ok(())
}

async fn append(shared: &Shared, write: Write) -> Result<(), StoreError> {
    shared.journal.append_and_wait(Append { fence: None, writes: vec![write] }).await.map(|_| ())
}

async fn stage(shared: &Shared, id: &SessionId) -> Result<Option<RemovalStage>, ErrorInfo> {
    let all = shared.reading.read(|reader| reader.removals()).await?;
    Ok(all.into_iter().find(|removal| removal.session_id == *id).map(|removal| removal.stage))
}

async fn mark(shared: &Shared, id: &SessionId) -> Result<(), ErrorInfo> {
    match append(shared, Write::BeginRemoval(id.clone())).await {
        Ok(()) => Ok(()),
        Err(StoreError::Missing(_)) => {
            Err(ErrorInfo::new(ErrorCode::SessionNotFound, format!("there is no session {id}")))
        }
        // It may have been written all the same.
        Err(error) if error.is_transient() && matches!(stage(shared, id).await, Ok(Some(_))) => Ok(()),
        Err(error) => Err(ErrorInfo::from(&error)),
    }
}

/// Removes the session's files; where they stay, so does the session.
async fn remove_files(shared: &Arc<Shared>, id: &SessionId) -> Result<(), ErrorInfo> {
    let attempt = || {
        let wanted = id.clone();
        shared.reading.read(move |reader| reader.removal_blobs(&wanted))
    };
    let versions = keep_trying(&shared.closing, "reading where files lie", attempt).await?;
    let Err(failed) = shared.artifacts.remove_session(id, &versions).await else { return Ok(()) };
    let attempt = || async {
        match append(shared, Write::EndRemoval(id.clone())).await {
            Ok(()) | Err(StoreError::Missing(_)) => Ok(()),
            Err(error) => Err(ErrorInfo::from(&error)),
        }
    };
    keep_trying(&shared.closing, "keeping a session", attempt).await?;
    Err(not_removed(id, &failed))
}

/// Removes some rows; returns whether there are more.
async fn remove_piece(shared: &Shared, id: &SessionId) -> Result<bool, ErrorInfo> {
    match append(shared, Write::RemoveRows { session_id: id.clone(), limit: PIECE_ROWS }).await {
        Ok(()) => Ok(stage(shared, id).await?.is_some()),
        // By a piece whose answer was lost.
        Err(StoreError::Missing(_)) => Ok(false),
        Err(error) => Err(ErrorInfo::from(&error)),
    }
}

fn not_removed(id: &SessionId, failed: &[NotRemoved]) -> ErrorInfo {
    let first = failed.first().map(|one| format!("{}: {}", one.path, one.reason)).unwrap_or_default();
    let more = match failed.len() {
        0 | 1 => String::new(),
        many => format!(" (and {} more)", many - 1),
    };
    let message = format!("session {id} stays, because files of it cannot be removed: {first}{more}; delete it again");
    let files: Vec<_> = failed.iter().map(|one| json!({ "path": one.path, "reason": one.reason })).collect();
    ErrorInfo { details: json!({ "files": files }), ..ErrorInfo::retryable(ErrorCode::StorageError, message) }
}
