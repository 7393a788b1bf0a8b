//! Handles: a program's door to a run (RT-4).

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use soong_protocol::{ChildMode, ErrorCode, ErrorInfo, Run, RunId, RunMode, RunStatus, SessionId, TraceId};
use tokio::sync::oneshot;

use crate::{
    events::{EventStream, Scope},
    live::{Fate, LiveRun, RunOutcome, Shared},
    run::{ChildOrder, News, RunMsg, takes_no_children},
};

/// A child to be added to a live run by program.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// What is asked of the child.
    pub task: String,
    /// Why it is started; a delegate by default.
    pub mode: ChildMode,
    /// Preset; `None` = the one that fits the mode.
    pub agent_type: Option<String>,
    /// Profile or model name; `None` = the parent's.
    pub model: Option<String>,
    /// What the child needs to know beyond its task.
    pub context: Option<String>,
    /// Most run time, in milliseconds; never more than `agents.child_timeout_ms`.
    pub timeout_ms: Option<u64>,
    /// Most turns.
    pub max_iterations: Option<u32>,
    /// Tools, within what the parent hands on.
    pub tools: Option<Vec<String>>,
}

impl ChildSpec {
    /// Asks for a delegate with this task.
    pub fn new(task: impl Into<String>) -> Self {
        Self {
            task: task.into(),
            mode: ChildMode::Delegate,
            agent_type: None,
            model: None,
            context: None,
            timeout_ms: None,
            max_iterations: None,
            tools: None,
        }
    }

    /// Sets why the child is started.
    #[must_use]
    pub fn mode(mut self, mode: ChildMode) -> Self {
        self.mode = mode;
        self
    }
}

/// A program's door to a run. It names the run, not its actor: crashes do not break it. Cheap to clone.
#[derive(Clone)]
pub struct RunHandle {
    shared: Arc<Shared>,
    live: Arc<LiveRun>,
}

impl std::fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunHandle").field("run_id", &self.live.run_id).finish_non_exhaustive()
    }
}

impl RunHandle {
    pub(crate) fn new(shared: Arc<Shared>, live: Arc<LiveRun>) -> Self {
        Self { shared, live }
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

    /// Returns where the run stands.
    pub async fn status(&self) -> Result<RunStatus, ErrorInfo> {
        self.record().await.map(|run| run.status)
    }

    /// Reads the run as it is stored.
    pub async fn record(&self) -> Result<Run, ErrorInfo> {
        let id = self.live.run_id.clone();
        let missing = ErrorInfo::new(ErrorCode::RunNotFound, format!("there is no run {id}"));
        self.shared.reading.read(move |reader| reader.run(&id)).await?.ok_or(missing)
    }

    /// Streams the run's events from its first one to its terminal one, with streamed text between.
    ///
    /// There is one consumer: a second call is refused. Further watchers take the trace's stream.
    pub fn events(&self) -> Result<EventStream, ErrorInfo> {
        if self.live.events_taken.swap(true, Ordering::AcqRel) {
            let message = "the run's events are taken already: watch its trace instead";
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        }
        Ok(self.stream(&self.live))
    }

    fn stream(&self, live: &LiveRun) -> EventStream {
        let scope = Scope::Run { trace: live.trace_id.clone(), run: live.run_id.clone() };
        let since = live.first_event.load(Ordering::Acquire).saturating_sub(1);
        EventStream::open(Arc::clone(&self.shared.hub), self.shared.reading.clone(), scope, since)
    }

    /// Waits for the end of the run. Fails with `closing` if the runtime closes first.
    pub async fn wait(&self) -> Result<Arc<RunOutcome>, ErrorInfo> {
        self.live.outcome().await
    }

    /// Cancels the run and everything below it.
    ///
    /// From now on no model call, tool or child starts there. Waits for the end at most
    /// `runtime.cancel_timeout_ms`; then cleaning up goes on behind. An ended run stays as it is.
    pub async fn cancel(&self) {
        super::cancel(&self.shared, &self.live).await;
    }

    /// Lists the run's children in the order of their start.
    pub async fn children(&self) -> Result<Vec<Run>, ErrorInfo> {
        let id = self.live.run_id.clone();
        self.shared.reading.read(move |reader| reader.children(&id)).await
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
        Ok(EventStream::open(Arc::clone(&self.shared.hub), self.shared.reading.clone(), scope, 0))
    }

    /// Adds a child to the run by program; it is supervised, limited and visible like any other.
    ///
    /// Returns once the child is durable; it works when it gets a slot. Its result goes to whoever
    /// holds the handle, not into the run's conversation. The run does not end before it.
    pub async fn spawn(&self, spec: ChildSpec) -> Result<RunHandle, ErrorInfo> {
        if let Some(model) = &spec.model {
            self.shared.ensure_gateway(model).await?;
        }
        let order = ChildOrder {
            mode: spec.mode,
            task: spec.task,
            // Numbered when it is admitted.
            index: 0,
            agent_type: spec.agent_type,
            model: spec.model,
            context: spec.context,
            timeout_ms: spec.timeout_ms,
            max_iterations: spec.max_iterations,
            tools: spec.tools,
            continue_from: None,
        };
        let (reply, answer) = oneshot::channel();
        let is_open = || matches!(*self.live.fate().borrow(), Fate::Open);
        let mailbox = loop {
            match self.live.mailbox() {
                Some(mailbox) => break mailbox,
                // Between two incarnations, or queued: the actor is on its way.
                None if is_open() => tokio::time::sleep(Duration::from_millis(2)).await,
                None => return Err(takes_no_children()),
            }
        };
        mailbox.cast(RunMsg::Spawn { order: Box::new(order), reply });
        let crashed = || {
            let message = "the run's actor crashed before it answered: the child may have been started, see `children`";
            ErrorInfo::retryable(ErrorCode::InternalError, message)
        };
        let live = answer.await.map_err(|_| if is_open() { crashed() } else { takes_no_children() })??;
        Ok(Self::new(Arc::clone(&self.shared), live))
    }

    /// Ends a driven run as completed, once its children have ended.
    pub fn finish(&self, summary: impl Into<String>) {
        let summary = self.live.finish.get_or_init(|| summary.into()).clone();
        // An incarnation that is not there yet finds it when it loads.
        self.live.tell(News::Finish { summary });
    }
}
