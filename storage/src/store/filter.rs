//! Which records are listed; what is absent does not matter.

use soong_protocol::{PermissionStatus, QuestionStatus, RunId, RunMode, SessionId, Timestamp, TraceId, TraceStatus};

/// Which sessions; absent = any.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Of this user.
    pub uid: Option<String>,
}

/// Which runs are summed; absent = any.
#[derive(Debug, Clone, Default)]
pub struct UsageFilter {
    /// That began then or later.
    pub since: Option<Timestamp>,
    /// Of this user.
    pub uid: Option<String>,
}

/// Which traces; absent = any.
#[derive(Debug, Clone, Default)]
pub struct TraceFilter {
    /// Only those with a run that waits or is at work.
    pub is_live: bool,
    /// Of this user.
    pub uid: Option<String>,
    /// With this status.
    pub status: Option<TraceStatus>,
    /// With this last mode.
    pub run_mode: Option<RunMode>,
    /// With this last preset.
    pub agent_type: Option<String>,
    /// Of this session.
    pub session_id: Option<SessionId>,
    /// Children of this trace.
    pub parent_trace_id: Option<TraceId>,
}

/// Which questions; absent = any.
#[derive(Debug, Clone, Default)]
pub struct QuestionFilter {
    /// Of this user.
    pub uid: Option<String>,
    /// With this status.
    pub status: Option<QuestionStatus>,
    /// Of this session.
    pub session_id: Option<SessionId>,
    /// Of this run.
    pub run_id: Option<RunId>,
}

/// Which permissions; absent = any.
#[derive(Debug, Clone, Default)]
pub struct PermissionFilter {
    /// Of this user.
    pub uid: Option<String>,
    /// With this status.
    pub status: Option<PermissionStatus>,
    /// Of this session.
    pub session_id: Option<SessionId>,
    /// Of this run.
    pub run_id: Option<RunId>,
}
