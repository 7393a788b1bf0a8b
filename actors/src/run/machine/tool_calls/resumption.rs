//! Resumes the tool calls of an interrupted run, or closes them (DUR-4).
//!
//! Pure; part of the run state machine.

use std::collections::HashMap;

use soong_protocol::ToolCall;
use soong_tool::ToolOutput;

use crate::run::machine::{
    Transition,
    effect::{Effect, ToolCallEffect},
    errors::call_interrupted,
    state::{
        calls::{Approval, CallState, OpenCall},
        phase::Phase,
    },
    tools::{is_internal_tool, is_spawning_tool},
};

/// Outcomes of open calls that were recorded together with their effects before a crash, by tool
/// call (ART-5).
#[derive(Default)]
pub(crate) struct RecordedOutcomes(HashMap<String, ToolOutput>);

impl RecordedOutcomes {
    pub(in crate::run::machine) fn new(outcomes: HashMap<String, ToolOutput>) -> Self {
        Self(outcomes)
    }

    fn take(&mut self) -> HashMap<String, ToolOutput> {
        std::mem::take(&mut self.0)
    }
}

impl Transition<'_, '_> {
    /// Returns the open calls whose outcome is unknown and which must not run twice (DUR-4).
    pub(crate) fn calls_with_unknown_outcome(&self) -> Vec<ToolCall> {
        let Phase::RunningTools { calls } = &self.state.phase else {
            return Vec::new();
        };
        let may_run_again = |open: &&OpenCall| {
            let name = open.call.name.as_str();
            is_internal_tool(name)
                || self
                    .state
                    .spec
                    .tool(name)
                    .is_none_or(|tool| tool.idempotent)
        };
        let is_known = |open: &&OpenCall| {
            let has_children = is_spawning_tool(&open.call.name) && !open.children.is_empty();
            self.state.recorded_outcomes.0.contains_key(&open.call.id) || has_children
        };
        let unclear = calls
            .may_have_started()
            .filter(|open| !is_known(open) && !may_run_again(open));
        unclear.map(|open| open.call.clone()).collect()
    }

    /// Resumes the calls that an earlier incarnation had started, if that is allowed (DUR-4).
    pub(crate) fn resume_calls(&mut self) {
        let at = self.context.now;
        let unclear = self.calls_with_unknown_outcome();
        let mut recorded = self.state.recorded_outcomes.take();
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        let mut spawned = Vec::new();
        let mut recorded_calls = Vec::new();
        let mut pending_calls = Vec::new();
        let mut pending_permissions = Vec::new();
        for open in calls.iter().filter(|open| open.state != CallState::Done) {
            if let Some(output) = recorded.remove(&open.call.id) {
                recorded_calls.push((open.call.clone(), output));
            } else if is_spawning_tool(&open.call.name) && !open.children.is_empty() {
                spawned.push(open.call.id.clone());
            } else if open.waits_without_running() {
                pending_calls.push(open.call.id.clone());
            }
            if let Some(Approval::Pending(id)) = &open.approval {
                pending_permissions.push(id.clone());
            }
        }
        for id in spawned.iter().chain(&pending_calls) {
            calls.start(id, at);
        }
        for call in unclear {
            self.close_call(&call, Err(call_interrupted()));
        }
        for (call, output) in recorded_calls {
            self.close_call(&call, Ok(output));
        }
        for id in spawned {
            self.close_if_children_ended(&id);
        }
        for (question, answer) in self.state.waiting.take_answered() {
            self.question_answered(&question, &answer);
        }
        for decision in self.state.waiting.take_decided() {
            pending_permissions.retain(|id| *id != decision.permission_id);
            self.permission_decided(decision);
        }
        self.step.effects.extend(
            pending_permissions
                .into_iter()
                .map(|it| Effect::Tool(ToolCallEffect::RequestPermission(it))),
        );
        self.schedule();
    }

    /// Closes every open call: with the outcome that is recorded with its effect, otherwise as
    /// interrupted. None of them is running any more.
    pub(crate) fn interrupt_calls(&mut self) {
        let mut recorded = self.state.recorded_outcomes.take();
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        let open = calls.iter().filter(|open| open.state != CallState::Done);
        let open: Vec<ToolCall> = open.map(|open| open.call.clone()).collect();
        for call in open {
            let result = recorded
                .remove(&call.id)
                .or_else(|| self.child_results_output(&call))
                .ok_or_else(call_interrupted);
            self.close_call(&call, result);
        }
        self.state.halt();
    }
}
