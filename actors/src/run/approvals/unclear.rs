//! Decisions and answers that the disk refused, and may have stored all the same (DUR-6).
//!
//! The caller is told that the request failed. Once the disk takes writes again, the row is read: where it is decided,
//! the run that waits for it is notified. Not here: how runs treat an append of their own that failed
//! (`run/actor.rs`).

use std::sync::Arc;

use soong_protocol::{ErrorInfo, PermissionDecision, PermissionId, QuestionId, Write};
use soong_storage::store::Append;

use crate::{actor_base::keep_trying, live::Shared, run::News};

/// A row that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Awaited {
    /// A permission.
    Permission(PermissionId),
    /// A question.
    Question(QuestionId),
}

impl Awaited {
    /// Reads the row, and notifies the run where it is decided; later, if the row cannot be read now. A run that is not
    /// waiting for it any more ignores that.
    pub(crate) async fn notify(self, shared: &Arc<Shared>) {
        if let Err(error) = self.try_notify(shared).await {
            tracing::warn!(awaited = ?self, %error, "a decision cannot be read; it is tried again");
            self.notify_later(shared);
        }
    }

    async fn try_notify(&self, shared: &Shared) -> Result<(), ErrorInfo> {
        let (run, news) = match self.clone() {
            Self::Permission(id) => {
                let Some(asked) = shared.reading.read(move |reader| reader.permission(&id)).await? else {
                    return Ok(());
                };
                let run = asked.run_id.clone();
                (run, PermissionDecision::of(asked).map(|ruling| News::PermissionDecided(Box::new(ruling))))
            }
            Self::Question(id) => {
                let wanted = id.clone();
                let Some(question) = shared.reading.read(move |reader| reader.question(&wanted)).await? else {
                    return Ok(());
                };
                (question.run_id, question.answer.map(|answer| News::QuestionAnswered { id, answer }))
            }
        };
        if let (Some(run), Some(news)) = (shared.run(&run), news) {
            shared.tell(&run, news);
        }
        Ok(())
    }

    /// Does the same once the disk takes writes again, in the background. A row that is being watched already is not
    /// watched twice.
    pub(crate) fn notify_later(self, shared: &Arc<Shared>) {
        if !shared.unclear.insert(self.clone()) {
            return;
        }
        let shared = Arc::clone(shared);
        shared.tasks.clone().spawn(async move {
            let attempt = || async {
                // A commit that succeeds shows that the store was opened and checked anew.
                let probe = Append { fence: None, writes: vec![Write::Probe] };
                shared.journal.append_and_wait(probe).await.map_err(|error| ErrorInfo::from(&error))?;
                // Before the row is read: whoever fails behind this read starts another task.
                shared.unclear.remove(&self);
                self.try_notify(&shared).await?;
                self.settle(&shared).await
            };
            if let Err(error) = keep_trying(&shared.closing, "reading a decision", attempt).await {
                tracing::warn!(awaited = ?self, %error, "it cannot be read whether this is decided");
            }
        });
    }

    /// Grants what an allowance for the session covers, as its caller would have done.
    async fn settle(&self, shared: &Arc<Shared>) -> Result<(), ErrorInfo> {
        let Self::Permission(id) = self else { return Ok(()) };
        let id = id.clone();
        match shared.reading.read(move |reader| reader.permission(&id)).await? {
            Some(asked) => super::settle(shared, &asked).await,
            None => Ok(()),
        }
    }
}
