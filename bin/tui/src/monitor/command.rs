//! Actions that the monitor executes for its user.

use soong_protocol::{Decision, PermissionId, QuestionId, RunId, TraceId};

/// An action sent to the owner of the home.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Cancel these runs.
    Cancel(Vec<RunId>),
    /// Crash the actor with this id.
    Kill(String),
    /// Decide a request for permission.
    Decide {
        /// The permission.
        id: PermissionId,
        /// The decision.
        decision: Decision,
        /// Reason for the model.
        reason: Option<String>,
    },
    /// Answer a question.
    Answer {
        /// The question.
        id: QuestionId,
        /// The answer.
        text: String,
    },
    /// Write a trace and its children to files.
    Export {
        /// The trace.
        trace: TraceId,
        /// The folder for the files.
        dir: String,
    },
}
