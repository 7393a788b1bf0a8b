//! The name of a trace: a model chooses it after the first answer, if `context.utility_profile` is set (RUN-6a).
//!
//! Pure; part of the run state machine. The call is made at the same time as the next model call of the run, and nothing
//! waits for it: if the run ends first, the call is cut off, and the next run of the trace makes it again.
//!
//! Elsewhere: which traces may be named (`runtime/admission.rs`).

use soong_protocol::{ErrorCode, ErrorInfo, ModelCallKind, ModelEvent, Role, Usage};
use soong_text::{on_one_line, shorten, strip_invisible};

use crate::{
    context::{count_estimate, naming_request},
    run::machine::{
        effect::{AuxiliaryCall, Effect, ModelEffect},
        input::{AuxiliaryAnswer, Used, usage_and_cost},
        state::{RunState, conversation::Conversation, naming::Naming},
        transition::Transition,
    },
};

/// Maximum length of a name, in characters, without the ellipsis of a longer one.
const MAX_NAME_CHARS: usize = 60;

impl Conversation {
    pub(in crate::run::machine) fn apply_naming(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::NamingStarted { estimated_tokens } => self.naming = Naming::Open(*estimated_tokens),
            ModelEvent::NamingEnded { .. } => self.naming = Naming::Ended,
            _ => {}
        }
    }
}

impl RunState {
    /// Returns the request for a name. `None` if the trace has a name, or no answer yet.
    fn naming_call(&self) -> Option<AuxiliaryCall> {
        if self.conversation.naming != Naming::NotStarted || self.spec.settings.provisional_name.is_none() {
            return None;
        }
        let messages = || self.conversation.transcript.iter().map(|entry| &entry.message);
        let answer = messages().find(|message| message.role == Role::Assistant)?;
        let task = messages().find(|message| message.is_request())?;
        let (system, user) = naming_request(&task.content, &answer.content);
        Some(AuxiliaryCall { system, user })
    }
}

impl Transition<'_, '_> {
    /// Requests a name for the trace, if it needs one.
    pub(in crate::run::machine) fn name_trace(&mut self) {
        // Not with the last part of a budget.
        let Some(call) = self.state.naming_call().filter(|_| self.nearly_used().is_empty()) else { return };
        let estimated_tokens = count_estimate(&call.system) + count_estimate(&call.user);
        self.emit(ModelEvent::NamingStarted { estimated_tokens });
        self.step.effects.push(Effect::Model(ModelEffect::NameTrace(call)));
    }

    /// Records the answer of the model.
    pub(in crate::run::machine) fn trace_named(
        &mut self,
        result: Result<AuxiliaryAnswer, ErrorInfo>,
        used: Option<Used>,
    ) {
        let Naming::Open(estimated_tokens) = self.state.conversation.naming else { return };
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => return self.end_naming(Err(error), used),
        };
        let name = name_in(&answer.completion.text).ok_or_else(|| {
            ErrorInfo::new(ErrorCode::ProviderError, "the answer of the model has no name for the conversation")
        });
        self.end_naming(name, Some(answer.used(estimated_tokens)));
    }

    /// Closes the call for a name that is cut off by the end of the run, or was lost with an earlier incarnation. Its
    /// usage is estimated (BUD-1a).
    pub(in crate::run::machine) fn close_naming(&mut self) {
        let Naming::Open(estimated_tokens) = self.state.conversation.naming else { return };
        let utility = &self.state.spec.auxiliary_models.utility;
        let prompt = utility.priced(Usage::estimate(estimated_tokens, 0));
        let used = self.used_by_lost_call(ModelCallKind::Naming, prompt);
        let error = ErrorInfo::new(ErrorCode::Interrupted, "the run ended, or its process, before the model answered");
        self.end_naming(Err(error), Some(used));
    }

    fn end_naming(&mut self, name: Result<String, ErrorInfo>, used: Option<Used>) {
        let (usage, cost) = usage_and_cost(used);
        let (name, error) = match name {
            Ok(name) => (Some(name), None),
            Err(error) => (None, Some(Box::new(error))),
        };
        self.emit(ModelEvent::NamingEnded { name, usage, cost, error });
    }
}

/// Returns the first line of an answer with text, without quotes and marks around it.
fn name_in(answer: &str) -> Option<String> {
    let is_mark = |c: char| c.is_whitespace() || "\"'`*#.“”„«»《》「」".contains(c);
    let answer = strip_invisible(answer);
    let name = answer.lines().map(|line| line.trim_matches(is_mark)).find(|line| !line.is_empty())?;
    Some(shorten(&on_one_line(name), MAX_NAME_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_the_first_line_without_quotes() {
        for (answer, name) in [
            ("Fix the tests", Some("Fix the tests")),
            ("\n\n**\"Fix the tests.\"**\nBecause they fail.", Some("Fix the tests")),
            ("# 修复测试", Some("修复测试")),
            ("“Don't panic”", Some("Don't panic")),
            ("  \n\"\"\n", None),
            ("", None),
        ] {
            assert_eq!(name_in(answer).as_deref(), name, "{answer:?}");
        }
        assert_eq!(name_in(&"word ".repeat(40)).unwrap().chars().count(), MAX_NAME_CHARS + 1);
    }
}
