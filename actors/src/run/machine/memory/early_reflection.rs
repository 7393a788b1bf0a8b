//! Reflection on the messages that a summary is about to replace: what was learned is kept before
//! the details are gone (MEM-5).
//!
//! Pure; part of the run state machine. A model reads the messages outside the conversation, which
//! does not change. Its start is recorded first, so that each message is reflected on at most once,
//! also across crashes. A failure never stops the turn: the summary follows in any case.
//!
//! Elsewhere: the call and the write to the experiences file (`tasks/reflection.rs`).

use soong_protocol::{ErrorCode, ErrorInfo, MemoryEvent, ModelCallKind, Role, Usage};

use crate::{
    context::{SizedMessage, conversation_text, count_estimate, is_summary},
    memory::{experiences_in, reflection_prompt, reflection_question},
    run::machine::{
        RunState, Transition,
        auxiliary_call::{AuxiliaryCall, Used, usage_and_cost},
        effect::{Effect, ModelEffect, ReflectionCall},
        input::ReflectionResult,
        jobs::summarize::Summarize,
        spec::AuxiliaryModel,
        state::phase::Phase,
    },
};

impl RunState {
    /// Applies an event of a reflection on messages that a summary is about to replace.
    pub(crate) fn apply_memory(&mut self, event: &MemoryEvent) {
        self.usage.own.add_memory_event(event);
        match event {
            MemoryEvent::ReflectionStarted {
                covered,
                estimated_tokens,
            } => {
                self.phase = Phase::Reflecting;
                self.compaction.reflected_to = self.compaction.reflected_to.max(covered.1);
                self.compaction.open_reflection = Some((*covered, *estimated_tokens));
            }
            MemoryEvent::ReflectionEnded { .. } => {
                self.compaction.open_reflection = None;
                self.halt_if_ending();
            }
            _ => {}
        }
    }

    /// Returns the request to reflect on the messages of `covered` that were not reflected on
    /// before. `None` if memory is off, or there is no answer of the model among them.
    /// `max_tokens`: maximum size of the request.
    pub(in crate::run::machine) fn reflection_call(
        &self,
        covered: &[SizedMessage],
        max_tokens: u64,
    ) -> Option<ReflectionCall> {
        if !self.spec.auxiliary_models.reflects_before_summary {
            return None;
        }
        let is_new = |entry: &&SizedMessage| {
            entry.message.sequence > self.compaction.reflected_to && !is_summary(&entry.message)
        };
        let new: Vec<SizedMessage> = covered.iter().filter(is_new).cloned().collect();
        if !new
            .iter()
            .any(|entry| entry.message.role == Role::Assistant)
        {
            return None;
        }
        let sequences = || new.iter().map(|entry| entry.message.sequence);
        let system = reflection_prompt();
        let question = reflection_question(None);
        let rest = max_tokens.saturating_sub(count_estimate(&system) + count_estimate(&question));
        Some(ReflectionCall {
            covered: (sequences().min()?, sequences().max()?),
            shown: experiences_in(new.iter().map(|entry| &*entry.message)),
            request: AuxiliaryCall {
                system,
                user: conversation_text(&new, &self.goals, rest) + &question,
            },
        })
    }
}

impl Transition<'_, '_> {
    /// Requests a reflection, and keeps the summary that follows it.
    pub(in crate::run::machine) fn request_reflection(
        &mut self,
        call: ReflectionCall,
        summary: Summarize,
    ) {
        let estimated_tokens =
            count_estimate(&call.request.system) + count_estimate(&call.request.user);
        self.emit(MemoryEvent::ReflectionStarted {
            covered: call.covered,
            estimated_tokens,
        });
        self.state.compaction.summary = Some(summary);
        self.step
            .effects
            .push(Effect::Model(ModelEffect::Reflect(Box::new(call))));
    }

    /// Records the outcome of a reflection, and requests the summary.
    pub(in crate::run::machine) fn reflection_ended(&mut self, result: ReflectionResult) {
        if self.state.compaction.open_reflection.is_none() {
            return;
        }
        let ReflectionResult {
            answer,
            used_by_failure,
            changes,
            outcome,
        } = result;
        let used = match answer {
            Some(answer) => Some(answer.used()),
            None => used_by_failure,
        };
        let error = match outcome {
            Ok(added) => {
                self.record_experiences(changes, added);
                None
            }
            Err(error) => Some(error),
        };
        self.close_reflection(used, error);
        match self.state.compaction.summary.take() {
            _ if self.state.end.ending.is_some() => {} // R6
            Some(summary) => self.request_summary(summary),
            None => self.call_model(),
        }
    }

    /// Records a reflection that an earlier incarnation requested as failed; it is not repeated.
    /// Its usage is estimated (BUD-1a).
    pub(in crate::run) fn close_lost_reflection(&mut self) {
        let Some((_, prompt_tokens)) = self.state.compaction.open_reflection else {
            return;
        };
        let prompt = self
            .summary_model()
            .priced(Usage::estimate(prompt_tokens, 0));
        let used = self.used_by_lost_call(ModelCallKind::Reflection, prompt);
        let error = ErrorInfo::new(ErrorCode::Interrupted, "the reflection was interrupted");
        self.close_reflection(Some(used), Some(error));
    }

    fn close_reflection(&mut self, used: Option<Used>, error: Option<ErrorInfo>) {
        let Some((covered, _)) = self.state.compaction.open_reflection else {
            return;
        };
        let (usage, cost) = usage_and_cost(used);
        self.emit(MemoryEvent::ReflectionEnded {
            covered,
            usage,
            cost,
            error: error.map(Box::new),
        });
    }

    fn summary_model(&self) -> &AuxiliaryModel {
        &self.state.spec.auxiliary_models.summary
    }
}
