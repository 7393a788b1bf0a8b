//! The lines of a task journal: what each of them says, as JSON (TASK-1).
//!
//! Pure. Not here: which events become lines (`projection.rs`), and the file (`file.rs`).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use soong_protocol::{
    AffectedGoal, ArtifactRef, ChildMode, EndReason, ErrorInfo, Goal, GoalChanges, GoalId, GoalTree, RunId, RunMode,
    RunStatus, SessionId, StatsPair, Timestamp, TraceId,
};

/// One line of a task journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskLine {
    /// Its place in the file, from 1 without gaps.
    pub wal_seq: u64,
    /// The session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// The goal it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_id: Option<GoalId>,
    /// What happened: `event_type` and `payload`.
    #[serde(flatten)]
    pub event: TaskEvent,
    /// When it happened.
    pub created_at: Timestamp,
}

/// What a line tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event_type", content = "payload", rename_all = "snake_case")]
pub enum TaskEvent {
    /// The run began: the first line.
    TaskCreated(Box<TaskCreated>),
    /// A goal was added.
    GoalAdded {
        /// The goal.
        goal: Box<Goal>,
        /// The sibling it comes after; absent = last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<GoalId>,
    },
    /// A goal changed.
    GoalUpdated {
        /// The goal.
        goal_id: GoalId,
        /// What changed.
        changes: GoalChanges,
        /// Goals that changed along with it.
        affected_goals: Vec<AffectedGoal>,
    },
    /// A goal is worked on from now on.
    GoalFocused {
        /// The goal.
        goal_id: GoalId,
    },
    /// The conversation went back to a message, and the goals to what they were then.
    GoalsRewound {
        /// The message.
        after_sequence: u64,
        /// The goals from now on.
        goal_tree: Box<GoalTree>,
    },
    /// A child was admitted.
    ChildStarted {
        /// Its trace.
        sub_trace_id: TraceId,
        /// Its run.
        run_id: RunId,
        /// Why it was started.
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
        /// How it ended.
        status: RunStatus,
        /// What it brought, shortened.
        summary: String,
        /// What it used.
        stats: StatsPair,
        /// What it stored.
        artifacts: Vec<ArtifactRef>,
    },
    /// The run finished with an answer: a last line.
    TaskCompleted {
        /// The answer, shortened.
        summary: String,
        /// What it used.
        stats: StatsPair,
    },
    /// The run ended without an answer: a last line.
    TaskFailed {
        /// Why, with what to do.
        error: ErrorInfo,
        /// Why, as one of a closed set.
        end_reason: EndReason,
        /// What it used.
        stats: StatsPair,
    },
    /// The run was stopped: a last line.
    TaskCancelled {
        /// In what it was cut off.
        end_reason: EndReason,
        /// What it used.
        stats: StatsPair,
    },
}

/// What the first line tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskCreated {
    /// What the session is for: its first task.
    pub mission: String,
    /// What was asked of this run.
    pub task: String,
    /// What kind of agent leads it.
    pub mode: RunMode,
    /// Its model.
    pub model: String,
    /// Its preset.
    pub agent_type: String,
    /// The project it works in, wherever this file is kept.
    pub project_dir: PathBuf,
    /// The goals as they stood when it began: those of earlier runs of its session.
    pub goal_tree: GoalTree,
}

/// How far a task came, by the last line of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// The last line ends no task: its run is at work, was cut off, or the line is torn.
    Unfinished,
    /// It finished with an answer.
    Completed,
    /// It ended without one.
    Failed,
    /// It was stopped.
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
    /// Returns the kind as it stands in the file.
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

    /// Returns whether it is the last line of its journal.
    pub const fn is_last(&self) -> bool {
        matches!(self, Self::TaskCompleted { .. } | Self::TaskFailed { .. } | Self::TaskCancelled { .. })
    }
}

/// What tells a line from every other, whatever its kind: a kind of another version too.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Mark {
    pub(super) wal_seq: u64,
    pub(super) session_id: SessionId,
    pub(super) run_id: RunId,
    event_type: String,
    created_at: Timestamp,
}

impl Mark {
    /// Reads one line, without its end; `None` = it is none.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Returns whether this is the line.
    pub(super) fn is_of(&self, line: &TaskLine) -> bool {
        self.wal_seq == line.wal_seq
            && self.run_id == line.run_id
            && self.event_type == line.event.kind()
            && self.created_at == line.created_at
    }

    /// Returns how far the task came, where this is the last line.
    pub(super) fn status(&self) -> TaskStatus {
        match self.event_type.as_str() {
            "task_completed" => TaskStatus::Completed,
            "task_failed" => TaskStatus::Failed,
            "task_cancelled" => TaskStatus::Cancelled,
            _ => TaskStatus::Unfinished,
        }
    }
}
