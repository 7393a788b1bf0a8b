//! The journal: appends are committed, then published (DUR-1, DUR-2).
//!
//! Handles send directly to the writer thread's bounded queue. The publishing task offers what was
//! committed to the subscribers, and then answers the callers. The actor owns the thread and the
//! task, and reports their status.
//!
//! Architecture invariants:
//! - Only committed appends are published.
//! - Secrets are redacted from every append (SAFE-1).
//!
//! Elsewhere: the meaning of an append (`storage`), the subscribers (`events.rs`).

use std::{sync::Arc, thread::JoinHandle};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use soong_protocol::{EventRecord, Write};
use soong_storage::{
    store::{Ack, Append, StoreError},
    writer::{AppendCallback, AppendOutcome, QueuedAppend, WriterHandle, WriterStats},
};
use soong_text::Redactor;
use tokio::sync::{
    mpsc::{self, error::SendError},
    oneshot,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    actor_tree::ActorStatus,
    disk::StorageWaits,
    events::{EventBus, LiveDelta, StreamItem, UnrecordedRun},
    metrics::MetricsCounter,
};

/// Item of the publishing queue, in order.
pub(crate) enum Publication {
    /// The outcomes of one transaction.
    Outcomes(Vec<AppendOutcome>),
    /// A live-only item.
    LiveItem(StreamItem),
    /// No more items follow.
    End,
}

/// Handle of the journal. Cheap to clone.
#[derive(Clone)]
pub(crate) struct JournalHandle {
    writer: WriterHandle,
    publications: mpsc::UnboundedSender<Publication>,
    bus: Arc<EventBus>,
    redactor: Redactor,
    meter: Arc<MetricsCounter>,
    storage_waits: StorageWaits,
}

impl JournalHandle {
    /// Starts the writer thread for a store, and the task that publishes its commits.
    ///
    /// The publishing queue is unbounded, but its task never waits for a subscriber, so it holds
    /// little more than the last commits.
    pub(crate) fn start<S: soong_storage::store::Store + 'static>(
        store: S,
        bus: Arc<EventBus>,
        redactor: Redactor,
    ) -> std::io::Result<(Self, JournalTasks)> {
        let (publications, mut incoming) = mpsc::unbounded_channel();
        let sender = publications.clone();
        let (writer, thread) = soong_storage::writer::spawn(store, move |outcomes| {
            // The queue is closed if the publishing task has ended. Then the runtime has failed, or the
            // Tokio runtime is gone, and callers only need their answers.
            if let Err(SendError(Publication::Outcomes(outcomes))) =
                sender.send(Publication::Outcomes(outcomes))
            {
                outcomes.into_iter().for_each(AppendOutcome::report);
            }
        })?;
        let meter = Arc::new(MetricsCounter::default());
        let counted = Arc::clone(&meter);
        let publish_to = Arc::clone(&bus);
        let publisher = tokio::spawn(async move {
            while let Some(publication) = incoming.recv().await {
                match publication {
                    Publication::Outcomes(outcomes) => {
                        for mut outcome in outcomes {
                            if let Ok(ack) = &outcome.result {
                                let append = std::mem::take(&mut outcome.append);
                                publish_append(&publish_to, &counted, append, ack);
                            }
                            // Afterwards, so that what the caller publishes follows its append.
                            outcome.report();
                        }
                    }
                    Publication::LiveItem(item) => publish_to.publish(&item),
                    Publication::End => break,
                }
            }
        });
        let storage_waits = StorageWaits::default();
        Ok((
            Self {
                writer,
                publications,
                bus,
                redactor,
                meter,
                storage_waits,
            },
            JournalTasks { thread, publisher },
        ))
    }

    pub(crate) fn meter(&self) -> &MetricsCounter {
        &self.meter
    }

    /// Returns the writer's counters so far.
    pub(crate) fn stats(&self) -> WriterStats {
        self.writer.stats()
    }

    /// Returns whether the writer or the publishing task has ended, by closing or by a panic.
    pub(crate) fn is_closed(&self) -> bool {
        self.writer.is_closed() || self.publications.is_closed()
    }

    /// Returns the error of the last commit if it failed as a whole.
    pub(crate) fn last_error(&self) -> Option<StoreError> {
        self.writer.last_error()
    }

    /// Returns the appends that the disk rejected and that will be repeated.
    pub(crate) fn storage_waits(&self) -> &StorageWaits {
        &self.storage_waits
    }

    /// Returns the number of queued appends.
    pub(crate) fn queue_len(&self) -> usize {
        self.writer.queue_len()
    }

    /// Queues an append; `done` is called once it is durable or rejected, and must not block.
    ///
    /// It is called in any case: if the writer ends, with [`StoreError::Closed`].
    pub(crate) fn append(&self, mut append: Append, done: AppendCallback) {
        self.redactor.redact_writes(&mut append.writes);
        let mut answer = CallbackGuard(Some(done));
        let done: AppendCallback = Box::new(move |outcome| {
            if let Some(done) = answer.0.take() {
                done(outcome);
            }
        });
        if let Err(job) = self.writer.try_submit(QueuedAppend {
            append,
            callback: done,
        }) {
            let writer = self.writer.clone();
            tokio::spawn(async move { writer.submit(job).await });
        }
    }

    /// Queues an append and waits until it is durable or rejected.
    pub(crate) async fn append_and_wait(&self, mut append: Append) -> Result<Ack, StoreError> {
        self.redactor.redact_writes(&mut append.writes);
        let (answer, outcome) = oneshot::channel();
        let done: AppendCallback = Box::new(move |result| {
            let _ = answer.send(result.map_err(|(error, _)| error));
        });
        self.writer
            .submit(QueuedAppend {
                append,
                callback: done,
            })
            .await;
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Like [`Self::append_and_wait`], with one retry if it is unclear whether the append was
    /// committed; also returns whether the result is that of the retry. If the first attempt was
    /// committed, the retry fails with [`StoreError::AlreadyDecided`].
    pub(crate) async fn append_with_retry(
        &self,
        append: impl Fn() -> Append,
    ) -> (Result<Ack, StoreError>, bool) {
        match self.append_and_wait(append()).await {
            Err(error) if error.is_transient() => (self.append_and_wait(append()).await, true),
            outcome => (outcome, false),
        }
    }

    /// Sends streamed text to the subscribers, after everything that was committed before.
    pub(crate) fn publish_delta(&self, delta: impl FnOnce() -> LiveDelta) {
        if self.bus.has_subscribers() {
            let _ = self
                .publications
                .send(Publication::LiveItem(StreamItem::Delta(Arc::new(delta()))));
        }
    }

    /// Notifies the subscribers that no more events of a run follow, after everything that was
    /// committed before.
    pub(crate) fn publish_lost_run(&self, lost: UnrecordedRun) {
        let _ = self
            .publications
            .send(Publication::LiveItem(StreamItem::Lost(Arc::new(lost))));
    }

    /// Like [`Self::close`], for a thread that may block. Does not wait for the publishing task.
    pub(crate) fn close_blocking(&self, threads: JournalTasks) {
        self.writer.close_blocking();
        let _ = threads.thread.join();
        let _ = self.publications.send(Publication::End);
    }

    /// Ends the writer and the publishing task after everything that was queued before.
    pub(crate) async fn close(&self, threads: JournalTasks) {
        self.writer.close().await;
        let JournalTasks { thread, publisher } = threads;
        // A writer that panicked has nothing left to commit.
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        let _ = self.publications.send(Publication::End);
        let _ = publisher.await;
    }
}

/// Counts a committed append, and offers its events to the subscribers.
fn publish_append(bus: &EventBus, meter: &MetricsCounter, append: Append, ack: &Ack) {
    let is_repeated = ack.events.is_empty();
    // An append that was already recorded was counted by the earlier attempt.
    if !is_repeated {
        meter.record(&append);
    }
    if !bus.has_subscribers() {
        return;
    }
    let drafts = append.writes.into_iter().filter_map(|write| match write {
        Write::Event(draft) => Some(draft),
        _ => None,
    });
    if is_repeated {
        // The earlier attempt was not published: subscribers have to read it from the store.
        for draft in drafts {
            bus.reread(&draft.trace_id);
        }
        return;
    }
    for (draft, ids) in drafts.zip(&ack.events) {
        let record = EventRecord {
            lsn: ids.lsn,
            event_id: ids.event_id,
            trace_id: draft.trace_id,
            session_id: ids.session_id.clone(),
            run_seq: draft.run_id.as_ref().map(|_| ids.run_seq),
            run_id: draft.run_id,
            session_seq: ids.session_seq,
            ts: draft.ts,
            event: draft.event,
            data: draft.data,
        };
        bus.publish(&StreamItem::Event(Arc::new(record)));
    }
}

/// Result callback; if it is dropped uncalled, it is called with [`StoreError::Closed`].
struct CallbackGuard(Option<AppendCallback>);

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err((StoreError::Closed, Append::default())));
        }
    }
}

/// The thread and the task of the journal, until it is closed.
pub(crate) struct JournalTasks {
    thread: JoinHandle<()>,
    publisher: tokio::task::JoinHandle<()>,
}

/// Message of the journal actor.
pub(crate) enum JournalMsg {
    /// Sent by the actor's timer: update the status.
    UpdateStatus,
}

/// The journal in the actor tree. It is never restarted: if the writer or the publishing task ends,
/// the runtime accepts no more writes.
pub(crate) struct JournalActor {
    pub(crate) journal: JournalHandle,
    pub(crate) status: Arc<ActorStatus>,
}

/// Interval between updates of the journal's status.
const STATUS_INTERVAL: std::time::Duration = std::time::Duration::from_millis(500);

impl Actor for JournalActor {
    type Msg = JournalMsg;
    type State = AbortOnDropHandle<()>;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<JournalMsg>,
        (): (),
    ) -> Result<Self::State, ActorProcessingErr> {
        self.status.set_state("running", "");
        // Not sent through a counted mailbox, so that the tree does not change while nothing else
        // happens.
        Ok(AbortOnDropHandle::new(tokio::spawn(async move {
            while myself.cast(JournalMsg::UpdateStatus).is_ok() {
                tokio::time::sleep(STATUS_INTERVAL).await;
            }
        })))
    }

    async fn handle(
        &self,
        _: ActorRef<JournalMsg>,
        message: JournalMsg,
        _: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            JournalMsg::UpdateStatus if self.journal.is_closed() => {
                return Err("the writer thread or the publishing task has ended".into());
            }
            JournalMsg::UpdateStatus => match self.journal.writer.queue_len() {
                0 => self.status.set_state("running", ""),
                waiting => self
                    .status
                    .set_state("running", format!("{waiting} queued appends")),
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use soong_protocol::Durability;
    use soong_storage::sqlite::SqliteStore;

    use super::*;

    #[tokio::test]
    async fn journal_without_its_publishing_task_is_closed_but_answers() {
        let home = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(home.path().join("soong.db"), Durability::Normal).unwrap();
        let bus = Arc::new(EventBus::default());
        let (journal, JournalTasks { thread, publisher }) =
            JournalHandle::start(store, bus, Redactor::default()).unwrap();
        assert!(!journal.is_closed());
        publisher.abort();
        assert!(publisher.await.unwrap_err().is_cancelled());
        assert!(journal.is_closed());
        let outcome = journal.append_and_wait(Append::default()).await;
        assert_eq!(outcome, Ok(Ack::default()));
        journal.writer.close().await;
        thread.join().unwrap();
    }
}
