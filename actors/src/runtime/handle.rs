//! Handles with which a program controls a run (RT-4).

use std::{ops::Deref, sync::Arc};

use futures::{Stream, future::join_all};
use serde::de::DeserializeOwned;
use soong_protocol::{
    ChildResult, ErrorCode, ErrorInfo, Run, RunId, RunMode, RunStatus, SessionId, TraceId,
};
use soong_text::find_json;
use soong_tool::ChildSpec;

use super::{services::Services, text_stream::text_stream};
use crate::{
    events::{EventStream, Scope},
    run::{AcceptedChild, EndInput, RunEntry, RunInput, RunOutcome, RunPhase, run_has_ended},
};

/// Handle with which a program controls a run. It identifies the run, not its actor, so it stays
/// valid when the actor crashes. Cheap to clone.
///
/// A run that is driven by a program needs a handle: see
/// [`RunRequest::driven`](fn@crate::RunRequest::driven).
#[derive(Clone)]
pub struct RunHandle {
    services: Arc<Services>,
    entry: Arc<RunEntry>,
    /// Shared with the run, which counts its handles: a driven run without a handle is ended.
    _handle_count: Arc<()>,
}

impl std::fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunHandle")
            .field("run_id", &self.entry.identity.run_id)
            .finish_non_exhaustive()
    }
}

impl RunHandle {
    pub(super) fn new(services: Arc<Services>, entry: Arc<RunEntry>) -> Self {
        let counted = Arc::clone(&entry.handles);
        Self {
            services,
            entry,
            _handle_count: counted,
        }
    }

    /// Returns the run's id.
    pub fn run_id(&self) -> &RunId {
        &self.entry.identity.run_id
    }

    /// Returns the run's trace.
    pub fn trace_id(&self) -> &TraceId {
        &self.entry.identity.trace_id
    }

    /// Returns the run's session.
    pub fn session_id(&self) -> &SessionId {
        &self.entry.identity.session_id
    }

    /// Returns the mode of the run.
    pub fn mode(&self) -> RunMode {
        self.entry.identity.mode
    }

    /// Returns whether the run was queued after other runs of its session when it was accepted.
    pub fn was_queued(&self) -> bool {
        self.entry.published().was_queued
    }

    /// Returns the status of the run.
    pub async fn status(&self) -> Result<RunStatus, ErrorInfo> {
        self.record().await.map(|run| run.status)
    }

    /// Reads the stored record of the run.
    pub async fn record(&self) -> Result<Run, ErrorInfo> {
        let id = self.entry.identity.run_id.clone();
        let missing = ErrorInfo::new(ErrorCode::RunNotFound, format!("there is no run {id}"));
        let run = self
            .services
            .core
            .reader
            .read(move |reader| reader.run(&id))
            .await?
            .ok_or(missing)?;
        self.services.with_current_status(run).await
    }

    /// Streams the run's events from the first to the terminal one, with streamed text in between.
    ///
    /// The stream can be taken once; a second call is rejected. Further watchers use
    /// [`Runtime::run_events`](crate::Runtime::run_events).
    pub fn events(&self) -> Result<EventStream, ErrorInfo> {
        if !self.entry.take_events() {
            let message =
                "the run's event stream is already taken: use `Runtime::run_events` instead";
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        }
        Ok(self.stream(&self.entry))
    }

    fn stream(&self, entry: &RunEntry) -> EventStream {
        let scope = Scope::Run {
            trace: entry.identity.trace_id.clone(),
            run: entry.identity.run_id.clone(),
        };
        let since = entry.published().first_event.saturating_sub(1);
        let stream = EventStream::open(
            Arc::clone(&self.services.core.bus),
            self.services.core.reader.clone(),
            scope,
            since,
        );
        if let RunPhase::Unrecorded(error) = &entry.published().phase {
            stream.mark_lost(entry.unrecorded_report(error.clone()));
        }
        stream
    }

    /// Waits for the end of the run. Fails with `closing` if the runtime closes first.
    pub async fn wait(&self) -> Result<Arc<RunOutcome>, ErrorInfo> {
        self.entry.wait_outcome().await
    }

    /// Cancels the run and all its descendants, and waits for its end.
    ///
    /// From now on they start no model call, tool or child run. Waits at most
    /// `runtime.cancel_timeout_ms`; after that, cleanup continues in the background. A run that has
    /// ended does not change.
    ///
    /// # Errors
    /// `storage_error` (retryable) if the request could not be stored in that time; the run is
    /// cancelled nevertheless, as long as this process lives. `closing` if the runtime closes.
    pub async fn cancel(&self) -> Result<(), ErrorInfo> {
        super::cancel::cancel(&self.services, &self.entry).await
    }

    /// Cancels like [`cancel`](Self::cancel), but returns as soon as the request is durable: the
    /// run is not resumed after a crash of the process. Its end is reported on its event stream.
    ///
    /// # Errors
    /// Same as [`cancel`](Self::cancel).
    pub async fn request_cancel(&self) -> Result<(), ErrorInfo> {
        super::cancel::request_cancel(&self.services, &self.entry).await
    }

    /// Lists the children of the run by start time.
    pub async fn children(&self) -> Result<Vec<Run>, ErrorInfo> {
        let id = self.entry.identity.run_id.clone();
        let children = self
            .services
            .core
            .reader
            .read(move |reader| reader.children(&id))
            .await?;
        self.services.mark_runs(children).await
    }

    /// Reads one child of the run.
    pub async fn inspect_child(&self, child: &RunId) -> Result<Run, ErrorInfo> {
        let found = self
            .children()
            .await?
            .into_iter()
            .find(|run| run.run_id == *child);
        found.ok_or_else(|| {
            let message = format!("run {} has no child {child}", self.entry.identity.run_id);
            ErrorInfo::new(ErrorCode::RunNotFound, message)
        })
    }

    /// Streams a child's events from the first to the terminal one.
    pub async fn child_events(&self, child: &RunId) -> Result<EventStream, ErrorInfo> {
        let run = self.inspect_child(child).await?;
        let scope = Scope::Run {
            trace: run.trace_id,
            run: run.run_id,
        };
        Ok(EventStream::open(
            Arc::clone(&self.services.core.bus),
            self.services.core.reader.clone(),
            scope,
            0,
        ))
    }

    /// Reads the results of the run's children that have ended, by start time of the child (SUB-4).
    pub async fn results(&self) -> Result<Vec<ChildResult>, ErrorInfo> {
        let id = self.entry.identity.run_id.clone();
        self.services
            .core
            .reader
            .read(move |reader| reader.child_results(&id))
            .await
    }

    /// Waits for the end of the run, and returns its answer.
    ///
    /// # Errors
    /// The run's own error if it did not complete; `cancelled` if it was cancelled.
    pub async fn answer(&self) -> Result<String, ErrorInfo> {
        completed(&*self.wait().await?).map(str::to_owned)
    }

    /// Streams the text of the run's answers as the model produces it, and ends with the run. It
    /// uses the event stream of the run: see [`events`](Self::events).
    ///
    /// The text is for display: a slow consumer may miss pieces, and the text of a failed attempt
    /// is followed by that of the next attempt. Text that was not streamed is added when the answer
    /// is stored, up to 64 KiB. For the exact text, use [`answer`](Self::answer).
    ///
    /// # Errors
    /// Those of [`events`](Self::events).
    pub fn text_stream(
        &self,
    ) -> Result<impl Stream<Item = Result<String, ErrorInfo>> + Send + use<>, ErrorInfo> {
        Ok(text_stream(self.events()?, self.run_id().clone()))
    }

    /// Waits for the end of the run, and parses its answer as a value of type `T`.
    ///
    /// # Errors
    /// The run's own error if it did not complete; `validation_error` if the answer is not JSON
    /// that parses as `T`. To prevent the latter, set a matching schema when starting the run
    /// (`expected_output_schema`).
    pub async fn wait_as<T: DeserializeOwned>(&self) -> Result<T, ErrorInfo> {
        parse_answer(&*self.wait().await?)
    }

    /// Adds a child run. It is supervised, limited, budgeted and visible like any other child run.
    ///
    /// Returns once the child is durable; the child starts when it gets a slot. The caller reads
    /// its result through the returned handle; the result is added to the conversation of this run
    /// only if the spec asks for delivery. The run does not end before the child.
    pub async fn spawn(&self, spec: impl Into<ChildSpec>) -> Result<RunHandle, ErrorInfo> {
        let mut children = self.spawn_all([spec.into()]).await?;
        // One child per spec, so there is exactly one.
        children.0.pop().ok_or_else(run_has_ended)
    }

    /// Adds several children, all or none, in one commit. They run concurrently.
    pub async fn spawn_all(
        &self,
        specs: impl IntoIterator<Item = impl Into<ChildSpec>>,
    ) -> Result<Children, ErrorInfo> {
        let specs = specs.into_iter().map(Into::into).collect();
        let accepted = self
            .services
            .child_starter()
            .spawn(&self.entry, specs, None)
            .await?;
        let started = accepted.into_iter().filter_map(|child| match child {
            AcceptedChild::New(entry) => Some(Self::new(Arc::clone(&self.services), entry)),
            AcceptedChild::Earlier { .. } => None, // only tool calls are repeated
        });
        Ok(Children(started.collect()))
    }

    /// Returns the run's children by start time, and spawns the missing ones.
    ///
    /// Use it to resume a driven run of an earlier process. Pass the same tasks in the same order
    /// as that process did. Children that have ended are not started again.
    ///
    /// # Errors
    /// `validation_error` if the run has more children than `specs`, or a child has a different
    /// task; otherwise those of [`RunHandle::spawn_all`].
    pub async fn children_or_spawn(
        &self,
        specs: impl IntoIterator<Item = impl Into<ChildSpec>>,
    ) -> Result<Vec<Child>, ErrorInfo> {
        let specs: Vec<ChildSpec> = specs.into_iter().map(Into::into).collect();
        let existing = self.children().await?;
        let refuse = |message: String| Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        if existing.len() > specs.len() {
            return refuse(format!(
                "the run already has {} children, but {} specs were given",
                existing.len(),
                specs.len()
            ));
        }
        if let Some(index) = existing
            .iter()
            .zip(&specs)
            .position(|(run, spec)| run.task != spec.task)
        {
            let task = &specs[index].task;
            let run = &existing[index];
            return refuse(format!(
                "child {} has a different task: {:?} instead of {task:?}",
                run.run_id, run.task
            ));
        }
        let missing: Vec<ChildSpec> = specs.into_iter().skip(existing.len()).collect();
        let mut children = Vec::with_capacity(existing.len() + missing.len());
        for run in existing {
            let entry = self.services.core.runs.get(&run.run_id);
            children.push(match (entry, run.status.is_terminal()) {
                (Some(entry), false) => {
                    Child::Running(Self::new(Arc::clone(&self.services), entry))
                }
                _ => Child::Ended(self.ended_child(&run.run_id).await?),
            });
        }
        if !missing.is_empty() {
            children.extend(
                self.spawn_all(missing)
                    .await?
                    .into_iter()
                    .map(Child::Running),
            );
        }
        Ok(children)
    }

    async fn ended_child(&self, child: &RunId) -> Result<Arc<RunOutcome>, ErrorInfo> {
        let run = self.inspect_child(child).await?;
        let outcome = self.services.finalizer.read_outcome(run).await?;
        outcome.map(Arc::new).ok_or_else(|| {
            let message =
                format!("run {child} has not ended, and this runtime does not execute it");
            ErrorInfo::new(ErrorCode::Interrupted, message)
        })
    }

    /// Completes a driven run, once its children have ended.
    ///
    /// # Errors
    /// `validation_error` if the run is driven by a model instead of a program
    /// ([`RunRequest::driven`](fn@crate::RunRequest::driven)); such a run ends automatically.
    pub fn finish(&self, summary: impl Into<String>) -> Result<(), ErrorInfo> {
        if !self.entry.identity.driven {
            let message = format!(
                "run {} is driven by a model: it ends on its own, or by `cancel`",
                self.run_id()
            );
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        }
        let summary = self.entry.request_finish(|| summary.into());
        // If the actor is being restarted, it reads the request when it loads.
        self.services
            .core
            .runs
            .notify(&self.entry, RunInput::End(EndInput::Finish { summary }));
        Ok(())
    }
}

/// Returns the answer of a run that completed; otherwise its error.
fn completed(outcome: &RunOutcome) -> Result<&str, ErrorInfo> {
    if outcome.status == RunStatus::Completed {
        return Ok(&outcome.output);
    }
    let cancelled = || {
        ErrorInfo::new(
            ErrorCode::Cancelled,
            "the run was cancelled and has no answer",
        )
    };
    Err(outcome.error.clone().unwrap_or_else(cancelled))
}

fn parse_answer<T: DeserializeOwned>(outcome: &RunOutcome) -> Result<T, ErrorInfo> {
    let answer = completed(outcome)?;
    let reject = |why: String| {
        ErrorInfo::new(
            ErrorCode::ValidationError,
            format!("the answer does not match the expected type: {why}"),
        )
    };
    let (_, value) =
        find_json(answer).ok_or_else(|| reject("it contains no JSON value".to_owned()))?;
    serde_json::from_value(value).map_err(|error| reject(error.to_string()))
}

/// A child of a driven run: running, or ended.
#[derive(Debug, Clone)]
pub enum Child {
    /// The child has not ended.
    Running(RunHandle),
    /// The child has ended with this outcome.
    Ended(Arc<RunOutcome>),
}

impl Child {
    /// Returns the child's id.
    pub fn run_id(&self) -> &RunId {
        match self {
            Self::Running(handle) => handle.run_id(),
            Self::Ended(outcome) => &outcome.run_id,
        }
    }

    /// Waits for the end of the child, like [`RunHandle::wait`].
    pub async fn wait(&self) -> Result<Arc<RunOutcome>, ErrorInfo> {
        match self {
            Self::Running(handle) => handle.wait().await,
            Self::Ended(outcome) => Ok(Arc::clone(outcome)),
        }
    }
}

/// Children that were started together, in the order of their specs.
#[derive(Debug, Clone)]
pub struct Children(pub(super) Vec<RunHandle>);

impl Children {
    /// Waits for all children, and returns their outcomes in order. A child that fails does not
    /// cancel the others.
    pub async fn join(&self) -> Vec<Result<Arc<RunOutcome>, ErrorInfo>> {
        join_all(self.0.iter().map(RunHandle::wait)).await
    }

    /// Waits for all children, and parses their answers in order, as [`RunHandle::wait_as`] does.
    pub async fn join_as<T: DeserializeOwned>(&self) -> Vec<Result<T, ErrorInfo>> {
        join_all(self.0.iter().map(RunHandle::wait_as)).await
    }

    /// Cancels all children, and waits for their ends as [`RunHandle::cancel`] does.
    pub async fn cancel(&self) -> Result<(), ErrorInfo> {
        join_all(self.0.iter().map(RunHandle::cancel))
            .await
            .into_iter()
            .collect()
    }
}

impl Deref for Children {
    type Target = [RunHandle];

    fn deref(&self) -> &[RunHandle] {
        &self.0
    }
}

impl IntoIterator for Children {
    type Item = RunHandle;
    type IntoIter = std::vec::IntoIter<RunHandle>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
