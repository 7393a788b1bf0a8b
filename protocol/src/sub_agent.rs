//! What a child run is to its parent, and what it brings back (SUB-3, SUB-4).

use serde::{Deserialize, Serialize};

use crate::{ArtifactRef, ChildMode, ErrorInfo, RunId, RunStatus, StatsPair, TraceId};

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
