//! The runtime supervisor: root of the actor tree.
//!
//! Strategy: one for one. A gateway, the MCP supervisor, the session supervisor or the artifact
//! store supervisor is restarted after a crash, at most 5 times in 30 s. A gateway that crashes
//! more often is given up: sessions that call it are interrupted, other sessions continue. If the
//! MCP supervisor crashes more often, only the MCP tools are lost.
//!
//! The journal is never restarted. Without the journal, the session supervisor or the artifact
//! store supervisor, the runtime has failed: all runs are interrupted, all streams end with the
//! reason, and new work is rejected. Stored data stays readable.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use soong_protocol::{ErrorCode, ErrorInfo};

use crate::{
    actor_base::{
        Lifetime, Mailbox, SINGLETON_ID,
        restart::{self, CrashHistory},
    },
    actor_tree::{ActorKind, ActorStatus, ActorTree},
    artifact::{ArtifactStore, ArtifactStoreSupervisorActor},
    events::EventBus,
    gateway::Gateway,
    gateways::StartGateway,
    journal::{JournalActor, JournalHandle},
    mcp::{self, McpServers},
    run::{RunPhase, RunRegistry},
    session::{SessionServices, SessionSupervisorActor},
};

enum Child {
    Journal,
    Artifacts,
    Sessions,
    Mcp,
    Gateway(Gateway),
}

/// The root actor and the handles that it needs.
pub(crate) struct RuntimeSupervisorActor {
    pub(crate) journal: JournalHandle,
    pub(crate) artifacts: Arc<ArtifactStore>,
    pub(crate) mcp: Arc<McpServers>,
    pub(crate) runs: Arc<RunRegistry>,
    pub(crate) sessions: Arc<SessionServices>,
    pub(crate) bus: Arc<EventBus>,
    pub(crate) actor_tree: Arc<ActorTree>,
    pub(crate) lifetime: Lifetime,
    /// How long a session must be inactive before its working set is passivated
    /// (`runtime.idle_session_s`).
    pub(crate) idle_after: Duration,
    pub(crate) status: Arc<ActorStatus>,
}

/// State of the root actor: its children, with their recent crashes.
#[derive(Default)]
pub(crate) struct Children {
    by_actor: HashMap<ActorId, (Child, CrashHistory)>,
}

impl Actor for RuntimeSupervisorActor {
    type Msg = StartGateway;
    type State = Children;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<StartGateway>,
        (): (),
    ) -> Result<Children, ActorProcessingErr> {
        self.status.set_state("running", "");
        let mut children = Children::default();
        let status = self.register_actor(ActorKind::Journal, SINGLETON_ID, restart::NEVER.label);
        let journal = JournalActor {
            journal: self.journal.clone(),
            status,
        };
        let (actor, _) = Actor::spawn_linked(None, journal, (), myself.get_cell()).await?;
        children.by_actor.insert(
            actor.get_id(),
            (Child::Journal, CrashHistory::new(restart::NEVER)),
        );
        self.start_artifacts(
            &myself,
            &mut children,
            CrashHistory::new(restart::SUPERVISOR),
        )
        .await?;
        self.start_mcp(
            &myself,
            &mut children,
            CrashHistory::new(restart::SUPERVISOR),
        )
        .await?;
        self.start_sessions(
            &myself,
            &mut children,
            CrashHistory::new(restart::SUPERVISOR),
        )
        .await?;
        Ok(children)
    }

    async fn handle(
        &self,
        myself: ActorRef<StartGateway>,
        message: StartGateway,
        children: &mut Children,
    ) -> Result<(), ActorProcessingErr> {
        self.status.message_handled();
        let StartGateway { gateway, started } = message;
        if gateway.is_running() {
            let _ = started.send(());
            return Ok(());
        }
        self.start_gateway(
            &myself,
            children,
            gateway,
            CrashHistory::new(restart::SUPERVISOR),
        )
        .await?;
        let _ = started.send(());
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<StartGateway>,
        event: SupervisionEvent,
        children: &mut Children,
    ) -> Result<(), ActorProcessingErr> {
        let SupervisionEvent::ActorFailed(actor, error) = event else {
            return Ok(());
        };
        let Some((child, mut crashes)) = children.by_actor.remove(&actor.get_id()) else {
            return Ok(());
        };
        if self.lifetime.is_closing() {
            return Ok(());
        }
        tracing::error!(%error, "a child of the runtime crashed");
        if crashes.record(Instant::now()).is_none() {
            match child {
                // The runtime works without MCP servers.
                Child::Mcp => mcp::give_up(&self.mcp, &self.actor_tree),
                Child::Gateway(gateway) => self.give_up_gateway(&gateway, &error.to_string()),
                Child::Journal => self.fail(failed(
                    "the journal can no longer write",
                    &error.to_string(),
                )),
                Child::Artifacts => self.fail(crashed_too_often(
                    "the artifact store supervisor",
                    &error.to_string(),
                )),
                Child::Sessions => self.fail(crashed_too_often(
                    "the session supervisor",
                    &error.to_string(),
                )),
            }
            return Ok(());
        }
        match child {
            Child::Journal => {}
            Child::Artifacts => {
                self.restarted(
                    ActorKind::ArtifactStoreSupervisor,
                    SINGLETON_ID,
                    &error.to_string(),
                );
                self.start_artifacts(&myself, children, crashes).await?;
            }
            Child::Sessions => {
                self.restarted(
                    ActorKind::SessionSupervisor,
                    SINGLETON_ID,
                    &error.to_string(),
                );
                self.start_sessions(&myself, children, crashes).await?;
            }
            Child::Mcp => {
                self.restarted(ActorKind::McpSupervisor, SINGLETON_ID, &error.to_string());
                self.start_mcp(&myself, children, crashes).await?;
            }
            Child::Gateway(gateway) => {
                self.restarted(
                    ActorKind::ModelGateway,
                    &gateway.profile,
                    &error.to_string(),
                );
                self.start_gateway(&myself, children, gateway, crashes)
                    .await?;
            }
        }
        Ok(())
    }
}

fn failed(what: &str, error: &str) -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::RuntimeFailed,
        format!("{what} ({error}): restart the process"),
    )
}

fn crashed_too_often(what: &str, error: &str) -> ErrorInfo {
    failed(
        &format!(
            "{what} exceeded its restart limit ({})",
            restart::SUPERVISOR.label
        ),
        &format!("last error: {error}"),
    )
}

impl RuntimeSupervisorActor {
    fn register_actor(&self, kind: ActorKind, id: &str, limit: &'static str) -> Arc<ActorStatus> {
        let root = ActorStatus::actor_id(ActorKind::RuntimeSupervisor, SINGLETON_ID);
        self.actor_tree.register(kind, id, Some(root), limit, None)
    }

    fn restarted(&self, kind: ActorKind, id: &str, error: &str) {
        self.register_actor(kind, id, restart::SUPERVISOR.label)
            .restarted(error);
    }

    /// Gives up a gateway. Sessions are interrupted when they next call its model
    /// (`run/tasks/model_call.rs`).
    fn give_up_gateway(&self, gateway: &Gateway, error: &str) {
        let failure = crashed_too_often(
            &format!("the model gateway of profile {:?}", gateway.profile),
            error,
        );
        tracing::error!(%failure, "a model gateway has failed and is not restarted again");
        let status = self.register_actor(
            ActorKind::ModelGateway,
            &gateway.profile,
            restart::SUPERVISOR.label,
        );
        status.record_error(failure.message.clone());
        status.set_state("failed", "restart the process");
        gateway.give_up(failure);
    }

    /// Marks the runtime as failed: it accepts no new work, interrupts every run, and ends every
    /// stream with the reason. The next owner of the home resumes the runs.
    fn fail(&self, failure: ErrorInfo) {
        tracing::error!(%failure, "the runtime has failed and accepts no new work");
        self.status.record_error(failure.message.clone());
        self.status.set_state("failed", failure.message.clone());
        self.lifetime.fail(failure.clone());
        // Kill the actors first, so that none of them takes a cancelled token for a request to
        // cancel its run.
        if let Some(supervisor) = self.sessions.sessions.supervisor() {
            supervisor.actor().kill();
        }
        for run in self.runs.all() {
            self.runs
                .deregister(&run, RunPhase::Interrupted(failure.clone()));
        }
        self.sessions.sessions.clear();
        self.runs.unlink_all();
        self.bus.fail(failure);
    }

    /// Starts the artifact store supervisor. Working sets are started on demand.
    async fn start_artifacts(
        &self,
        myself: &ActorRef<StartGateway>,
        children: &mut Children,
        crashes: CrashHistory,
    ) -> Result<(), ActorProcessingErr> {
        let status = self.register_actor(
            ActorKind::ArtifactStoreSupervisor,
            SINGLETON_ID,
            restart::SUPERVISOR.label,
        );
        let actor = ArtifactStoreSupervisorActor {
            sets: Arc::clone(&self.artifacts.working_sets),
            documents: self.artifacts.documents(),
            actor_tree: Arc::clone(&self.actor_tree),
            tasks: self.lifetime.tasks().clone(),
            closing: self.lifetime.closing().clone(),
            idle_after: self.idle_after,
            status,
        };
        let (actor, _) = Actor::spawn_linked(None, actor, (), myself.get_cell()).await?;
        children
            .by_actor
            .insert(actor.get_id(), (Child::Artifacts, crashes));
        Ok(())
    }

    /// Starts the MCP supervisor, if MCP servers are configured.
    async fn start_mcp(
        &self,
        myself: &ActorRef<StartGateway>,
        children: &mut Children,
        crashes: CrashHistory,
    ) -> Result<(), ActorProcessingErr> {
        let tasks = self.lifetime.tasks();
        let closing = self.lifetime.closing();
        if let Some(actor) = mcp::start(
            &self.mcp,
            &self.actor_tree,
            tasks,
            closing,
            myself.get_cell(),
        )
        .await?
        {
            children.by_actor.insert(actor, (Child::Mcp, crashes));
        }
        Ok(())
    }

    /// Starts the session supervisor, and lets it restore the sessions of the previous incarnation.
    async fn start_sessions(
        &self,
        myself: &ActorRef<StartGateway>,
        children: &mut Children,
        crashes: CrashHistory,
    ) -> Result<(), ActorProcessingErr> {
        let status = self.register_actor(
            ActorKind::SessionSupervisor,
            SINGLETON_ID,
            restart::SUPERVISOR.label,
        );
        let lost = self.sessions.sessions.to_restore();
        let actor = SessionSupervisorActor {
            services: Arc::clone(&self.sessions),
            status: Arc::clone(&status),
        };
        let (actor, _) = Actor::spawn_linked(None, actor, lost, myself.get_cell()).await?;
        children
            .by_actor
            .insert(actor.get_id(), (Child::Sessions, crashes));
        self.sessions
            .sessions
            .set_supervisor(Mailbox::new(actor, status));
        Ok(())
    }

    async fn start_gateway(
        &self,
        myself: &ActorRef<StartGateway>,
        children: &mut Children,
        gateway: Gateway,
        crashes: CrashHistory,
    ) -> Result<(), ActorProcessingErr> {
        let status = self.register_actor(
            ActorKind::ModelGateway,
            &gateway.profile,
            restart::SUPERVISOR.label,
        );
        let actor = gateway.actor(Arc::clone(&status));
        let (actor, _) = Actor::spawn_linked(None, actor, (), myself.get_cell()).await?;
        gateway.attach(Mailbox::new(actor.clone(), status));
        children
            .by_actor
            .insert(actor.get_id(), (Child::Gateway(gateway), crashes));
        Ok(())
    }
}
