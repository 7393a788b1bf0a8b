//! Actions that the monitor executes for its user.

use soong::protocol::{Decision, PermissionId, QuestionId, RunId, TraceId};

/// An action sent to the owner of the home.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    Cancel(Vec<RunId>),
    Kill(String),
    Decide { id: PermissionId, decision: Decision, reason: Option<String> },
    Answer { id: QuestionId, text: String },
    Export { trace: TraceId, dir: String },
}
