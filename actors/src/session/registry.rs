//! Registry of the sessions that have an actor, of the deletions in progress, and of the session
//! supervisor's mailbox.

use std::{
    path::Path,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use dashmap::{DashMap, Entry};
use soong_protocol::{ErrorInfo, RunId, SessionId};
use tokio::sync::oneshot;

use super::{
    SessionKey,
    message::{SessionMsg, SessionSupervisorMsg},
};
use crate::{actor_base::Mailbox, run::RunSession};

/// Channel on which a caller receives the outcome of a deletion.
pub(super) type DeletionReply = oneshot::Sender<Result<(), ErrorInfo>>;

/// Mailbox of a session's actor, and the session's project directory.
struct SessionEntry {
    session: Mailbox<SessionMsg>,
    project_dir: Arc<Path>,
}

/// Sessions that have an actor, deletions in progress, and the mailbox of the session supervisor.
#[derive(Default)]
pub(crate) struct SessionRegistry {
    sessions: DashMap<SessionId, SessionEntry>,
    /// Sessions that are being deleted, each with the reply channels of the callers that requested
    /// the deletion. No run starts in these sessions.
    deleting: DashMap<SessionId, Vec<DeletionReply>>,
    supervisor: OnceLock<RwLock<Mailbox<SessionSupervisorMsg>>>,
}

impl SessionRegistry {
    /// Returns whether a session has an actor.
    pub(crate) fn contains(&self, id: &SessionId) -> bool {
        self.sessions.contains_key(id)
    }

    /// Returns the number of sessions that have an actor.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Registers the actor of a session.
    pub(super) fn insert(
        &self,
        id: SessionId,
        session: Mailbox<SessionMsg>,
        project_dir: Arc<Path>,
    ) {
        self.sessions.insert(
            id,
            SessionEntry {
                session,
                project_dir,
            },
        );
    }

    pub(super) fn remove(&self, id: &SessionId) {
        self.sessions.remove(id);
    }

    /// Removes all sessions that have an actor. Deletions in progress are kept.
    pub(crate) fn clear(&self) {
        self.sessions.clear();
    }

    /// Sends a message to the actor of a session. Returns `false` if the session has no actor or
    /// its mailbox is closed.
    pub(crate) fn send(&self, id: &SessionId, message: SessionMsg) -> bool {
        let session = self.sessions.get(id).map(|entry| entry.session.clone());
        session.is_some_and(|session| session.send(message))
    }

    /// Returns the key of each session that has an actor. A restarted session supervisor restores
    /// these sessions.
    pub(crate) fn to_restore(&self) -> Vec<SessionKey> {
        let key =
            |entry: dashmap::mapref::multiple::RefMulti<'_, SessionId, SessionEntry>| SessionKey {
                session_id: entry.key().clone(),
                project_dir: Arc::clone(&entry.value().project_dir),
            };
        self.sessions.iter().map(key).collect()
    }

    /// Returns whether a session is being deleted.
    pub(super) fn is_deleting(&self, id: &SessionId) -> bool {
        self.deleting.contains_key(id)
    }

    /// Registers a caller for the deletion of a session. Returns `true` if no deletion is in
    /// progress, so the caller must start it.
    pub(super) fn begin_deletion(&self, id: &SessionId, reply: DeletionReply) -> bool {
        match self.deleting.entry(id.clone()) {
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().push(reply);
                false
            }
            Entry::Vacant(free) => {
                free.insert(vec![reply]);
                true
            }
        }
    }

    /// Ends the deletion of a session, whatever its outcome. Returns the reply channels of its
    /// callers.
    pub(super) fn end_deletion(&self, id: &SessionId) -> Vec<DeletionReply> {
        self.deleting
            .remove(id)
            .map(|(_, waiting)| waiting)
            .unwrap_or_default()
    }

    /// Sets the mailbox of the session supervisor's current incarnation.
    pub(crate) fn set_supervisor(&self, mailbox: Mailbox<SessionSupervisorMsg>) {
        let slot = self.supervisor.get_or_init(|| RwLock::new(mailbox.clone()));
        *slot.write().unwrap_or_else(PoisonError::into_inner) = mailbox;
    }

    /// Returns the mailbox of the session supervisor's current incarnation.
    pub(crate) fn supervisor(&self) -> Option<Mailbox<SessionSupervisorMsg>> {
        Some(
            self.supervisor
                .get()?
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
    }

    /// Sends a message to the session supervisor. Returns `false` if none was set or its mailbox is
    /// closed.
    pub(crate) fn send_to_supervisor(&self, message: SessionSupervisorMsg) -> bool {
        self.supervisor()
            .is_some_and(|supervisor| supervisor.send(message))
    }
}

/// Implements [`RunSession`] by sending messages to the session actor and to the session
/// supervisor.
pub(super) struct RunSessionHandle {
    pub(super) id: SessionId,
    pub(super) session: Mailbox<SessionMsg>,
    pub(super) sessions: Arc<SessionRegistry>,
}

impl RunSession for RunSessionHandle {
    fn run_ended(&self, run: RunId) {
        self.session.send(SessionMsg::RunEnded(run));
    }

    fn cancel_queued(&self, run: RunId) {
        self.session.send(SessionMsg::CancelQueued(run));
    }

    fn interrupt(&self, failure: ErrorInfo) {
        self.sessions
            .send_to_supervisor(SessionSupervisorMsg::Interrupt {
                session: self.id.clone(),
                failure,
            });
    }
}
