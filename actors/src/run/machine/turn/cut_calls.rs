//! Tool calls whose arguments were cut off at the token limit of an answer.
//!
//! Pure; part of the run state machine. The error of such a call asks the model for a smaller call.
//! After three such answers in a row the run ends.

use soong_protocol::{EndReason, Message, RunStatus};
use soong_text::is_json_object;

use crate::run::machine::{ending::Ending, errors::calls_truncated};

/// Maximum number of answers in a row with a call that was cut off.
const MAX_CONSECUTIVE: u32 = 2;

/// The call of the current turn that was cut off, and the number of such answers in a row.
#[derive(Debug, Default)]
pub(crate) struct TruncatedCalls {
    /// Id of the call of this turn that was cut off.
    call: Option<String>,
    /// Number of answers in a row with such a call.
    in_row: u32,
}

impl TruncatedCalls {
    /// Records an answer with calls. Returns the ending of the run if too many answers in a row
    /// were cut off.
    pub(crate) fn record(&mut self, answer: &Message) -> Option<Ending> {
        let is_limited = answer.finish_reason.as_deref() == Some("length");
        let last = answer
            .tool_calls
            .last()
            .filter(|call| is_limited && !is_json_object(&call.arguments));
        self.in_row = if last.is_some() { self.in_row + 1 } else { 0 };
        self.call = last.map(|call| call.id.clone());
        let status = RunStatus::Failed;
        let reason = EndReason::MaxOutputTokens;
        (self.in_row > MAX_CONSECUTIVE).then(|| Ending {
            status,
            reason,
            error: Some(calls_truncated()),
        })
    }

    /// Returns whether a call of this turn was cut off.
    pub(crate) fn is_truncated(&self, id: &str) -> bool {
        self.call.as_deref() == Some(id)
    }
}
