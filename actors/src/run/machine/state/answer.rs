//! The answer of a run.

use soong_protocol::{AnswerCheck, ToolCall};

/// The final answer, and how it is checked.
#[derive(Default)]
pub(in crate::run::machine) struct AnswerState {
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
