//! A runtime over a home of its own, that fails its test if anything is left alive.

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
    protocol::{Config, EventRecord, Permission, PermissionStatus, Question, QuestionStatus, RunStatus},
    storage::store::{Ack, Append, Store, StoreError},
};
use tempfile::TempDir;

/// Longest wait for anything in a test: a hang becomes a failure. Nothing waits that long by design.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// Where a world keeps what the disk held when the power was cut.
const LEFT: &str = "left";
/// How many worlds [`each_in_turn`] has at a time.
const LANES: usize = 6;

pub struct World {
    dir: TempDir,
    runtime: Option<Runtime>,
    tasks_before: usize,
}

impl World {
    /// Opens a runtime in which every profile is this model.
    pub async fn open(model: Arc<dyn Model>) -> Self {
        Self::with(model, |builder| builder).await
    }

    pub async fn with(model: Arc<dyn Model>, build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Self {
        Self::over(tempfile::tempdir().unwrap(), model, build).await
    }

    /// The same over a folder in which a test has put something beforehand: its `home`, say.
    pub async fn over(
        dir: TempDir,
        model: Arc<dyn Model>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        std::fs::create_dir(dir.path().join("project")).unwrap();
        std::fs::write(dir.path().join("project/a.txt"), "alpha\nbeta\n").unwrap();
        let tasks_before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let builder = Runtime::builder()
            .home(dir.path().join("home"))
            .project_dir(dir.path().join("project"))
            .permission_handler(Arc::new(AllowAll))
            .register_provider("default", model);
        let runtime = build(builder).build().await.unwrap();
        Self { dir, runtime: Some(runtime), tasks_before }
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

    /// Opens the home anew with another model, as a process does that starts after this one.
    pub async fn reopen(&mut self, model: Arc<dyn Model>) {
        self.reopen_with(model, |builder| builder).await;
    }

    /// The same, with a runtime that is built in another way.
    pub async fn reopen_with(&mut self, model: Arc<dyn Model>, build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) {
        self.close().await;
        let builder = Runtime::builder().home(self.home()).project_dir(self.project());
        let builder = builder.permission_handler(Arc::new(AllowAll));
        self.runtime = Some(build(builder.register_provider("default", model)).build().await.unwrap());
    }

    pub fn wire(&self, switch: &PowerSwitch) {
        switch.dir.set(self.dir.path().to_owned()).unwrap();
    }

    /// Opens what was there when the power was cut; `false` = it was not.
    pub async fn reopen_what_is_left(
        &mut self,
        model: Arc<dyn Model>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> bool {
        self.close().await;
        let left = self.dir.path().join(LEFT);
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

    /// Leaves the home without an owner.
    pub async fn shut(&mut self) {
        self.close().await;
    }

    async fn close(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        tokio::time::timeout(PATIENCE, runtime.close()).await.expect("the runtime does not close");
        assert_eq!(runtime.alive(), 0, "actors, runs or tasks are left: {:#?}", runtime.tree());
        drop(runtime);
        // What was told to end needs a moment on its worker to be gone.
        let metrics = tokio::runtime::Handle::current().metrics();
        patiently("tasks are left alive", || metrics.num_alive_tasks() <= self.tasks_before).await;
    }

    /// Ends the world: whatever is still alive fails the test.
    pub async fn finish(mut self) {
        self.close().await;
    }
}

/// Cuts the power before a commit: what the disk holds then is put aside, and all that follows is as if it had never
/// been.
pub struct PowerSwitch {
    dir: OnceLock<PathBuf>,
    /// How many commits are made before; negative = it stays on.
    commits_left: AtomicI64,
}

impl PowerSwitch {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { dir: OnceLock::new(), commits_left: AtomicI64::new(-1) })
    }

    /// Cuts the power when so many commits more have been made.
    pub fn cut_after(&self, commits: i64) {
        self.commits_left.store(commits, SeqCst);
    }
}

/// A store that the switch is wired to.
pub struct Powered<S> {
    pub store: S,
    pub switch: Arc<PowerSwitch>,
}

impl<S: Store> Store for Powered<S> {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        if self.switch.commits_left.fetch_sub(1, SeqCst) == 0
            && let Some(world) = self.switch.dir.get()
        {
            for folder in ["home", "project"] {
                copy(&world.join(folder), &world.join(LEFT).join(folder));
            }
        }
        self.store.commit(batch)
    }
}

/// Copies a folder; what goes meanwhile is left out, as is what is no file.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy(&entry.path(), &to.join(entry.file_name())),
            Ok(kind) if kind.is_file() => drop(std::fs::copy(entry.path(), to.join(entry.file_name()))),
            _ => {}
        }
    }
}

/// Waits until something holds.
pub async fn patiently(what: &str, mut holds: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        tokio::task::yield_now().await;
    }
}

/// Waits for something, but not forever.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it does not come")
}

/// Waits until so many permissions are asked for, and their runs wait.
pub async fn leave_asked(runtime: &Runtime, count: usize) -> Vec<Permission> {
    loop {
        let filter = PermissionFilter { status: Some(PermissionStatus::Pending), ..PermissionFilter::default() };
        let asked = runtime.permissions(filter).await.unwrap();
        let mut waiting = asked.len() == count;
        for permission in &asked {
            waiting &= runtime.run(&permission.run_id).await.unwrap().status == RunStatus::Waiting;
        }
        if waiting {
            return asked;
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until so many questions are open and their runs wait.
pub async fn asked(runtime: &Runtime, count: usize) -> Vec<Question> {
    loop {
        let filter = QuestionFilter { status: Some(QuestionStatus::Pending), ..QuestionFilter::default() };
        let questions = runtime.questions(filter).await.unwrap();
        let mut waiting = questions.len() == count;
        for question in &questions {
            waiting &= runtime.run(&question.run_id).await.unwrap().status == RunStatus::Waiting;
        }
        if waiting {
            return questions;
        }
        tokio::task::yield_now().await;
    }
}

/// Does one thing after the other with each number from 1, a few at a time, until it says that there are no more;
/// returns the last number that was one. Most of the time is spent waiting for the next try.
pub fn each_in_turn(one: impl AsyncFn(u64) -> bool + Sync) -> u64 {
    let (next, end) = (AtomicU64::new(1), AtomicU64::new(u64::MAX));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                let threads =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
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
pub async fn all(mut stream: EventStream) -> Vec<Arc<EventRecord>> {
    let mut events = Vec::new();
    while let Some(item) = soon(stream.next()).await {
        if let StreamItem::Event(event) = item.unwrap() {
            events.push(event);
        }
    }
    events
}

/// Reads a stream until an event of this kind, which is the last returned.
pub async fn until(stream: &mut EventStream, kind: &str) -> Vec<Arc<EventRecord>> {
    let mut events = Vec::new();
    loop {
        if let StreamItem::Event(event) = soon(stream.next()).await.expect("the stream ended").unwrap() {
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

/// [`quick`], for tests of many worlds in which no power is lost.
pub fn hasty() -> Config {
    let mut config = quick();
    config.storage.durability = soong::protocol::Durability::Normal;
    config
}

/// A configuration with a quick idea of retries, so that no test waits for one.
pub fn quick() -> Config {
    let mut config = Config::default();
    config.model.retry.initial_backoff_ms = 1;
    config.model.retry.max_backoff_ms = 5;
    config
}
