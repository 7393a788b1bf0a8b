//! What a child run is to its parent, and what it brings back (SUB-3, SUB-4).

use serde::{Deserialize, Serialize};

use crate::{ArtifactRef, ErrorInfo, RunId, RunStatus, StatsPair, TraceId};

/// Why a child was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChildMode {
    /// One of several that look at different things at the same time.
    Explore,
    /// One that does a piece of work.
    Delegate,
    /// One that judges whether a goal is met.
    Evaluate,
}

impl ChildMode {
    /// Returns the mode as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Explore => "explore",
            Self::Delegate => "delegate",
            Self::Evaluate => "evaluate",
        }
    }
}

/// What a child brings back; stored before the parent hears of it (SUB-4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChildResult {
    /// Why the child was started.
    pub mode: ChildMode,
    /// The child's trace.
    pub sub_trace_id: TraceId,
    /// The child's run.
    pub run_id: RunId,
    /// How it ended; terminal.
    pub status: RunStatus,
    /// Its final answer, or what it has where it did not finish.
    pub summary: String,
    /// What an evaluation found; empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Whether an evaluation passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// What it stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactRef>,
    /// What it used.
    pub stats: StatsPair,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
}
