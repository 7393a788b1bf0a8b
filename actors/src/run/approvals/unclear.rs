//! Decisions and answers that the disk refused, and may have stored all the same (DUR-6).
//!
//! The caller gets an error. Once the disk accepts writes again, the row is read: if it is decided,
//! the run that waits for it is notified. Not here: how runs treat an append of their own that failed
//! (`run/actor.rs`).

use std::sync::Arc;

use soong_protocol::{ErrorInfo, PermissionDecision, PermissionId, QuestionId, Write};
use soong_storage::store::Append;

use crate::run::{News, approvals::Approvals, machine::input::ToolInput};

/// A row that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Awaited {
    /// A permission.
    Permission(PermissionId),
    /// A question.
    Question(QuestionId),
}

impl Approvals {
    /// Reads a row, and notifies the run if it is decided; later, if the row cannot be read now. A run that does not
    /// wait for it any more ignores that.
    pub(crate) async fn notify(self: &Arc<Self>, awaited: Awaited) {
        if let Err(error) = self.try_notify(&awaited).await {
            tracing::warn!(?awaited, %error, "a decision cannot be read; it is tried again");
            self.notify_later(awaited);
        }
    }

    async fn try_notify(&self, awaited: &Awaited) -> Result<(), ErrorInfo> {
        let (run, news) = match awaited.clone() {
            Awaited::Permission(id) => {
                let Some(asked) = self.reader.read(move |reader| reader.permission(&id)).await? else {
                    return Ok(());
                };
                let run = asked.run_id.clone();
                (
                    run,
                    PermissionDecision::of(asked)
                        .map(|ruling| News::Tool(ToolInput::PermissionDecided(Box::new(ruling)))),
                )
            }
            Awaited::Question(id) => {
                let wanted = id.clone();
                let Some(question) = self.reader.read(move |reader| reader.question(&wanted)).await? else {
                    return Ok(());
                };
                (question.run_id, question.answer.map(|answer| News::Tool(ToolInput::QuestionAnswered { id, answer })))
            }
        };
        if let (Some(run), Some(news)) = (self.runs.get(&run), news) {
            self.runs.notify(&run, news);
        }
        Ok(())
    }

    /// Does the same once the disk takes writes again, in the background. A row that is being watched already is not
    /// watched twice.
    pub(crate) fn notify_later(self: &Arc<Self>, awaited: Awaited) {
        if !self.unclear.insert(awaited.clone()) {
            return;
        }
        let approvals = Arc::clone(self);
        self.lifetime.spawn(async move {
            let attempt = || async {
                // A commit that succeeds shows that the store was opened and checked anew.
                let probe = Append { fence: None, writes: vec![Write::Probe] };
                approvals.journal.append_and_wait(probe).await.map_err(|error| ErrorInfo::from(&error))?;
                // Before the row is read: a decision that fails after this read starts another task.
                approvals.unclear.remove(&awaited);
                approvals.try_notify(&awaited).await?;
                approvals.settle_stored(&awaited).await
            };
            if let Err(error) = approvals.lifetime.keep_trying("reading a decision", attempt).await {
                tracing::warn!(?awaited, %error, "it cannot be read whether this is decided");
            }
        });
    }

    /// Grants what a decision for the session covers, as its caller would have done.
    async fn settle_stored(self: &Arc<Self>, awaited: &Awaited) -> Result<(), ErrorInfo> {
        let Awaited::Permission(id) = awaited else { return Ok(()) };
        let id = id.clone();
        match self.reader.read(move |reader| reader.permission(&id)).await? {
            Some(asked) => self.settle(&asked).await,
            None => Ok(()),
        }
    }
}
