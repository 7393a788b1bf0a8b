//! The name of a trace: a model chooses it after the first answer, if `context.utility_profile` is
//! set (RUN-6a).
//!
//! Pure; part of the run state machine. The call is made once, and nothing waits for it. A run that
//! completes before the call detaches it, and charges an estimate; any other end of the run ends
//! the call.
//!
//! Elsewhere: which traces may be named (`runtime/admission.rs`), the call (`tasks/naming.rs`).

use soong_model::Completion;
use soong_protocol::{ErrorCode, ErrorInfo, ModelCallKind, ModelEvent, Role, Usage};
use soong_text::{on_one_line, shorten, strip_invisible};

use crate::{
    context::{count_estimate, is_summary, naming_request},
    run::machine::{
        RunState, Transition,
        auxiliary_call::{AuxiliaryAnswer, AuxiliaryCall, Used, usage_and_cost},
        effect::{Effect, ModelEffect},
        state::{conversation::Conversation, naming::Naming},
    },
};

/// Maximum length of a name, in characters, without the ellipsis of a longer one.
const MAX_NAME_CHARS: usize = 60;
/// Estimated size of the answer to a detached call, in tokens.
const EXPECTED_NAME_TOKENS: u64 = 10;

impl Conversation {
    pub(in crate::run::machine) fn apply_naming(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::NamingStarted { estimated_tokens } => {
                self.naming = Naming::Open(*estimated_tokens)
            }
            ModelEvent::NamingEnded { .. } => self.naming = Naming::Ended,
            _ => {}
        }
    }
}

impl RunState {
    /// Returns the request for a name. `None` if the trace has a name, or if the last answer is not
    /// its first.
    fn naming_call(&self) -> Option<AuxiliaryCall> {
        if self.conversation.naming != Naming::NotStarted
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
    pub(in crate::run::machine) fn name_trace(&mut self) {
        // An answer may arrive after the end of the run was requested.
        if self.state.end.ending.is_some() {
            return;
        }
        // Not with the last part of a budget.
        let Some(call) = self
            .state
            .naming_call()
            .filter(|_| self.nearly_used().is_empty())
        else {
            return;
        };
        let estimated_tokens = count_estimate(&call.system) + count_estimate(&call.user);
        self.emit(ModelEvent::NamingStarted { estimated_tokens });
        self.step
            .effects
            .push(Effect::Model(ModelEffect::NameTrace(call)));
    }

    /// Records the answer of the model.
    pub(in crate::run::machine) fn trace_named(
        &mut self,
        result: Result<AuxiliaryAnswer, ErrorInfo>,
        used: Option<Used>,
    ) {
        let Naming::Open(estimated_tokens) = self.state.conversation.naming else {
            return;
        };
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => return self.end_naming(Some(Err(error)), used),
        };
        self.end_naming(
            Some(name_of(&answer.completion)),
            Some(answer.used(estimated_tokens)),
        );
    }

    /// Closes the call for a name that is cut off by the end of the run, or was lost with an
    /// earlier incarnation. Its usage is estimated (BUD-1a).
    pub(in crate::run::machine) fn close_naming(&mut self) {
        let Naming::Open(estimated_tokens) = self.state.conversation.naming else {
            return;
        };
        let used = self.used_by_open_naming(Usage::estimate(estimated_tokens, 0));
        let error = ErrorInfo::new(
            ErrorCode::Interrupted,
            "the run ended, or its process, before the model answered",
        );
        self.end_naming(Some(Err(error)), Some(used));
    }

    /// Lets the call for a name continue after the end of the run, which charges an estimate for
    /// it.
    pub(in crate::run::machine) fn detach_naming(&mut self) {
        let Naming::Open(estimated_tokens) = self.state.conversation.naming else {
            return;
        };
        let used =
            self.used_by_open_naming(Usage::estimate(estimated_tokens, EXPECTED_NAME_TOKENS));
        self.end_naming(None, Some(used));
        self.step.effects.push(Effect::DetachNaming);
    }

    fn used_by_open_naming(&self, estimate: Usage) -> Used {
        let default_usage = self.state.spec.auxiliary_models.utility.priced(estimate);
        self.used_by_lost_call(ModelCallKind::Naming, default_usage)
    }

    /// `name`: `None` if the call continues.
    fn end_naming(&mut self, name: Option<Result<String, ErrorInfo>>, used: Option<Used>) {
        let (usage, cost) = usage_and_cost(used);
        let (name, error) = match name {
            Some(Ok(name)) => (Some(name), None),
            Some(Err(error)) => (None, Some(Box::new(error))),
            None => (None, None),
        };
        self.emit(ModelEvent::NamingEnded {
            name,
            usage,
            cost,
            error,
        });
    }
}

/// Returns the name that an answer contains.
///
/// # Errors
/// `provider_error` if the answer has no text.
pub(in crate::run) fn name_of(answer: &Completion) -> Result<String, ErrorInfo> {
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
    use super::*;

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
