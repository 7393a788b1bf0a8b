//! The runtime: entry point of the library (RT-1 … RT-6).
//!
//! [`Runtime`] starts and selects runs; everything else is grouped by noun: [`Runtime::sessions`],
//! [`Runtime::traces`], [`Runtime::artifacts`], [`Runtime::permissions`], [`Runtime::questions`],
//! [`Runtime::memory`], [`Runtime::tree`] and [`Runtime::info`]. A run is controlled by its
//! [`RunHandle`].

mod abandoned_drafts;
mod admission;
mod artifacts;
mod builder;
mod cancel;
mod conversation;
mod fork;
mod handle;
mod health;
mod home;
mod info;
mod interrupted;
mod keyed_requests;
mod memory;
mod metrics;
mod permissions;
mod project;
mod provider;
mod questions;
mod recovery;
mod reflection;
mod run_filter;
mod run_request;
mod services;
mod sessions;
mod settings;
mod settings_digests;
pub(crate) mod supervisor;
mod tasks;
mod text_stream;
mod traces;
mod tree;
mod wiring;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

pub use artifacts::Artifacts;
pub use builder::RuntimeBuilder;
pub use conversation::HeadSwitched;
pub use fork::Fork;
use futures::future::BoxFuture;
pub use handle::{Child, Children, RunHandle};
use home::HomeLock;
pub use info::RuntimeInfo;
pub use memory::Memory;
pub use permissions::Permissions;
pub use questions::Questions;
use ractor::ActorRef;
pub use recovery::{InterruptedRuns, RecoveryPolicy};
pub use run_filter::RunFilter;
pub use run_request::RunRequest;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
pub use sessions::{SessionSpec, Sessions};
use soong_protocol::{ErrorCode, ErrorInfo, MessageContent, RunId};
pub use soong_protocol::{RunSetting, Setting, SettingUpdates};
pub use traces::Traces;
pub use tree::Tree;

use crate::{
    actor_base::closing,
    events::{EventStream, Scope},
    gateways::StartGateway,
    journal::JournalTasks,
    preset::KnownPreset,
    run::{RunOutcome, RunPhase},
    runtime::services::Services,
};

/// The actor tree that owns one home directory. Cheap to clone; all clones refer to the same
/// runtime.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("home", &self.inner.services.home)
            .finish_non_exhaustive()
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
        services.core.lifetime.closing().cancel();
        self.root.stop(None);
        for run in services.core.runs.all() {
            services
                .core
                .runs
                .deregister(&run, RunPhase::Interrupted(closing()));
        }
        services.core.bus.close();
        let take = |slot: &mut Option<_>| slot.take();
        let threads = take(
            self.threads
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let lock = self
            .lock
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(threads) = threads {
            let journal = services.core.journal.clone();
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

    /// Waits for the end of a run, in this process or an earlier one, and returns its outcome.
    ///
    /// # Errors
    /// `run_not_found`; `interrupted` if the run has not ended and this runtime does not execute
    /// it: resume its session with [`Sessions::resume`]; `closing` if the runtime closes first.
    pub async fn wait(&self, id: &RunId) -> Result<Arc<RunOutcome>, ErrorInfo> {
        if let Some(entry) = self.inner.services.core.runs.get(id) {
            return entry.wait_outcome().await;
        }
        if let Some(outcome) = self.traces().outcome(id).await? {
            return Ok(Arc::new(outcome));
        }
        // The run may have been resumed in the meantime.
        if let Some(entry) = self.inner.services.core.runs.get(id) {
            return entry.wait_outcome().await;
        }
        Err(if self.info().is_closing() {
            closing()
        } else {
            let message = format!("run {id} is interrupted: resume its session, then wait for it");
            ErrorInfo::new(ErrorCode::Interrupted, message)
        })
    }

    /// Streams the events of one run after `since` (an `event_id`; 0: from the beginning) to the
    /// run's terminal event. Any number of watchers may read the same run.
    ///
    /// # Errors
    /// `run_not_found`, `storage_error`. The stream of an interrupted run does not end before the
    /// run is resumed.
    pub async fn run_events(&self, id: &RunId, since: u64) -> Result<EventStream, ErrorInfo> {
        let run = self.traces().run(id).await?;
        Ok(self
            .stream(
                Scope::Run {
                    trace: run.trace_id,
                    run: run.run_id,
                },
                since,
            )
            .end_if_ended())
    }

    /// Returns handles of the selected runs that this runtime executes, in the order in which they
    /// were created.
    pub fn runs(&self, filter: RunFilter) -> Vec<RunHandle> {
        let services = &self.inner.services;
        let mut runs = services.core.runs.select(|run| filter.includes(run));
        // Ids are ordered by creation time.
        runs.sort_by(|one, other| one.identity.run_id.cmp(&other.identity.run_id));
        runs.into_iter()
            .map(|entry| RunHandle::new(Arc::clone(services), entry))
            .collect()
    }

    /// Runs a prompt in a new session, and returns the answer.
    ///
    /// # Errors
    /// Those of [`Runtime::start`] and [`RunHandle::answer`].
    pub async fn ask(&self, prompt: impl Into<MessageContent>) -> Result<String, ErrorInfo> {
        self.start(RunRequest::new(prompt)).await?.answer().await
    }

    /// Runs a prompt in a new session, and parses the answer as a value of type `T`, whose JSON
    /// schema the answer must match.
    ///
    /// # Errors
    /// Those of [`Runtime::start`] and [`RunHandle::wait_as`].
    pub async fn ask_as<T>(&self, prompt: impl Into<MessageContent>) -> Result<T, ErrorInfo>
    where
        T: DeserializeOwned + JsonSchema,
    {
        let schema = schemars::schema_for!(T).to_value();
        self.start(RunRequest::new(prompt).expect(schema))
            .await?
            .wait_as()
            .await
    }

    /// Returns the sessions of this home: create, read, copy, resume, delete.
    pub fn sessions(&self) -> Sessions<'_> {
        Sessions {
            runtime: self,
            request_key: None,
        }
    }

    /// Returns the traces of this home: runs, messages, goals, events, usage.
    pub fn traces(&self) -> Traces<'_> {
        Traces { runtime: self }
    }

    /// Returns the artifacts of this home.
    pub fn artifacts(&self) -> Artifacts<'_> {
        Artifacts {
            runtime: self,
            condition: None,
        }
    }

    /// Returns the permission requests of this home.
    pub fn permissions(&self) -> Permissions<'_> {
        Permissions { runtime: self }
    }

    /// Returns the questions of runs to users.
    pub fn questions(&self) -> Questions<'_> {
        Questions { runtime: self }
    }

    /// Returns the experiences of earlier runs.
    pub fn memory(&self) -> Memory<'_> {
        Memory { runtime: self }
    }

    /// Returns the supervision tree of the actors.
    pub fn tree(&self) -> Tree<'_> {
        Tree { runtime: self }
    }

    /// Returns the configuration, state and metrics of this runtime.
    pub fn info(&self) -> RuntimeInfo<'_> {
        RuntimeInfo { runtime: self }
    }

    /// Rejects a project folder that a new session must not use.
    ///
    /// Only a folder that the session names (`is_named`) is checked for kernel file systems and for
    /// the home of soong. The default folder was chosen by the program that built the runtime.
    fn check_project(
        &self,
        dir: &Path,
        is_named: bool,
        allows_home: bool,
    ) -> Result<(), ErrorInfo> {
        if is_named {
            project::check(dir, &self.inner.services.home)?;
        }
        match &self.inner.rejected_home {
            Some(home) if !allows_home => project::check_is_not_user_home(dir, Some(home)),
            _ => Ok(()),
        }
    }

    fn stream(&self, scope: Scope, since: u64) -> EventStream {
        let services = &self.inner.services;
        EventStream::open(
            Arc::clone(&services.core.bus),
            services.core.reader.clone(),
            scope,
            since,
        )
    }

    /// Closes the runtime: accepts no new work, stops all actors, and waits until all accepted
    /// appends are on disk and the home is unlocked. A second call waits for the first one.
    ///
    /// Active runs are stopped without a terminal event. The next owner of the home resumes them,
    /// or ends them as `interrupted` if `runtime.recovery = "fail"`.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        // Boxed for the same reason as `RuntimeBuilder::build`.
        Box::pin(self.close_once())
    }

    async fn close_once(&self) {
        let inner = &*self.inner;
        let parts = || {
            let threads = inner
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let lock = inner
                .lock
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            (
                Arc::clone(&inner.services),
                inner.root.clone(),
                threads,
                lock,
            )
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
    let limit = Duration::from_millis(services.core.config.runtime.close_timeout_ms);
    services.core.lifetime.closing().cancel();
    let _ = root.stop_and_wait(None, Some(limit)).await;
    for run in services.core.runs.all() {
        let (before, _) = run.address.renew_tasks();
        let _ = tokio::time::timeout(limit, before.wait()).await;
        services
            .core
            .runs
            .deregister(&run, RunPhase::Interrupted(closing()));
    }
    services.sessions.clear();
    services.core.runs.unlink_all();
    services.core.lifetime.tasks().close();
    let _ = tokio::time::timeout(limit, services.core.lifetime.tasks().wait()).await;
    services.actor_tree.clear();
    if let Some(threads) = threads {
        services.core.journal.close(threads).await;
    }
    services.core.bus.close();
    drop(lock);
    tracing::info!(home = %services.home.display(), "home closed");
}

fn not_found(code: ErrorCode, what: &str, id: &str) -> ErrorInfo {
    ErrorInfo::new(code, format!("there is no {what} {id}"))
}
