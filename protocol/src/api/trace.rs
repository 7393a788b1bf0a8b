//! Traces, their messages and events, and the form of event streams.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{EventRecord, GoalTree, Message, Trace};

/// A page of traces, newest first.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TracePage {
    /// The traces, newest first.
    pub traces: Vec<Trace>,
    /// Cursor of the next page; `null` on the last page.
    pub next_cursor: Option<String>,
}

/// A trace with its goals and sub-traces.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceView {
    /// The trace.
    pub trace: Trace,
    /// Goals of the trace.
    pub goal_tree: GoalTree,
    /// Traces of the child runs, in the order of their start.
    pub sub_traces: Vec<Trace>,
}

/// List of messages.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Messages {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
}

/// A page of events, in order.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventPage {
    /// The events, oldest first.
    pub events: Vec<EventRecord>,
    /// Identifies the store. A cursor is valid only for its own store.
    #[serde(default)]
    pub store_id: String,
}

/// Maximum time for which a server sends nothing on a stream: then it sends a keep-alive message.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// SSE event name of the frame that reports why a stream ends.
pub const ERROR_FRAME: &str = "error";
