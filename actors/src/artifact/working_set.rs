//! The working set of a session: the documents that its runs edit (ART-4, ART-5).
//!
//! This module finds the working set of a session, starts it if needed, and retries if it crashes during a request. A set
//! caches committed rows and serializes edits.
//! Not here: the actor (`working_set/actor.rs`), what edits do to a text (`change.rs`).

mod actor;

use std::{
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::Duration,
};

pub(super) use actor::{EditWish, WorkingSetActor, WorkingSetMsg};
use dashmap::DashMap;
use ractor::{ActorId, ActorRef};
use soong_protocol::{Artifact, ArtifactScope, ErrorInfo, SessionId};
use tokio::sync::oneshot;

use super::{ArtifactReader, change::Edited, document::Document, inventory::Inventories};
use crate::{
    actor_base::{Mailbox, closing},
    journal::JournalHandle,
};

/// Attempts per request if the set or its supervisor crashes; more than the permitted restarts.
const TRIES: usize = 8;

/// First delay before the supervisor is asked again; doubles after each attempt.
const REPLACED_BY: Duration = Duration::from_millis(5);

/// The committed texts that a set caches; readers use them without asking the actor.
pub(super) type Documents = DashMap<String, Arc<Document>>;

/// A working set that has an actor.
#[derive(Clone)]
pub(super) struct Seat {
    pub(super) mailbox: Mailbox<WorkingSetMsg>,
    pub(super) documents: Arc<Documents>,
}

/// The handles of a working set.
#[derive(Clone)]
pub(crate) struct DocumentAccess {
    pub(super) journal: JournalHandle,
    pub(super) reader: ArtifactReader,
    pub(super) inventories: Arc<Inventories>,
}

/// The answer to a request for a set.
pub(super) type Opened = Result<Seat, ErrorInfo>;

/// Mailbox of the artifact store supervisor.
pub(crate) enum ArtifactStoreSupervisorMsg {
    /// From an edit: requests the set of a session; `dead` is one that did not answer.
    Open(Box<Open>),
    /// From a set: it is idle; carries the number of messages handled.
    Idle(Box<Idle>),
    /// From the deletion of a session: its set is to go.
    Close(SessionId),
    /// For fault-injection tests: makes the actor fail.
    Crash,
}

/// A request for a set.
pub(crate) struct Open {
    pub(super) session: SessionId,
    pub(super) dead: Option<ActorId>,
    pub(super) reply: oneshot::Sender<Opened>,
}

/// A set that has had nothing to do.
pub(crate) struct Idle {
    pub(super) session: SessionId,
    pub(super) actor: ActorId,
    pub(super) handled: u64,
}

/// Says that a set has had nothing to do since it took so many messages.
pub(super) fn idle(session: &SessionId, actor: ActorId, handled: u64) -> ArtifactStoreSupervisorMsg {
    ArtifactStoreSupervisorMsg::Idle(Box::new(Idle { session: session.clone(), actor, handled }))
}

/// The working sets that are alive.
#[derive(Default)]
pub(crate) struct WorkingSets {
    pub(super) seats: DashMap<SessionId, Seat>,
    supervisor: OnceLock<RwLock<ActorRef<ArtifactStoreSupervisorMsg>>>,
}

/// The outcome of committing an edit.
pub(super) enum Committed {
    /// It is recorded.
    Done(Box<Edited>),
    /// The document has changed since; `None` = it was deleted. An earlier attempt of this edit may have changed it.
    Moved(Option<Arc<Document>>),
}

impl WorkingSets {
    /// Returns the handle of a session's set.
    pub(super) fn set<'a>(&'a self, session: &'a SessionId) -> WorkingSetHandle<'a> {
        WorkingSetHandle { sets: self, session }
    }

    /// Tells whom to ask for a set; a new supervisor takes the place of the one before.
    pub(super) fn supervised_by(&self, supervisor: ActorRef<ArtifactStoreSupervisorMsg>) {
        let slot = self.supervisor.get_or_init(|| RwLock::new(supervisor.clone()));
        *slot.write().unwrap_or_else(PoisonError::into_inner) = supervisor;
    }

    /// Returns the supervisor's address.
    pub(crate) fn supervisor(&self) -> Option<ActorRef<ArtifactStoreSupervisorMsg>> {
        let slot = self.supervisor.get()?;
        Some(slot.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Forgets all sets; returns whose they were.
    pub(super) fn take_all(&self) -> Vec<SessionId> {
        let sessions: Vec<SessionId> = self.seats.iter().map(|seat| seat.key().clone()).collect();
        self.seats.clear();
        sessions
    }

    /// Removes an artifact from the cache of its set, after a change made outside the set.
    pub(super) fn void(&self, artifact: &Artifact) {
        if let (ArtifactScope::Session { session_id }, Some(name)) = (&artifact.scope, &artifact.name) {
            self.forget(session_id, name);
        }
    }

    /// Forgets what a set holds of a name: it is read anew when it is asked for.
    pub(super) fn forget(&self, session: &SessionId, name: &str) {
        if let Some(seat) = self.seats.get(session) {
            seat.documents.remove(name);
        }
    }

    /// Finds what a set holds of a document.
    pub(super) fn known(&self, session: &SessionId, name: &str) -> Option<Arc<Document>> {
        self.seats.get(session)?.documents.get(name).map(|document| Arc::clone(&document))
    }

    /// Makes a set crash, to see it come back; `false` = there is none.
    pub(crate) fn crash(&self, session: &SessionId) -> bool {
        self.seats.get(session).is_some_and(|seat| seat.mailbox.cast(WorkingSetMsg::Crash))
    }

    /// Has a set opened; `dead` is one that did not answer.
    async fn open(&self, session: &SessionId, dead: Option<ActorId>) -> Result<Seat, ErrorInfo> {
        let mut wait = REPLACED_BY;
        for _ in 0..TRIES {
            let (reply, answer) = oneshot::channel::<Opened>();
            let message = ArtifactStoreSupervisorMsg::Open(Box::new(Open { session: session.clone(), dead, reply }));
            let is_sent = self.supervisor().is_some_and(|supervisor| supervisor.cast(message).is_ok());
            if is_sent && let Ok(opened) = answer.await {
                return opened;
            }
            // The supervisor itself is being replaced, or all of it closes.
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
    /// Returns what a document holds now; `None` = there is none of that name.
    pub(super) async fn look(&self, name: &str) -> Result<Option<Arc<Document>>, ErrorInfo> {
        if let Some(known) = self.sets.known(self.session, name) {
            return Ok(Some(known));
        }
        self.ask(|reply| WorkingSetMsg::Look { name: name.to_owned(), reply }).await
    }

    /// Records an edit, unless the document has changed since.
    pub(super) async fn commit(&self, name: &str, wish: EditWish) -> Result<Committed, ErrorInfo> {
        let wish = Arc::new(wish);
        self.ask(|reply| WorkingSetMsg::Commit { name: name.to_owned(), wish: Arc::clone(&wish), reply }).await
    }

    /// Sends a request to the set, and retries if the set crashes. An edit that was recorded before the crash is then
    /// reported as a conflict.
    async fn ask<T>(
        &self,
        message: impl Fn(oneshot::Sender<Result<T, ErrorInfo>>) -> WorkingSetMsg,
    ) -> Result<T, ErrorInfo> {
        let mut dead = None;
        for _ in 0..TRIES {
            let known = self.sets.seats.get(self.session).map(|seat| seat.clone());
            let seat = match known.filter(|seat| Some(seat.mailbox.actor().get_id()) != dead) {
                Some(seat) => seat,
                None => self.sets.open(self.session, dead).await?,
            };
            let (reply, answer) = oneshot::channel();
            if seat.mailbox.cast(message(reply))
                && let Ok(outcome) = answer.await
            {
                return outcome;
            }
            dead = Some(seat.mailbox.actor().get_id());
        }
        Err(closing())
    }
}
