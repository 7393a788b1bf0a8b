//! Starts a run on its trace: as a new conversation, at the end of the existing one, or after a
//! rewind (MSG-2 … MSG-6).
//!
//! Pure; part of the run state machine.
//!
//! Invariant: when a conversation is continued, each of its tool calls has an outcome.
//!
//! Elsewhere: which requests are accepted (`runtime/admission.rs`), reading the stored state
//! (`tasks/load.rs`).

use std::{collections::HashSet, sync::Arc};

use serde_json::Value;
use soong_protocol::{
    ChildResult, CollaboratorStatus, EndReason, ErrorInfo, GoalChanges, GoalEvent, GoalStatus,
    MessageEvent, Role, RunEvent, RunWrite, ToolCall, ToolEvent, Write,
};

use crate::run::machine::{
    Transition, effect::Effect, errors::call_interrupted, outcome, rewind::RewindPlan,
    state::phase::Phase, tools::is_spawning_tool,
};

impl Transition<'_, '_> {
    pub(crate) fn start(&mut self) {
        if self.state.phase != Phase::New {
            return;
        }
        let spec = Arc::clone(&self.state.spec);
        // An earlier incarnation may have recorded the start.
        if !self.state.start.loop_started {
            if self.state.start.was_queued {
                self.emit(RunEvent::Dequeued { cancelled: false });
            }
            self.state.clock.start(self.context.now);
            self.emit(RunEvent::LoopStarted {
                mode: spec.identity.mode,
                agent_type: spec.preset.name.clone(),
                model: spec.model.name.clone(),
            });
            self.record_offered_tools();
            self.notify_parent_trace(CollaboratorStatus::Running);
            for (server, error) in &spec.catalog.absent_servers {
                self.emit(ToolEvent::McpServerFailed {
                    server: server.clone(),
                    error: error.clone(),
                });
            }
        }
        if spec.settings.driven {
            return;
        }
        if spec.settings.reflects.is_some() {
            return self.start_reflection();
        }
        match self.state.take_rewind() {
            Some(Err(error)) => return self.reject(error),
            Some(Ok(way_back)) => self.rewind(*way_back),
            None => {}
        }
        if !self.awaits_before_agent() {
            self.recall_or_start();
        }
    }

    /// Records the names of the tools that the model is offered.
    pub(super) fn record_offered_tools(&mut self) {
        let spec = &self.state.spec;
        let run_id = spec.identity.run_id.clone();
        let tools = spec
            .tools
            .specs
            .iter()
            .map(|tool| tool.name.clone())
            .collect();
        self.step
            .writes
            .push(Write::Run(RunWrite::OfferedTools { run_id, tools }));
    }

    /// Searches experiences if that is due, and starts the conversation.
    pub(crate) fn recall_or_start(&mut self) {
        if !self.awaits_recall() {
            self.start_conversation(None);
        }
    }

    /// Adds the first messages and opens the first turn. `learned` is appended to the task.
    pub(crate) fn start_conversation(&mut self, learned: Option<String>) {
        let spec = Arc::clone(&self.state.spec);
        self.notify_start_hooks();
        for result in spec
            .settings
            .options
            .messages
            .iter()
            .filter(|_| spec.settings.resumes)
        {
            let tool_call_id = result.tool_call_id.clone();
            self.add_message(Role::Tool, result.content.clone(), |message| {
                message.tool_call_id = tool_call_id
            });
        }
        self.add_missing_outcomes();
        // A run may have a different mode or prompt than the previous run of the trace (RT-3).
        let system = self.state.conversation.system.as_deref();
        let is_same = match system {
            Some(system) => spec.system_prompt.matches(system),
            None => spec.system_prompt.text.is_empty(),
        };
        if !is_same {
            self.add_message(Role::System, spec.system_prompt.text.to_string(), |_| {});
        }
        if !spec.settings.resumes {
            self.abandon_open_goal();
            for given in &spec.settings.options.messages {
                self.add_message(given.role, given.content.clone(), |_| {});
            }
            // It precedes the task, because siblings have it in common, and services cache the
            // beginning of a prompt.
            if let Some(context) = &spec.settings.context {
                let text = match context {
                    Value::String(text) => text.clone(),
                    object => object.to_string(),
                };
                self.add_message(Role::User, format!("## Context\n{text}"), |message| {
                    message.description = "context from the parent run".to_owned();
                });
            }
            let mut task = self.state.task_message();
            if let Some(schema) = spec
                .output_schema
                .as_ref()
                .filter(|schema| !schema.prompt_text().is_empty())
            {
                task.push_str(&format!("\n\n{}", schema.prompt_text()));
            }
            if let Some(experiences) = learned {
                task.push_str(&format!("\n\n{experiences}"));
            }
            self.add_message(Role::User, task, |_| {});
        }
        if self.add_callback_answer() {
            return;
        }
        self.open_turn();
    }

    /// Abandons the open goal of an earlier message whose run did not finish: this run does not
    /// work on it.
    fn abandon_open_goal(&mut self) {
        let Some(goal) = self.state.goals.open_mission_goal() else {
            return;
        };
        let goal_id = goal.id.clone();
        let summary = goal
            .summary
            .is_none()
            .then(|| "its run ended without an answer".to_owned());
        let changes = GoalChanges {
            status: Some(GoalStatus::Abandoned),
            summary,
            ..GoalChanges::default()
        };
        self.emit(GoalEvent::Updated {
            goal_id,
            changes,
            affected_goals: Vec::new(),
        });
    }

    /// Ends a run that cannot continue after the requested message. The trace does not change.
    fn reject(&mut self, error: ErrorInfo) {
        self.state.halt();
        self.set_failure(EndReason::Failed, error);
    }

    fn rewind(&mut self, way_back: RewindPlan) {
        let RewindPlan {
            after_sequence,
            head_sequence,
            from_sequence,
            goals,
            mut collaborators,
            document_writes: edits,
            restored,
            unchanged: left,
            ..
        } = way_back;
        let goal_tree_snapshot = Box::new(self.state.goals.clone());
        // Children that were added while the run was queued belong to this run, not to what it
        // discards.
        for collaborator in self.state.own_collaborators() {
            collaborators.retain(|other| other.name != collaborator.name);
            collaborators.push(collaborator.clone());
        }
        if !restored.is_empty() {
            self.step
                .effects
                .push(Effect::InvalidateDocuments(restored.clone()));
        }
        self.emit(MessageEvent::Rewind {
            after_sequence,
            head_sequence,
            from_sequence,
            goal_tree_snapshot,
            goal_tree: Box::new(goals),
            restored,
            left,
            collaborators: Some(collaborators),
        });
        for edit in edits {
            if let Write::Event(draft) = &edit {
                self.state.apply(&draft.event, self.context.now);
            }
            self.step.writes.push(edit);
        }
    }

    /// Adds an outcome for every call at the end of the conversation that has none (MSG-6).
    fn add_missing_outcomes(&mut self) {
        let transcript = &self.state.conversation.transcript;
        let Some(last_answer) = transcript
            .iter()
            .rposition(|entry| entry.message.role == Role::Assistant)
        else {
            return;
        };
        let answered: HashSet<&str> = transcript[last_answer..]
            .iter()
            .filter_map(|entry| entry.message.tool_call_id.as_deref())
            .collect();
        let open = transcript[last_answer]
            .message
            .tool_calls
            .iter()
            .filter(|call| !answered.contains(call.id.as_str()));
        for call in open.cloned().collect::<Vec<_>>() {
            let text = self.missing_outcome(&call);
            self.add_message(Role::Tool, text, |message| {
                message.tool_call_id = Some(call.id)
            });
        }
    }

    fn missing_outcome(&mut self, call: &ToolCall) -> String {
        let last_answer = self
            .state
            .sub_agents
            .missing_results
            .remove(&call.id)
            .filter(|_| is_spawning_tool(&call.name));
        match last_answer.filter(|results| !results.is_empty()) {
            Some(results) => {
                outcome::results_text(&results.iter().collect::<Vec<&ChildResult>>(), None)
            }
            None => outcome::error_text(&call_interrupted()),
        }
    }
}
