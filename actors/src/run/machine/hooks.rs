//! Notifications to hooks about the start of a run, and failures of hooks (HOOK-1).
//!
//! Pure; part of the run state machine. Elsewhere: stop hooks
//! (`machine/jobs/stop_hooks.rs`), calling hooks (`tasks/hook_calls.rs`), the hooks
//! themselves (`hook.rs`).

use std::sync::Arc;

use soong_protocol::HookEvent;

use crate::{
    hook::HookPoint,
    run::machine::{Transition, effect::Effect},
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
            self.step.effects.push(Effect::NotifyStartHooks {
                point: HookPoint::SessionStart,
                prompt: None,
            });
        }
        if !spec.settings.resumes && spec.hooks.has_hooks(HookPoint::UserPromptSubmit) {
            let prompt = Some(spec.task.clone());
            self.step.effects.push(Effect::NotifyStartHooks {
                point: HookPoint::UserPromptSubmit,
                prompt,
            });
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
