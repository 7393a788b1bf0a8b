//! Traces, their runs, messages, goals and events (RT-5).
//!
//! Elsewhere: sessions (`sessions.rs`), the control of a run (`handle.rs`).

use std::sync::Arc;

use soong_protocol::{
    ErrorCode, ErrorInfo, EventRecord, GoalTree, Message, Run, RunId, Trace, TraceId, UsageBy,
    UsageReport,
};
use soong_storage::store::{MessagePath, Page, Reader, TraceFilter, UsageFilter};

use super::{RunHandle, Runtime, not_found};
use crate::{
    events::{EventStream, Scope},
    run::{RunEntry, RunOutcome},
};

/// Traces of a home, with their runs: see [`Runtime::traces`].
#[derive(Debug, Clone, Copy)]
pub struct Traces<'a> {
    pub(super) runtime: &'a Runtime,
}

impl Runtime {
    /// Returns a handle of the running run of those that have not ended. If none is running,
    /// returns the next queued run; if there is none either, a run that is ending.
    pub(super) fn active_run_among(&self, filter: impl Fn(&RunEntry) -> bool) -> Option<RunHandle> {
        let services = &self.inner.services;
        // Ids are ordered by creation time.
        let order = |entry: &Arc<RunEntry>| {
            (
                entry.is_ending(),
                !entry.has_started(),
                entry.identity.run_id.clone(),
            )
        };
        let next = services
            .core
            .runs
            .select(filter)
            .into_iter()
            .min_by_key(order);
        next.map(|entry| RunHandle::new(Arc::clone(services), entry))
    }
}

impl Traces<'_> {
    /// Reads a run that is running, interrupted or ended.
    pub async fn run(self, id: &RunId) -> Result<Run, ErrorInfo> {
        let services = &self.runtime.inner.services;
        let wanted = id.clone();
        let run = services
            .core
            .reader
            .read(move |reader| reader.run(&wanted))
            .await?;
        services
            .with_current_status(
                run.ok_or_else(|| not_found(ErrorCode::RunNotFound, "run", id.as_str()))?,
            )
            .await
    }

    /// Returns the outcome of a run that has ended, in this process or an earlier one. `None` if
    /// the run has not ended.
    pub async fn outcome(self, id: &RunId) -> Result<Option<RunOutcome>, ErrorInfo> {
        let run = self.run(id).await?;
        self.runtime
            .inner
            .services
            .finalizer
            .read_outcome(run)
            .await
    }

    /// Returns a handle of the trace's running run. If none is running, returns the next queued
    /// run; if there is none either, a run that is ending.
    pub fn active_run(self, trace: &TraceId) -> Option<RunHandle> {
        self.runtime
            .active_run_among(|run| run.identity.trace_id == *trace)
    }

    /// Sums up the usage of all runs that have started; each run counts its own work only (RUN-6).
    /// Runs without a known price are counted separately; their cost is not estimated (BUD-2).
    pub async fn usage(self, by: UsageBy, filter: UsageFilter) -> Result<UsageReport, ErrorInfo> {
        self.runtime
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.usage(by, &filter))
            .await
            .map(UsageReport::from_rows)
    }

    /// Returns the handle of a run that has not ended.
    ///
    /// # Errors
    /// `nothing_running` if this runtime does not execute the run.
    pub fn handle(self, id: &RunId) -> Result<RunHandle, ErrorInfo> {
        let entry = self.runtime.inner.services.core.runs.get(id);
        let entry = entry.ok_or_else(|| {
            ErrorInfo::new(
                ErrorCode::NothingRunning,
                format!("run {id} is not active in this process: it has ended, is interrupted, or never started"),
            )
        })?;
        Ok(RunHandle::new(
            Arc::clone(&self.runtime.inner.services),
            entry,
        ))
    }

    /// Reads a trace.
    pub async fn get(self, id: &TraceId) -> Result<Trace, ErrorInfo> {
        let services = &self.runtime.inner.services;
        let wanted = id.clone();
        let trace = services
            .core
            .reader
            .read(move |reader| reader.trace(&wanted))
            .await?;
        services
            .mark_trace(
                trace.ok_or_else(|| not_found(ErrorCode::TraceNotFound, "trace", id.as_str()))?,
            )
            .await
    }

    /// Lists traces, newest first. `limit` is at most 100.
    pub async fn list(
        self,
        filter: TraceFilter,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Page<Trace>, ErrorInfo> {
        self.runtime
            .inner
            .services
            .marked_traces(filter, limit.clamp(1, 100), cursor)
            .await
    }

    /// Reads the goals of a trace.
    pub async fn goal_tree(self, id: &TraceId) -> Result<GoalTree, ErrorInfo> {
        let wanted = id.clone();
        let tree = self
            .runtime
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.goal_tree(&wanted))
            .await?;
        tree.ok_or_else(|| not_found(ErrorCode::TraceNotFound, "trace", id.as_str()))
    }

    /// Reads the messages of a trace.
    pub async fn messages(
        self,
        id: &TraceId,
        path: MessagePath,
    ) -> Result<Vec<Message>, ErrorInfo> {
        let wanted = id.clone();
        self.runtime
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.messages(&wanted, path))
            .await
    }

    /// Reads up to `limit` stored events of a trace after `since` (an `event_id`), in order.
    pub async fn replay(
        self,
        id: &TraceId,
        since: u64,
        limit: usize,
    ) -> Result<Vec<EventRecord>, ErrorInfo> {
        let wanted = id.clone();
        self.runtime
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.events(&wanted, since, limit))
            .await
    }

    /// Lists the child traces of a trace by start time. In a copied session, the children of the
    /// source come first.
    pub async fn sub_traces(self, id: &TraceId) -> Result<Vec<Trace>, ErrorInfo> {
        let wanted = id.clone();
        let read = move |reader: &dyn Reader| {
            Ok([reader.linked_traces(&wanted)?, reader.sub_traces(&wanted)?].concat())
        };
        let services = &self.runtime.inner.services;
        services
            .mark_traces(services.core.reader.read(read).await?)
            .await
    }

    /// Streams the events of a trace after `since` (an `event_id`), stored events first (EVT-3).
    ///
    /// The stream ends when the last run of the trace has ended, or immediately if no run is
    /// active; [`follow`](Self::follow) waits for further runs. For an unknown trace, the first
    /// item is the error `trace_not_found`.
    pub fn events(self, id: &TraceId, since: u64) -> EventStream {
        self.runtime
            .stream(Scope::Trace(id.clone()), since)
            .until_ended()
    }

    /// Streams the events of a trace after `since` as [`events`](Self::events) does, including
    /// those of further runs, until the runtime closes.
    pub fn follow(self, id: &TraceId, since: u64) -> EventStream {
        self.runtime.stream(Scope::Trace(id.clone()), since)
    }
}
