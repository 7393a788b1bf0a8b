//! Notifications to hooks about a run, and the consequences of stop hooks (HOOK-1).
//!
//! Pure; part of the run state machine. Elsewhere: calling hooks (`hook_calls.rs`), the hooks
//! themselves (`hook.rs`).

use std::sync::Arc;

use soong_protocol::{EndReason, HookEvent, MessageOrigin, Role};

use crate::{
    hook::{HookPoint, HookResult},
    run::machine::{
        Transition,
        effect::{Effect, HookEffect},
        errors::repeated_answers,
        state::phase::{EndCheck, Phase},
    },
};

impl Transition<'_, '_> {
    /// Requests that hooks are notified of the start of a user run.
    pub(crate) fn notify_start_hooks(&mut self) {
        let spec = Arc::clone(&self.state.spec);
        if spec.identity.parent.is_some() || spec.settings.driven {
            return;
        }
        let is_new =
            self.state.conversation.transcript.is_empty() && self.state.conversation.head.is_none();
        if is_new && spec.hooks.has_hooks(HookPoint::SessionStart) {
            self.step
                .effects
                .push(Effect::Hook(HookEffect::NotifyStart {
                    point: HookPoint::SessionStart,
                    prompt: None,
                }));
        }
        if !spec.settings.resumes && spec.hooks.has_hooks(HookPoint::UserPromptSubmit) {
            let prompt = Some(spec.task.clone());
            self.step
                .effects
                .push(Effect::Hook(HookEffect::NotifyStart {
                    point: HookPoint::UserPromptSubmit,
                    prompt,
                }));
        }
    }

    /// Requests the stop hooks' answer before a run with an answer ends. Returns `true` while the
    /// run must wait for it.
    pub(crate) fn awaits_stop_hooks(&mut self) -> bool {
        let state = &mut self.state;
        let spec = &state.spec;
        let is_completing = state.phase == Phase::Answered && state.end.ending.is_none();
        let is_exempt = spec.identity.parent.is_some()
            || state.reflection.is_some()
            || !state.answer.unexecuted_calls.is_empty();
        if !is_completing
            || is_exempt
            || spec.settings.driven
            || !spec.hooks.has_hooks(HookPoint::Stop)
        {
            return false;
        }
        match state.end.stop_hook {
            EndCheck::Passed => false,
            EndCheck::Pending => true,
            EndCheck::NotCalled => {
                state.end.stop_hook = EndCheck::Pending;
                self.step
                    .effects
                    .push(Effect::Hook(HookEffect::CallStopHooks {
                        turn: state.turn.number,
                        answer: state.answer.text.clone(),
                    }));
                true
            }
        }
    }

    /// Handles the answer of the stop hooks. If a hook denies the end, the run continues with the
    /// hook's reason.
    ///
    /// `turn` is that of the answer which they decided about. A result of a child may have opened
    /// another turn meanwhile: then the decision does not apply to the new answer.
    pub(crate) fn stop_hooks_answered(&mut self, turn: u32, result: HookResult) {
        self.record_hook_failures(HookPoint::Stop, result.failures);
        if turn != self.state.turn.number || self.state.end.stop_hook != EndCheck::Pending {
            return;
        }
        let is_open = self.state.phase == Phase::Answered && self.state.end.ending.is_none();
        if !is_open {
            self.state.end.stop_hook = EndCheck::NotCalled;
            return;
        }
        self.state.end.stop_hook = EndCheck::Passed;
        if let Some(reason) = result.denied {
            self.state.end.stop_hook = EndCheck::NotCalled;
            self.emit(HookEvent::Denied {
                event: HookPoint::Stop.as_str().to_owned(),
                reason: reason.clone(),
            });
            let limit = self.state.spec.limits.repeated_calls;
            if limit > 0 && self.state.repetition.answers >= limit {
                self.set_failure(EndReason::Failed, repeated_answers(limit));
            }
            let text = format!("You cannot end yet: {reason}");
            self.add_message(Role::User, text, |message| {
                message.origin = Some(MessageOrigin::Hook);
                message.description = "a hook prevented the end of the run".to_owned();
            });
            self.open_turn();
        }
    }

    /// Records failures of hooks.
    pub(crate) fn record_hook_failures(&mut self, point: HookPoint, failures: Vec<String>) {
        for error in failures {
            self.emit(HookEvent::Failed {
                event: point.as_str().to_owned(),
                error,
            });
        }
    }
}
