//! Which runs are interrupted: stored as not ended, but not executed by this process.
//!
//! The store does not know which process executes a run, so the status is corrected after each
//! read.
//!
//! Elsewhere: how such runs are resumed or ended (`recovery.rs`).

use soong_protocol::{ErrorInfo, Run, RunStatus, SessionId, Trace, TraceStatus};
use soong_storage::store::{Page, Reader, TraceFilter};

use super::services::Services;

impl Services {
    /// Returns whether this process executes the runs of a session: if a session has actors, it
    /// executes all its runs.
    fn executes(&self, session: &SessionId) -> bool {
        // If the runtime fails, callers that wait for a run are woken before all sessions are
        // removed from the registry.
        self.core.lifetime.failure().is_none() && self.sessions.contains(session)
    }

    /// Sets the status of a stored run to `interrupted`, if it has not ended and this process does
    /// not execute it.
    pub(super) async fn with_current_status(&self, run: Run) -> Result<Run, ErrorInfo> {
        if run.status.is_terminal() || self.executes(&run.session_id) {
            return Ok(run);
        }
        // Read again: the run may have ended meanwhile, and its session may have been passivated.
        let id = run.run_id.clone();
        let run = self
            .core
            .reader
            .read(move |reader| reader.run(&id))
            .await?
            .unwrap_or(run);
        let status = if run.status.is_terminal() {
            run.status
        } else {
            RunStatus::Interrupted
        };
        Ok(Run { status, ..run })
    }

    /// Marks each run.
    pub(super) async fn mark_runs(&self, runs: Vec<Run>) -> Result<Vec<Run>, ErrorInfo> {
        let mut marked = Vec::with_capacity(runs.len());
        for run in runs {
            marked.push(self.with_current_status(run).await?);
        }
        Ok(marked)
    }

    /// Sets the status of a stored trace to `interrupted`, if it has runs that this process does
    /// not execute.
    pub(super) async fn mark_trace(&self, trace: Trace) -> Result<Trace, ErrorInfo> {
        if trace.status != TraceStatus::Running || self.executes(&trace.session_id) {
            return Ok(trace);
        }
        let id = trace.trace_id.clone();
        let session = trace.session_id.clone();
        let read = move |reader: &dyn Reader| Ok((reader.trace(&id)?, reader.session(&session)?));
        let (found, session) = self.core.reader.read(read).await?;
        let trace = found.unwrap_or(trace);
        let has_runs = session.is_some_and(|session| session.live_runs > 0);
        // A trace that was created before its first run has no run, and counts as running.
        let is_interrupted = trace.status == TraceStatus::Running && has_runs;
        Ok(Trace {
            status: if is_interrupted {
                TraceStatus::Interrupted
            } else {
                trace.status
            },
            ..trace
        })
    }

    /// Marks each trace.
    pub(super) async fn mark_traces(&self, traces: Vec<Trace>) -> Result<Vec<Trace>, ErrorInfo> {
        let mut marked = Vec::with_capacity(traces.len());
        for trace in traces {
            marked.push(self.mark_trace(trace).await?);
        }
        Ok(marked)
    }

    /// Lists traces. A status in the filter refers to the status after marking.
    pub(super) async fn marked_traces(
        &self,
        filter: TraceFilter,
        limit: usize,
        mut cursor: Option<String>,
    ) -> Result<Page<Trace>, ErrorInfo> {
        let wanted = filter.status;
        let is_open = wanted.is_some_and(TraceStatus::is_open);
        // The store knows the status `running` only.
        let stored = TraceFilter {
            status: if is_open {
                Some(TraceStatus::Running)
            } else {
                wanted
            },
            ..filter
        };
        let mut found = Vec::new();
        loop {
            let filter = stored.clone();
            let from = cursor.take();
            let room = limit - found.len();
            let page = self
                .core
                .reader
                .read(move |reader| reader.traces(&filter, room, from.as_deref()))
                .await?;
            let marked = self.mark_traces(page.items).await?;
            found.extend(
                marked
                    .into_iter()
                    .filter(|trace| !is_open || Some(trace.status) == wanted),
            );
            cursor = page.next_cursor;
            if cursor.is_none() || found.len() >= limit {
                return Ok(Page {
                    items: found,
                    next_cursor: cursor,
                });
            }
        }
    }
}
