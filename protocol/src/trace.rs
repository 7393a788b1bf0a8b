//! A trace: the durable record of one agent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    Collaborator, EndReason, GoalId, RunMode, RunStatus, SessionId, Timestamp, TraceId, Usd,
};

/// Kind of work that a trace records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TraceMode {
    /// An agent loop.
    Agent,
    /// A single model call without tools.
    Call,
}

/// Status of a trace, derived from its last run (RUN-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TraceStatus {
    /// The last run is queued, running or waiting.
    Running,
    /// The last run has not ended, and no process executes it. Never stored.
    Interrupted,
    /// The last run completed.
    Completed,
    /// The last run failed.
    Failed,
    /// The last run was cancelled.
    Stopped,
}

impl TraceStatus {
    /// Returns whether the last run of the trace has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Stopped)
    }

    /// Returns the status of a trace whose last run has this status.
    pub const fn from_run_status(run: RunStatus) -> Self {
        match run {
            RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => Self::Running,
            RunStatus::Interrupted => Self::Interrupted,
            RunStatus::Completed => Self::Completed,
            RunStatus::Failed => Self::Failed,
            RunStatus::Cancelled => Self::Stopped,
        }
    }

    /// Returns whether the last run of the trace has not ended. Interrupted runs count.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Interrupted)
    }

    /// Returns the status as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// Context of a trace: the users and agents that take part in its work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceContext {
    /// Collaborators of the trace's runs (SUB-8).
    pub collaborators: Vec<Collaborator>,
}

/// A trace as clients see it. The `total_*` fields do not include sub-traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Trace {
    /// Unique id. That of the session for a root trace.
    pub trace_id: TraceId,
    /// Session of the trace.
    pub session_id: SessionId,
    /// Kind of work that the trace records.
    pub mode: TraceMode,
    /// Mode of the last run.
    pub run_mode: RunMode,
    /// Task of the trace.
    pub task: String,
    /// Display name.
    pub name: String,
    /// Preset of the last run.
    pub agent_type: String,
    /// Parent trace. Absent for a root trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_trace_id: Option<TraceId>,
    /// Goal of the parent trace that this trace works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_goal_id: Option<GoalId>,
    /// Status of the trace.
    pub status: TraceStatus,
    /// Why the last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
    /// Number of messages added.
    pub total_messages: u64,
    /// Request and answer tokens used.
    pub total_tokens: u64,
    /// Request tokens used.
    pub total_prompt_tokens: u64,
    /// Answer tokens used.
    pub total_completion_tokens: u64,
    /// Total cost. `None` (JSON `null`) if any price is unknown.
    pub total_cost: Option<Usd>,
    /// Whether some token counts are estimates.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// Total active time of the runs, in milliseconds.
    pub total_duration_ms: u64,
    /// Highest message sequence number.
    pub last_sequence: u64,
    /// Last message of the main path. 0 for an empty trace.
    pub head_sequence: u64,
    /// Id of the first event, which the trace may not have yet. Absent for 1. In a session whose id
    /// was used before, the numbers of the deleted session are continued.
    #[serde(
        default = "crate::session::first",
        skip_serializing_if = "crate::session::is_first"
    )]
    pub first_event_id: u64,
    /// Highest event id. Without events, the id before the first.
    pub last_event_id: u64,
    /// User that owns the trace.
    pub uid: String,
    /// Model of the last run.
    pub model: String,
    /// Names of the tools that the last run has offered to its model. If it has not started, or was
    /// started by version 0.1, the tools to which it is limited; absent if it is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Sampling parameters of the last run, including `temperature`.
    #[serde(default)]
    pub llm_params: Map<String, Value>,
    /// Preset of the last run's system prompt. `null` if the prompt was given as text.
    #[serde(default)]
    pub prompt_name: Option<String>,
    /// Collaborators of the trace's runs.
    pub context: TraceContext,
    /// Focused goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_goal_id: Option<GoalId>,
    /// Final answer of the last run, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// Why the last run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Time at which the last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}
