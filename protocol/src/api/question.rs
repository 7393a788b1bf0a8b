//! Questions to users, and their answers.

use serde::{Deserialize, Serialize};

use crate::{Question, QuestionStatus, SessionId};

/// Filters for questions. Without filters, all questions are returned.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct QuestionQuery {
    /// Questions with this status; `pending`: those that wait for an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<QuestionStatus>,
    /// Questions of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// List of questions.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Questions {
    /// The questions, oldest first.
    pub questions: Vec<Question>,
    /// With `session_id`: whether the session waits only for input or permission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_parked: Option<bool>,
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AnswerBody {
    /// The answer.
    pub answer: String,
}
