//! The sub-agents of a run: its children, their results, and its current collaborators (SUB-4,
//! SUB-8).
//!
//! Pure; part of the run state machine. Elsewhere: how children are started (`spawn.rs`).

use soong_protocol::{
    ChildResult, Collaborator, CollaboratorStatus, EventDraft, GoalChanges, GoalEvent, GoalId,
    MessageOrigin, Role, RunId, SubAgentEvent, Timestamp, Write,
};

use crate::run::machine::{
    RunState, Transition,
    effect::{ChildEffect, Effect},
    inline::preview,
    outcome::{self, ended_collaborator},
    state::children::{Child, task_hash},
};

/// Minimum interval between two updates of a child's goal to its parent, in milliseconds (SUB-8).
const MIN_NOTIFY_INTERVAL_MS: u64 = 1_000;

impl RunState {
    pub(crate) fn apply_sub_agent(&mut self, event: &SubAgentEvent) {
        match event {
            SubAgentEvent::Started {
                sub_trace_id,
                run_id,
                task,
                parent_goal_id,
                tool_call_id,
                deliver,
                ..
            } => {
                let index = self.sub_agents.children.len();
                self.sub_agents.index.insert(run_id.clone(), index);
                self.sub_agents.open += 1;
                if let (Some(goal), Some(_)) = (parent_goal_id, tool_call_id) {
                    let branches = self.sub_agents.branches.entry(goal.clone()).or_default();
                    branches.indexes.push(index);
                    branches.open += 1;
                }
                if let Some(open) = tool_call_id
                    .as_ref()
                    .and_then(|id| self.calls_mut()?.get_mut(id))
                {
                    open.children.push(index);
                    open.open_children += 1;
                }
                self.sub_agents.children.push(Child {
                    run_id: run_id.clone(),
                    trace_id: sub_trace_id.clone(),
                    task_hash: task_hash(task),
                    goal_id: parent_goal_id.clone(),
                    tool_call_id: tool_call_id.clone(),
                    deliver: *deliver,
                    result: None,
                });
            }
            SubAgentEvent::CollaboratorUpdated { collaborator } => {
                self.set_collaborator(collaborator.clone())
            }
            SubAgentEvent::QuestionAsked {
                question_id,
                to,
                tool_call_id,
                ..
            } => {
                self.apply_question(tool_call_id, question_id, to.as_ref());
            }
            SubAgentEvent::Delivered { run_id, .. } => {
                let children = &self.sub_agents.children;
                self.sub_agents
                    .deliveries
                    .retain(|child| children[*child].run_id != *run_id);
            }
            // The result record holds more than `completed` (see `child_ended`).
            SubAgentEvent::Completed { .. } => {}
            SubAgentEvent::QuestionAnswered { question_id } => {
                self.close_tool_question(question_id)
            }
        }
    }

    /// Records that a goal has a summary.
    pub(crate) fn goal_summarized(&mut self, goal: &GoalId) {
        if let Some(branches) = self.sub_agents.branches.get_mut(goal) {
            branches.summary_due = false;
        }
    }

    /// Returns the collaborators that are children of this run.
    pub(crate) fn own_collaborators(&self) -> impl Iterator<Item = &Collaborator> {
        let children = &self.sub_agents.children;
        self.sub_agents.collaborators.iter().filter(|collaborator| {
            children
                .iter()
                .any(|child| Some(&child.trace_id) == collaborator.trace_id.as_ref())
        })
    }

    /// Replaces the collaborators by those of a rewind. `None` leaves them unchanged.
    pub(crate) fn replace_collaborators(&mut self, by: Option<&[Collaborator]>) {
        let Some(collaborators) = by else { return };
        self.sub_agents.collaborators.clear();
        self.sub_agents.collaborator_index.clear();
        self.sub_agents.names.clear();
        collaborators
            .iter()
            .for_each(|collaborator| self.set_collaborator(collaborator.clone()));
    }

    pub(crate) fn set_collaborator(&mut self, collaborator: Collaborator) {
        if let Some(trace) = &collaborator.trace_id {
            self.sub_agents
                .names
                .insert(trace.clone(), collaborator.name.clone());
        }
        match self.sub_agents.collaborator_index.get(&collaborator.name) {
            Some(index) => self.sub_agents.collaborators[*index] = collaborator,
            None => {
                self.sub_agents.collaborator_index.insert(
                    collaborator.name.clone(),
                    self.sub_agents.collaborators.len(),
                );
                self.sub_agents.collaborators.push(collaborator);
            }
        }
    }

    /// Sets the recorded status of a child that has no result. A late report must not overwrite the
    /// result, which may arrive first after a restart.
    pub(crate) fn child_changed(&mut self, run_id: &RunId, collaborator: Collaborator) {
        let child = self
            .sub_agents
            .index
            .get(run_id)
            .map(|index| &self.sub_agents.children[*index]);
        if child.is_some_and(|child| child.result.is_none()) {
            self.set_collaborator(collaborator);
        }
    }

    /// Applies the result of a child. A second result of the same child has no effect.
    ///
    /// Returns the index of the child if the result is new.
    pub(crate) fn child_ended(&mut self, result: ChildResult) -> Option<usize> {
        let index = *self.sub_agents.index.get(&result.run_id)?;
        let child = &self.sub_agents.children[index];
        if child.result.is_some() {
            return None;
        }
        let call = child.tool_call_id.clone();
        let goal = child.goal_id.clone();
        self.sub_agents.open -= 1;
        if let Some(call) = call {
            // A later turn may have another call with this id.
            let open = self.calls_mut().and_then(|calls| calls.get_mut(&call));
            if let Some(open) = open.filter(|open| open.children.binary_search(&index).is_ok()) {
                open.open_children -= 1;
            }
            if let Some(branches) = goal.and_then(|goal| self.sub_agents.branches.get_mut(&goal)) {
                branches.open -= 1;
                branches.summary_due = branches.open == 0;
            }
        }
        self.usage.below.add_descendant(&result.stats.tree);
        self.set_collaborator(ended_collaborator(
            self.sub_agents.name(&result.sub_trace_id),
            &result,
        ));
        if self.sub_agents.children[index].deliver {
            self.sub_agents.deliveries.push(index);
        }
        self.sub_agents.children[index].result = Some(Box::new(result));
        Some(index)
    }

    /// Returns the results of the children that have ended.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn child_results(&self) -> impl Iterator<Item = &ChildResult> {
        self.sub_agents
            .children
            .iter()
            .filter_map(|child| child.result.as_deref())
    }

    /// Returns the children that have not ended.
    pub(crate) fn unfinished_children(&self) -> impl Iterator<Item = &Child> {
        self.sub_agents
            .children
            .iter()
            .filter(|child| child.result.is_none())
    }
}

impl Transition<'_, '_> {
    /// Sets the joint summary of each goal whose children have all ended (GOAL-3), including goals
    /// whose last child ended while the run had no actor. A goal that the agent has closed keeps
    /// the summary that the agent gave.
    pub(crate) fn summarize_goals(&mut self) {
        let is_closed = |goal: &GoalId| {
            let goal = self.state.goals.get(goal);
            goal.is_some_and(|goal| !goal.status.is_open() && goal.summary.is_some())
        };
        let branches = self.state.sub_agents.branches.iter();
        let due = branches.filter(|(goal, branches)| branches.summary_due && !is_closed(goal));
        let summary = |indexes: &[usize]| {
            let sub_agents = &self.state.sub_agents;
            let results = indexes.iter().filter_map(|index| {
                let result = sub_agents.children[*index].result.as_deref()?;
                Some((sub_agents.name(&result.sub_trace_id), result))
            });
            outcome::joint_summary(&results.collect::<Vec<_>>())
        };
        let mut summaries: Vec<(GoalId, String)> = due
            .map(|(goal, branches)| (goal.clone(), summary(&branches.indexes)))
            .collect();
        summaries.sort();
        for (goal_id, summary) in summaries {
            let changes = GoalChanges {
                summary: Some(summary),
                ..GoalChanges::default()
            };
            self.emit(GoalEvent::Updated {
                goal_id,
                changes,
                affected_goals: Vec::new(),
            });
        }
    }

    /// Adds the waiting results of children to the conversation, each as a separate message.
    pub(crate) fn deliver_results(&mut self) {
        for index in self.state.sub_agents.take_deliveries() {
            let child = &self.state.sub_agents.children[index];
            let Some(result) = child.result.as_deref() else {
                continue;
            };
            let sub_trace_id = child.trace_id.clone();
            let run_id = child.run_id.clone();
            let text = outcome::results_text(&[result], None);
            self.add_message(
                Role::User,
                format!("A sub-agent has ended:\n{text}"),
                |message| {
                    message.origin = Some(MessageOrigin::ChildResult);
                    message.description =
                        preview(&format!("result of {}", sub_trace_id.last_segment()));
                },
            );
            let sequence = self.state.conversation.last_sequence;
            self.emit(SubAgentEvent::Delivered {
                sub_trace_id,
                run_id,
                sequence,
            });
        }
    }

    /// Records the status of a run that a user started on the trace of a sub-agent, for the run
    /// that started the sub-agent: it sees the status of this collaborator with its next message.
    pub(crate) fn notify_parent_trace(&mut self, status: CollaboratorStatus) {
        let identity = &self.state.spec.identity;
        let is_reflection = self.state.spec.settings.reflects.is_some();
        let Some(parent) = identity.trace_id.parent().filter(|_| {
            identity.parent.is_none() && !is_reflection && self.state.clock.started_at.is_some()
        }) else {
            return;
        };
        let collaborator = match self.state.answer.text.as_str() {
            "" => outcome::running_collaborator(self.state, status),
            answer => {
                let name =
                    outcome::collaborator_name(&self.state.spec.settings, &identity.trace_id);
                Collaborator {
                    status,
                    ..outcome::started_collaborator(name, &identity.trace_id, answer)
                }
            }
        };
        let event = SubAgentEvent::CollaboratorUpdated { collaborator };
        self.step.writes.push(Write::Event(EventDraft::new(
            parent,
            None,
            self.context.now,
            event,
        )));
    }

    /// Notifies the parent of the run's current status. Unless `immediately` is set, at most once
    /// per second (SUB-8).
    pub(crate) fn notify_parent(&mut self, status: CollaboratorStatus, immediately: bool) {
        let Some(parent) = self.state.spec.identity.parent.clone() else {
            return;
        };
        let at = self.context.now;
        let is_within_interval = |last: Timestamp| at.millis_since(last) < MIN_NOTIFY_INTERVAL_MS;
        if !immediately
            && self
                .state
                .clock
                .parent_notified_at
                .is_some_and(is_within_interval)
        {
            return;
        }
        self.state.clock.notify_parent(at);
        let collaborator = outcome::running_collaborator(self.state, status);
        let event = SubAgentEvent::CollaboratorUpdated {
            collaborator: collaborator.clone(),
        };
        self.step.writes.push(Write::Event(EventDraft::new(
            parent.trace_id,
            Some(parent.run_id.clone()),
            at,
            event,
        )));
        let run_id = self.state.spec.identity.run_id.clone();
        self.step
            .effects
            .push(Effect::Child(ChildEffect::NotifyParent {
                parent: parent.run_id,
                run_id,
                collaborator,
            }));
    }
}
