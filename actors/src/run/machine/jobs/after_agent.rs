//! Callbacks after a run with an answer: they may replace the answer, or fail the run (HOOK-2).
//!
//! Elsewhere: calling the callbacks (`tasks/callbacks.rs`), those before a run
//! (`machine/jobs/before_agent.rs`).

use futures::{FutureExt, future::BoxFuture};
use soong_protocol::{
    EndReason, ErrorInfo, Event, HookEvent, Message, MessageEvent, ModelEvent, Role,
};

#[cfg(any(test, feature = "testing"))]
use crate::run::machine::jobs::Comparison;
use crate::{
    callback::{AfterResult, Reports},
    run::machine::{
        RunState, Transition,
        jobs::{Job, JobEnd, JobPolicy, JobTools, Progress},
        state::phase::Phase,
    },
};

/// Calls the callbacks after the run with this answer.
#[derive(Debug)]
pub(crate) struct AfterAgent(String);

impl Job for AfterAgent {
    /// Progress of the callbacks for the last answer.
    type State = Progress;
    type Output = (AfterResult<String>, Reports);

    const POLICY: JobPolicy = JobPolicy::new("a callback");

    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<Self::Output, ErrorInfo>> {
        tools.call_after_agent(self.0).map(Ok).boxed()
    }

    fn apply(run: &mut RunState, event: &Event) {
        match event {
            // The callbacks get each answer.
            Event::Model(ModelEvent::Started { .. }) => {
                run.jobs.after_agent = Progress::NotStarted;
            }
            Event::Hook(HookEvent::CallbackCompleted {
                point,
                decision,
                error: None,
                ..
            }) if point == "after_agent" && decision == "replaced" => {
                run.jobs.after_agent = Progress::Ended;
            }
            _ => {}
        }
    }

    /// Handles the outcome. It is ignored if another turn was opened meanwhile: the callbacks get
    /// the new answer.
    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<Self::Output>) {
        let state = &mut transition.state;
        if end.turn != state.turn.number || state.jobs.after_agent != Progress::Running {
            return;
        }
        if state.phase != Phase::Answered || state.end.ending.is_some() {
            state.jobs.after_agent = Progress::NotStarted;
            return;
        }
        state.jobs.after_agent = Progress::Ended;
        let (result, reports) = match end.result {
            Ok(called) => called,
            Err(error) => return transition.set_failure(EndReason::Failed, error),
        };
        transition.record_reports(reports);
        match result {
            AfterResult::Result {
                is_replaced: false, ..
            } => {}
            AfterResult::Result { result, .. } => {
                // The new answer takes the place of the old one in the conversation, also on the
                // stored main path.
                let replaced = transition.state.conversation.step_back();
                let to_event = |message: &Message| MessageEvent::replacing(message, replaced);
                transition.add_message_with(Role::Assistant, result, to_event, |message| {
                    message.description = "a callback replaced the answer".to_owned();
                });
            }
            AfterResult::Failed(_) => {} // its event has set the ending
        }
    }

    #[cfg(any(test, feature = "testing"))]
    fn comparison(state: &Progress) -> Comparison {
        Comparison::from(*state)
    }
}

impl Transition<'_, '_> {
    /// Requests the callbacks after a run with an answer. Returns `true` while the run must wait
    /// for them.
    pub(in crate::run::machine) fn awaits_after_agent(&mut self) -> bool {
        let state = &mut self.state;
        let spec = &state.spec;
        let is_completing = state.phase == Phase::Answered && state.end.ending.is_none();
        let is_exempt = spec.settings.driven
            || state.reflection.is_some()
            || !state.answer.unexecuted_calls.is_empty();
        let has_callback = spec.has_callback(|functions| functions.after_agent.as_ref());
        if !is_completing || is_exempt || !has_callback {
            return false;
        }
        match state.jobs.after_agent {
            Progress::Ended => false,
            Progress::Running => true,
            Progress::NotStarted => {
                state.jobs.after_agent = Progress::Running;
                let answer = state.answer.text.clone();
                self.start_job(AfterAgent(answer));
                true
            }
        }
    }
}
