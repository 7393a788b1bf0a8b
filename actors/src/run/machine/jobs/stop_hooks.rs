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
        jobs::{Job, JobEnd, JobPolicy, JobTools, OnCancel, Progress},
        state::phase::Phase,
    },
};

/// Asks the stop hooks about the answer of a turn.
#[derive(Debug)]
pub(crate) struct StopHooks {
    turn: u32,
    answer: String,
}

/// The decision of the stop hooks about the answer of a turn.
#[derive(Debug)]
pub(crate) struct StopDecision {
    turn: u32,
    result: HookResult,
}

impl Job for StopHooks {
    /// Whether a hook may still refuse the end.
    type State = Progress;
    type Output = StopDecision;

    const POLICY: JobPolicy = JobPolicy {
        component: "a hook",
        model_call: None,
        on_cancel: OnCancel::CutOff,
        max_time_after_run: None,
    };

    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<StopDecision, ErrorInfo>> {
        let turn = self.turn;
        let calling = tools.call_stop_hooks(self.answer);
        async move {
            let result = calling.await;
            Ok(StopDecision { turn, result })
        }
        .boxed()
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
    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<StopDecision>) {
        let decision = match end.result {
            Ok(decision) => decision,
            Err(error) if error.code == ErrorCode::Cancelled => {
                transition.state.jobs.stop_hooks = Progress::NotStarted;
                return;
            }
            // A failed hook does not keep the run from ending.
            Err(error) => {
                transition.state.jobs.stop_hooks = Progress::Ended;
                return transition.record_hook_failures(HookPoint::Stop, vec![error.message]);
            }
        };
        let StopDecision { turn, result } = decision;
        transition.record_hook_failures(HookPoint::Stop, result.failures);
        let state = &mut transition.state;
        if turn != state.turn.number || state.jobs.stop_hooks != Progress::Running {
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
        Comparison::Ended(*state == Progress::Ended)
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
                let request = StopHooks {
                    turn: state.turn.number,
                    answer: state.answer.text.clone(),
                };
                self.start_job(request);
                true
            }
        }
    }
}
