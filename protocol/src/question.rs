//! Questions to users: stored records whose answer a run waits for (SUB-9).

use serde::{Deserialize, Serialize};

use crate::{ErrorCode, ErrorInfo, QuestionId, RunId, SessionId, Timestamp, TraceId};

/// Status of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum QuestionStatus {
    /// Not answered yet.
    Pending,
    /// Answered.
    Answered,
    /// The run ended before an answer.
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

/// A question of a run to a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Question {
    /// Unique id.
    pub question_id: QuestionId,
    /// The run that asks.
    pub run_id: RunId,
    /// Trace of the run.
    pub trace_id: TraceId,
    /// Session of the run.
    pub session_id: SessionId,
    /// Text of the question.
    pub question: String,
    /// Addressee. Absent if the question is for the user of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Status of the question.
    pub status: QuestionStatus,
    /// The answer. Absent while the question is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Time of the question.
    pub created_at: Timestamp,
    /// Time at which the question was answered or withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
}

impl Question {
    /// Returns the error for another answer to a question that accepts none any more.
    pub fn already_decided(&self) -> ErrorInfo {
        let id = &self.question_id;
        let message = match self.status {
            QuestionStatus::Withdrawn => {
                format!("question {id} is no longer open: its run has ended")
            }
            QuestionStatus::Answered | QuestionStatus::Pending => format!(
                "question {id} has already been answered: {:?}",
                self.answer.as_deref().unwrap_or_default()
            ),
        };
        ErrorInfo::new(ErrorCode::AlreadyDecided, message)
    }
}
