//! Handles: a program's door to a run (RT-4).

use std::{ops::Deref, sync::Arc, time::Duration};

use futures::future::join_all;
use serde::de::DeserializeOwned;
use soong_protocol::{ChildResult, ErrorCode, ErrorInfo, Run, RunId, RunMode, RunStatus, SessionId, TraceId};
use tokio::sync::oneshot;

use super::services::Services;
use crate::{
    events::{EventStream, Scope},
    run::{
        ChildOrder, ChildSpec, EndInput, News, RunEntry, RunMsg, RunOutcome, RunPhase, SpawnReply, last_settings,
        takes_no_children,
    },
    text::find_json,
};

/// A program's door to a run. It names the run, not its actor: crashes do not break it. Cheap to clone.
///
/// A run that a program drives needs a handle: see [`Start::driven`](fn@crate::Start::driven).
#[derive(Clone)]
pub struct RunHandle {
    services: Arc<Services>,
    live: Arc<RunEntry>,
    /// Counted by the run: a driven run without a handle ends.
    _counted: Arc<()>,
}

impl std::fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunHandle").field("run_id", &self.live.run_id).finish_non_exhaustive()
    }
}

impl RunHandle {
    pub(super) fn new(services: Arc<Services>, live: Arc<RunEntry>) -> Self {
        let counted = Arc::clone(&live.handles);
        Self { services, live, _counted: counted }
    }

    /// Returns the run's id.
    pub fn run_id(&self) -> &RunId {
        &self.live.run_id
    }

    /// Returns the run's trace.
    pub fn trace_id(&self) -> &TraceId {
        &self.live.trace_id
    }

    /// Returns the run's session.
    pub fn session_id(&self) -> &SessionId {
        &self.live.session_id
    }

    /// Returns what kind of agent leads the run.
    pub fn mode(&self) -> RunMode {
        self.live.mode
    }

    /// Returns whether the run had to wait behind others of its session when it was accepted.
    pub fn was_queued(&self) -> bool {
        self.live.published().was_queued
    }

    /// Returns where the run stands.
    pub async fn status(&self) -> Result<RunStatus, ErrorInfo> {
        self.record().await.map(|run| run.status)
    }

    /// Reads the run as it is stored.
    pub async fn record(&self) -> Result<Run, ErrorInfo> {
        let id = self.live.run_id.clone();
        let missing = ErrorInfo::new(ErrorCode::RunNotFound, format!("there is no run {id}"));
        let run = self.services.reader.read(move |reader| reader.run(&id)).await?.ok_or(missing)?;
        self.services.mark_run(run).await
    }

    /// Streams the run's events from its first one to its terminal one, with streamed text between.
    ///
    /// There is one consumer: a second call is refused. Further watchers take the trace's stream.
    pub fn events(&self) -> Result<EventStream, ErrorInfo> {
        if !self.live.take_events() {
            let message = "the run's events are taken already: watch its trace instead";
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        }
        Ok(self.stream(&self.live))
    }

    fn stream(&self, live: &RunEntry) -> EventStream {
        let scope = Scope::Run { trace: live.trace_id.clone(), run: live.run_id.clone() };
        let since = live.published().first_event.saturating_sub(1);
        let stream = EventStream::open(Arc::clone(&self.services.hub), self.services.reader.clone(), scope, since);
        if let RunPhase::Unrecorded(error) = &live.published().phase {
            stream.is_lost(live.lost(error.clone()));
        }
        stream
    }

    /// Waits for the end of the run. Fails with `closing` if the runtime closes first.
    pub async fn wait(&self) -> Result<Arc<RunOutcome>, ErrorInfo> {
        self.live.outcome().await
    }

    /// Cancels the run and everything below it, and waits for its end.
    ///
    /// From now on no model call, tool or child starts there. Waits at most `runtime.cancel_timeout_ms`; then cleaning
    /// up continues in the background. An ended run stays as it is.
    ///
    /// # Errors
    /// `storage_error` (retryable) if not even the request could be stored in that time, `closing`. The run is
    /// cancelled all the same, as long as this process lives.
    pub async fn cancel(&self) -> Result<(), ErrorInfo> {
        super::cancel(&self.services, &self.live).await
    }

    /// Cancels like [`cancel`](Self::cancel), but returns as soon as the request is durable: the run is not resumed
    /// after a crash of the process. Its end shows on its events.
    ///
    /// # Errors
    /// As [`cancel`](Self::cancel).
    pub async fn request_cancel(&self) -> Result<(), ErrorInfo> {
        super::request_cancel(&self.services, &self.live).await
    }

    /// Lists the run's children in the order of their start.
    pub async fn children(&self) -> Result<Vec<Run>, ErrorInfo> {
        let id = self.live.run_id.clone();
        let children = self.services.reader.read(move |reader| reader.children(&id)).await?;
        self.services.mark_runs(children).await
    }

    /// Reads one child of the run.
    pub async fn inspect_child(&self, child: &RunId) -> Result<Run, ErrorInfo> {
        let found = self.children().await?.into_iter().find(|run| run.run_id == *child);
        found.ok_or_else(|| {
            let message = format!("run {} has no child {child}", self.live.run_id);
            ErrorInfo::new(ErrorCode::RunNotFound, message)
        })
    }

    /// Streams a child's events from its first one to its terminal one.
    pub async fn child_events(&self, child: &RunId) -> Result<EventStream, ErrorInfo> {
        let run = self.inspect_child(child).await?;
        let scope = Scope::Run { trace: run.trace_id, run: run.run_id };
        Ok(EventStream::open(Arc::clone(&self.services.hub), self.services.reader.clone(), scope, 0))
    }

    /// Reads what the run's children brought back that have ended, in the order of their start (SUB-4).
    pub async fn results(&self) -> Result<Vec<ChildResult>, ErrorInfo> {
        let id = self.live.run_id.clone();
        self.services.reader.read(move |reader| reader.child_results(&id)).await
    }

    /// Waits for the end of the run, and reads its answer as a value.
    ///
    /// Fails with the run's own error where it did not complete, and with `validation_error` where its answer is no
    /// JSON of that form: let the run be started with a schema that fits (`expected_output_schema`).
    pub async fn wait_as<T: DeserializeOwned>(&self) -> Result<T, ErrorInfo> {
        let outcome = self.wait().await?;
        if outcome.status != RunStatus::Completed {
            let cancelled = || ErrorInfo::new(ErrorCode::Cancelled, "the run was cancelled: it has no answer");
            return Err(outcome.error.clone().unwrap_or_else(cancelled));
        }
        let refuse =
            |why: String| ErrorInfo::new(ErrorCode::ValidationError, format!("the answer does not fit: {why}"));
        let (_, value) = find_json(&outcome.output).ok_or_else(|| refuse("it is no JSON".to_owned()))?;
        serde_json::from_value(value).map_err(|error| refuse(error.to_string()))
    }

    /// Adds a child to the run by program; it is supervised, limited, budgeted and visible like any other.
    ///
    /// Returns once the child is durable; it works when it gets a slot. Its result goes to whoever
    /// holds the handle, and into the run's conversation only if it is to be delivered. The run does not end
    /// before it.
    pub async fn spawn(&self, spec: impl Into<ChildSpec>) -> Result<RunHandle, ErrorInfo> {
        let mut children = self.spawn_all([spec.into()]).await?;
        // As many come as were asked for.
        children.0.pop().ok_or_else(takes_no_children)
    }

    /// Adds several children at once, all or none: one commit, and all of them work side by side.
    pub async fn spawn_all(
        &self,
        specs: impl IntoIterator<Item = impl Into<ChildSpec>>,
    ) -> Result<Children, ErrorInfo> {
        let mut orders = Vec::new();
        for (place, spec) in specs.into_iter().enumerate() {
            let spec: ChildSpec = spec.into();
            let before = match &spec.continue_from {
                Some(trace) => Some(last_settings(&self.services.reader, trace).await?),
                None => None,
            };
            orders.push(ChildOrder { spec, before, index: place + 1 });
        }
        for model in orders.iter().filter_map(|order| order.spec.model.as_ref()) {
            self.services.resolver.models.open(model).await?;
        }
        let (sender, answer) = oneshot::channel();
        let runs = Arc::clone(&self.services.runs);
        let reply = SpawnReply::new(move |rows| {
            let register = |rows: Vec<Run>| rows.iter().map(|row| runs.register(row)).collect::<Vec<_>>();
            let _ = sender.send(rows.map(register)); // the program may have left
        });
        let is_open = || !self.live.published().phase.is_final();
        while self.live.door.is_shut() {
            if !is_open() {
                return Err(takes_no_children());
            }
            // Between two incarnations, or queued: the actor is on its way.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.services.runs.send(&self.live, RunMsg::Spawn { orders, reply });
        let crashed = || {
            let message = "the run's actor crashed before it answered: the child may have been started, see `children`";
            ErrorInfo::retryable(ErrorCode::InternalError, message)
        };
        let live = answer.await.map_err(|_| if is_open() { crashed() } else { takes_no_children() })??;
        Ok(Children(live.into_iter().map(|live| Self::new(Arc::clone(&self.services), live)).collect()))
    }

    /// Returns the run's children in the order of their start, and spawns those that are missing.
    ///
    /// For a program that resumes a driven run of an earlier process. It names the same tasks in the same order as that
    /// process did. Children that have ended are not started again.
    ///
    /// # Errors
    /// `validation_error` if the run has more children than tasks are named, or a child has another task; those of
    /// [`RunHandle::spawn_all`].
    pub async fn children_or_spawn(
        &self,
        specs: impl IntoIterator<Item = impl Into<ChildSpec>>,
    ) -> Result<Vec<Child>, ErrorInfo> {
        let specs: Vec<ChildSpec> = specs.into_iter().map(Into::into).collect();
        let existing = self.children().await?;
        let refuse = |message: String| Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        if existing.len() > specs.len() {
            return refuse(format!("the run has {} children already, and {} are named", existing.len(), specs.len()));
        }
        if let Some(place) = existing.iter().zip(&specs).position(|(run, spec)| run.task != spec.task) {
            let (task, run) = (&specs[place].task, &existing[place]);
            return refuse(format!("child {} has another task, {:?} instead of {task:?}", run.run_id, run.task));
        }
        let missing: Vec<ChildSpec> = specs.into_iter().skip(existing.len()).collect();
        let mut children = Vec::with_capacity(existing.len() + missing.len());
        for run in existing {
            let live = self.services.runs.get(&run.run_id);
            children.push(match (live, run.status.is_terminal()) {
                (Some(live), false) => Child::Running(Self::new(Arc::clone(&self.services), live)),
                _ => Child::Ended(self.ended_child(&run.run_id).await?),
            });
        }
        if !missing.is_empty() {
            children.extend(self.spawn_all(missing).await?.into_iter().map(Child::Running));
        }
        Ok(children)
    }

    async fn ended_child(&self, child: &RunId) -> Result<Arc<RunOutcome>, ErrorInfo> {
        let run = self.inspect_child(child).await?;
        let outcome = self.services.finalizer.read_outcome(run).await?;
        outcome.map(Arc::new).ok_or_else(|| {
            let message = format!("run {child} has not ended, and this runtime does not execute it");
            ErrorInfo::new(ErrorCode::Interrupted, message)
        })
    }

    /// Ends a driven run as completed, once its children have ended.
    ///
    /// # Errors
    /// `validation_error` where a model drives the run ([`Start::driven`](fn@crate::Start::driven)): it ends by itself.
    pub fn finish(&self, summary: impl Into<String>) -> Result<(), ErrorInfo> {
        if !self.live.driven {
            let message = format!("run {} is driven by a model: it ends by itself, or by `cancel`", self.run_id());
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        }
        let summary = self.live.request_finish(|| summary.into());
        // An incarnation that is not there yet finds it when it loads.
        self.services.runs.notify(&self.live, News::End(EndInput::Finish { summary }));
        Ok(())
    }
}

/// A child of a driven run: running, or ended in an earlier process.
#[derive(Debug, Clone)]
pub enum Child {
    /// The child has not ended.
    Running(RunHandle),
    /// The outcome of a child that has ended.
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

    /// Waits for the child's end, like [`RunHandle::wait`].
    pub async fn wait(&self) -> Result<Arc<RunOutcome>, ErrorInfo> {
        match self {
            Self::Running(handle) => handle.wait().await,
            Self::Ended(outcome) => Ok(Arc::clone(outcome)),
        }
    }
}

/// Children that were started together, in the order in which they were asked for.
#[derive(Debug, Clone)]
pub struct Children(pub(super) Vec<RunHandle>);

impl Children {
    /// Waits for all of them; one that fails cancels nobody. In their order.
    pub async fn join(&self) -> Vec<Result<Arc<RunOutcome>, ErrorInfo>> {
        join_all(self.0.iter().map(RunHandle::wait)).await
    }

    /// Cancels all of them, and waits for their ends as [`RunHandle::cancel`] does.
    pub async fn cancel(&self) -> Result<(), ErrorInfo> {
        join_all(self.0.iter().map(RunHandle::cancel)).await.into_iter().collect()
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
