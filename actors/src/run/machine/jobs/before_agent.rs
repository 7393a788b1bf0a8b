//! Callbacks before a run: they may change its task, answer it, or fail the run (HOOK-2).
//!
//! A changed task is recorded before it is used, and read from the event. An answer is recorded
//! together with its message.
//!
//! Elsewhere: calling the callbacks (`tasks/callbacks.rs`), those after a run
//! (`machine/jobs/after_agent.rs`), those around tool calls (`machine/callbacks.rs`).

use futures::{FutureExt, future::BoxFuture};
use soong_protocol::{ContentPart, EndReason, ErrorInfo, Event, HookEvent, MessageContent, Role};

#[cfg(any(test, feature = "testing"))]
use crate::run::machine::jobs::Comparison;
use crate::{
    callback::{BeforeResult, Reports},
    run::machine::{
        RunState, Transition,
        jobs::{Job, JobEnd, JobPolicy, JobTools},
        state::phase::Phase,
    },
};

/// Calls the callbacks before the run with this task.
#[derive(Debug)]
pub(crate) struct BeforeAgent(String);

/// Effect of the callbacks before a run.
#[derive(Debug, Default)]
pub(crate) struct TaskCallbacks {
    /// The task as a callback changed it.
    changed_task: Option<String>,
    /// The answer of a callback, until it is added to the conversation, with its event.
    answer: Option<(String, Reports)>,
    /// Whether a callback has answered the task.
    is_answered: bool,
}

impl Job for BeforeAgent {
    type State = TaskCallbacks;
    type Output = (BeforeResult<String, String>, Reports);

    const POLICY: JobPolicy = JobPolicy::new("a callback");

    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<Self::Output, ErrorInfo>> {
        tools.call_before_agent(self.0).map(Ok).boxed()
    }

    fn apply(run: &mut RunState, event: &Event) {
        let Event::Hook(HookEvent::CallbackCompleted {
            point,
            decision,
            change,
            error: None,
            ..
        }) = event
        else {
            return;
        };
        let callbacks = &mut run.jobs.before_agent;
        match (point.as_str(), decision.as_str(), change) {
            ("before_agent", "changed", Some(task)) => {
                callbacks.changed_task = task.as_str().map(str::to_owned);
            }
            ("before_agent", "answered", _) => callbacks.is_answered = true,
            _ => {}
        }
    }

    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<Self::Output>) {
        if transition.state.phase != Phase::Preparing {
            return;
        }
        if transition.state.end.ending.is_some() {
            transition.state.halt();
            return;
        }
        let (result, mut reports) = match end.result {
            Ok(called) => called,
            Err(error) => {
                transition.state.halt();
                transition.set_failure(EndReason::Failed, error);
                return;
            }
        };
        match result {
            BeforeResult::Proceed { .. } => {
                transition.record_reports(reports);
                transition.recall_or_start();
            }
            BeforeResult::Answered(answer) => {
                let answered = reports.pop();
                transition.record_reports(reports);
                let reports = answered.into_iter().collect();
                transition.state.jobs.before_agent.answer = Some((answer, reports));
                transition.start_conversation(None);
            }
            BeforeResult::Refused(_) | BeforeResult::Failed(_) => {
                transition.record_reports(reports);
                transition.state.halt();
            }
        }
    }

    #[cfg(any(test, feature = "testing"))]
    fn comparison(state: &TaskCallbacks) -> Comparison {
        let TaskCallbacks {
            changed_task,
            answer: _,
            is_answered,
        } = state;
        Comparison {
            state: format!("{changed_task:?} {is_answered}"),
            ..Comparison::default()
        }
    }
}

impl RunState {
    /// Returns the task of the run, as a callback may have changed it.
    pub(in crate::run) fn task(&self) -> &str {
        let changed_task = self.jobs.before_agent.changed_task.as_deref();
        changed_task.unwrap_or(&self.spec.task)
    }

    /// Returns the message that begins the work of the run.
    pub(in crate::run::machine) fn task_message(&self) -> MessageContent {
        let spec = &self.spec;
        let given = if spec.settings.task_content.is_blank() {
            MessageContent::from(spec.task.as_str())
        } else {
            spec.settings.task_content.clone()
        };
        let Some(changed) = &self.jobs.before_agent.changed_task else {
            return given;
        };
        let mut content = MessageContent::from(changed.as_str());
        for part in given.into_parts() {
            if !matches!(part, ContentPart::Text { .. }) {
                content.push(part);
            }
        }
        content
    }

    /// Returns whether a callback has answered the task.
    pub(in crate::run::machine) fn is_answered_by_callback(&self) -> bool {
        self.jobs.before_agent.is_answered
    }
}

impl Transition<'_, '_> {
    /// Requests the callbacks before the run. Returns `false` if there are none, if one has changed
    /// the task already, or if the run gets no new message.
    pub(in crate::run::machine) fn awaits_before_agent(&mut self) -> bool {
        let spec = &self.state.spec;
        let has_callback = spec.has_callback(|functions| functions.before_agent.as_ref());
        let has_changed_task = self.state.jobs.before_agent.changed_task.is_some();
        if !has_callback || spec.settings.resumes || has_changed_task {
            return false;
        }
        let task = spec.task.clone();
        self.state.await_before_start(Phase::Preparing);
        self.start_job(BeforeAgent(task));
        true
    }

    /// Adds the answer of a callback to the conversation. Returns `false` if no callback has
    /// answered.
    pub(in crate::run::machine) fn add_callback_answer(&mut self) -> bool {
        let Some((answer, reports)) = self.state.jobs.before_agent.answer.take() else {
            return false;
        };
        self.record_reports(reports);
        self.add_message(Role::Assistant, answer, |message| {
            message.description = "a callback answered".to_owned();
        });
        true
    }
}
