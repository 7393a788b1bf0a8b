//! The runtime: entry point of the library (RT-1 … RT-6).
//!
//! Elsewhere: starting runs (the session supervisor), reading stored data (the store), controlling a run
//! ([`RunHandle`]).

mod admission;
mod artifacts;
mod builder;
mod cancel;
mod conversation;
mod fork;
mod handle;
mod health;
mod home;
mod interrupted;
mod metrics;
mod permissions;
mod project;
mod provider;
mod questions;
mod recovery;
mod reflection;
mod run_request;
mod services;
mod sessions;
mod settings;
pub(crate) mod supervisor;
mod tasks;
mod wiring;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

pub use artifacts::NewSessionSpec;
pub use builder::RuntimeBuilder;
pub use conversation::HeadSwitched;
pub use fork::Fork;
pub use handle::{Child, Children, RunHandle};
use home::HomeLock;
pub use questions::already_decided;
use ractor::ActorRef;
pub use recovery::{InterruptedRuns, RecoveryPolicy};
pub use run_request::{RunRequest, RunSetting};
use soong_protocol::{
    Config, ErrorCode, ErrorInfo, EventRecord, GoalTree, Message, Run, RunId, Session, SessionId, ToolSpec, Trace,
    TraceId, UsageBy, UsageReport,
};
use soong_storage::store::{MessagePath, Page, Reader, SessionFilter, TraceFilter, UsageFilter};

use crate::{
    actor_base::closing,
    actor_tree::{ActorKind, ActorView, TreeWatch},
    artifact::ArtifactStoreSupervisorMsg,
    events::{EventStream, Scope, StreamItem},
    journal::JournalTasks,
    memory::MemoryFile,
    metrics::Metrics,
    model::{TokenDeviation, gateways::StartGateway},
    preset::KnownPreset,
    run::{RunEntry, RunMsg, RunOutcome, RunPhase, RunSupervisorMsg, SubAgentMsg},
    runtime::services::Services,
    session::{SessionMsg, SessionSupervisorMsg},
    skill::Skills,
};

/// The actor tree that owns one home directory. Cheap to clone; all clones refer to the same runtime.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("home", &self.home()).finish_non_exhaustive()
    }
}

struct Inner {
    services: Arc<Services>,
    root: ActorRef<StartGateway>,
    project_dir: Arc<Path>,
    /// The user's home folder, if new sessions in it are rejected.
    rejected_home: Option<PathBuf>,
    threads: Mutex<Option<JournalTasks>>,
    /// Held as long as this runtime owns the home.
    lock: Mutex<Option<HomeLock>>,
    closed: tokio::sync::OnceCell<()>,
    interrupted_runs: InterruptedRuns,
    /// The presets, each with its source.
    presets: Vec<KnownPreset>,
}

impl Drop for Inner {
    /// Closes the runtime in the background if it is dropped without a call of `close` (RT-1).
    fn drop(&mut self) {
        let services = &self.services;
        services.lifetime.closing().cancel();
        self.root.stop(None);
        for run in services.runs.all() {
            services.runs.deregister(&run, RunPhase::Interrupted(closing()));
        }
        services.hub.close();
        let take = |slot: &mut Option<_>| slot.take();
        let threads = take(self.threads.get_mut().unwrap_or_else(PoisonError::into_inner));
        let lock = self.lock.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(threads) = threads {
            let journal = services.journal.clone();
            // The home stays locked until the last commit is on disk.
            std::thread::spawn(move || {
                journal.close_blocking(threads);
                drop(lock);
            });
        }
    }
}

impl Runtime {
    /// Returns a builder for a runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Starts a run, passes every item of its stream to `on_event`, and returns its outcome (RT-5).
    pub async fn run_result(
        &self,
        start: impl Into<RunRequest>,
        mut on_event: impl FnMut(&StreamItem),
    ) -> Result<Arc<RunOutcome>, ErrorInfo> {
        let run = self.start(start).await?;
        let mut events = run.events()?;
        while let Some(item) = events.next().await {
            on_event(&item?);
        }
        run.wait().await
    }

    /// Reads a run that is running, interrupted or ended.
    pub async fn run(&self, id: &RunId) -> Result<Run, ErrorInfo> {
        let (services, wanted) = (&self.inner.services, id.clone());
        let run = services.reader.read(move |reader| reader.run(&wanted)).await?;
        services.with_current_status(run.ok_or_else(|| not_found(ErrorCode::RunNotFound, "run", id.as_str()))?).await
    }

    /// Returns the outcome of a run that has ended, in this process or an earlier one. `None` if the run has not
    /// ended.
    pub async fn outcome(&self, id: &RunId) -> Result<Option<RunOutcome>, ErrorInfo> {
        let run = self.run(id).await?;
        self.inner.services.finalizer.read_outcome(run).await
    }

    /// Rejects a project folder that a new session must not use.
    ///
    /// Only a folder that the session names (`is_named`) is checked for kernel file systems and for the home of
    /// soong. The default folder was chosen by the program that built the runtime.
    fn check_project(&self, dir: &Path, is_named: bool, allows_home: bool) -> Result<(), ErrorInfo> {
        if is_named {
            project::check(dir, self.home())?;
        }
        match &self.inner.rejected_home {
            Some(home) if !allows_home => project::check_is_not_user_home(dir, Some(home)),
            _ => Ok(()),
        }
    }

    /// Returns a handle of the trace's running run. If none is running, returns the next queued run; if there is none
    /// either, a run that is ending.
    pub fn active(&self, trace: &TraceId) -> Option<RunHandle> {
        let open = self.inner.services.runs.select(|run| run.trace_id == *trace);
        // Ids are ordered by creation time.
        let next = open.into_iter().min_by_key(|run| (run.is_ending(), !run.has_started(), run.run_id.clone()));
        next.map(|live| RunHandle::new(Arc::clone(&self.inner.services), live))
    }

    /// Cancels every run that a user started, including queued runs, and waits for their ends as
    /// [`RunHandle::cancel`] does. Returns the first error.
    pub async fn cancel_all(&self) -> Result<(), ErrorInfo> {
        let services = &self.inner.services;
        let own = services.runs.select(|run| run.parent_run_id.is_none());
        futures::future::join_all(own.iter().map(|run| cancel::cancel(services, run))).await.into_iter().collect()
    }

    /// Sums up the usage of all runs that have started; each run counts its own work only (RUN-6). Runs without a known
    /// price are counted separately; their cost is not estimated (BUD-2).
    pub async fn usage(&self, by: UsageBy, filter: UsageFilter) -> Result<UsageReport, ErrorInfo> {
        self.inner.services.reader.read(move |reader| reader.usage(by, &filter)).await.map(UsageReport::from_rows)
    }

    /// Returns the number of runs that have not ended, including those of sub-agents.
    pub fn live_runs(&self) -> usize {
        self.inner.services.runs.len()
    }

    /// Returns the number of runs that a user started and that have not ended.
    pub fn live_user_runs(&self) -> usize {
        self.inner.services.runs.select(|run| run.parent_run_id.is_none()).len()
    }

    /// Returns the number of user runs that are running or will run without further input. Runs of sessions that only
    /// wait for user input are not counted.
    pub fn active_user_runs(&self) -> usize {
        let parked = self.inner.services.runs.sessions_awaiting_input();
        let is_at_work = |run: &RunEntry| run.parent_run_id.is_none() && !parked.contains(&run.session_id);
        self.inner.services.runs.select(is_at_work).len()
    }

    /// Returns whether a session only waits for user input: nothing in it runs until a question or a permission
    /// request is answered.
    pub fn awaits_input(&self, id: &SessionId) -> bool {
        self.inner.services.runs.sessions_awaiting_input().contains(id)
    }

    /// Returns the handle of a run that has not ended.
    ///
    /// # Errors
    /// `nothing_running` if this runtime does not execute the run.
    pub fn handle(&self, id: &RunId) -> Result<RunHandle, ErrorInfo> {
        let live = self.inner.services.runs.get(id);
        let live = live.ok_or_else(|| {
            ErrorInfo::new(
                ErrorCode::NothingRunning,
                format!("run {id} is not at work here: it has ended, is interrupted, or never began"),
            )
        })?;
        Ok(RunHandle::new(Arc::clone(&self.inner.services), live))
    }

    /// Reads a session.
    pub async fn session(&self, id: &SessionId) -> Result<Session, ErrorInfo> {
        let wanted = id.clone();
        let session = self.inner.services.reader.read(move |reader| reader.session(&wanted)).await?;
        session.ok_or_else(|| not_found(ErrorCode::SessionNotFound, "session", id.as_str()))
    }

    /// Lists sessions, newest first. `limit` is at most 100.
    pub async fn sessions(
        &self,
        filter: SessionFilter,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Page<Session>, ErrorInfo> {
        self.inner.services.reader.read(move |reader| reader.sessions(&filter, limit.min(100), cursor.as_deref())).await
    }

    /// Reads a trace.
    pub async fn trace(&self, id: &TraceId) -> Result<Trace, ErrorInfo> {
        let (services, wanted) = (&self.inner.services, id.clone());
        let trace = services.reader.read(move |reader| reader.trace(&wanted)).await?;
        services.mark_trace(trace.ok_or_else(|| not_found(ErrorCode::TraceNotFound, "trace", id.as_str()))?).await
    }

    /// Lists traces, newest first. `limit` is at most 100.
    pub async fn traces(
        &self,
        filter: TraceFilter,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Page<Trace>, ErrorInfo> {
        self.inner.services.marked_traces(filter, limit.clamp(1, 100), cursor).await
    }

    /// Reads the goals of a trace.
    pub async fn goal_tree(&self, id: &TraceId) -> Result<GoalTree, ErrorInfo> {
        let wanted = id.clone();
        let tree = self.inner.services.reader.read(move |reader| reader.goal_tree(&wanted)).await?;
        tree.ok_or_else(|| not_found(ErrorCode::TraceNotFound, "trace", id.as_str()))
    }

    /// Reads the messages of a trace.
    pub async fn messages(&self, id: &TraceId, path: MessagePath) -> Result<Vec<Message>, ErrorInfo> {
        let wanted = id.clone();
        self.inner.services.reader.read(move |reader| reader.messages(&wanted, path)).await
    }

    /// Reads up to `limit` stored events of a trace after `since` (an `event_id`), in order.
    pub async fn replay(&self, id: &TraceId, since: u64, limit: usize) -> Result<Vec<EventRecord>, ErrorInfo> {
        let wanted = id.clone();
        self.inner.services.reader.read(move |reader| reader.events(&wanted, since, limit)).await
    }

    /// Reads up to `limit` stored events of a session after `since` (a `session_seq`), in order.
    pub async fn replay_session(
        &self,
        id: &SessionId,
        since: u64,
        limit: usize,
    ) -> Result<Vec<EventRecord>, ErrorInfo> {
        let wanted = id.clone();
        let read =
            move |reader: &dyn Reader| reader.session_events(&wanted, reader.session_lsn(&wanted, since)?, limit);
        self.inner.services.reader.read(read).await
    }

    /// Lists the child traces of a trace by start time. In a copied session, the children of the source come first.
    pub async fn sub_traces(&self, id: &TraceId) -> Result<Vec<Trace>, ErrorInfo> {
        let wanted = id.clone();
        let read =
            move |reader: &dyn Reader| Ok([reader.linked_traces(&wanted)?, reader.sub_traces(&wanted)?].concat());
        let services = &self.inner.services;
        services.mark_traces(services.reader.read(read).await?).await
    }

    /// Streams the events of a trace after `since` (an `event_id`), stored events first (EVT-3).
    ///
    /// The stream ends when the last run of the trace has ended, or immediately if no run is active;
    /// [`follow_trace`](Self::follow_trace) waits for further runs. For an unknown trace, the first item is the error
    /// `trace_not_found`.
    pub fn trace_events(&self, id: &TraceId, since: u64) -> EventStream {
        self.stream(Scope::Trace(id.clone()), since).until_ended()
    }

    /// Streams the events of a trace after `since` as [`trace_events`](Self::trace_events) does, including those of
    /// further runs, until the runtime closes.
    pub fn follow_trace(&self, id: &TraceId, since: u64) -> EventStream {
        self.stream(Scope::Trace(id.clone()), since)
    }

    /// Streams the events of all traces of a session after `since` (a `session_seq`), merged into one stream (EVT-4).
    pub fn session_events(&self, id: &SessionId, since: u64) -> EventStream {
        self.stream(Scope::Session(id.clone()), since)
    }

    fn stream(&self, scope: Scope, since: u64) -> EventStream {
        let services = &self.inner.services;
        EventStream::open(Arc::clone(&services.hub), services.reader.clone(), scope, since)
    }

    /// Returns a snapshot of the supervision tree (ACT-6). `None` if the runtime has closed.
    pub fn tree(&self) -> Option<ActorView> {
        let mut tree = self.inner.services.actor_tree.tree()?;
        tree.redact(&self.inner.services.resolver.redactor);
        Some(tree)
    }

    /// Watches the supervision tree: sends a snapshot first, then changes (RT-5). Watching sends no message to any
    /// actor.
    pub fn watch_tree(&self) -> TreeWatch {
        let services = &self.inner.services;
        TreeWatch::start(
            &services.actor_tree,
            &services.resolver.redactor,
            services.lifetime.tasks(),
            services.lifetime.closing(),
        )
    }

    /// Returns the skills that runs may load, except those of projects (MEM-1).
    pub fn skills(&self) -> Arc<Skills> {
        Arc::clone(&self.inner.services.resolver.skills)
    }

    /// Returns the presets, each with its source, sorted by name (SUB-5).
    pub fn presets(&self) -> &[KnownPreset] {
        &self.inner.presets
    }

    /// Lists the tools that can be given to runs (TOOL-1), including the current tools of MCP servers.
    pub fn tools(&self) -> Vec<ToolSpec> {
        self.inner.services.resolver.mcp.registry().specs().map(|spec| ToolSpec::clone(spec)).collect()
    }

    /// Crashes an actor, to test its recovery. `actor_id` is an id from the tree. The journal and the root cannot be
    /// crashed.
    pub fn inject_crash(&self, actor_id: &str) -> Result<(), ErrorInfo> {
        let services = &self.inner.services;
        let (kind, id) = actor_id.split_once(':').unwrap_or((actor_id, ""));
        let crashed = if kind == ActorKind::Run.as_str() {
            let run = services.runs.get(&RunId::new(id));
            if run.as_ref().is_some_and(|run| !run.has_started()) {
                let message = format!("{actor_id:?} is queued: its actor starts when its turn comes");
                return Err(ErrorInfo::new(ErrorCode::NothingRunning, message));
            }
            run.is_some_and(|run| services.runs.send(&run, RunMsg::Crash))
        } else if kind == ActorKind::Session.as_str() {
            services.sessions.send(&SessionId::new(id), SessionMsg::Crash)
        } else if kind == ActorKind::RunSupervisor.as_str() {
            services.runs.links(&SessionId::new(id)).is_some_and(|links| links.runs.send(RunSupervisorMsg::Crash))
        } else if kind == ActorKind::SubAgentSupervisor.as_str() {
            services.runs.links(&SessionId::new(id)).is_some_and(|links| links.sub_agents.send(SubAgentMsg::Crash))
        } else if kind == ActorKind::ModelGateway.as_str() {
            let gateway = services.resolver.models.get(id);
            gateway.is_some_and(|gateway| gateway.crash())
        } else if kind == ActorKind::WorkingSet.as_str() {
            services.artifacts.working_sets.inject_crash(&SessionId::new(id))
        } else if kind == ActorKind::ArtifactStoreSupervisor.as_str() {
            let supervisor = services.artifacts.working_sets.supervisor();
            supervisor.is_some_and(|supervisor| supervisor.cast(ArtifactStoreSupervisorMsg::Crash).is_ok())
        } else if kind == ActorKind::SessionSupervisor.as_str() {
            services.sessions.send_to_supervisor(SessionSupervisorMsg::Crash)
        } else if let Some(crashed) = services.resolver.mcp.inject_crash(kind, id) {
            crashed
        } else {
            let message = format!(
                "{actor_id:?} cannot be crashed: only runs, gateways, sessions, working sets, MCP servers \
                 and their supervisors"
            );
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        };
        let gone = || ErrorInfo::new(ErrorCode::ActorNotFound, format!("there is no actor {actor_id:?}: see the tree"));
        crashed.then_some(()).ok_or_else(gone)
    }

    /// Returns the counters since the runtime was built, and the current state. Sends no message to any actor.
    pub fn metrics(&self) -> Metrics {
        metrics::read(&self.inner.services)
    }

    /// Returns the configuration in use.
    pub fn config(&self) -> &Config {
        &self.inner.services.config
    }

    /// Returns the experience file of a user (MEM-2).
    pub fn memory(&self, uid: &str) -> Arc<MemoryFile> {
        self.inner.services.resolver.memory.of(uid)
    }

    /// Returns the home directory.
    pub fn home(&self) -> &Path {
        &self.inner.services.home
    }

    /// Returns the project directory of new sessions.
    pub fn project_dir(&self) -> &Path {
        &self.inner.project_dir
    }

    /// Returns by how much local token counts of prompts differ from the counts that providers report, by model
    /// (CTX-4).
    pub fn token_deviations(&self) -> BTreeMap<String, TokenDeviation> {
        self.inner.services.token_deviations.all()
    }

    /// Returns whether the runtime is closing or has closed, and so accepts no new work. Cheap, unlike
    /// [`Runtime::tree`].
    pub fn is_closing(&self) -> bool {
        self.inner.services.lifetime.is_closing()
    }

    /// Returns the number of live actors, tasks and runs. Zero after `close`.
    pub fn live_count(&self) -> usize {
        let services = &self.inner.services;
        services.actor_tree.len() + services.lifetime.tasks().len() + services.runs.len()
    }

    /// Closes the runtime: accepts no new work, stops all actors, and waits until all accepted appends are on disk
    /// and the home is unlocked. A second call waits for the first one.
    ///
    /// Active runs are stopped without a terminal event. The next owner of the home resumes them, or ends them as
    /// `interrupted` if `runtime.recovery = "fail"`.
    pub async fn close(&self) {
        let inner = &*self.inner;
        let parts = || {
            let threads = inner.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
            let lock = inner.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
            (Arc::clone(&inner.services), inner.root.clone(), threads, lock)
        };
        // In a separate task, so that closing completes even if the caller is dropped.
        let closing = inner.closed.get_or_init(|| async {
            let (services, root, threads, lock) = parts();
            let _ = tokio::spawn(close(services, root, threads, lock)).await;
        });
        closing.await;
    }
}

async fn close(
    services: Arc<Services>,
    root: ActorRef<StartGateway>,
    threads: Option<JournalTasks>,
    lock: Option<HomeLock>,
) {
    let limit = Duration::from_millis(services.config.runtime.close_timeout_ms);
    services.lifetime.closing().cancel();
    let _ = root.stop_and_wait(None, Some(limit)).await;
    for run in services.runs.all() {
        let (before, _) = run.address.renew_tasks();
        let _ = tokio::time::timeout(limit, before.wait()).await;
        services.runs.deregister(&run, RunPhase::Interrupted(closing()));
    }
    services.sessions.clear();
    services.runs.unlink_all();
    services.lifetime.tasks().close();
    let _ = tokio::time::timeout(limit, services.lifetime.tasks().wait()).await;
    services.actor_tree.clear();
    if let Some(threads) = threads {
        services.journal.close(threads).await;
    }
    services.hub.close();
    drop(lock);
    tracing::info!(home = %services.home.display(), "the home is closed");
}

fn not_found(code: ErrorCode, what: &str, id: &str) -> ErrorInfo {
    ErrorInfo::new(code, format!("there is no {what} {id}"))
}
