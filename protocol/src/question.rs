//! Questions to people: stored rows that a run waits for (SUB-9).

use serde::{Deserialize, Serialize};

use crate::{QuestionId, RunId, SessionId, Timestamp, TraceId};

/// Where a question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum QuestionStatus {
    /// Nobody has answered yet.
    Pending,
    /// Somebody has.
    Answered,
    /// Its run ended before anybody did.
    Withdrawn,
}

impl QuestionStatus {
    /// Returns the status as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Answered => "answered",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// A question that a run asks a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Question {
    /// Its id.
    pub question_id: QuestionId,
    /// The run that asks.
    pub run_id: RunId,
    /// Its trace.
    pub trace_id: TraceId,
    /// Its session.
    pub session_id: SessionId,
    /// What is asked.
    pub question: String,
    /// Who is asked; absent = whoever looks after the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Where it stands.
    pub status: QuestionStatus,
    /// What was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it was answered, or withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
}
