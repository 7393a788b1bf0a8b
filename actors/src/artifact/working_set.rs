//! The working set of a session: the documents that its runs edit (ART-4, ART-5).
//!
//! This module finds the working set of a session, starts it if needed, and retries if it crashes
//! during a request. A working set caches committed rows and serializes edits.
//!
//! Elsewhere: the actor (`working_set/actor.rs`), how an edit changes a text (`change.rs`).

mod actor;

use std::{
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use dashmap::DashMap;
use ractor::{ActorId, ActorRef};
use soong_protocol::{Artifact, ArtifactScope, ErrorInfo, SessionId};
use soong_tool::artifact::Edited;
use tokio::sync::oneshot;

use super::{ArtifactReader, document::Document, inventory::Inventories};
use crate::{
    actor_base::{Mailbox, closing},
    journal::JournalHandle,
};

pub(super) use actor::{EditCommand, WorkingSetActor, WorkingSetMsg};

/// How often a request is sent if the set or its supervisor crashes each time. It is more than the
/// number of permitted restarts, so the supervisor gives up before the request does.
const MAX_ATTEMPTS: usize = 8;

/// Delay before the supervisor is asked a second time. The delay doubles after each attempt.
const REOPEN_BACKOFF: Duration = Duration::from_millis(5);

/// Committed documents that a set caches, by name. Readers access them without a message to the
/// actor.
pub(super) type DocumentCache = DashMap<String, Arc<Document>>;

/// Address and cache of a running working set.
#[derive(Clone)]
pub(super) struct RunningSet {
    pub(super) mailbox: Mailbox<WorkingSetMsg>,
    pub(super) documents: Arc<DocumentCache>,
}

/// Handles that a working set needs.
#[derive(Clone)]
pub(crate) struct DocumentAccess {
    pub(super) journal: JournalHandle,
    pub(super) reader: ArtifactReader,
    pub(super) inventories: Arc<Inventories>,
}

/// Reply to [`OpenRequest`].
pub(super) type OpenReply = Result<RunningSet, ErrorInfo>;

/// Mailbox of the artifact store supervisor.
pub(crate) enum ArtifactStoreSupervisorMsg {
    /// Sent by an edit: requests the set of a session.
    Open(Box<OpenRequest>),
    /// Sent by a set that has been idle.
    Idle(Box<IdleReport>),
    /// Sent by the deletion of a session: stops its set.
    Close(SessionId),
    /// For fault-injection tests: makes the actor fail.
    Crash,
}

/// Requests the working set of a session. `dead` is the actor that did not answer, if any.
pub(crate) struct OpenRequest {
    pub(super) session: SessionId,
    pub(super) dead: Option<ActorId>,
    pub(super) reply: oneshot::Sender<OpenReply>,
}

/// Report that a set is idle. The supervisor stops the set only if it has handled no further
/// message since: `handled` is the number of messages that it had handled.
pub(crate) struct IdleReport {
    pub(super) session: SessionId,
    pub(super) actor: ActorId,
    pub(super) handled: u64,
}

/// Returns the message that a set is idle.
pub(super) fn idle(
    session: &SessionId,
    actor: ActorId,
    handled: u64,
) -> ArtifactStoreSupervisorMsg {
    ArtifactStoreSupervisorMsg::Idle(Box::new(IdleReport {
        session: session.clone(),
        actor,
        handled,
    }))
}

/// Registry of the running working sets.
#[derive(Default)]
pub(crate) struct WorkingSets {
    pub(super) running: DashMap<SessionId, RunningSet>,
    supervisor: OnceLock<RwLock<ActorRef<ArtifactStoreSupervisorMsg>>>,
}

/// Result of committing an edit.
pub(super) enum CommitOutcome {
    /// The edit is recorded.
    Recorded(Box<Edited>),
    /// The document has changed in the meantime, possibly by an earlier attempt of this edit.
    /// `None`: it was deleted.
    Conflict(Option<Arc<Document>>),
}

impl WorkingSets {
    /// Returns the handle of a session's set.
    pub(super) fn set<'a>(&'a self, session: &'a SessionId) -> WorkingSetHandle<'a> {
        WorkingSetHandle {
            sets: self,
            session,
        }
    }

    /// Sets the supervisor, which may be a restarted one.
    pub(super) fn set_supervisor(&self, supervisor: ActorRef<ArtifactStoreSupervisorMsg>) {
        let slot = self
            .supervisor
            .get_or_init(|| RwLock::new(supervisor.clone()));
        *slot.write().unwrap_or_else(PoisonError::into_inner) = supervisor;
    }

    /// Returns the supervisor's address.
    pub(crate) fn supervisor(&self) -> Option<ActorRef<ArtifactStoreSupervisorMsg>> {
        let slot = self.supervisor.get()?;
        Some(slot.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Removes all sets. Returns their sessions.
    pub(super) fn clear(&self) -> Vec<SessionId> {
        let sessions: Vec<SessionId> = self
            .running
            .iter()
            .map(|running| running.key().clone())
            .collect();
        self.running.clear();
        sessions
    }

    /// Removes an artifact from the cache of its set, after a change made outside the set.
    pub(super) fn invalidate(&self, artifact: &Artifact) {
        if let (ArtifactScope::Session { session_id }, Some(name)) =
            (&artifact.scope, &artifact.name)
        {
            self.evict(session_id, name);
        }
    }

    /// Removes a document from the cache of its set, so that the next request reads it again.
    pub(super) fn evict(&self, session: &SessionId, name: &str) {
        if let Some(running) = self.running.get(session) {
            running.documents.remove(name);
        }
    }

    /// Returns a document from the cache of its set.
    pub(super) fn cached(&self, session: &SessionId, name: &str) -> Option<Arc<Document>> {
        self.running
            .get(session)?
            .documents
            .get(name)
            .map(|document| Arc::clone(&document))
    }

    /// Makes a set crash, for tests. Returns `false` if it is not running.
    pub(crate) fn inject_crash(&self, session: &SessionId) -> bool {
        self.running
            .get(session)
            .is_some_and(|running| running.mailbox.send(WorkingSetMsg::Crash))
    }

    /// Requests a set from the supervisor. `dead` is the actor that did not answer, if any.
    async fn open(
        &self,
        session: &SessionId,
        dead: Option<ActorId>,
    ) -> Result<RunningSet, ErrorInfo> {
        let mut wait = REOPEN_BACKOFF;
        for _ in 0..MAX_ATTEMPTS {
            let (reply, answer) = oneshot::channel::<OpenReply>();
            let message = ArtifactStoreSupervisorMsg::Open(Box::new(OpenRequest {
                session: session.clone(),
                dead,
                reply,
            }));
            let is_sent = self
                .supervisor()
                .is_some_and(|supervisor| supervisor.cast(message).is_ok());
            if is_sent && let Ok(opened) = answer.await {
                return opened;
            }
            // The supervisor is being restarted, or the runtime is closing.
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        Err(closing())
    }
}

/// Sends requests to the working set of a session.
pub(super) struct WorkingSetHandle<'a> {
    sets: &'a WorkingSets,
    session: &'a SessionId,
}

impl WorkingSetHandle<'_> {
    /// Returns the current state of a document, or `None` if no document has this name.
    pub(super) async fn read(&self, name: &str) -> Result<Option<Arc<Document>>, ErrorInfo> {
        if let Some(known) = self.sets.cached(self.session, name) {
            return Ok(Some(known));
        }
        self.ask(|reply| WorkingSetMsg::Read {
            name: name.to_owned(),
            reply,
        })
        .await
    }

    /// Records an edit unless the document has changed in the meantime.
    pub(super) async fn commit(
        &self,
        name: &str,
        command: EditCommand,
    ) -> Result<CommitOutcome, ErrorInfo> {
        let command = Arc::new(command);
        self.ask(|reply| WorkingSetMsg::Commit {
            name: name.to_owned(),
            command: Arc::clone(&command),
            reply,
        })
        .await
    }

    /// Sends a request to the set, and retries if the set crashes. If an edit was recorded before
    /// the crash, its retry reports a conflict.
    async fn ask<T>(
        &self,
        message: impl Fn(oneshot::Sender<Result<T, ErrorInfo>>) -> WorkingSetMsg,
    ) -> Result<T, ErrorInfo> {
        let mut dead = None;
        for _ in 0..MAX_ATTEMPTS {
            let known = self
                .sets
                .running
                .get(self.session)
                .map(|running| running.clone());
            let set = match known.filter(|running| Some(running.mailbox.actor().get_id()) != dead) {
                Some(running) => running,
                None => self.sets.open(self.session, dead).await?,
            };
            let (reply, answer) = oneshot::channel();
            if set.mailbox.send(message(reply))
                && let Ok(outcome) = answer.await
            {
                return outcome;
            }
            dead = Some(set.mailbox.actor().get_id());
        }
        Err(closing())
    }
}
