//! A trace: the durable record of one agent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Collaborator, EndReason, GoalId, RunMode, RunStatus, SessionId, Timestamp, TraceId, Usd};

/// What made the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TraceMode {
    /// An agent loop.
    Agent,
}

/// Where the trace stands; derived from its last run (RUN-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TraceStatus {
    /// A run is queued, running or waiting.
    Running,
    /// A run has not ended, and no process executes it. Never stored.
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

    /// Derives the status from the last run's.
    pub const fn of(run: RunStatus) -> Self {
        match run {
            RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => Self::Running,
            RunStatus::Interrupted => Self::Interrupted,
            RunStatus::Completed => Self::Completed,
            RunStatus::Failed => Self::Failed,
            RunStatus::Cancelled => Self::Stopped,
        }
    }

    /// Returns whether a run has not ended, at work or interrupted.
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

/// What a trace knows of its surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceContext {
    /// Whom the trace's runs work with (SUB-8).
    pub collaborators: Vec<Collaborator>,
}

/// A trace as clients see it. `total_*` are its own; children have traces of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Trace {
    /// Its id; a session's id for a root.
    pub trace_id: TraceId,
    /// The session it belongs to.
    pub session_id: SessionId,
    /// What made it.
    pub mode: TraceMode,
    /// The mode of its last run.
    pub run_mode: RunMode,
    /// What it was asked to do.
    pub task: String,
    /// What people call it.
    pub name: String,
    /// The preset of its last run.
    pub agent_type: String,
    /// Whose child it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_trace_id: Option<TraceId>,
    /// Which of its parent's goals it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_goal_id: Option<GoalId>,
    /// Where it stands.
    pub status: TraceStatus,
    /// How its last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
    /// Messages added.
    pub total_messages: u64,
    /// Tokens used.
    pub total_tokens: u64,
    /// Request tokens used.
    pub total_prompt_tokens: u64,
    /// Answer tokens used.
    pub total_completion_tokens: u64,
    /// What it cost; `None` where a price is unknown.
    pub total_cost: Option<Usd>,
    /// Run time of its runs, in milliseconds.
    pub total_duration_ms: u64,
    /// Highest message sequence.
    pub last_sequence: u64,
    /// Where the main path ends; 0 for an empty trace.
    pub head_sequence: u64,
    /// Highest event id.
    pub last_event_id: u64,
    /// Whose it is.
    pub uid: String,
    /// The model of its last run.
    pub model: String,
    /// The tools that its last run was limited to; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The sampling parameters of its last run, `temperature` among them.
    #[serde(default)]
    pub llm_params: Map<String, Value>,
    /// The preset that its last run's system prompt came from; `null` if the prompt was given as text.
    #[serde(default)]
    pub prompt_name: Option<String>,
    /// Whom it works with.
    pub context: TraceContext,
    /// The focused goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_goal_id: Option<GoalId>,
    /// The last run's final answer, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// Why the last run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}
