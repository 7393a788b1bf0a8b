//! Questions to people: which there are, and their answers (SUB-9).
//!
//! An answer is a row before anybody hears of it: the first one counts, and the run takes it from there, now or when
//! it is taken up again. Not here: how a run asks (`run/machine/tool_calls/questions.rs`).

use soong_protocol::{ErrorCode, ErrorInfo, Question, QuestionId, QuestionStatus, Write};
use soong_storage::store::{Append, QuestionFilter, StoreError};

use super::{Runtime, not_found};
use crate::{clock::now, run::Awaited};

impl Runtime {
    /// Lists questions, the oldest first.
    pub async fn questions(&self, filter: QuestionFilter) -> Result<Vec<Question>, ErrorInfo> {
        self.inner.services.reader.read(move |reader| reader.questions(&filter)).await
    }

    /// Reads a question.
    pub async fn question(&self, id: &QuestionId) -> Result<Question, ErrorInfo> {
        let wanted = id.clone();
        let question = self.inner.services.reader.read(move |reader| reader.question(&wanted)).await?;
        question.ok_or_else(|| not_found(ErrorCode::QuestionNotFound, "question", id.as_str()))
    }

    /// Answers a question; its run goes on with the answer.
    ///
    /// Refused as `already_decided` where somebody was first, or the run has ended. A run that an earlier process left
    /// behind takes the answer when it is taken up: see [`Runtime::resume`](super::Runtime::resume).
    pub async fn answer_question(&self, id: &QuestionId, answer: impl Into<String>) -> Result<Question, ErrorInfo> {
        let (services, answer) = (&self.inner.services, answer.into());
        if answer.trim().is_empty() {
            return Err(ErrorInfo::new(ErrorCode::ValidationError, "the answer is empty: say something"));
        }
        if services.lifetime.is_closing() {
            return Err(crate::actor_base::closing());
        }
        self.question(id).await?;
        let (at, awaited) = (now(), Awaited::Question(id.clone()));
        let write = || Write::Answer { question_id: id.clone(), answer: answer.clone(), at };
        let append = || Append { fence: None, writes: vec![write()] };
        let (written, is_second) = services.journal.append_again(append).await;
        match &written {
            Ok(_) | Err(StoreError::Decided(_)) => {}
            Err(error) => {
                services.approvals.notify_later(awaited);
                return Err(ErrorInfo::from(error));
            }
        }
        // Also where somebody was first: who was may not know that it is stored.
        services.approvals.notify(awaited).await;
        let question = self.question(id).await?;
        let is_same = question.decided_at == Some(at);
        match written.is_ok() || (is_second && is_same) {
            true => Ok(question),
            false => Err(already_decided(&question)),
        }
    }
}

/// Says that a question takes no answer any more, and why.
pub fn already_decided(question: &Question) -> ErrorInfo {
    let id = &question.question_id;
    let message = match question.status {
        QuestionStatus::Withdrawn => format!("question {id} is not open any more: its run has ended"),
        _ => format!("question {id} is answered already: {:?}", question.answer.as_deref().unwrap_or_default()),
    };
    ErrorInfo::new(ErrorCode::AlreadyDecided, message)
}
