//! The children of a run, and the collaborators of its trace.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use soong_protocol::{ChildResult, Collaborator, GoalId, RunId, TraceId};

/// A sub-agent of this run.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(in crate::run::machine) run_id: RunId,
    pub(in crate::run::machine) trace_id: TraceId,
    /// See [`task_hash`].
    pub(in crate::run::machine) task_hash: u64,
    pub(in crate::run::machine) goal_id: Option<GoalId>,
    /// The tool call that requested the child; `None` if the program did outside of a call.
    pub(in crate::run::machine) tool_call_id: Option<String>,
    /// Whether the result of a child that a program requested is added to the conversation.
    pub(in crate::run::machine) deliver: bool,
    pub(in crate::run::machine) result: Option<Box<ChildResult>>,
}

/// Returns a hash with which a repeated request is recognized as the same.
pub(in crate::run::machine) fn task_hash(task: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    task.hash(&mut hasher);
    hasher.finish()
}

/// The children that were started for one goal.
#[derive(Debug, Default)]
pub(crate) struct GoalChildren {
    pub(in crate::run::machine) indexes: Vec<usize>,
    pub(in crate::run::machine) open: usize,
    /// Whether all of them have ended since the goal last got a summary.
    pub(in crate::run::machine) summary_due: bool,
}

/// The children of a run, and what is known of sub-agents of earlier runs.
#[derive(Default)]
pub(in crate::run::machine) struct SubAgents {
    /// In the order in which they were started.
    pub(in crate::run::machine) children: Vec<Child>,
    /// Position of each child in `children`.
    pub(in crate::run::machine) index: HashMap<RunId, usize>,
    /// Number of children that have not ended.
    pub(in crate::run::machine) open: usize,
    /// The children that the model started for each goal.
    pub(in crate::run::machine) branches: HashMap<GoalId, GoalChildren>,
    /// Sub-traces that earlier runs of the trace started; the numbers of new ones continue after
    /// them.
    pub(in crate::run::machine) earlier: Vec<TraceId>,
    pub(in crate::run::machine) collaborators: Vec<Collaborator>,
    /// Position of each collaborator, by name.
    pub(in crate::run::machine) collaborator_index: HashMap<String, usize>,
    /// Names of the sub-agents among the collaborators.
    pub(in crate::run::machine) names: HashMap<TraceId, String>,
    /// Number of names that were made from a task, by that name without its number.
    pub(in crate::run::machine) name_counts: HashMap<String, u64>,
    /// Positions of children whose results have to be added to the conversation.
    pub(in crate::run::machine) deliveries: Vec<usize>,
    /// Results of sub-agents of an earlier run that are not in the conversation, by tool call.
    pub(in crate::run::machine) missing_results: HashMap<String, Vec<ChildResult>>,
}

impl SubAgents {
    /// Returns the children whose results the model has not seen, and forgets them.
    pub(in crate::run::machine) fn take_deliveries(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.deliveries)
    }

    /// Returns the name of a sub-agent among the collaborators. A sub-agent of an earlier version
    /// has none of its own.
    pub(in crate::run::machine) fn name<'a>(&'a self, trace: &'a TraceId) -> &'a str {
        self.names
            .get(trace)
            .map_or_else(|| trace.last_segment(), String::as_str)
    }
}
