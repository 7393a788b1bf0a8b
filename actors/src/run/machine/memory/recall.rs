//! Recall: a run that starts a new conversation gets the experiences of earlier runs (MEM-3).
//!
//! Pure; part of the run state machine. If the search fails, the run starts without experiences,
//! and an event records the error. Elsewhere: the search itself (`tasks/recall.rs`).

use soong_protocol::{ErrorCode, ErrorInfo, MemoryEvent, ModelCallKind, Tags, Usage};

use crate::run::machine::{
    RunState, Transition,
    effect::{Effect, MemoryEffect},
    input::RecallResult,
    state::phase::Phase,
};

impl RunState {
    /// Returns whether the run must search experiences first: recall is enabled, and the
    /// conversation is new.
    pub(in crate::run) fn needs_recall(&self) -> bool {
        self.spec.auxiliary_models.recall_enabled && self.conversation.head.is_none()
    }
}

impl Transition<'_, '_> {
    /// Charges the model call of an earlier incarnation. Its usage is estimated (BUD-1a).
    pub(in crate::run) fn charge_lost_recall(&mut self, same_process: bool) {
        if !self.state.needs_recall() || self.is_known_to_have_lost_no_call(same_process) {
            return;
        }
        let spec = &self.state.spec;
        let error = ErrorInfo::new(
            ErrorCode::Interrupted,
            "the search for experiences was interrupted",
        );
        let prompt_tokens = spec.model.counter.count_text(&spec.task);
        let prompt = spec
            .auxiliary_models
            .utility
            .priced(Usage::estimate(prompt_tokens, 0));
        let (usage, cost) = self.used_by_lost_call(ModelCallKind::Recall, prompt);
        let ids = Vec::new();
        let tags = Tags::default();
        let usage = Some(usage);
        let error = Some(error);
        self.emit(MemoryEvent::Injected {
            ids,
            tags,
            model_calls: 1,
            usage,
            cost,
            error: error.map(Box::new),
        });
    }

    pub(in crate::run) fn recall(&mut self) {
        self.state.phase = Phase::Recalling;
        self.step.effects.push(Effect::Memory(MemoryEffect::Recall(
            self.state.task().to_owned(),
        )));
    }

    /// Records the result of the search, and starts the conversation.
    pub(in crate::run) fn recall_ended(&mut self, mut recalled: RecallResult) {
        if let Some(used) = recalled.used_by_failure {
            recalled.add_call(used);
        }
        let RecallResult {
            tags,
            ids,
            prompt_text: experiences,
            model_calls,
            usage,
            cost,
            error,
            ..
        } = recalled;
        // If no model call was made and nothing failed, there is nothing to record.
        if model_calls > 0 || error.is_some() {
            self.emit(MemoryEvent::Injected {
                ids,
                tags,
                model_calls,
                usage,
                cost,
                error: error.map(Box::new),
            });
        }
        if self.state.end.ending.is_some() {
            self.state.phase = Phase::Halted;
            return;
        }
        self.start_conversation(experiences);
    }
}
