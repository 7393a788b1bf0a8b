//! The lines of a task journal, as JSON (TASK-1).
//!
//! Pure. Elsewhere: which events become lines (`projection.rs`), the file (`file.rs`).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use soong_protocol::{
    AffectedGoal, ArtifactRef, ChildMode, EndReason, ErrorInfo, Goal, GoalChanges, GoalId,
    GoalTree, RunId, RunMode, RunStatus, SessionId, StatsPair, Timestamp, TraceId,
};

/// One line of a task journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskLine {
    /// Number of the line in the file, from 1 without gaps.
    pub wal_seq: u64,
    /// The session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// The goal that the line refers to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_id: Option<GoalId>,
    /// The event: `event_type` and `payload`.
    #[serde(flatten)]
    pub event: TaskEvent,
    /// Time of the event.
    pub created_at: Timestamp,
}

/// Content of a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event_type", content = "payload", rename_all = "snake_case")]
pub enum TaskEvent {
    /// The run started: the first line.
    TaskCreated(Box<TaskCreated>),
    /// A goal was added.
    GoalAdded {
        /// The goal.
        goal: Box<Goal>,
        /// The sibling that precedes it; `None`: it is the last sibling.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<GoalId>,
    },
    /// A goal changed.
    GoalUpdated {
        /// The goal.
        goal_id: GoalId,
        /// The changed values.
        changes: GoalChanges,
        /// Other goals that changed with it.
        affected_goals: Vec<AffectedGoal>,
    },
    /// A goal was focused.
    GoalFocused {
        /// The goal.
        goal_id: GoalId,
    },
    /// The conversation was rewound to a message, and the goals were restored to their state at
    /// that message.
    GoalsRewound {
        /// The message.
        after_sequence: u64,
        /// The goals after the rewind.
        goal_tree: Box<GoalTree>,
    },
    /// A child was started.
    ChildStarted {
        /// Its trace.
        sub_trace_id: TraceId,
        /// Its run.
        run_id: RunId,
        /// Mode of the child.
        mode: ChildMode,
        /// Its preset.
        agent_type: String,
        /// Its task.
        task: String,
    },
    /// A child ended.
    ChildCompleted {
        /// Its trace.
        sub_trace_id: TraceId,
        /// Its run.
        run_id: RunId,
        /// Its final status.
        status: RunStatus,
        /// Its result, shortened.
        summary: String,
        /// Its usage.
        stats: StatsPair,
        /// The artifacts that it stored.
        artifacts: Vec<ArtifactRef>,
    },
    /// The run finished with an answer; a last line.
    TaskCompleted {
        /// The answer, shortened.
        summary: String,
        /// Usage of the run.
        stats: StatsPair,
    },
    /// The run ended without an answer; a last line.
    TaskFailed {
        /// The error, with advice.
        error: ErrorInfo,
        /// The end reason.
        end_reason: EndReason,
        /// Usage of the run.
        stats: StatsPair,
    },
    /// The run was cancelled; a last line.
    TaskCancelled {
        /// The end reason.
        end_reason: EndReason,
        /// Usage of the run.
        stats: StatsPair,
    },
}

/// Content of the first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskCreated {
    /// Mission of the session: its first task.
    pub mission: String,
    /// The task of this run.
    pub task: String,
    /// Mode of the run.
    pub mode: RunMode,
    /// Model of the run.
    pub model: String,
    /// Preset of the run.
    pub agent_type: String,
    /// The project directory of the session, even if this file is under the home.
    pub project_dir: PathBuf,
    /// The goals at the start of the run, including those of earlier runs of its session.
    pub goal_tree: GoalTree,
}

/// Status of a task, from the last line of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// The last line does not end the task: the run is live or was interrupted, or the line is
    /// incomplete.
    Unfinished,
    /// The task finished with an answer.
    Completed,
    /// The task ended without an answer.
    Failed,
    /// The task was cancelled.
    Cancelled,
}

impl TaskStatus {
    /// Returns the status as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl TaskEvent {
    /// Returns the name of the event in the file.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TaskCreated(_) => "task_created",
            Self::GoalAdded { .. } => "goal_added",
            Self::GoalUpdated { .. } => "goal_updated",
            Self::GoalFocused { .. } => "goal_focused",
            Self::GoalsRewound { .. } => "goals_rewound",
            Self::ChildStarted { .. } => "child_started",
            Self::ChildCompleted { .. } => "child_completed",
            Self::TaskCompleted { .. } => "task_completed",
            Self::TaskFailed { .. } => "task_failed",
            Self::TaskCancelled { .. } => "task_cancelled",
        }
    }

    /// Returns whether it ends the journal.
    pub const fn is_last(&self) -> bool {
        matches!(
            self,
            Self::TaskCompleted { .. } | Self::TaskFailed { .. } | Self::TaskCancelled { .. }
        )
    }
}

/// Identity of a line, readable for event types of other versions too.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct LineIdentity {
    pub(super) wal_seq: u64,
    pub(super) session_id: SessionId,
    pub(super) run_id: RunId,
    event_type: String,
    created_at: Timestamp,
}

impl LineIdentity {
    /// Parses one line without its line break; `None` if it is not valid.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Returns whether this is the identity of a line.
    pub(super) fn matches(&self, line: &TaskLine) -> bool {
        self.wal_seq == line.wal_seq
            && self.run_id == line.run_id
            && self.event_type == line.event.kind()
            && self.created_at == line.created_at
    }

    /// Returns the status of a task whose journal ends with this line.
    pub(super) fn status(&self) -> TaskStatus {
        match self.event_type.as_str() {
            "task_completed" => TaskStatus::Completed,
            "task_failed" => TaskStatus::Failed,
            "task_cancelled" => TaskStatus::Cancelled,
            _ => TaskStatus::Unfinished,
        }
    }
}
