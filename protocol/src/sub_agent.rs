//! Result of a child run (SUB-3, SUB-4).

use serde::{Deserialize, Serialize};

use crate::{ArtifactRef, ChildMode, ErrorInfo, RunId, RunStatus, StatsPair, TraceId};

/// Result of a child run. It is stored before the parent receives it (SUB-4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChildResult {
    /// Mode of the child.
    pub mode: ChildMode,
    /// Trace of the child.
    pub sub_trace_id: TraceId,
    /// The child run.
    pub run_id: RunId,
    /// Terminal status of the child.
    pub status: RunStatus,
    /// Final answer, or the intermediate result of a child that did not complete.
    pub summary: String,
    /// Findings of an evaluation. Empty in other modes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Whether an evaluation passed. Absent in other modes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// Artifacts that the child stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactRef>,
    /// Statistics of the child.
    pub stats: StatsPair,
    /// Why the child failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
}
