//! The supervision tree of a runtime (ACT-6).
//!
//! Elsewhere: how the status of actors is collected (`actor_tree.rs`).

use soong_protocol::{ErrorCode, ErrorInfo, RunId, SessionId};

use super::Runtime;
use crate::{
    actor_tree::{ActorKind, ActorView, TreeWatch, redact_view},
    artifact::ArtifactStoreSupervisorMsg,
    run::{RunMsg, RunSupervisorMsg, SubAgentMsg},
    session::{SessionMsg, SessionSupervisorMsg},
};

/// Supervision tree of a runtime: see [`Runtime::tree`].
#[derive(Debug, Clone, Copy)]
pub struct Tree<'a> {
    pub(super) runtime: &'a Runtime,
}

impl Tree<'_> {
    /// Returns a snapshot of the supervision tree (ACT-6). `None` if the runtime has closed.
    pub fn snapshot(self) -> Option<ActorView> {
        let mut tree = self.runtime.inner.services.actor_tree.tree()?;
        redact_view(&mut tree, &self.runtime.inner.services.resolver.redactor);
        Some(tree)
    }

    /// Watches the supervision tree: sends a snapshot first, then changes (RT-5). Watching sends no
    /// message to any actor.
    pub fn watch(self) -> TreeWatch {
        let services = &self.runtime.inner.services;
        TreeWatch::start(
            &services.actor_tree,
            &services.resolver.redactor,
            services.core.lifetime.tasks(),
            services.core.lifetime.closing(),
        )
    }

    /// Crashes an actor, to test its recovery. `actor_id` is an id from the tree. The journal and
    /// the root cannot be crashed.
    pub fn inject_crash(self, actor_id: &str) -> Result<(), ErrorInfo> {
        let services = &self.runtime.inner.services;
        let (kind, id) = actor_id.split_once(':').unwrap_or((actor_id, ""));
        let crashed = if kind == ActorKind::Run.as_str() {
            let run = services.core.runs.get(&RunId::new(id));
            if run.as_ref().is_some_and(|run| !run.has_started()) {
                let message = format!("{actor_id:?} is queued: its actor has not started yet");
                return Err(ErrorInfo::new(ErrorCode::NothingRunning, message));
            }
            run.is_some_and(|run| services.core.runs.send(&run, RunMsg::Crash))
        } else if kind == ActorKind::Session.as_str() {
            services
                .sessions
                .send(&SessionId::new(id), SessionMsg::Crash)
        } else if kind == ActorKind::RunSupervisor.as_str() {
            services
                .core
                .runs
                .links(&SessionId::new(id))
                .is_some_and(|links| links.runs.send(RunSupervisorMsg::Crash))
        } else if kind == ActorKind::SubAgentSupervisor.as_str() {
            services
                .core
                .runs
                .links(&SessionId::new(id))
                .is_some_and(|links| links.sub_agents.send(SubAgentMsg::Crash))
        } else if kind == ActorKind::ModelGateway.as_str() {
            let gateway = services.resolver.models.get(id);
            gateway.is_some_and(|gateway| gateway.crash())
        } else if kind == ActorKind::WorkingSet.as_str() {
            services
                .core
                .artifacts
                .store()
                .working_sets
                .inject_crash(&SessionId::new(id))
        } else if kind == ActorKind::ArtifactStoreSupervisor.as_str() {
            let supervisor = services.core.artifacts.store().working_sets.supervisor();
            supervisor.is_some_and(|supervisor| {
                supervisor.cast(ArtifactStoreSupervisorMsg::Crash).is_ok()
            })
        } else if kind == ActorKind::SessionSupervisor.as_str() {
            services
                .sessions
                .send_to_supervisor(SessionSupervisorMsg::Crash)
        } else if let Some(crashed) = services.resolver.mcp.inject_crash(kind, id) {
            crashed
        } else {
            let message = format!(
                "{actor_id:?} cannot be crashed: only runs, gateways, sessions, working sets, MCP servers \
                 and their supervisors"
            );
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        };
        let gone = || {
            ErrorInfo::new(
                ErrorCode::ActorNotFound,
                format!("there is no actor {actor_id:?}: see the actor tree"),
            )
        };
        crashed.then_some(()).ok_or_else(gone)
    }

    /// Returns the number of live actors, tasks and runs. Zero after `close`.
    pub fn live_count(self) -> usize {
        let services = &self.runtime.inner.services;
        services.actor_tree.len() + services.core.lifetime.tasks().len() + services.core.runs.len()
    }
}
