//! Actor of an MCP server: owns its connection and publishes its tools.
//!
//! The actor never blocks: a task (`connection_task.rs`) connects and lists the tools, and ends
//! with the actor. If the connection is lost or cannot be established, another task reconnects
//! after an increasing delay, as long as the runtime is open. It does not retry if the
//! configuration must be changed first.

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{McpServers, Server, connection_task::ConnectionTask, message::McpServerMsg};
use crate::{actor_base::Mailbox, actor_tree::ActorStatus};

/// Delay before the first attempt to reconnect. It doubles after each failed attempt, up to
/// [`MAX_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
/// Maximum delay before an attempt to connect. A call that needs the server ends the delay
/// immediately.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The actor and its handles.
pub(super) struct McpServerActor {
    pub(super) mcp: Arc<McpServers>,
    pub(super) tasks: TaskTracker,
    pub(super) server: Arc<Server>,
    pub(super) status: Arc<ActorStatus>,
}

/// Mutable state of the actor. Dropping it cancels the connection task.
pub(super) struct McpServerState {
    cancel: CancellationToken,
    _guard: DropGuard,
    /// Number of consecutive failed attempts to connect.
    failures: u32,
}

impl Actor for McpServerActor {
    type Msg = McpServerMsg;
    type State = McpServerState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<McpServerMsg>,
        (): (),
    ) -> Result<McpServerState, ActorProcessingErr> {
        self.status.set_state("starting", "connecting");
        let actor = Mailbox::new(myself, Arc::clone(&self.status));
        self.server.set_actor(actor.clone());
        let cut_off = CancellationToken::new();
        self.connect(actor, cut_off.clone(), Duration::ZERO);
        Ok(McpServerState {
            _guard: cut_off.clone().drop_guard(),
            cancel: cut_off,
            failures: 0,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<McpServerMsg>,
        message: McpServerMsg,
        state: &mut McpServerState,
    ) -> Result<(), ActorProcessingErr> {
        self.status.message_handled();
        let mcp = &self.mcp;
        match message {
            McpServerMsg::Opened { line, tools } => {
                state.failures = 0;
                self.status.set_state("running", count(tools.len()));
                mcp.set_ready(&self.server, line, tools);
            }
            McpServerMsg::Listed(tools) => {
                self.status.set_state("running", count(tools.len()));
                mcp.publish(&self.server, tools);
            }
            McpServerMsg::Lost(lost) if !lost.is_retryable => {
                self.status.set_state("failed", lost.error.message.as_str());
                mcp.set_unavailable(&self.server, lost.error, false);
            }
            McpServerMsg::Lost(lost) => {
                let wait = backoff(state.failures);
                state.failures = state.failures.saturating_add(1);
                self.status.restarted(&lost.error.message);
                self.status.set_state(
                    "connecting",
                    format!("not available: {}", lost.error.message),
                );
                mcp.set_unavailable(&self.server, lost.error, true);
                self.connect(
                    Mailbox::new(myself, Arc::clone(&self.status)),
                    state.cancel.clone(),
                    wait,
                );
            }
            McpServerMsg::Crash => return Err("crashed on request".into()),
        }
        Ok(())
    }
}

impl McpServerActor {
    /// Starts the task that connects after a delay.
    fn connect(&self, actor: Mailbox<McpServerMsg>, cut_off: CancellationToken, wait: Duration) {
        let mcp = Arc::clone(&self.mcp);
        let server = Arc::clone(&self.server);
        // The runtime waits for this task when it closes.
        self.tasks.spawn(
            ConnectionTask {
                mcp,
                server,
                actor,
                cancel: cut_off,
                delay: wait,
            }
            .run(),
        );
    }
}

/// Returns the delay before the next attempt, after this many consecutive failures.
fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF
        .saturating_mul(2_u32.saturating_pow(failures.min(16)))
        .min(MAX_BACKOFF)
}

fn count(tools: usize) -> String {
    match tools {
        1 => "1 tool".to_owned(),
        n => format!("{n} tools"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnect_delay_doubles_up_to_limit() {
        for (failures, wait_ms) in [
            (0, 250),
            (1, 500),
            (4, 4_000),
            (7, 30_000),
            (u32::MAX, 30_000),
        ] {
            assert_eq!(
                backoff(failures),
                Duration::from_millis(wait_ms),
                "after {failures}"
            );
        }
    }
}
