//! Mailbox of the actor of an MCP server.

use std::sync::Arc;

use soong_tool::RegisteredTool;

use super::{client::ServerClient, connection::ConnectionError};

/// Mailbox of the actor of an MCP server.
pub(super) enum McpServerMsg {
    /// Sent by the connection task: the server is connected and has these tools.
    Opened {
        line: ServerClient,
        tools: Vec<Arc<RegisteredTool>>,
    },
    /// Sent by the connection task: the tools of the server have changed.
    Listed(Vec<Arc<RegisteredTool>>),
    /// Sent by the connection task: the connection was lost or could not be established, and is
    /// completely closed.
    Lost(Box<ConnectionError>),
    /// For fault-injection tests: makes the actor fail.
    Crash,
}
