//! The mailbox of a server's actor.

use std::sync::Arc;

use super::{client::Line, connection::Lost};
use crate::tool::Registered;

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
