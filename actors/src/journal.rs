//! The Journal: append, then publish (DUR-1, DUR-2).
//!
//! Handles send into the writer thread's bounded queue directly; the actor owns that thread and
//! the publishing task, and shows how they do. Architecture invariant: nothing is published that
//! is not committed, and nothing is handed on that holds a secret (SAFE-1).
//! Not here: what an append means (`storage`), who listens (`events.rs`).

use std::{sync::Arc, thread::JoinHandle};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use soong_protocol::{EventRecord, Write};
use soong_storage::{
    store::{Ack, Append, StoreError},
    writer::{Done, Job, WriterHandle, WriterStats},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    events::{Hub, LiveDelta, LostRun, StreamItem},
    meter::Meter,
    observatory::Gauge,
    redaction::Redactor,
};

/// What is handed to the publishing task, in order.
pub(crate) enum Publication {
    /// A committed append.
    Committed(Append, Ack),
    /// What is live only.
    Live(StreamItem),
    /// Nothing follows.
    End,
}

/// The door to the journal. Cheap to clone.
#[derive(Clone)]
pub(crate) struct JournalHandle {
    writer: WriterHandle,
    publications: mpsc::UnboundedSender<Publication>,
    hub: Arc<Hub>,
    redactor: Redactor,
    meter: Arc<Meter>,
}

impl JournalHandle {
    /// Starts the writer thread over a store, and the task that publishes what it commits.
    ///
    /// The publishing queue has no bound of its own: it holds what one commit brought, and its
    /// task never waits for a subscriber.
    pub(crate) fn start<S: soong_storage::store::Store + 'static>(
        store: S,
        hub: Arc<Hub>,
        redactor: Redactor,
    ) -> std::io::Result<(Self, JournalThreads)> {
        let (publications, mut incoming) = mpsc::unbounded_channel();
        let (sender, watched) = (publications.clone(), Arc::clone(&hub));
        let meter = Arc::new(Meter::default());
        let metered = Arc::clone(&meter);
        let (writer, thread) = soong_storage::writer::spawn(store, move |append, ack| {
            // What was recorded by an earlier try was counted by it.
            if !ack.events.is_empty() {
                metered.take(&append);
            }
            if watched.is_watched() {
                // A closed queue means that the runtime is gone, and every listener with it.
                let _ = sender.send(Publication::Committed(append, ack));
            }
        })?;
        let publish_to = Arc::clone(&hub);
        let publisher = tokio::spawn(async move {
            while let Some(publication) = incoming.recv().await {
                match publication {
                    Publication::Committed(append, ack) => publish(&publish_to, append, ack),
                    Publication::Live(item) => publish_to.publish(&item),
                    Publication::End => break,
                }
            }
        });
        Ok((Self { writer, publications, hub, redactor, meter }, JournalThreads { thread, publisher }))
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns what the writer has committed so far.
    pub(crate) fn stats(&self) -> WriterStats {
        self.writer.stats()
    }

    /// Returns whether the writer has ended, by closing or by a panic.
    pub(crate) fn is_closed(&self) -> bool {
        self.writer.is_closed()
    }

    /// Returns why the last commit was refused as a whole; `None` = it was not.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        self.writer.refusal()
    }

    /// Returns how many appends wait for the writer.
    pub(crate) fn depth(&self) -> usize {
        self.writer.depth()
    }

    /// Hands an append over; `done` is called on the writer's thread once it is durable or refused.
    ///
    /// It is called in any case: a writer that dies answers [`StoreError::Closed`].
    pub(crate) fn append(&self, mut append: Append, done: Done) {
        self.redactor.append(&mut append);
        let mut answer = Answer(Some(done));
        let done: Done = Box::new(move |outcome| {
            if let Some(done) = answer.0.take() {
                done(outcome);
            }
        });
        if let Err(job) = self.writer.try_submit(Job { append, done }) {
            let writer = self.writer.clone();
            tokio::spawn(async move { writer.submit(job).await });
        }
    }

    /// Hands an append over and waits until it is durable or refused.
    pub(crate) async fn append_and_wait(&self, mut append: Append) -> Result<Ack, StoreError> {
        self.redactor.append(&mut append);
        let (answer, outcome) = oneshot::channel();
        let done: Done = Box::new(move |result| {
            let _ = answer.send(result.map_err(|(error, _)| error));
        });
        self.writer.submit(Job { append, done }).await;
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Does the same, and once more if it is not clear whether the append was committed; returns whether it was the
    /// second try. If the first try was committed, the second fails with [`StoreError::Decided`].
    pub(crate) async fn append_again(&self, append: impl Fn() -> Append) -> (Result<Ack, StoreError>, bool) {
        match self.append_and_wait(append()).await {
            Err(error) if error.is_transient() => (self.append_and_wait(append()).await, true),
            outcome => (outcome, false),
        }
    }

    /// Streams text to whoever listens, behind what was committed before.
    pub(crate) fn stream(&self, delta: impl FnOnce() -> LiveDelta) {
        if self.hub.is_watched() {
            let _ = self.publications.send(Publication::Live(StreamItem::Delta(Arc::new(delta()))));
        }
    }

    /// Tells those who listen that nothing more comes of a run, behind everything that was committed before.
    pub(crate) fn tell_lost(&self, lost: LostRun) {
        let _ = self.publications.send(Publication::Live(StreamItem::Lost(Arc::new(lost))));
    }

    /// The same as [`Self::close`] for a thread that may block; the publishing task is told, not awaited.
    pub(crate) fn close_blocking(&self, threads: JournalThreads) {
        self.writer.close_blocking();
        let _ = threads.thread.join();
        let _ = self.publications.send(Publication::End);
    }

    /// Ends the writer and the publishing task behind everything that was handed over before.
    pub(crate) async fn close(&self, threads: JournalThreads) {
        self.writer.close().await;
        let JournalThreads { thread, publisher } = threads;
        // A writer that panicked has nothing left to wait for.
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        let _ = self.publications.send(Publication::End);
        let _ = publisher.await;
    }
}

fn publish(hub: &Hub, append: Append, ack: Ack) {
    if ack.events.is_empty() {
        // Recorded by an earlier try that nobody was told of: whoever listens reads it.
        for write in &append.writes {
            if let Write::Event(draft) = write {
                hub.nudge(&draft.trace_id);
            }
        }
        return;
    }
    let drafts = append.writes.into_iter().filter_map(|write| match write {
        Write::Event(draft) => Some(draft),
        _ => None,
    });
    for (draft, ids) in drafts.zip(ack.events) {
        let record = EventRecord {
            lsn: ids.lsn,
            event_id: ids.event_id,
            trace_id: draft.trace_id,
            session_id: ids.session_id,
            run_seq: draft.run_id.as_ref().map(|_| ids.run_seq),
            run_id: draft.run_id,
            session_seq: ids.session_seq,
            ts: draft.ts,
            event: draft.event,
            data: draft.data,
        };
        hub.publish(&StreamItem::Event(Arc::new(record)));
    }
}

/// An answer that is owed: dropped without one, it says that the writer is gone.
struct Answer(Option<Done>);

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err((StoreError::Closed, Append::default())));
        }
    }
}

/// What runs behind the journal's handles, until it is closed.
pub(crate) struct JournalThreads {
    thread: JoinHandle<()>,
    publisher: tokio::task::JoinHandle<()>,
}

/// Mailbox of the journal actor.
pub(crate) enum JournalMsg {
    /// From its own timer: show how the writer does.
    Look,
}

/// The journal's place in the tree. It is never restarted: a lost writer ends the runtime's intake.
pub(crate) struct JournalActor {
    pub(crate) journal: JournalHandle,
    pub(crate) gauge: Arc<Gauge>,
}

/// How often the journal's gauge is brought up to date.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(500);

impl Actor for JournalActor {
    type Msg = JournalMsg;
    type State = AbortOnDropHandle<()>;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<JournalMsg>, (): ()) -> Result<Self::State, ActorProcessingErr> {
        self.gauge.show("running", "");
        // Not by a mailbox that counts: where nothing happens but this, the tree stays as it is.
        Ok(AbortOnDropHandle::new(tokio::spawn(async move {
            while myself.cast(JournalMsg::Look).is_ok() {
                tokio::time::sleep(LOOK_EVERY).await;
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
            JournalMsg::Look if self.journal.writer.is_closed() => return Err("the writer thread is gone".into()),
            JournalMsg::Look => match self.journal.writer.depth() {
                0 => self.gauge.show("running", ""),
                waiting => self.gauge.show("running", format!("{waiting} appends wait")),
            },
        }
        Ok(())
    }
}
