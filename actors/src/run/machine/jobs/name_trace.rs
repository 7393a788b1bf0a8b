//! The name of a trace: a model chooses it after the first answer, if `context.utility_profile` is
//! set (RUN-6a).
//!
//! The call is made once, and nothing waits for it. A run that completes while the call is in
//! progress detaches it, and charges an estimate; any other end of the run ends the call. A detached call ends after
//! 20 s at the latest.
//!
//! Elsewhere: which traces may be named (`runtime/admission.rs`).

use std::time::Duration;

use futures::future::BoxFuture;
use soong_model::Completion;
use soong_protocol::{ErrorCode, ErrorInfo, Event, ModelCallKind, ModelEvent, Role, Usage};
use soong_text::{on_one_line, shorten, strip_invisible};

#[cfg(any(test, feature = "testing"))]
use crate::run::machine::jobs::Comparison;
use crate::{
    context::{count_estimate, is_summary, naming_request},
    run::machine::{
        RunState, Transition,
        auxiliary_call::{AuxiliaryAnswer, AuxiliaryCall, AuxiliaryRole, Used, usage_and_cost},
        jobs::{Job, JobEnd, JobPolicy, JobTools},
    },
};

/// Maximum length of a name, in characters, without the ellipsis of a longer one.
const MAX_NAME_CHARS: usize = 60;
/// Estimated size of the answer to a detached call, in tokens.
const EXPECTED_NAME_TOKENS: u64 = 10;

/// Asks a model for the name of the trace.
#[derive(Debug)]
pub(crate) struct NameTrace(AuxiliaryCall);

/// Progress of the call.
#[derive(Debug, Default)]
pub(crate) enum Naming {
    #[default]
    NotStarted,
    /// The model was asked, with a request of about this many tokens.
    Open(u64),
    Ended,
}

impl Job for NameTrace {
    type State = Naming;
    type Output = AuxiliaryAnswer;

    const POLICY: JobPolicy = JobPolicy {
        model_call: Some(ModelCallKind::Naming),
        max_time_after_run: Some(Duration::from_secs(20)),
        ..JobPolicy::new("the model provider")
    };

    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<AuxiliaryAnswer, ErrorInfo>> {
        let AuxiliaryCall { system, user } = self.0;
        tools.ask_model(AuxiliaryRole::Utility, system, vec![(Role::User, user)])
    }

    fn apply(run: &mut RunState, event: &Event) {
        match event {
            Event::Model(ModelEvent::NamingStarted { estimated_tokens }) => {
                run.jobs.name_trace = Naming::Open(*estimated_tokens);
            }
            Event::Model(ModelEvent::NamingEnded { .. }) => run.jobs.name_trace = Naming::Ended,
            _ => {}
        }
    }

    fn is_calling(run: &RunState) -> bool {
        matches!(run.jobs.name_trace, Naming::Open(_))
    }

    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<AuxiliaryAnswer>) {
        if let Naming::Open(_) = transition.state.jobs.name_trace {
            let name = name_of_result(&end.result);
            transition.emit(naming_ended(name, end.model_calls.used));
        }
    }

    fn lost(transition: &mut Transition<'_, '_>, _: bool) {
        let Naming::Open(estimated_tokens) = transition.state.jobs.name_trace else {
            return;
        };
        let used = transition.used_by_open_naming(Usage::estimate(estimated_tokens, 0));
        let error = ErrorInfo::new(
            ErrorCode::Interrupted,
            "the run ended, or its process, before the model answered",
        );
        transition.emit(naming_ended(Err(error), Some(used)));
    }

    fn detached(transition: &mut Transition<'_, '_>) -> bool {
        let Naming::Open(estimated_tokens) = transition.state.jobs.name_trace else {
            return false;
        };
        let estimate = Usage::estimate(estimated_tokens, EXPECTED_NAME_TOKENS);
        let (usage, cost) = usage_and_cost(Some(transition.used_by_open_naming(estimate)));
        transition.emit(ModelEvent::NamingEnded {
            name: None,
            usage,
            cost,
            error: None,
        });
        true
    }

    #[cfg(any(test, feature = "testing"))]
    fn comparison(state: &Naming) -> Comparison {
        Comparison {
            state: format!("{state:?}"),
            ..Comparison::default()
        }
    }

    fn late_event(result: &Result<AuxiliaryAnswer, ErrorInfo>) -> Option<Event> {
        Some(naming_ended(name_of_result(result), None).into())
    }
}

impl RunState {
    /// Returns the request for a name. `None` if the trace has a name, or if the last answer is not
    /// its first.
    fn request_for_name(&self) -> Option<AuxiliaryCall> {
        if !matches!(self.jobs.name_trace, Naming::NotStarted)
            || self.spec.settings.provisional_name.is_none()
        {
            return None;
        }
        let messages = || {
            self.conversation
                .transcript
                .iter()
                .map(|entry| &entry.message)
        };
        // A summary replaces earlier answers.
        if messages().any(|message| is_summary(message)) {
            return None;
        }
        let mut answers =
            messages().filter(|message| message.role == Role::Assistant && !message.partial);
        let answer = answers.next()?;
        if answers.next().is_some() {
            return None;
        }
        let task = messages().find(|message| message.is_request())?;
        let (system, user) = naming_request(&task.content, &answer.content);
        Some(AuxiliaryCall { system, user })
    }
}

impl Transition<'_, '_> {
    /// Requests a name for the trace after its first answer.
    pub(crate) fn name_trace(&mut self) {
        // An answer may arrive after the end of the run was requested. The last part of a budget is
        // not spent on a name.
        if self.state.end.ending.is_some() || !self.nearly_used().is_empty() {
            return;
        }
        let Some(call) = self.state.request_for_name() else {
            return;
        };
        let estimated_tokens = count_estimate(&call.system) + count_estimate(&call.user);
        self.emit(ModelEvent::NamingStarted { estimated_tokens });
        self.start_job(NameTrace(call));
    }

    /// Returns what is charged for a call that has no outcome (BUD-1a).
    fn used_by_open_naming(&self, estimate: Usage) -> Used {
        let default_usage = self.state.spec.auxiliary_models.utility.priced(estimate);
        self.used_by_lost_call(ModelCallKind::Naming, default_usage)
    }
}

fn naming_ended(name: Result<String, ErrorInfo>, used: Option<Used>) -> ModelEvent {
    let (usage, cost) = usage_and_cost(used);
    let (name, error) = match name {
        Ok(name) => (Some(name), None),
        Err(error) => (None, Some(Box::new(error))),
    };
    ModelEvent::NamingEnded {
        name,
        usage,
        cost,
        error,
    }
}

fn name_of_result(result: &Result<AuxiliaryAnswer, ErrorInfo>) -> Result<String, ErrorInfo> {
    match result {
        Ok(answer) => name_of(&answer.completion),
        Err(error) => Err(error.clone()),
    }
}

/// Returns the name that an answer contains.
///
/// # Errors
/// `provider_error` if the answer has no text.
fn name_of(answer: &Completion) -> Result<String, ErrorInfo> {
    let missing = || {
        ErrorInfo::new(
            ErrorCode::ProviderError,
            "the answer of the model has no name for the conversation",
        )
    };
    name_in(&answer.text).ok_or_else(missing)
}

/// Returns the first line of an answer with text, without quotes and marks around it.
fn name_in(answer: &str) -> Option<String> {
    let is_mark = |c: char| c.is_whitespace() || "\"'`*#.“”„«»《》「」".contains(c);
    let answer = strip_invisible(answer);
    let name = answer
        .lines()
        .map(|line| line.trim_matches(is_mark))
        .find(|line| !line.is_empty())?;
    Some(shorten(&on_one_line(name), MAX_NAME_CHARS))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::run::machine::jobs::testing::EchoTools;

    #[test]
    fn answer_of_the_utility_model_becomes_the_name() {
        let request = NameTrace(AuxiliaryCall {
            system: "Name it.".to_owned(),
            user: "\"Fix the tests\"".to_owned(),
        });
        let result = request.run(&mut EchoTools).now_or_never().unwrap();
        let Some(Event::Model(ModelEvent::NamingEnded { name, error, .. })) =
            NameTrace::late_event(&result)
        else {
            panic!("another event");
        };
        assert_eq!((name.as_deref(), error), (Some("Fix the tests"), None));
        let failed = Err(ErrorInfo::new(ErrorCode::Timeout, "too slow"));
        let Some(Event::Model(ModelEvent::NamingEnded { name, error, .. })) =
            NameTrace::late_event(&failed)
        else {
            panic!("another event");
        };
        assert_eq!(name, None);
        assert_eq!(error.unwrap().code, ErrorCode::Timeout);
    }

    #[test]
    fn name_is_the_first_line_without_quotes() {
        for (answer, name) in [
            ("Fix the tests", Some("Fix the tests")),
            (
                "\n\n**\"Fix the tests.\"**\nBecause they fail.",
                Some("Fix the tests"),
            ),
            ("# 修复测试", Some("修复测试")),
            ("“Don't panic”", Some("Don't panic")),
            ("  \n\"\"\n", None),
            ("", None),
        ] {
            assert_eq!(name_in(answer).as_deref(), name, "{answer:?}");
        }
        assert_eq!(
            name_in(&"word ".repeat(40)).unwrap().chars().count(),
            MAX_NAME_CHARS + 1
        );
    }
}
