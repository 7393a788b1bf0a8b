//! Requests of runs to a user, questions and permissions, and their presentation as rows of text.
//!
//! Elsewhere: how a user is prompted for an answer (`bin/src/prompts.rs`).

mod rows;

use serde::Serialize;
use soong_protocol::{Permission, Question, RunId, SessionId, Timestamp};

pub(crate) use self::rows::diff_rows;
pub use self::rows::{
    DEFAULT_COLUMNS, Row, TARGET_CHARS, permission_rows, question_rows, with_margin, wrap_rows,
};
use crate::text;

/// Request of a run to a user: a question or a permission.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum UserRequest {
    /// A question that needs an answer.
    Question(Question),
    /// A tool call that needs permission.
    Permission(Box<Permission>),
}

impl UserRequest {
    /// Returns the question id or permission id.
    pub fn id(&self) -> &str {
        match self {
            Self::Question(question) => question.question_id.as_str(),
            Self::Permission(permission) => permission.permission_id.as_str(),
        }
    }

    /// Returns the run that waits for the answer.
    pub fn run_id(&self) -> &RunId {
        match self {
            Self::Question(question) => &question.run_id,
            Self::Permission(permission) => &permission.run_id,
        }
    }

    /// Returns the session of the run.
    pub fn session_id(&self) -> &SessionId {
        match self {
            Self::Question(question) => &question.session_id,
            Self::Permission(permission) => &permission.session_id,
        }
    }

    /// Returns when the request was made.
    pub fn created_at(&self) -> Timestamp {
        match self {
            Self::Question(question) => question.created_at,
            Self::Permission(permission) => permission.created_at,
        }
    }

    /// Describes the request on one line, with its id.
    pub fn summary(&self) -> String {
        match self {
            Self::Question(question) => {
                format!(
                    "{:?} (question {})",
                    text::safe_line(&question.question),
                    question.question_id
                )
            }
            Self::Permission(permission) => {
                let tool = text::safe_line(&permission.tool);
                let target = text::safe_line(&permission.demand.target);
                format!(
                    "permission for {tool}: {target} (permission {})",
                    permission.permission_id
                )
            }
        }
    }

    /// Returns the command line that answers the request.
    pub fn answer_command(&self, soong: &str) -> String {
        match self {
            Self::Question(question) => {
                format!("{soong} questions answer {} \"…\"", question.question_id)
            }
            Self::Permission(permission) => {
                let id = &permission.permission_id;
                format!("{soong} permissions allow {id} (or deny {id})")
            }
        }
    }
}
