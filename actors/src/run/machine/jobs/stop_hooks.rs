//! Stop hooks: they may refuse that a user run ends with its answer (HOOK-1).
//!
//! Elsewhere: the other hooks (`machine/hooks.rs`).

use futures::{FutureExt, future::BoxFuture};
use soong_protocol::{
    EndReason, ErrorCode, ErrorInfo, Event, HookEvent, MessageOrigin, ModelEvent, Role,
};

#[cfg(any(test, feature = "testing"))]
use crate::run::machine::jobs::Comparison;
use crate::{
    hook::{HookPoint, HookResult},
    run::machine::{
        RunState, Transition,
        errors::repeated_answers,
        jobs::{Job, JobEnd, JobPolicy, JobTools, Progress},
        state::phase::Phase,
    },
};

/// Asks the stop hooks about this answer.
#[derive(Debug)]
pub(crate) struct StopHooks(String);

impl Job for StopHooks {
    /// Progress of the hooks for the last answer.
    type State = Progress;
    type Output = HookResult;

    const POLICY: JobPolicy = JobPolicy::new("a hook");

    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<HookResult, ErrorInfo>> {
        tools.call_stop_hooks(self.0).map(Ok).boxed()
    }

    fn apply(run: &mut RunState, event: &Event) {
        // The hooks decide about each answer.
        if let Event::Model(ModelEvent::Started { .. }) = event {
            run.jobs.stop_hooks = Progress::NotStarted;
        }
    }

    /// Handles the decision. If a hook denies the end, the run continues with the hook's reason.
    ///
    /// A result of a child may have opened another turn meanwhile: then the decision does not apply
    /// to the new answer.
    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<HookResult>) {
        let result = match end.result {
            Ok(result) => result,
            Err(error) if error.code == ErrorCode::Cancelled => HookResult::default(),
            // A failed hook does not keep the run from ending.
            Err(error) => HookResult {
                failures: vec![error.message],
                ..HookResult::default()
            },
        };
        transition.record_hook_failures(HookPoint::Stop, result.failures);
        let state = &mut transition.state;
        if end.turn != state.turn.number || state.jobs.stop_hooks != Progress::Running {
            return;
        }
        let is_open = state.phase == Phase::Answered && state.end.ending.is_none();
        if !is_open {
            state.jobs.stop_hooks = Progress::NotStarted;
            return;
        }
        let Some(reason) = result.denied else {
            state.jobs.stop_hooks = Progress::Ended;
            return;
        };
        state.jobs.stop_hooks = Progress::NotStarted;
        transition.emit(HookEvent::Denied {
            event: HookPoint::Stop.as_str().to_owned(),
            reason: reason.clone(),
        });
        let limit = transition.state.spec.limits.repeated_calls;
        if limit > 0 && transition.state.repetition.answers >= limit {
            transition.set_failure(EndReason::Failed, repeated_answers(limit));
        }
        let text = format!("You cannot end yet: {reason}");
        transition.add_message(Role::User, text, |message| {
            message.origin = Some(MessageOrigin::Hook);
            message.description = "a hook prevented the end of the run".to_owned();
        });
        transition.open_turn();
    }

    #[cfg(any(test, feature = "testing"))]
    fn comparison(state: &Progress) -> Comparison {
        Comparison::from(*state)
    }
}

impl Transition<'_, '_> {
    /// Asks the stop hooks before a run with an answer ends. Returns `true` while the run must wait
    /// for them.
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
        match state.jobs.stop_hooks {
            Progress::Ended => false,
            Progress::Running => true,
            Progress::NotStarted => {
                state.jobs.stop_hooks = Progress::Running;
                let answer = state.answer.text.clone();
                self.start_job(StopHooks(answer));
                true
            }
        }
    }
}
