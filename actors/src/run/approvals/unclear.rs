//! Decisions and answers whose write failed, and which may have been stored anyway (DUR-6).
//!
//! The caller gets an error. Once the disk accepts writes again, the row is read. If it is decided,
//! the run that waits for it is notified. Elsewhere: how runs handle a failed append of their own
//! (`run/actor.rs`).

use std::sync::Arc;

use soong_protocol::{ErrorInfo, PermissionDecision, PermissionId, QuestionId, Write};
use soong_storage::store::Append;

use crate::run::{RunInput, approvals::Approvals, machine::input::ToolInput};

/// A row that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PendingRow {
    /// A permission.
    Permission(PermissionId),
    /// A question.
    Question(QuestionId),
}

impl Approvals {
    /// Reads a row, and notifies the run if it is decided. If the row cannot be read now, retries
    /// later. A run that no longer waits for the decision ignores the notification.
    pub(crate) async fn notify(self: &Arc<Self>, awaited: PendingRow) {
        if let Err(error) = self.try_notify(&awaited).await {
            tracing::warn!(?awaited, %error, "failed to read a decision; retrying");
            self.notify_later(awaited);
        }
    }

    async fn try_notify(&self, awaited: &PendingRow) -> Result<(), ErrorInfo> {
        let (run, input) = match awaited.clone() {
            PendingRow::Permission(id) => {
                let Some(permission) = self
                    .core
                    .reader
                    .read(move |reader| reader.permission(&id))
                    .await?
                else {
                    return Ok(());
                };
                let run = permission.run_id.clone();
                (
                    run,
                    PermissionDecision::from_request(permission).map(|decision| {
                        RunInput::Tool(ToolInput::PermissionDecided(Box::new(decision)))
                    }),
                )
            }
            PendingRow::Question(id) => {
                let wanted = id.clone();
                let Some(question) = self
                    .core
                    .reader
                    .read(move |reader| reader.question(&wanted))
                    .await?
                else {
                    return Ok(());
                };
                (
                    question.run_id,
                    question
                        .answer
                        .map(|answer| RunInput::Tool(ToolInput::QuestionAnswered { id, answer })),
                )
            }
        };
        if let (Some(run), Some(input)) = (self.core.runs.get(&run), input) {
            self.core.runs.notify(&run, input);
        }
        Ok(())
    }

    /// Retries in the background once the disk accepts writes again. A row that is being retried
    /// already is skipped.
    pub(crate) fn notify_later(self: &Arc<Self>, awaited: PendingRow) {
        if !self.unconfirmed.insert(awaited.clone()) {
            return;
        }
        let approvals = Arc::clone(self);
        self.core.lifetime.spawn(async move {
            let attempt = || async {
                // A successful commit shows that the store was reopened and checked.
                let probe = Append {
                    fence: None,
                    writes: vec![Write::Probe],
                };
                approvals
                    .core
                    .journal
                    .append_and_wait(probe)
                    .await
                    .map_err(|error| ErrorInfo::from(&error))?;
                // Removed before the row is read: a decision that fails after this read starts
                // another task.
                approvals.unconfirmed.remove(&awaited);
                approvals.try_notify(&awaited).await?;
                approvals.apply_stored_grant(&awaited).await
            };
            if let Err(error) = approvals
                .core
                .lifetime
                .keep_trying("reading a decision", attempt)
                .await
            {
                tracing::warn!(?awaited, %error, "failed to read whether a decision was recorded");
            }
        });
    }

    /// Grants the requests that a stored decision for the session covers, as [`Self::decide`] would
    /// have done.
    async fn apply_stored_grant(self: &Arc<Self>, awaited: &PendingRow) -> Result<(), ErrorInfo> {
        let PendingRow::Permission(id) = awaited else {
            return Ok(());
        };
        let id = id.clone();
        match self
            .core
            .reader
            .read(move |reader| reader.permission(&id))
            .await?
        {
            Some(permission) => self.apply_session_grant(&permission).await,
            None => Ok(()),
        }
    }
}
