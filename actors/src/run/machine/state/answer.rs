//! The answer of a run.

use soong_protocol::{AnswerCheck, ArtifactRef, ToolCall};

/// The final answer, and how it is checked and stored.
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
    /// The artifact that holds an answer that is too large for a result (SUB-4).
    pub(in crate::run::machine) stored: Option<ArtifactRef>,
    /// Whether the answer is being stored as an artifact.
    pub(in crate::run::machine) storing: bool,
    /// Whether the attempt to store the answer has ended, or none is necessary.
    pub(in crate::run::machine) is_kept: bool,
}

impl AnswerState {
    /// Forgets how the last answer was stored, because there is another one.
    pub(in crate::run::machine) fn forget_storage(&mut self) {
        self.stored = None;
        self.storing = false;
        self.is_kept = false;
    }
}
