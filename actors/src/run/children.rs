//! What a run knows of its sub-agents: which there are, what they brought, and who it works with now (SUB-4, SUB-8).
//!
//! Pure, part of the run machine. Not here: how they come to be (`spawn.rs`).

use soong_protocol::{ChildResult, Collaborator, GoalId, RunId, SubAgentEvent, TraceId};

use super::state::RunState;

/// A sub-agent of this run.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) run_id: RunId,
    pub(crate) trace_id: TraceId,
    pub(crate) goal_id: Option<GoalId>,
    /// The call that asked for it; `None` = a program did.
    pub(crate) tool_call_id: Option<String>,
    pub(crate) result: Option<Box<ChildResult>>,
}

/// The children that serve one goal.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    pub(crate) places: Vec<usize>,
    pub(crate) open: usize,
}

impl RunState {
    pub(crate) fn apply_sub_agent(&mut self, event: &SubAgentEvent) {
        match event {
            SubAgentEvent::Started { sub_trace_id, run_id, parent_goal_id, tool_call_id, .. } => {
                let place = self.children.len();
                self.child_index.insert(run_id.clone(), place);
                self.open_children += 1;
                if let (Some(goal), Some(_)) = (parent_goal_id, tool_call_id) {
                    let branches = self.branches.entry(goal.clone()).or_default();
                    branches.places.push(place);
                    branches.open += 1;
                }
                if let Some(open) = tool_call_id.as_ref().and_then(|id| self.calls_mut()?.get_mut(id)) {
                    open.children.push(place);
                    open.open_children += 1;
                }
                self.children.push(Child {
                    run_id: run_id.clone(),
                    trace_id: sub_trace_id.clone(),
                    goal_id: parent_goal_id.clone(),
                    tool_call_id: tool_call_id.clone(),
                    result: None,
                });
            }
            SubAgentEvent::CollaboratorUpdated { collaborator } => self.set_collaborator(collaborator.clone()),
            // Its result record says more: `child_ended`.
            SubAgentEvent::Completed { .. } => {}
        }
    }

    pub(crate) fn set_collaborator(&mut self, collaborator: Collaborator) {
        match self.collaborator_index.get(&collaborator.name) {
            Some(place) => self.collaborators[*place] = collaborator,
            None => {
                self.collaborator_index.insert(collaborator.name.clone(), self.collaborators.len());
                self.collaborators.push(collaborator);
            }
        }
    }

    /// Takes a child's result; a second one of the same child changes nothing.
    ///
    /// Returns the child's place, if the news was new.
    pub(crate) fn child_ended(&mut self, result: ChildResult) -> Option<usize> {
        let place = *self.child_index.get(&result.run_id)?;
        let child = &self.children[place];
        if child.result.is_some() {
            return None;
        }
        let (call, goal) = (child.tool_call_id.clone(), child.goal_id.clone());
        self.open_children -= 1;
        if let Some(call) = call {
            if let Some(open) = self.calls_mut().and_then(|calls| calls.get_mut(&call)) {
                open.open_children -= 1;
            }
            if let Some(branches) = goal.and_then(|goal| self.branches.get_mut(&goal)) {
                branches.open -= 1;
            }
        }
        self.below.roll_up(&result.stats.tree);
        self.set_collaborator(super::outcome::collaborator_at_end(&result));
        self.children[place].result = Some(Box::new(result));
        Some(place)
    }

    /// Returns the children that have not ended.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &Child> {
        self.children.iter().filter(|child| child.result.is_none())
    }
}
