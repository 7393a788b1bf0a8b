//! The answer of a run, and its check against the output schema.
//!
//! Pure; part of the run state machine. Elsewhere: the check itself (`machine/output_schema.rs`).

use soong_protocol::{AnswerCheck, EndReason, MessageOrigin, Role, RunStatus, ToolCall};

use crate::run::machine::{
    RunState, Transition, ending::Ending, errors::schema_mismatch, output_schema::matching_text,
};

/// The final answer, and how it is checked.
#[derive(Default)]
pub(crate) struct AnswerState {
    pub(in crate::run::machine) text: String,
    /// The recorded check of the answer whose message follows. `None`: an earlier version recorded
    /// the answer, or a callback gave it, so it is checked when its message is added.
    pub(in crate::run::machine) check: Option<AnswerCheck>,
    /// Tool calls that the run ends with; its caller executes them.
    pub(in crate::run::machine) unexecuted_calls: Vec<ToolCall>,
    /// Why the last answer does not match the output schema.
    pub(in crate::run::machine) unfit: Option<String>,
    /// Number of consecutive answers that did not match the output schema.
    pub(in crate::run::machine) unfit_answers: u32,
}

impl RunState {
    /// Sets an answer that is not checked.
    pub(in crate::run::machine) fn set_answer_text(&mut self, text: String) {
        self.answer.text = text;
    }

    /// Sets the final answer. If a schema is required, the second mismatch in a row ends the run,
    /// and so does the first one in the answer of a callback.
    pub(in crate::run::machine) fn set_answer(
        &mut self,
        text: &str,
        recorded_check: Option<AnswerCheck>,
        by_callback: bool,
    ) {
        self.forget_stored_answer();
        let checked = match (&self.spec.output_schema, recorded_check) {
            (None, _) => Ok(text.to_owned()),
            // Recorded: the check is not repeated.
            (Some(_), Some(AnswerCheck::Match { value })) => {
                Ok(matching_text(text, value).to_owned())
            }
            (Some(_), Some(AnswerCheck::Mismatch { violations })) => Err(violations),
            (Some(schema), None) => schema.check(text).map(|(text, _)| text.to_owned()),
        };
        match checked {
            Ok(answer) => {
                self.answer.text = answer;
                self.answer.unfit = None;
                self.answer.unfit_answers = 0;
            }
            Err(why) => {
                text.clone_into(&mut self.answer.text);
                self.answer.unfit_answers += 1;
                if self.answer.unfit_answers > 1 || by_callback {
                    let error = Some(schema_mismatch(&why, self.spec.identity.parent.is_some()));
                    let status = RunStatus::Failed;
                    let reason = EndReason::Failed;
                    self.end.ending.get_or_insert(Ending {
                        status,
                        reason,
                        error,
                    });
                }
                self.answer.unfit = Some(why);
            }
        }
    }
}

impl Transition<'_, '_> {
    /// Asks the model to correct an answer that does not match the output schema. The model gets
    /// one retry.
    pub(crate) fn request_schema_fix(&mut self) {
        if self.state.end.ending.is_some() {
            return;
        }
        if let Some(why) = self.state.answer.unfit.clone() {
            let text = format!(
                "Your answer does not match the requested JSON schema: {why}. Answer again with one matching JSON value and \
                 nothing else."
            );
            self.add_message(Role::User, text, |message| {
                message.origin = Some(MessageOrigin::Correction);
                message.description = "requests an answer that matches the schema".to_owned();
            });
            self.open_turn();
        }
    }
}
