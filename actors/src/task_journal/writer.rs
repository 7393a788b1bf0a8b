//! Writes the journal of one run in a separate task, for which the run never waits (TASK-1).
//!
//! Lines are written after the commit of their events, in the order of the run's event stream. An
//! attempt starts at the run's first event and skips the lines that are already in the file. So a
//! retry, by this process or by the next owner of the home, repeats the same attempt. The file is
//! synced only at the end of the task; until then the database's row marks it as possibly
//! incomplete.
//!
//! Elsewhere: the content of a line (`projection.rs`), the path of the file (`location.rs`), the
//! file itself (`file.rs`).

use std::{path::PathBuf, sync::Arc};

use futures::{FutureExt, StreamExt};
use soong_protocol::{ErrorCode, ErrorInfo, EventRecord, RunId, RunWrite, Write};
use soong_storage::{
    fault::FaultPoint,
    store::{Append, PendingTaskJournal},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    file::JournalFile,
    location::{self, TaskPlace},
    projection::Projection,
};
use crate::{
    actor_base::keep_trying,
    events::{EventBus, EventStream, Scope, StreamItem},
    fault::Faults,
    journal::JournalHandle,
    store_reader::StoreReader,
};

/// Maximum number of events in one write.
const BATCH_EVENTS: usize = 512;
/// Maximum number of journals of ended runs that are completed concurrently.
const MAX_CONCURRENT_COMPLETIONS: usize = 4;

/// Writes the task journals of a runtime, with one task per run.
pub(crate) struct TaskJournals {
    pub(crate) journal: JournalHandle,
    pub(crate) store: StoreReader,
    pub(crate) bus: Arc<EventBus>,
    pub(crate) faults: Faults,
    pub(crate) home: PathBuf,
    /// Location of the files.
    pub(crate) location: TaskPlace,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}

impl TaskJournals {
    /// Writes the journal of a run that has started, in the background, until the run has ended.
    pub(crate) fn start(self: &Arc<Self>, run: &RunId) {
        let journals = Arc::clone(self);
        let run = run.clone();
        self.tasks
            .spawn(async move { journals.write_until_complete(&run).await });
    }

    /// Lists the ended runs whose journals an earlier owner of the home did not complete.
    ///
    /// Must be called before any run is started, because the journals of resumed runs are written
    /// when their actors start.
    pub(crate) async fn incomplete_ended_runs(&self) -> Result<Vec<RunId>, ErrorInfo> {
        let runs = self
            .store
            .read(|reader| reader.runs_with_pending_task_journal())
            .await?;
        Ok(runs
            .into_iter()
            .filter(|run| run.status.is_terminal())
            .map(|run| run.run_id)
            .collect())
    }

    /// Completes the journals of ended runs, in the background.
    pub(crate) fn complete_ended(self: &Arc<Self>, runs: Vec<RunId>) {
        if runs.is_empty() {
            return;
        }
        let journals = Arc::clone(self);
        self.tasks.spawn(async move {
            let keep = |run: RunId| {
                let journals = Arc::clone(&journals);
                async move { journals.write_until_complete(&run).await }
            };
            futures::stream::iter(runs)
                .for_each_concurrent(MAX_CONCURRENT_COMPLETIONS, keep)
                .await;
        });
    }

    /// Retries until the journal is complete, cannot be completed, or the runtime closes (DUR-6).
    async fn write_until_complete(&self, run: &RunId) {
        let result = keep_trying(&self.closing, "writing a task journal", || {
            write_once(self, run)
        })
        .await;
        if let Err(error) = result
            && !self.closing.is_cancelled()
        {
            tracing::error!(%run, %error, "could not complete a task journal");
        }
    }
}

/// Writes the missing lines, then those of new events, until the run has ended or the runtime
/// closes.
async fn write_once(journals: &TaskJournals, run: &RunId) -> Result<(), ErrorInfo> {
    let wanted = run.clone();
    let start = journals
        .store
        .read(move |reader| reader.pending_task_journal(&wanted))
        .await?;
    let Some(begin) = start else { return Ok(()) };
    let mut events = RunEvents::of(journals, &begin);
    let mut file = open(journals, &begin).await?;
    let mut projection = Projection::new(begin);
    loop {
        let (batch, has_more) = events.next_batch(journals).await?;
        let lines: Vec<_> = batch
            .iter()
            .filter_map(|record| projection.line(record))
            .collect();
        let is_complete = lines.last().is_some_and(|line| line.event.is_last());
        if !lines.is_empty() {
            let faults = journals.faults.clone();
            file = blocking(move || {
                faults.at_file(FaultPoint::BeforeJournal)?;
                file.append(&lines)?;
                if is_complete {
                    file.sync()?;
                }
                faults.at_file(FaultPoint::AfterJournal)?;
                Ok(file)
            })
            .await?;
        }
        if is_complete {
            let done = Append {
                fence: None,
                writes: vec![Write::Run(RunWrite::TaskJournalCompleted(run.clone()))],
            };
            journals
                .journal
                .append_and_wait(done)
                .await
                .map_err(|error| ErrorInfo::from(&error))?;
            tracing::debug!(%run, path = %file.path().display(), "completed a task journal");
            return Ok(());
        }
        if !has_more {
            return Ok(()); // the next owner of the home continues, unless the session was deleted
        }
    }
}

/// The events of a run from its start.
struct RunEvents {
    stream: EventStream,
    run: RunId,
    /// Number of the last event that was returned.
    seen: u64,
}

impl RunEvents {
    fn of(journals: &TaskJournals, start: &PendingTaskJournal) -> Self {
        let run = start.run.run_id.clone();
        let seen = start.first_event_id.saturating_sub(1);
        let scope = Scope::Run {
            trace: start.run.trace_id.clone(),
            run: run.clone(),
        };
        let stream = EventStream::open(
            Arc::clone(&journals.bus),
            journals.store.clone(),
            scope,
            seen,
        );
        Self { stream, run, seen }
    }

    /// Waits for an event and returns it with all that are available; also returns whether more may
    /// follow.
    ///
    /// When the runtime closes, the last batch has all stored events. So the journal of a run whose
    /// end was reported is completed.
    async fn next_batch(
        &mut self,
        journals: &TaskJournals,
    ) -> Result<(Vec<Arc<EventRecord>>, bool), ErrorInfo> {
        let mut batch = Vec::new();
        let mut next = tokio::select! {
            biased;
            item = self.stream.next() => item,
            () = journals.closing.cancelled() => None,
        };
        let has_more = next.is_some();
        while let Some(item) = next {
            if let StreamItem::Event(record) = item? {
                self.seen = record.event_id;
                batch.push(record);
            }
            next = if batch.len() < BATCH_EVENTS {
                self.stream.next().now_or_never().flatten()
            } else {
                None
            };
        }
        if !has_more {
            batch = self.read_stored(journals).await?;
        }
        Ok((batch, has_more))
    }

    /// Reads every stored event that was not returned yet.
    async fn read_stored(
        &mut self,
        journals: &TaskJournals,
    ) -> Result<Vec<Arc<EventRecord>>, ErrorInfo> {
        let run = self.run.clone();
        let mut events = journals
            .store
            .read(move |reader| reader.run_events(&run))
            .await?;
        events.retain(|record| record.event_id > self.seen);
        Ok(events.into_iter().map(Arc::new).collect())
    }
}

/// Opens the journal's file: in the project if possible, else under the home. A file that already
/// exists under the home is continued there.
async fn open(
    journals: &TaskJournals,
    start: &PendingTaskJournal,
) -> Result<JournalFile, ErrorInfo> {
    let home = journals.home.clone();
    let in_home = journals.location == TaskPlace::Home;
    let run = start.run.clone();
    let project = PathBuf::from(&start.project_dir);
    blocking(move || {
        let session = &run.session_id;
let name = location::file_name(&run);
        let home_path = location::home_tasks(&home).join(session.as_str()).join(&name);
        let mut reason = "task journals are stored under the home by configuration".to_owned();
        if !in_home && !home_path.exists() {
            let in_project = || {
                let folder = location::create_project_folder(&project, session)?;
                JournalFile::open(folder.join(&name), &run.run_id)
            };
            // A cleanup may remove the empty folder of the session between the two calls.
            let retry_if_removed = |error: std::io::Error| match error.kind() {
                std::io::ErrorKind::NotFound => in_project(),
                _ => Err(error),
            };
            match in_project().or_else(retry_if_removed) {
                Err(error) if location::is_permanent_error(&error) => reason = error.to_string(),
                opened => return opened,
            }
        } else if !in_home {
            reason = "the journal already exists under the home".to_owned();
        }
        tracing::info!(run = %run.run_id, path = %home_path.display(), reason, "storing a task journal under the home");
        JournalFile::open(location::create_home_folder(&home, session)?.join(&name), &run.run_id)
    })
    .await
}

/// Runs file operations on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, ErrorInfo> {
    let failed = |error: String| {
        ErrorInfo::retryable(
            ErrorCode::StorageError,
            format!("could not write a task journal: {error}"),
        )
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| failed(error.to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}
