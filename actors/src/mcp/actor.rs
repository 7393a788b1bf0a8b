//! The actor of one server: holds its connection, and publishes what that brings.
//!
//! It waits for nothing: connecting and listing are a task (`work.rs`) that ends with the actor. It crashes when the
//! connection is lost, so that its supervisor brings it back; it stays where only the configuration can help.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Server, client::Line, connection::Lost, work::Work};
use crate::{live::Shared, mailbox::Mailbox, observatory::Gauge, tool::Registered};

/// Mailbox of a server's actor.
pub(super) enum McpServerMsg {
    /// From its work: the server answers, and has these tools.
    Opened { line: Line, tools: Vec<Arc<Registered>> },
    /// From its work: the server has other tools now.
    Listed(Vec<Arc<Registered>>),
    /// From its work: there is no connection, or not any more; nothing of it is left.
    Lost(Box<Lost>),
    /// For drills: die here.
    Crash,
}

/// What the actor needs.
pub(super) struct McpServerActor {
    pub(super) shared: Arc<Shared>,
    pub(super) server: Arc<Server>,
    pub(super) gauge: Arc<Gauge>,
}

/// What it holds: dropped, its work is cut off.
pub(super) struct AtWork {
    _work: DropGuard,
}

impl Actor for McpServerActor {
    type Msg = McpServerMsg;
    type State = AtWork;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<McpServerMsg>, (): ()) -> Result<AtWork, ActorProcessingErr> {
        self.gauge.show("starting", "connecting");
        let actor = Mailbox::new(myself, Arc::clone(&self.gauge));
        self.server.sit(actor.clone());
        let cut_off = CancellationToken::new();
        let work = Work {
            mcp: Arc::clone(&self.shared.profiles.mcp),
            server: Arc::clone(&self.server),
            actor,
            cut_off: cut_off.clone(),
        };
        // The runtime waits for it when it closes.
        self.shared.tasks.spawn(work.run());
        Ok(AtWork { _work: cut_off.drop_guard() })
    }

    async fn handle(
        &self,
        _: ActorRef<McpServerMsg>,
        message: McpServerMsg,
        _: &mut AtWork,
    ) -> Result<(), ActorProcessingErr> {
        self.gauge.took();
        let mcp = &self.shared.profiles.mcp;
        match message {
            McpServerMsg::Opened { line, tools } => {
                self.gauge.show("running", count(tools.len()));
                mcp.opened(&self.server, line, tools);
            }
            McpServerMsg::Listed(tools) => {
                self.gauge.show("running", count(tools.len()));
                mcp.publish(&self.server, tools);
            }
            McpServerMsg::Lost(lost) if !lost.may_mend => {
                self.gauge.show("failed", lost.error.message.as_str());
                mcp.lost(&self.server, lost.error, false);
            }
            McpServerMsg::Lost(lost) => return Err(lost.error.message.into()),
            McpServerMsg::Crash => return Err("crashed on request".into()),
        }
        Ok(())
    }
}

fn count(tools: usize) -> String {
    match tools {
        1 => "1 tool".to_owned(),
        n => format!("{n} tools"),
    }
}
