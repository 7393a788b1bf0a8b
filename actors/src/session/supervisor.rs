//! The session supervisor: starts session actors on demand, restarts them after crashes, and stops
//! idle ones.
//!
//! All start and delete requests pass through this actor. Therefore no start request is lost when a
//! session actor stops because it is idle and a new one starts, and no run starts in a session that
//! is being deleted.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use soong_protocol::{EndReason, ErrorCode, ErrorInfo, RunStatus, SessionId};
use soong_storage::store::StoreError;
use tokio::sync::oneshot;

use super::{
    SessionHistory, SessionKey, StartRequest,
    actor::{SessionActor, StartMode},
    idle::IdleSessions,
    message::{SessionMsg, SessionSupervisorMsg},
};
use crate::{
    actor_base::{
        Mailbox,
        restart::{self, CrashHistory},
    },
    actor_tree::{ActorKind, ActorStatus},
    run::{Ending, RunEntry, RunPhase},
    session::SessionServices,
};

/// Maximum time that an interrupted session has to stop its actors; the same time applies to its
/// tasks.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(2);

struct Child {
    session: Mailbox<SessionMsg>,
    key: SessionKey,
    starts: u64,
    crashes: CrashHistory,
}

/// The session supervisor.
pub(crate) struct SessionSupervisorActor {
    pub(crate) services: Arc<SessionServices>,
    pub(crate) status: Arc<ActorStatus>,
}

/// Mutable state of the supervisor.
#[derive(Default)]
pub(crate) struct SessionSupervisorState {
    children: HashMap<SessionId, Child>,
    by_actor: HashMap<ActorId, SessionId>,
    idle: IdleSessions,
    /// Sessions that were interrupted in this process and have had no actor since. Their runs are
    /// in the store.
    interrupted: HashSet<SessionId>,
}

impl SessionSupervisorState {
    /// Returns whether the actor of a session has received this number of start requests. A late
    /// message of an actor that has stopped says nothing about the next actor.
    fn is_current(&self, id: &SessionId, actor: ActorId, starts: u64) -> bool {
        self.children
            .get(id)
            .is_some_and(|child| child.session.actor().get_id() == actor && child.starts == starts)
    }

    /// Removes a session that no longer has an actor.
    fn remove(&mut self, id: &SessionId) -> Option<Child> {
        self.idle.remove(id);
        let child = self.children.remove(id)?;
        self.by_actor.remove(&child.session.actor().get_id());
        Some(child)
    }
}

impl Actor for SessionSupervisorActor {
    type Msg = SessionSupervisorMsg;
    type State = SessionSupervisorState;
    /// Sessions of an earlier incarnation.
    type Arguments = Vec<SessionKey>;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        lost: Vec<SessionKey>,
    ) -> Result<SessionSupervisorState, ActorProcessingErr> {
        self.status.set_state("running", "");
        let mut sessions = SessionSupervisorState::default();
        for key in lost {
            let crashes = CrashHistory::new(restart::SUPERVISOR);
            self.spawn(&myself, &mut sessions, key, StartMode::Restore, crashes)
                .await?;
        }
        Ok(sessions)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        sessions: &mut SessionSupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        self.status.message_handled();
        match message {
            SessionSupervisorMsg::Start(request) => self.start(&myself, sessions, *request).await?,
            SessionSupervisorMsg::BecameIdle {
                session,
                actor,
                starts,
            } => {
                if sessions.is_current(&session, actor, starts) {
                    sessions.idle.insert(session);
                }
                while let Some(oldest) = sessions
                    .idle
                    .pop_beyond(self.services.core.config.runtime.max_idle_sessions)
                {
                    self.passivate(sessions, &oldest);
                }
            }
            SessionSupervisorMsg::Idle {
                session,
                actor,
                starts,
            } => {
                if sessions.is_current(&session, actor, starts) {
                    self.passivate(sessions, &session);
                }
            }
            SessionSupervisorMsg::Recover(lost) => {
                let id = &lost.session_id;
                if self.services.sessions.is_deleting(id) {
                    // If the session is kept, the next start request in it finds the runs in the
                    // store.
                    self.services.core.runs.interrupt_session(id);
                } else if !sessions.children.contains_key(id) {
                    self.spawn(
                        &myself,
                        sessions,
                        lost,
                        StartMode::Recover,
                        CrashHistory::new(restart::SUPERVISOR),
                    )
                    .await?;
                }
            }
            SessionSupervisorMsg::Delete { session, reply } => {
                self.delete(sessions, session, reply)
            }
            SessionSupervisorMsg::Interrupt { session, failure } => {
                self.interrupt(sessions, &session, &failure).await
            }
            SessionSupervisorMsg::Deleted(session) => self.passivate(sessions, &session),
            SessionSupervisorMsg::Crash => return Err("crashed on request".into()),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        sessions: &mut SessionSupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(actor, error) = event
            && let Some(id) = sessions.by_actor.get(&actor.get_id()).cloned()
            && let Some(mut session_entry) = sessions.remove(&id)
            && !self.services.core.lifetime.is_closing()
        {
            let error = error.to_string();
            tracing::warn!(session = %id, error, "session actor crashed");
            if let Some(debug_artifacts) = &self.services.run_services.debug_artifacts
                && let Some(run) = self.runs_of(&id).first()
            {
                debug_artifacts.store_crash(&run.identity, "session actor", &error);
            }
            if session_entry.crashes.record(Instant::now()).is_some() {
                session_entry.session.status().restarted(&error);
                self.spawn(
                    &myself,
                    sessions,
                    session_entry.key,
                    StartMode::Restore,
                    session_entry.crashes,
                )
                .await?;
            } else {
                self.fail_session(&session_entry, &error);
            }
        }
        Ok(())
    }
}

impl SessionSupervisorActor {
    async fn start(
        &self,
        myself: &ActorRef<SessionSupervisorMsg>,
        sessions: &mut SessionSupervisorState,
        request: StartRequest,
    ) -> Result<(), ActorProcessingErr> {
        let id = request.run.session_id.clone();
        if self.services.sessions.is_deleting(&id) {
            let _ = request
                .reply
                .send(Err(ErrorInfo::from(&StoreError::SessionDeleting(id))));
            return Ok(());
        }
        if !sessions.children.contains_key(&id) {
            let key = SessionKey {
                session_id: id.clone(),
                project_dir: Arc::clone(&request.project_dir),
            };
            let mode = match request.history {
                // The request may have been prepared before the session was interrupted.
                _ if sessions.interrupted.contains(&id) => StartMode::Recover,
                SessionHistory::None => StartMode::New,
                SessionHistory::Stored => StartMode::Stored,
                SessionHistory::Interrupted => StartMode::Recover,
            };
            self.spawn(
                myself,
                sessions,
                key,
                mode,
                CrashHistory::new(restart::SUPERVISOR),
            )
            .await?;
        }
        if let Some(child) = sessions.children.get_mut(&id) {
            child.starts += 1;
            sessions.idle.remove(&id);
            child.session.send(SessionMsg::Start(Box::new(request)));
        }
        Ok(())
    }

    /// Starts the deletion of a session, or adds the caller to a running deletion. The actor of the
    /// session is asked about the start requests that it received before; later ones are rejected.
    fn delete(
        &self,
        sessions: &SessionSupervisorState,
        id: SessionId,
        reply: oneshot::Sender<Result<(), ErrorInfo>>,
    ) {
        if self.services.sessions.begin_deletion(&id, reply) {
            let session = sessions
                .children
                .get(&id)
                .map(|child| child.session.clone());
            self.services.deleter.start(id, session);
        }
    }

    fn passivate(&self, sessions: &mut SessionSupervisorState, id: &SessionId) {
        if let Some(child) = sessions.remove(id) {
            self.deregister(id);
            child.session.actor().stop(None);
        }
    }

    /// Interrupts the runs of a session: their actors stop, and its streams end with the reason.
    /// The next start request in the session resumes the runs, in this process or a later one.
    async fn interrupt(
        &self,
        sessions: &mut SessionSupervisorState,
        id: &SessionId,
        failure: &ErrorInfo,
    ) {
        let Some(child) = sessions.remove(id) else {
            return;
        };
        sessions.interrupted.insert(id.clone());
        tracing::error!(session = %id, %failure, "session interrupted");
        // The actors are stopped first, so that none of them mistakes a cancelled token for a
        // cancel request.
        let _ = child
            .session
            .actor()
            .kill_and_wait(Some(INTERRUPT_LIMIT))
            .await;
        let runs = self.runs_of(id);
        let tasks: Vec<_> = runs
            .iter()
            .map(|entry| entry.address.renew_tasks().0)
            .collect();
        let _ = tokio::time::timeout(
            INTERRUPT_LIMIT,
            join_all(tasks.iter().map(|work| work.wait())),
        )
        .await;
        for entry in runs {
            self.services
                .core
                .runs
                .deregister(&entry, RunPhase::Interrupted(failure.clone()));
        }
        self.deregister(id);
        self.services.core.bus.fail_session(id, failure);
    }

    fn runs_of(&self, id: &SessionId) -> Vec<Arc<RunEntry>> {
        self.services
            .core
            .runs
            .select(|run| run.identity.session_id == *id)
    }

    async fn spawn(
        &self,
        myself: &ActorRef<SessionSupervisorMsg>,
        sessions: &mut SessionSupervisorState,
        lost: SessionKey,
        mode: StartMode,
        crashes: CrashHistory,
    ) -> Result<(), ActorProcessingErr> {
        let id = lost.session_id.clone();
        self.services.core.bus.clear_session_failure(&id);
        let parent = ActorStatus::actor_id(ActorKind::SessionSupervisor, "0");
        let status = self.services.actor_tree.register(
            ActorKind::Session,
            id.as_str(),
            Some(parent),
            restart::SUPERVISOR.label,
            None,
        );
        let actor = SessionActor {
            services: Arc::clone(&self.services),
            status: Arc::clone(&status),
            key: lost.clone(),
        };
        let (actor, _) = Actor::spawn_linked(None, actor, mode, myself.get_cell()).await?;
        sessions.by_actor.insert(actor.get_id(), id.clone());
        sessions.interrupted.remove(&id);
        sessions.children.insert(
            id,
            Child {
                session: Mailbox::new(actor, status),
                key: lost,
                starts: 0,
                crashes,
            },
        );
        Ok(())
    }

    fn deregister(&self, session: &SessionId) {
        self.services.sessions.remove(session);
        self.services.core.runs.unlink_session(session);
        self.services
            .core
            .artifacts
            .store()
            .evict_inventory(session);
        for kind in [
            ActorKind::Session,
            ActorKind::RunSupervisor,
            ActorKind::SubAgentSupervisor,
        ] {
            self.services.actor_tree.deregister(kind, session.as_str());
        }
    }

    /// Ends the runs of a session that crashed too often. Other sessions are not affected.
    fn fail_session(&self, child: &Child, error: &str) {
        let id = &child.key.session_id;
        let orphans = self.runs_of(id);
        self.deregister(id);
        let message = format!(
            "the session's actor exceeded its restart limit ({}); last error: {error}",
            restart::SUPERVISOR.label
        );
        for run in orphans {
            let error = Some(ErrorInfo::new(ErrorCode::ActorCrashed, message.clone()));
            let ending = Ending {
                status: RunStatus::Failed,
                reason: EndReason::ActorCrashed,
                error,
            };
            self.services.finalizer.finalize_orphan(run, ending);
        }
    }
}
