//! Waiting for a user.

use std::collections::HashMap;

use soong_protocol::{PermissionDecision, PermissionMode, QuestionId, Timestamp};

/// Whether a run waits for a user, the answers that were given before this incarnation, and the
/// permission mode.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Time since which the run waits for a user.
    pub(in crate::run::machine) since: Option<Timestamp>,
    /// Kind of the wait, as its event says.
    pub(in crate::run::machine) reason: Option<String>,
    /// Answers to its questions, in the order in which they were given.
    pub(in crate::run::machine) answered: Vec<(QuestionId, String)>,
    /// Permission mode that is in force.
    pub(in crate::run::machine) permission_mode: PermissionMode,
    /// Decisions about its tool calls, in the order in which they were made.
    pub(in crate::run::machine) decided: Vec<PermissionDecision>,
    /// Questions of running tools, with the tickets of their requests.
    pub(in crate::run::machine) tool_questions: HashMap<QuestionId, u64>,
    /// Answers to questions that interrupted tools asked. A repeated call gets them.
    pub(in crate::run::machine) tool_answers: HashMap<QuestionId, String>,
}

impl Waiting {
    /// Creates the state of a run that waits for nothing.
    pub(in crate::run::machine) fn new(permission_mode: PermissionMode) -> Self {
        Self {
            permission_mode,
            ..Self::default()
        }
    }

    /// Returns the answers that were given before this incarnation, and forgets them.
    pub(in crate::run::machine) fn take_answered(&mut self) -> Vec<(QuestionId, String)> {
        std::mem::take(&mut self.answered)
    }

    /// Returns the decisions that were made before this incarnation, and forgets them.
    pub(in crate::run::machine) fn take_decided(&mut self) -> Vec<PermissionDecision> {
        std::mem::take(&mut self.decided)
    }
}
