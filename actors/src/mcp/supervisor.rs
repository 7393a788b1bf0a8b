//! The supervisor of the servers: starts each, and brings back what crashes, after a while that grows.
//!
//! One for one, 5 restarts in 60 s. A server whose actor crashes more often stays away, and its tools with it, until the
//! process is restarted; the others do not notice. A lost connection is no crash: the actor connects again.

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

use super::{Mcp, Server, actor::McpServerActor};
use crate::{
    actor_base::{
        ONLY,
        restart::{self, Crashes},
    },
    observatory::{ActorKind, Gauge, Observatory},
};

/// How long the first restart is waited for; each further one twice as long, at most [`MAX_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(8);

/// Mailbox of the supervisor.
pub(super) enum McpSupervisorMsg {
    /// From its own timer: a server has been away long enough.
    Restart(Arc<str>),
    /// For drills: die here.
    Crash,
}

/// What the supervisor needs.
pub(super) struct McpSupervisorActor {
    pub(super) mcp: Arc<Mcp>,
    pub(super) observatory: Arc<Observatory>,
    pub(super) tasks: TaskTracker,
    pub(super) closing: CancellationToken,
    pub(super) gauge: Arc<Gauge>,
}

struct Kept {
    server: Arc<Server>,
    gauge: Arc<Gauge>,
    crashes: Crashes,
    /// Runs while it is away; ends with the supervisor.
    timer: Option<AbortOnDropHandle<()>>,
}

/// What changes.
#[derive(Default)]
pub(super) struct Servers {
    kept: HashMap<Arc<str>, Kept>,
    by_actor: HashMap<ActorId, Arc<str>>,
}

impl Actor for McpSupervisorActor {
    type Msg = McpSupervisorMsg;
    type State = Servers;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<McpSupervisorMsg>, (): ()) -> Result<Servers, ActorProcessingErr> {
        self.gauge.show("running", "");
        let mut servers = Servers::default();
        let parent = Gauge::actor_id(ActorKind::McpSupervisor, ONLY);
        for server in self.mcp.servers.values() {
            let (kind, limit) = (ActorKind::McpServer, restart::SERVER.shown);
            let gauge = self.observatory.enter(kind, &server.name, Some(parent.clone()), limit, None);
            let kept = Kept { server: Arc::clone(server), gauge, crashes: Crashes::new(restart::SERVER), timer: None };
            servers.kept.insert(Arc::clone(&server.name), kept);
            self.spawn(&myself, &mut servers, &server.name).await?;
        }
        Ok(servers)
    }

    async fn handle(
        &self,
        myself: ActorRef<McpSupervisorMsg>,
        message: McpSupervisorMsg,
        servers: &mut Servers,
    ) -> Result<(), ActorProcessingErr> {
        self.gauge.took();
        match message {
            McpSupervisorMsg::Restart(name) => self.spawn(&myself, servers, &name).await,
            McpSupervisorMsg::Crash => Err("crashed on request".into()),
        }
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<McpSupervisorMsg>,
        event: SupervisionEvent,
        servers: &mut Servers,
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
        servers: &mut Servers,
        name: &Arc<str>,
    ) -> Result<(), ActorProcessingErr> {
        let Some(kept) = servers.kept.get_mut(name) else { return Ok(()) };
        kept.timer = None;
        let actor = McpServerActor {
            mcp: Arc::clone(&self.mcp),
            tasks: self.tasks.clone(),
            server: Arc::clone(&kept.server),
            gauge: Arc::clone(&kept.gauge),
        };
        let (actor, _) = Actor::spawn_linked(None, actor, (), myself.get_cell()).await?;
        servers.by_actor.insert(actor.get_id(), Arc::clone(name));
        Ok(())
    }

    fn crashed(&self, myself: &ActorRef<McpSupervisorMsg>, servers: &mut Servers, name: &Arc<str>, error: &str) {
        let Some(kept) = servers.kept.get_mut(name) else { return };
        let crash = kept.crashes.record(Instant::now());
        let Some(number) = crash else {
            let error = format!("{error} (it failed more often than it may, {})", restart::SERVER.shown);
            kept.gauge.show("failed", error.as_str());
            self.mcp.lost(&kept.server, ErrorInfo::new(ErrorCode::ActorCrashed, error), false);
            return;
        };
        kept.gauge.restarted(error);
        self.mcp.lost(&kept.server, ErrorInfo::new(ErrorCode::ProviderError, error), true);
        let (myself, name, wait) = (myself.clone(), Arc::clone(name), backoff(number));
        kept.timer = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = myself.cast(McpSupervisorMsg::Restart(name)); // it may be gone
        })));
    }
}

/// Returns how long to wait before restart `number`, from 1.
fn backoff(number: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(number.saturating_sub(1).min(16))).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_restart_is_waited_for_twice_as_long_up_to_a_limit() {
        for (number, wait_ms) in [(0, 250), (1, 250), (2, 500), (5, 4_000), (6, 8_000), (40, 8_000)] {
            assert_eq!(backoff(number), Duration::from_millis(wait_ms), "restart {number}");
        }
    }
}
