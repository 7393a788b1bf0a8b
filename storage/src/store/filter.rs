//! Filters for lists of records. A field that is `None` does not restrict the list.

use soong_protocol::{
    PermissionStatus, QuestionStatus, RunId, RunMode, SessionId, Timestamp, TraceId, TraceStatus,
};

/// Filter for sessions; see [`crate::store::Reader::sessions`].
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Only sessions of this user.
    pub uid: Option<String>,
    /// Without single calls (RT-5).
    pub hides_calls: bool,
}

/// Filter for the runs that a usage report counts.
#[derive(Debug, Clone, Default)]
pub struct UsageFilter {
    /// Only runs that started at this time or later.
    pub since: Option<Timestamp>,
    /// Only runs of this user.
    pub uid: Option<String>,
}

/// Filter for traces.
#[derive(Debug, Clone, Default)]
pub struct TraceFilter {
    /// Only traces with a queued, running or waiting run.
    pub is_live: bool,
    /// Only traces of this user.
    pub uid: Option<String>,
    /// Only traces with this status.
    pub status: Option<TraceStatus>,
    /// Without traces of single calls (RT-5).
    pub hides_calls: bool,
    /// Only traces whose last run has this mode.
    pub run_mode: Option<RunMode>,
    /// Only traces whose last run uses this preset.
    pub agent_type: Option<String>,
    /// Only traces of this session.
    pub session_id: Option<SessionId>,
    /// Only children of this trace.
    pub parent_trace_id: Option<TraceId>,
}

/// Filter for questions.
#[derive(Debug, Clone, Default)]
pub struct QuestionFilter {
    /// Only questions of this user.
    pub uid: Option<String>,
    /// Only questions with this status.
    pub status: Option<QuestionStatus>,
    /// Only questions of this session.
    pub session_id: Option<SessionId>,
    /// Only questions of this run.
    pub run_id: Option<RunId>,
}

/// Filter for permissions.
#[derive(Debug, Clone, Default)]
pub struct PermissionFilter {
    /// Only permissions of this user.
    pub uid: Option<String>,
    /// Only permissions with this status.
    pub status: Option<PermissionStatus>,
    /// Only permissions of this session.
    pub session_id: Option<SessionId>,
    /// Only permissions of this run.
    pub run_id: Option<RunId>,
}
