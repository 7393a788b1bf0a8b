//! Traces, their messages and events, and the form of event streams.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    EventRecord, GoalId, GoalTree, Message, RunMode, SessionId, Trace, TraceId, TraceStatus,
};

/// A page of traces, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TracePage {
    /// The traces, newest first.
    pub traces: Vec<Trace>,
    /// Cursor of the next page; `null` on the last page.
    pub next_cursor: Option<String>,
}

/// A trace with its goals and sub-traces.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Messages {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
}

/// A page of events, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// Filters for traces, and the selected page.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct TraceQuery {
    /// Traces with this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<TraceStatus>,
    /// Traces whose last run had this mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_mode: Option<RunMode>,
    /// Traces whose last run had this preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// Traces of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Children of this trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_trace_id: Option<TraceId>,
    /// Also list single calls. They are always listed if the mode, the session or the parent is
    /// given.
    #[serde(default)]
    pub all: bool,
    /// Maximum number of items, 1 to 100. Default: 50.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Start of the page: `next_cursor` of the previous page.
    #[cfg_attr(feature = "openapi", param(pattern = "^[0-9]{1,18}$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Selects the messages of a trace.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PathName {
    /// Messages of the main path, from the first to the head.
    #[default]
    MainPath,
    /// All messages, including those off the main path.
    All,
}

/// Selects messages of a trace.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct MessageQuery {
    /// Messages to return.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", param(inline))]
    pub mode: PathName,
    /// Only messages of this goal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal_id: Option<GoalId>,
}

/// Position in the events of a trace or of its session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct EventQuery {
    /// Last known event, on the timeline of the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_event_id: Option<u64>,
    /// Maximum number of events of a page, 1 to 1000. Default: 100.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Store of the last known event, as returned in `store_id`. Default: not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_id: Option<String>,
    /// Whether to return the merged events of the whole session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tree: bool,
    /// Last known event, on the timeline of the session. Used with `tree`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_session_seq: Option<u64>,
}

impl EventQuery {
    /// Returns the number of the event to continue after; 0 for the beginning.
    pub fn cursor(&self) -> u64 {
        let given = if self.tree {
            self.since_session_seq
        } else {
            self.since_event_id
        };
        given.unwrap_or(0)
    }
}
