//! Questions to users, and their answers (SUB-9).
//!
//! An answer is stored before the run is notified. The first answer counts; the run reads it from
//! the store, immediately or when it is resumed.
//!
//! Elsewhere: how a run asks (`run/machine/tool_calls/questions.rs`).

use soong_protocol::{ErrorCode, ErrorInfo, Question, QuestionId, Write};
use soong_storage::store::{Append, QuestionFilter, StoreError};

use super::{Runtime, not_found};
use crate::{clock::now, run::PendingRow};

/// Questions of runs to users: see [`Runtime::questions`].
#[derive(Debug, Clone, Copy)]
pub struct Questions<'a> {
    pub(super) runtime: &'a Runtime,
}

impl Questions<'_> {
    /// Lists questions, oldest first.
    pub async fn list(self, filter: QuestionFilter) -> Result<Vec<Question>, ErrorInfo> {
        self.runtime
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.questions(&filter))
            .await
    }

    /// Reads a question.
    pub async fn get(self, id: &QuestionId) -> Result<Question, ErrorInfo> {
        let wanted = id.clone();
        let question = self
            .runtime
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.question(&wanted))
            .await?;
        question.ok_or_else(|| not_found(ErrorCode::QuestionNotFound, "question", id.as_str()))
    }

    /// Answers a question and resumes its run.
    ///
    /// Fails with `already_decided` if the question has an answer, or the run has ended. An
    /// interrupted run of an earlier process reads the answer when it is resumed: see
    /// [`Sessions::resume`](super::Sessions::resume).
    pub async fn answer(
        self,
        id: &QuestionId,
        answer: impl Into<String>,
    ) -> Result<Question, ErrorInfo> {
        let services = &self.runtime.inner.services;
        let answer = answer.into();
        if answer.trim().is_empty() {
            return Err(ErrorInfo::new(
                ErrorCode::ValidationError,
                "the answer is empty",
            ));
        }
        if services.core.lifetime.is_closing() {
            return Err(crate::actor_base::closing());
        }
        self.get(id).await?;
        let at = now();
        let awaited = PendingRow::Question(id.clone());
        let write = || Write::Answer {
            question_id: id.clone(),
            answer: answer.clone(),
            at,
        };
        let append = || Append {
            fence: None,
            writes: vec![write()],
        };
        let (written, is_second) = services.core.journal.append_with_retry(append).await;
        match &written {
            Ok(_) | Err(StoreError::AlreadyDecided(_)) => {}
            Err(error) => {
                services.approvals.notify_later(awaited);
                return Err(ErrorInfo::from(error));
            }
        }
        // Notify the run even if another answer came first: its author may not know that it is
        // stored.
        services.approvals.notify(awaited).await;
        let question = self.get(id).await?;
        let is_same = question.decided_at == Some(at);
        if written.is_ok() || (is_second && is_same) {
            Ok(question)
        } else {
            Err(question.already_decided())
        }
    }
}
