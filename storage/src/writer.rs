//! The writer thread: group commit (DUR-2).
//!
//! One thread owns the store. All appends that are queued during a commit go into the next
//! transaction. After it, the outcomes of the whole batch are handed on, so that another thread
//! publishes them and answers their callers while the next transaction is written. The queue is
//! bounded: callers wait if it is full.
//!
//! Not in this module: the meaning of an append.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use tokio::sync::mpsc;

use crate::store::{Ack, Append, Store, StoreError};

/// Maximum number of queued appends; beyond it, callers wait.
const QUEUE_CAPACITY: usize = 4096;
/// Maximum number of appends in one transaction. It bounds how long the first append of a batch
/// waits for the last.
const MAX_BATCH_APPENDS: NonZeroUsize = NonZeroUsize::new(512).unwrap();

/// Callback for the result of an append. It is called once, and must not block.
///
/// A failed append is returned with its error, so that it can be retried (DUR-6).
pub type AppendCallback = Box<dyn FnOnce(Result<Ack, (StoreError, Append)>) + Send>;

/// An append and the callback for its result.
pub struct QueuedAppend {
    /// The append to commit.
    pub append: Append,
    /// Receives the result.
    pub callback: AppendCallback,
}

impl std::fmt::Debug for QueuedAppend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuedAppend")
            .field("append", &self.append)
            .finish_non_exhaustive()
    }
}

/// The outcome of an append, and the callback that waits for it.
///
/// It owns the append, so that its memory is released where the outcome is reported: releasing it
/// on the writer thread would delay the threads that have allocated it.
pub struct AppendOutcome {
    /// The append.
    pub append: Append,
    /// The ids of its events, or the reason why it is not durable.
    pub result: Result<Ack, StoreError>,
    callback: AppendCallback,
}

impl std::fmt::Debug for AppendOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppendOutcome")
            .field("append", &self.append)
            .field("result", &self.result)
            .finish_non_exhaustive()
    }
}

impl AppendOutcome {
    /// Calls the callback with the result.
    pub fn report(self) {
        match self.result {
            Ok(ack) => (self.callback)(Ok(ack)),
            Err(error) => (self.callback)(Err((error, self.append))),
        }
    }
}

/// Item of the writer's queue.
enum QueueItem {
    Append(QueuedAppend),
    /// Accept no more appends.
    Close,
}

/// Handle of the writer thread; cloneable.
#[derive(Debug, Clone)]
pub struct WriterHandle {
    queue: mpsc::Sender<QueueItem>,
    counters: Arc<WriterCounters>,
}

/// Upper bounds of the histogram classes for appends per transaction; larger transactions are
/// counted in one more class.
pub const BATCH_SIZE_BUCKETS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Counters of a writer since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Transactions that failed as a whole, because the disk is full or fails.
    pub failed_commits: u64,
    /// Committed appends.
    pub appends: u64,
    /// Transactions by number of appends; see [`BATCH_SIZE_BUCKETS`].
    pub batches: [u64; BATCH_SIZE_BUCKETS.len() + 1],
}

impl WriterStats {
    /// Returns the number of committed transactions.
    pub fn commits(&self) -> u64 {
        self.batches.iter().sum()
    }
}

#[derive(Debug, Default)]
struct WriterCounters {
    failed_commits: AtomicU64,
    appends: AtomicU64,
    batches: [AtomicU64; BATCH_SIZE_BUCKETS.len() + 1],
    /// The error of the last commit, if it failed.
    last_error: Mutex<Option<StoreError>>,
}

impl WriterCounters {
    fn set_last_error(&self, refusal: Option<StoreError>) {
        *self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = refusal;
    }

    fn record_commit(&self, batch: usize, appends: usize) {
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let class = BATCH_SIZE_BUCKETS.partition_point(|most| *most < count(batch));
        self.batches[class].fetch_add(1, Relaxed);
        self.appends.fetch_add(count(appends), Relaxed);
    }
}

impl WriterHandle {
    /// Queues an append without waiting, or returns it if the queue is full.
    ///
    /// It is also returned if the writer is closed; `submit` then reports [`StoreError::Closed`].
    pub fn try_submit(&self, job: QueuedAppend) -> Result<(), QueuedAppend> {
        match self.queue.try_send(QueueItem::Append(job)) {
            Err(
                mpsc::error::TrySendError::Full(QueueItem::Append(job))
                | mpsc::error::TrySendError::Closed(QueueItem::Append(job)),
            ) => Err(job),
            _ => Ok(()),
        }
    }

    /// Queues an append, waiting for room. If the writer is closed, the result is
    /// [`StoreError::Closed`].
    pub async fn submit(&self, job: QueuedAppend) {
        if let Err(mpsc::error::SendError(QueueItem::Append(job))) =
            self.queue.send(QueueItem::Append(job)).await
        {
            (job.callback)(Err((StoreError::Closed, job.append)));
        }
    }

    /// Closes the writer; its thread ends after everything that was queued before is committed.
    pub async fn close(&self) {
        // An error means that the thread has already ended.
        let _ = self.queue.send(QueueItem::Close).await;
    }

    /// Like [`Self::close`], for a thread that may block.
    pub fn close_blocking(&self) {
        let _ = self.queue.blocking_send(QueueItem::Close);
    }

    /// Returns whether the writer's thread has ended, by closing or by a panic.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> WriterStats {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let WriterCounters {
            failed_commits: refused,
            appends,
            batches,
            ..
        } = &*self.counters;
        WriterStats {
            failed_commits: get(refused),
            appends: get(appends),
            batches: batches.each_ref().map(get),
        }
    }

    /// Returns the error of the last commit if it failed as a whole.
    pub fn last_error(&self) -> Option<StoreError> {
        self.counters
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the number of queued appends.
    pub fn queue_len(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

/// Starts the writer thread for `store`.
///
/// `deliver` is called on the writer thread with the outcomes of each batch, in order. It must not
/// block, and have [`AppendOutcome::report`] called for each. The thread ends when every handle is
/// dropped and the queue is empty.
pub fn spawn<S, D>(store: S, deliver: D) -> std::io::Result<(WriterHandle, JoinHandle<()>)>
where
    S: Store + 'static,
    D: FnMut(Vec<AppendOutcome>) + Send + 'static,
{
    let (queue, mut jobs) = mpsc::channel::<QueueItem>(QUEUE_CAPACITY);
    let counters = Arc::new(WriterCounters::default());
    let mut committer = Committer {
        store,
        deliver,
        counters: Arc::clone(&counters),
        last_commit_failed: false,
    };
    let thread = std::thread::Builder::new()
        .name("soong-writer".to_owned())
        .spawn(move || {
            let mut waiting = Vec::new();
            while jobs.blocking_recv_many(&mut waiting, MAX_BATCH_APPENDS.get()) > 0 {
                let mut closing = false;
                let jobs_of = waiting.drain(..).filter_map(|item| match item {
                    QueueItem::Append(job) => Some((job.append, job.callback)),
                    QueueItem::Close => {
                        closing = true;
                        None
                    }
                });
                let (batch, callers): (Vec<Append>, Vec<AppendCallback>) = jobs_of.unzip();
                if closing {
                    // Appends that are already queued are still committed; later ones are rejected.
                    jobs.close();
                }
                if !batch.is_empty() {
                    committer.commit(batch, callers);
                }
            }
        })?;
    Ok((WriterHandle { queue, counters }, thread))
}

/// Commits batches, and hands on their outcomes.
struct Committer<S, D> {
    store: S,
    deliver: D,
    counters: Arc<WriterCounters>,
    last_commit_failed: bool,
}

impl<S: Store, D: FnMut(Vec<AppendOutcome>)> Committer<S, D> {
    /// Commits a batch in one transaction.
    fn commit(&mut self, batch: Vec<Append>, callbacks: Vec<AppendCallback>) {
        let size = batch.len();
        let results = match self.store.commit(&batch) {
            Ok(results) => {
                if std::mem::take(&mut self.last_commit_failed) {
                    self.counters.set_last_error(None);
                    tracing::info!("commits succeed again");
                }
                let committed = results.iter().filter(|result| result.is_ok()).count();
                self.counters.record_commit(size, committed);
                results
            }
            Err(error) => {
                self.counters.failed_commits.fetch_add(1, Relaxed);
                self.counters.set_last_error(Some(error.clone()));
                // Logged once per series of failures, because callers retry.
                if !std::mem::replace(&mut self.last_commit_failed, true) {
                    tracing::error!(%error, appends = size, "commit failed; its appends are retried");
                }
                vec![Err(error); size]
            }
        };
        let mut outcomes = Vec::with_capacity(size);
        for ((append, callback), result) in batch.into_iter().zip(callbacks).zip(results) {
            outcomes.push(AppendOutcome {
                append,
                result,
                callback,
            });
        }
        (self.deliver)(outcomes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use soong_protocol::{Durability, EventDraft, RunEvent, SessionId, Timestamp, TraceId};

    use super::*;
    use crate::{
        fault::{Fault, FaultPlan, FaultStore},
        sqlite::SqliteStore,
    };
    use soong_protocol::{NewSession, NewTrace, SessionWrite, TraceWrite, Write};

    /// A writer over a new store that has one session with one trace, both with the id `s`.
    struct TestWriter {
        _dir: tempfile::TempDir,
        plan: FaultPlan,
        writer: WriterHandle,
        thread: JoinHandle<()>,
        published: Arc<Mutex<Vec<u64>>>,
    }

    fn test_writer() -> TestWriter {
        let dir = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(dir.path().join("soong.db"), Durability::Normal).unwrap();
        let session_id = SessionId::new("s");
        let at = Timestamp::default();
        let session = NewSession {
            session_id: session_id.clone(),
            name: None,
            uid: "local".into(),
            project_dir: "p".into(),
            created_at: at,
        };
        let trace = NewTrace {
            trace_id: TraceId::root(&session_id),
            session_id,
            run_mode: soong_protocol::RunMode::Normal,
            task: "t".into(),
            name: "n".into(),
            agent_type: "default".into(),
            parent_trace_id: None,
            parent_goal_id: None,
            uid: "local".into(),
            model: "m".into(),
            created_at: at,
        };
        let writes = vec![
            Write::Session(SessionWrite::Create(session)),
            Write::Trace(TraceWrite::Create(trace)),
        ];
        store
            .commit(&[Append {
                fence: None,
                writes,
            }])
            .unwrap();
        let plan = FaultPlan::new();
        let published = Arc::new(Mutex::new(Vec::new()));
        let seen = published.clone();
        let deliver = move |outcomes: Vec<AppendOutcome>| {
            for outcome in outcomes {
                if let Ok(ack) = &outcome.result {
                    let numbers = ack.events.iter().map(|ids| ids.lsn);
                    seen.lock().unwrap().extend(numbers);
                }
                outcome.report();
            }
        };
        let (writer, thread) = spawn(FaultStore::new(store, plan.clone()), deliver).unwrap();
        TestWriter {
            _dir: dir,
            plan,
            writer,
            thread,
            published,
        }
    }

    /// An append of one event, and a receiver for the event's id.
    fn event_append() -> (
        QueuedAppend,
        tokio::sync::oneshot::Receiver<Result<u64, StoreError>>,
    ) {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let event = RunEvent::CancelRequested {};
        let draft = EventDraft::new(TraceId::new("s"), None, Timestamp::default(), event);
        let done: AppendCallback = Box::new(move |outcome| {
            let _ = answer.send(
                outcome
                    .map(|ack| ack.events[0].event_id)
                    .map_err(|(error, _)| error),
            );
        });
        (
            QueuedAppend {
                append: Append {
                    fence: None,
                    writes: vec![Write::Event(draft)],
                },
                callback: done,
            },
            answered,
        )
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn appends_queued_during_a_commit_share_the_next_one_in_order() {
        let TestWriter {
            plan,
            writer,
            thread,
            published,
            _dir,
        } = test_writer();
        plan.block_commits();
        let (first, first_answer) = event_append();
        writer.submit(first).await;
        plan.wait_for_commits(1);
        let submitters: Vec<_> = (0..50)
            .map(|_| {
                let writer = writer.clone();
                tokio::spawn(async move {
                    let mut answers = Vec::new();
                    for _ in 0..5 {
                        let (job, answer) = event_append();
                        writer.submit(job).await;
                        answers.push(answer);
                    }
                    answers
                })
            })
            .collect();
        let mut answers = Vec::new();
        for submitter in submitters {
            answers.push(submitter.await.unwrap());
        }
        assert_eq!(writer.queue_len(), 250);
        plan.unblock_commits();
        assert_eq!(first_answer.await.unwrap(), Ok(1));
        for of_one in answers {
            let mut ids = Vec::new();
            for answer in of_one {
                ids.push(answer.await.unwrap().unwrap());
            }
            assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        }
        assert_eq!(plan.commits(), 2, "all that waited shared one transaction");
        drop(writer);
        thread.join().unwrap();
        assert_eq!(*published.lock().unwrap(), (1..=251).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn failed_batch_is_reported_to_each_caller_and_writer_continues() {
        let TestWriter {
            plan,
            writer,
            thread,
            published,
            _dir,
        } = test_writer();
        plan.inject_next(Fault::FailBeforeWrite(StoreError::Io("disk full".into())));
        for want in [Err(StoreError::Io("disk full".into())), Ok(1)] {
            let (job, answer) = event_append();
            writer.submit(job).await;
            assert_eq!(answer.await.unwrap(), want);
        }
        drop(writer);
        thread.join().unwrap();
        assert_eq!(
            *published.lock().unwrap(),
            [1],
            "what failed is not published"
        );
    }

    #[tokio::test]
    async fn append_is_published_before_its_caller_is_notified() {
        let TestWriter {
            writer,
            thread,
            published,
            _dir,
            ..
        } = test_writer();
        for count in 1..=3 {
            let (answer, answered) = tokio::sync::oneshot::channel();
            let seen = Arc::clone(&published);
            let done: AppendCallback = Box::new(move |outcome| {
                let _ = answer.send(
                    outcome
                        .map(|_| seen.lock().unwrap().len())
                        .map_err(|(error, _)| error),
                );
            });
            writer
                .submit(QueuedAppend {
                    callback: done,
                    ..event_append().0
                })
                .await;
            assert_eq!(answered.await.unwrap(), Ok(count));
        }
        drop(writer);
        thread.join().unwrap();
    }

    #[tokio::test]
    async fn ended_writer_returns_closed() {
        let (queue, jobs) = mpsc::channel(1);
        drop(jobs);
        let writer = WriterHandle {
            queue,
            counters: Arc::default(),
        };
        let (job, answer) = event_append();
        let Err(job) = writer.try_submit(job) else {
            panic!("there is nobody to take it")
        };
        writer.submit(job).await;
        assert_eq!(answer.await.unwrap(), Err(StoreError::Closed));
    }
}
