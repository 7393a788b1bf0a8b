//! The children of a run.

use soong_protocol::{ChildResult, GoalId, RunId, TraceId};

/// A sub-agent of this run.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(in crate::run::machine) run_id: RunId,
    pub(in crate::run::machine) trace_id: TraceId,
    pub(in crate::run::machine) goal_id: Option<GoalId>,
    /// The call that asked for it; `None` = a program did.
    pub(in crate::run::machine) tool_call_id: Option<String>,
    /// Whether its result enters the conversation, though a program asked for it.
    pub(in crate::run::machine) deliver: bool,
    pub(in crate::run::machine) result: Option<Box<ChildResult>>,
}

/// The children that serve one goal.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    pub(in crate::run::machine) places: Vec<usize>,
    pub(in crate::run::machine) open: usize,
    /// Whether all of them have ended since the goal last got a summary.
    pub(in crate::run::machine) owe_summary: bool,
}
