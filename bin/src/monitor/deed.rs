//! What the monitor does for its user.

use soong::protocol::{Decision, PermissionId, QuestionId, RunId, TraceId};

/// A command for the owner of the home.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deed {
    Cancel(Vec<RunId>),
    Kill(String),
    Decide { id: PermissionId, decision: Decision, reason: Option<String> },
    Answer { id: QuestionId, text: String },
    Export { trace: TraceId, dir: String },
}
