//! The artifact store supervisor: starts working sets on demand, restarts them after a crash, and
//! stops idle ones.
//!
//! One for one. If a set crashes too often, it is not started again until its restart window has
//! passed. Meanwhile the documents of its session can be read, but not edited. All recorded edits
//! are in the store.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use soong_protocol::{ErrorCode, ErrorInfo, SessionId};
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::working_set::{
    ArtifactStoreSupervisorMsg, DocumentAccess, IdleReport, OpenReply, OpenRequest, RunningSet,
    WorkingSetActor, WorkingSets,
};
use crate::{
    actor_base::{
        Mailbox, SINGLETON_ID, closing,
        restart::{self, CrashHistory},
    },
    actor_tree::{ActorKind, ActorStatus, ActorTree},
};

/// The supervisor and its handles.
pub(crate) struct ArtifactStoreSupervisorActor {
    pub(crate) sets: Arc<WorkingSets>,
    pub(crate) documents: DocumentAccess,
    pub(crate) actor_tree: Arc<ActorTree>,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
    /// Time after which an idle working set is stopped.
    pub(crate) idle_after: Duration,
    pub(crate) status: Arc<ActorStatus>,
}

struct SetEntry {
    /// `None`: it crashed and has not been restarted.
    running: Option<RunningSet>,
    crashes: CrashHistory,
    /// Callers that noticed the crash of the set before this supervisor did.
    waiting: Vec<oneshot::Sender<OpenReply>>,
}

/// Mutable state of the supervisor.
#[derive(Default)]
pub(crate) struct SupervisorState {
    entries: HashMap<SessionId, SetEntry>,
    by_actor: HashMap<ActorId, SessionId>,
}

impl Actor for ArtifactStoreSupervisorActor {
    type Msg = ArtifactStoreSupervisorMsg;
    type State = SupervisorState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<SupervisorState, ActorProcessingErr> {
        // The sets of an earlier incarnation ended with it. They are started again on demand.
        for session in self.sets.clear() {
            self.actor_tree
                .deregister(ActorKind::WorkingSet, session.as_str());
        }
        self.sets.set_supervisor(myself);
        self.status.set_state("running", "");
        Ok(SupervisorState::default())
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        sets: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        self.status.message_handled();
        match message {
            ArtifactStoreSupervisorMsg::Open(open) => self.open(&myself, sets, *open).await?,
            ArtifactStoreSupervisorMsg::Idle(idle) => self.passivate(sets, &idle),
            ArtifactStoreSupervisorMsg::Close(session) => self.close(sets, &session),
            ArtifactStoreSupervisorMsg::Crash => return Err("crashed on request".into()),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        sets: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(actor, error) = event
            && let Some(session) = sets.by_actor.remove(&actor.get_id())
            && !self.closing.is_cancelled()
        {
            self.crashed(&myself, sets, session, &error.to_string())
                .await?;
        }
        Ok(())
    }
}

impl ArtifactStoreSupervisorActor {
    async fn open(
        &self,
        myself: &ActorRef<ArtifactStoreSupervisorMsg>,
        sets: &mut SupervisorState,
        open: OpenRequest,
    ) -> Result<(), ActorProcessingErr> {
        if self.closing.is_cancelled() {
            let _ = open.reply.send(Err(closing()));
            return Ok(());
        }
        let new_entry = || SetEntry {
            running: None,
            crashes: CrashHistory::new(restart::SUPERVISOR),
            waiting: Vec::new(),
        };
        let entry = sets
            .entries
            .entry(open.session.clone())
            .or_insert_with(new_entry);
        match &entry.running {
            Some(running) if Some(running.mailbox.actor().get_id()) == open.dead => {
                entry.waiting.push(open.reply)
            }
            Some(running) => drop(open.reply.send(Ok(running.clone()))),
            None if entry.crashes.is_exhausted(Instant::now()) => {
                drop(open.reply.send(Err(restart_limit_exceeded(&open.session))))
            }
            None => {
                let set = self.spawn(myself, sets, &open.session).await?;
                let _ = open.reply.send(Ok(set));
            }
        }
        Ok(())
    }

    async fn spawn(
        &self,
        myself: &ActorRef<ArtifactStoreSupervisorMsg>,
        sets: &mut SupervisorState,
        session: &SessionId,
    ) -> Result<RunningSet, ActorProcessingErr> {
        let parent = Some(ActorStatus::actor_id(
            ActorKind::ArtifactStoreSupervisor,
            SINGLETON_ID,
        ));
        let status = self.actor_tree.register(
            ActorKind::WorkingSet,
            session.as_str(),
            parent,
            restart::SUPERVISOR.label,
            None,
        );
        let documents = Arc::default();
        let actor = WorkingSetActor {
            store: self.documents.clone(),
            session: session.clone(),
            documents: Arc::clone(&documents),
            status: Arc::clone(&status),
            supervisor: myself.clone(),
            tasks: self.tasks.clone(),
            idle_after: self.idle_after,
        };
        let (actor, _) = Actor::spawn_linked(None, actor, (), myself.get_cell()).await?;
        sets.by_actor.insert(actor.get_id(), session.clone());
        let set = RunningSet {
            mailbox: Mailbox::new(actor, status),
            documents,
        };
        self.sets.running.insert(session.clone(), set.clone());
        if let Some(entry) = sets.entries.get_mut(session) {
            entry.running = Some(set.clone());
        }
        Ok(set)
    }

    async fn crashed(
        &self,
        myself: &ActorRef<ArtifactStoreSupervisorMsg>,
        sets: &mut SupervisorState,
        session: SessionId,
        error: &str,
    ) -> Result<(), ActorProcessingErr> {
        tracing::warn!(%session, error, "a working set crashed");
        let Some(entry) = sets.entries.get_mut(&session) else {
            return Ok(());
        };
        let running = entry.running.take();
        let waiting = std::mem::take(&mut entry.waiting);
        let may_restart = entry.crashes.record(Instant::now()).is_some();
        if let Some(running) = running {
            running.mailbox.status().restarted(error);
        }
        if !may_restart {
            self.sets.running.remove(&session);
            self.actor_tree
                .deregister(ActorKind::WorkingSet, session.as_str());
            for reply in waiting {
                let _ = reply.send(Err(restart_limit_exceeded(&session)));
            }
            return Ok(());
        }
        let running = self.spawn(myself, sets, &session).await?;
        for reply in waiting {
            let _ = reply.send(Ok(running.clone()));
        }
        Ok(())
    }

    /// Stops a set that is still idle. A request that arrives meanwhile finds it stopped, and has
    /// it started again.
    fn passivate(&self, sets: &mut SupervisorState, idle: &IdleReport) {
        let is_idle = |entry: &SetEntry| {
            let set = entry
                .running
                .as_ref()
                .filter(|running| running.mailbox.actor().get_id() == idle.actor);
            set.is_some_and(|running| running.mailbox.status().handled() == idle.handled)
        };
        if !sets.entries.get(&idle.session).is_some_and(is_idle) {
            return;
        }
        self.close(sets, &idle.session);
    }

    fn close(&self, sets: &mut SupervisorState, session: &SessionId) {
        if let Some(set) = sets.entries.remove(session).and_then(|entry| entry.running) {
            sets.by_actor.remove(&set.mailbox.actor().get_id());
            self.sets.running.remove(session);
            self.actor_tree
                .deregister(ActorKind::WorkingSet, session.as_str());
            set.mailbox.actor().stop(None);
        }
    }
}

fn restart_limit_exceeded(session: &SessionId) -> ErrorInfo {
    let message = format!(
        "the documents of session {session} cannot be edited for now: their working set exceeded its restart limit \
         ({})",
        restart::SUPERVISOR.label
    );
    ErrorInfo::retryable(ErrorCode::ActorCrashed, message)
}
