//! A runtime with a separate home. A test fails if an actor, run or task is still alive at its end.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use soong::{
    EventStream, PermissionFilter, QuestionFilter, Runtime, RuntimeBuilder, StreamItem,
    model::Model,
    permission::AllowAll,
    protocol::{
        Config, EventRecord, Permission, PermissionStatus, Question, QuestionStatus, RunStatus,
    },
};
use soong_storage::store::{Ack, Append, Store, StoreError};
use tempfile::TempDir;

/// Maximum wait for anything in a test, so that a hang becomes a failure. No test is designed to
/// wait this long.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Folder for the copy of the disk at the moment of a power cut.
const POWER_CUT_COPY: &str = "left";
/// Number of iterations that [`run_until_false`] executes at the same time.
const PARALLEL_ITERATIONS: usize = 6;

pub struct TestRuntime {
    dir: TempDir,
    runtime: Option<Runtime>,
    tasks_before: usize,
}

impl TestRuntime {
    /// Opens a runtime in which this model serves the default profile.
    pub async fn open(model: Arc<dyn Model>) -> Self {
        Self::with(model, |builder| builder).await
    }

    pub async fn with(
        model: Arc<dyn Model>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        Self::open_in(tempfile::tempdir().unwrap(), model, build).await
    }

    /// Opens a runtime in a prepared folder, which may already contain a `home`.
    pub async fn open_in(
        dir: TempDir,
        model: Arc<dyn Model>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        std::fs::create_dir(dir.path().join("project")).unwrap();
        std::fs::write(dir.path().join("project/a.txt"), "alpha\nbeta\n").unwrap();
        let tasks_before = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        let builder = Runtime::builder()
            .home(dir.path().join("home"))
            .project_dir(dir.path().join("project"))
            .permission_handler(Arc::new(AllowAll))
            .model("default", model);
        let runtime = build(builder).build().await.unwrap();
        Self {
            dir,
            runtime: Some(runtime),
            tasks_before,
        }
    }

    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().unwrap()
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    /// Opens the home again with another model, like a process that starts after this one.
    pub async fn reopen(&mut self, model: Arc<dyn Model>) {
        self.reopen_with(model, |builder| builder).await;
    }

    /// Opens the home again with a customized builder.
    pub async fn reopen_with(
        &mut self,
        model: Arc<dyn Model>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) {
        self.close().await;
        let builder = Runtime::builder()
            .home(self.home())
            .project_dir(self.project());
        let builder = builder.permission_handler(Arc::new(AllowAll));
        self.runtime = Some(
            build(builder.model("default", model))
                .build()
                .await
                .unwrap(),
        );
    }

    pub fn connect_power_switch(&self, switch: &PowerSwitch) {
        switch.dir.set(self.dir.path().to_owned()).unwrap();
    }

    /// Opens the copy made at the power cut. Returns whether the power was cut.
    pub async fn reopen_after_power_cut(
        &mut self,
        model: Arc<dyn Model>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> bool {
        self.close().await;
        let left = self.dir.path().join(POWER_CUT_COPY);
        let is_cut = left.exists();
        for folder in [self.home(), self.project()].into_iter().filter(|_| is_cut) {
            std::fs::remove_dir_all(&folder).unwrap();
            std::fs::rename(left.join(folder.file_name().unwrap()), &folder).unwrap();
        }
        if is_cut {
            std::fs::remove_dir_all(left).unwrap();
        }
        self.reopen_with(model, build).await;
        is_cut
    }

    /// Closes the runtime; the home then has no owner.
    pub async fn close_runtime(&mut self) {
        self.close().await;
    }

    async fn close(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        tokio::time::timeout(TIMEOUT, runtime.close())
            .await
            .expect("the runtime does not close");
        assert_eq!(
            runtime.tree().live_count(),
            0,
            "actors, runs or tasks are left: {:#?}",
            runtime.tree().snapshot()
        );
        drop(runtime);
        // Tasks that were asked to end take a moment to disappear from their worker.
        let metrics = tokio::runtime::Handle::current().metrics();
        wait_until("tasks are left alive", || {
            metrics.num_alive_tasks() <= self.tasks_before
        })
        .await;
    }

    /// Closes the runtime and fails the test if anything is still alive.
    pub async fn finish(mut self) {
        self.close().await;
    }
}

/// Simulates a power cut before a commit: copies the disk at that moment. Everything that the
/// process does afterwards is lost for the reopened home.
pub struct PowerSwitch {
    dir: OnceLock<PathBuf>,
    /// Number of commits before the cut. Negative: no cut.
    commits_left: AtomicI64,
}

impl PowerSwitch {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            dir: OnceLock::new(),
            commits_left: AtomicI64::new(-1),
        })
    }

    /// Cuts the power after this number of further commits.
    pub fn cut_after(&self, commits: i64) {
        self.commits_left.store(commits, SeqCst);
    }
}

/// Store with a power switch.
pub struct PoweredStore<S> {
    pub store: S,
    pub switch: Arc<PowerSwitch>,
}

impl<S: Store> Store for PoweredStore<S> {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        if self.switch.commits_left.fetch_sub(1, SeqCst) == 0
            && let Some(world) = self.switch.dir.get()
        {
            for folder in ["home", "project"] {
                copy(
                    &world.join(folder),
                    &world.join(POWER_CUT_COPY).join(folder),
                );
            }
        }
        self.store.commit(batch)
    }
}

/// Copies a folder. Files that disappear meanwhile and special files are skipped.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy(&entry.path(), &to.join(entry.file_name())),
            Ok(kind) if kind.is_file() => {
                drop(std::fs::copy(entry.path(), to.join(entry.file_name())))
            }
            _ => {}
        }
    }
}

/// Waits until a condition holds; panics after [`TIMEOUT`].
pub async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        tokio::task::yield_now().await;
    }
}

/// Waits for a future; panics after [`TIMEOUT`].
pub async fn with_timeout<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, what)
        .await
        .expect("it does not come")
}

/// Waits until `count` permissions are pending and their runs wait for them.
pub async fn wait_for_permissions(runtime: &Runtime, count: usize) -> Vec<Permission> {
    loop {
        let filter = PermissionFilter {
            status: Some(PermissionStatus::Pending),
            ..PermissionFilter::default()
        };
        let permissions = runtime.permissions().list(filter).await.unwrap();
        let mut waiting = permissions.len() == count;
        for permission in &permissions {
            waiting &= runtime
                .traces()
                .run(&permission.run_id)
                .await
                .unwrap()
                .status
                == RunStatus::Waiting;
        }
        if waiting {
            return permissions;
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until `count` questions are pending and their runs wait for them.
pub async fn wait_for_questions(runtime: &Runtime, count: usize) -> Vec<Question> {
    loop {
        let filter = QuestionFilter {
            status: Some(QuestionStatus::Pending),
            ..QuestionFilter::default()
        };
        let questions = runtime.questions().list(filter).await.unwrap();
        let mut waiting = questions.len() == count;
        for question in &questions {
            waiting &=
                runtime.traces().run(&question.run_id).await.unwrap().status == RunStatus::Waiting;
        }
        if waiting {
            return questions;
        }
        tokio::task::yield_now().await;
    }
}

/// Calls `one` with the numbers from 1 up, several at a time, until it returns false. Returns the
/// last number for which it returned true. Runs concurrently because the calls mostly wait for
/// retries.
pub fn run_until_false(one: impl AsyncFn(u64) -> bool + Sync) -> u64 {
    let next = AtomicU64::new(1);
    let end = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL_ITERATIONS {
            scope.spawn(|| {
                let threads = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .unwrap();
                while let number = next.fetch_add(1, SeqCst)
                    && number < end.load(SeqCst)
                {
                    if !threads.block_on(one(number)) {
                        end.fetch_min(number, SeqCst);
                    }
                }
            });
        }
    });
    end.load(SeqCst) - 1
}

/// Reads a stream to its end.
pub async fn read_to_end(mut stream: EventStream) -> Vec<Arc<EventRecord>> {
    let mut events = Vec::new();
    while let Some(item) = with_timeout(stream.next()).await {
        if let StreamItem::Event(event) = item.unwrap() {
            events.push(event);
        }
    }
    events
}

/// Reads a stream up to an event of this kind, which is the last one returned.
pub async fn read_until(stream: &mut EventStream, kind: &str) -> Vec<Arc<EventRecord>> {
    let mut events = Vec::new();
    loop {
        if let StreamItem::Event(event) = with_timeout(stream.next())
            .await
            .expect("the stream ended")
            .unwrap()
        {
            let found = event.event.kind() == kind;
            events.push(event);
            if found {
                return events;
            }
        }
    }
}

pub fn kinds(events: &[Arc<EventRecord>]) -> Vec<&str> {
    events.iter().map(|event| event.event.kind()).collect()
}

/// Like [`quick`], with normal durability, for tests with many worlds in which no power is lost.
pub fn quick_non_durable_config() -> Config {
    let mut config = quick_config();
    config.storage.durability = soong::protocol::Durability::Normal;
    config
}

/// Returns a configuration with very short retry backoffs.
pub fn quick_config() -> Config {
    let mut config = Config::default();
    config.model.retry.initial_backoff_ms = 1;
    config.model.retry.max_backoff_ms = 5;
    config.memory.reflect_before_summary = false;
    // Scripted models repeat themselves.
    config.runtime.repeated_calls_note = 0;
    config.runtime.repeated_calls_limit = 0;
    config
}
