//! Tool calls whose arguments were cut at the token limit of an answer.
//!
//! Pure, part of the run machine. The error of such a call asks the model for less; after three in a row the run ends.

use soong_protocol::{EndReason, Message, RunStatus};

use crate::{
    run::machine::{ending::Ending, errors::calls_cut_at_limit},
    text::is_json_object,
};

/// How many answers in a row may have such a call.
const MAX_IN_ROW: u32 = 2;

/// The cut call of the present turn, and how many there were in a row.
#[derive(Debug, Default)]
pub(crate) struct CutCalls {
    /// The call of this turn that was cut.
    call: Option<String>,
    /// How many answers in a row had such a call.
    in_row: u32,
}

impl CutCalls {
    /// Takes note of an answer with calls; returns how the run ends if too many answers in a row were cut.
    pub(crate) fn note(&mut self, answer: &Message) -> Option<Ending> {
        let is_limited = answer.finish_reason.as_deref() == Some("length");
        let last = answer.tool_calls.last().filter(|call| is_limited && !is_json_object(&call.arguments));
        self.in_row = if last.is_some() { self.in_row + 1 } else { 0 };
        self.call = last.map(|call| call.id.clone());
        let (status, reason) = (RunStatus::Failed, EndReason::MaxOutputTokens);
        (self.in_row > MAX_IN_ROW).then(|| Ending { status, reason, error: Some(calls_cut_at_limit()) })
    }

    /// Returns whether a call of this turn was cut.
    pub(crate) fn is_cut(&self, id: &str) -> bool {
        self.call.as_deref() == Some(id)
    }
}
