//! Supervisor of the MCP server actors: starts them, and restarts them after a crash with
//! increasing delay.
//!
//! One for one, 5 restarts in 60 s. A server whose actor exceeds the limit, and its tools, are not
//! available until the process is restarted; other servers are not affected. A lost connection is
//! not a crash: the actor reconnects.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use soong_protocol::{ErrorCode, ErrorInfo};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

use super::{McpServers, Server, actor::McpServerActor};
use crate::{
    actor_base::{
        SINGLETON_ID,
        restart::{self, CrashHistory},
    },
    actor_tree::{ActorKind, ActorStatus, ActorTree},
};

/// Delay before the first restart. It doubles with each further restart, up to [`MAX_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(8);

/// Mailbox of the supervisor.
pub(super) enum McpSupervisorMsg {
    /// Sent by a timer: the restart delay of a server is over.
    Restart(Arc<str>),
    /// For fault-injection tests: makes the actor fail.
    Crash,
}

/// The supervisor and its handles.
pub(super) struct McpSupervisorActor {
    pub(super) mcp: Arc<McpServers>,
    pub(super) actor_tree: Arc<ActorTree>,
    pub(super) tasks: TaskTracker,
    pub(super) closing: CancellationToken,
    pub(super) status: Arc<ActorStatus>,
}

struct ServerEntry {
    server: Arc<Server>,
    status: Arc<ActorStatus>,
    crashes: CrashHistory,
    /// Running during the delay before a restart; it is aborted when the supervisor ends.
    timer: Option<AbortOnDropHandle<()>>,
}

/// Mutable state of the supervisor.
#[derive(Default)]
pub(super) struct SupervisorState {
    entries: HashMap<Arc<str>, ServerEntry>,
    by_actor: HashMap<ActorId, Arc<str>>,
}

impl Actor for McpSupervisorActor {
    type Msg = McpSupervisorMsg;
    type State = SupervisorState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<McpSupervisorMsg>,
        (): (),
    ) -> Result<SupervisorState, ActorProcessingErr> {
        self.status.set_state("running", "");
        let mut servers = SupervisorState::default();
        let parent = ActorStatus::actor_id(ActorKind::McpSupervisor, SINGLETON_ID);
        for server in self.mcp.servers.values() {
            let kind = ActorKind::McpServer;
            let limit = restart::MCP_SERVER.label;
            let status =
                self.actor_tree
                    .register(kind, &server.name, Some(parent.clone()), limit, None);
            let entry = ServerEntry {
                server: Arc::clone(server),
                status,
                crashes: CrashHistory::new(restart::MCP_SERVER),
                timer: None,
            };
            servers.entries.insert(Arc::clone(&server.name), entry);
            self.spawn(&myself, &mut servers, &server.name).await?;
        }
        Ok(servers)
    }

    async fn handle(
        &self,
        myself: ActorRef<McpSupervisorMsg>,
        message: McpSupervisorMsg,
        servers: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        self.status.message_handled();
        match message {
            McpSupervisorMsg::Restart(name) => self.spawn(&myself, servers, &name).await,
            McpSupervisorMsg::Crash => Err("crashed on request".into()),
        }
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<McpSupervisorMsg>,
        event: SupervisionEvent,
        servers: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(actor, error) = event
            && let Some(name) = servers.by_actor.remove(&actor.get_id())
            && !self.closing.is_cancelled()
        {
            self.crashed(&myself, servers, &name, &error.to_string());
        }
        Ok(())
    }
}

impl McpSupervisorActor {
    async fn spawn(
        &self,
        myself: &ActorRef<McpSupervisorMsg>,
        servers: &mut SupervisorState,
        name: &Arc<str>,
    ) -> Result<(), ActorProcessingErr> {
        let Some(entry) = servers.entries.get_mut(name) else {
            return Ok(());
        };
        entry.timer = None;
        let actor = McpServerActor {
            mcp: Arc::clone(&self.mcp),
            tasks: self.tasks.clone(),
            server: Arc::clone(&entry.server),
            status: Arc::clone(&entry.status),
        };
        let (actor, _) = Actor::spawn_linked(None, actor, (), myself.get_cell()).await?;
        servers.by_actor.insert(actor.get_id(), Arc::clone(name));
        Ok(())
    }

    fn crashed(
        &self,
        myself: &ActorRef<McpSupervisorMsg>,
        servers: &mut SupervisorState,
        name: &Arc<str>,
        error: &str,
    ) {
        let Some(entry) = servers.entries.get_mut(name) else {
            return;
        };
        let crash = entry.crashes.record(Instant::now());
        let Some(number) = crash else {
            let error = format!(
                "{error} (restart limit exceeded: {})",
                restart::MCP_SERVER.label
            );
            entry.status.set_state("failed", error.as_str());
            self.mcp.set_unavailable(
                &entry.server,
                ErrorInfo::new(ErrorCode::ActorCrashed, error),
                false,
            );
            return;
        };
        entry.status.restarted(error);
        self.mcp.set_unavailable(
            &entry.server,
            ErrorInfo::new(ErrorCode::ProviderError, error),
            true,
        );
        let myself = myself.clone();
        let name = Arc::clone(name);
        let wait = backoff(number);
        entry.timer = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = myself.cast(McpSupervisorMsg::Restart(name)); // the supervisor may have stopped
        })));
    }
}

/// Returns the delay before restart `number`, counted from 1.
fn backoff(number: u32) -> Duration {
    FIRST_BACKOFF
        .saturating_mul(2_u32.saturating_pow(number.saturating_sub(1).min(16)))
        .min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_delay_doubles_up_to_limit() {
        for (number, wait_ms) in [
            (0, 250),
            (1, 250),
            (2, 500),
            (5, 4_000),
            (6, 8_000),
            (40, 8_000),
        ] {
            assert_eq!(
                backoff(number),
                Duration::from_millis(wait_ms),
                "restart {number}"
            );
        }
    }
}
