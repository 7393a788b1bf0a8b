//! Cancelling at every point of a run while a program adds a child: nothing stays alive, and
//! nothing starts after the cancel (RT-6, RUN-4).
//!
//! The points: each fault point as often as a job reaches it, in the run or in its descendants;
//! each commit, before and after it; and a slow model, tool, permit or slot. Elsewhere: the state
//! of the conversation afterwards (`session_tables.rs`).

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use futures::FutureExt;
use serde_json::json;
use soong::{
    ChildSpec, ErrorCode, ErrorInfo, FaultComponent, FaultPoint, RunHandle, RunRequest,
    RuntimeBuilder,
    model::{Failure, ModelError, ModelRequest},
    protocol::{RunId, RunMode, RunStatus},
    testing::{fail, respond_async},
};
use soong_storage::store::{Ack, Append, Store, StoreError};
use tokio::{runtime::Handle, task::JoinHandle};

use crate::support::{
    history::check_session,
    model::{ScriptedModel, Turn, assistant_count, is_parent, scripted_model, task_of},
    tool::HangOnceTool,
    world::{
        TestRuntime, quick_non_durable_config, read_until, run_until_false, wait_for_questions,
        wait_until, with_timeout,
    },
};

/// Model of the job: an orchestrator that starts two children with one tool call each, one after
/// the other if there is one permit, and edits a document twice. `tasks` records the task of each
/// request.
fn job(tasks: &Arc<Mutex<Vec<String>>>) -> Arc<ScriptedModel> {
    let tasks = Arc::clone(tasks);
    scripted_model(move |request| {
        tasks.lock().unwrap().push(task_of(request).to_owned());
        step(request)
    })
}

fn step(request: &ModelRequest) -> Turn {
    match (is_parent(request), assistant_count(request)) {
        (true, 0) => Turn::call("list_files", json!({})),
        (true, 1) => Turn::call("agent", json!({"task": ["a", "b"]})),
        (true, 2) => Turn::call("create_artifact", json!({"name": "doc", "content": "one"})),
        (true, 3) => Turn::call(
            "update_artifact",
            json!({"name": "doc", "old": "one", "new": "two"}),
        ),
        (false, 0) if task_of(request) != "other" => Turn::call("read", json!({"path": "a.txt"})),
        _ => Turn::say("done"),
    }
}

/// Configures a single permit, so that a leaked permit blocks all other runs.
fn narrow(builder: RuntimeBuilder) -> RuntimeBuilder {
    let mut config = quick_non_durable_config();
    config.model.max_concurrency = Some(1);
    builder.config(config)
}

/// Cancels a run and adds a child to it at the same moment.
struct Trap {
    /// The run, set once it has started. `spring` waits for it.
    run: OnceLock<RunHandle>,
    spawns_first: bool,
    threads: Handle,
    sprung: OnceLock<Sprung>,
}

/// The two operations that continue after the trap was sprung.
struct Sprung {
    cancelling: Mutex<Option<JoinHandle<()>>>,
    adding: Mutex<Option<JoinHandle<Result<RunHandle, ErrorInfo>>>>,
}

impl Trap {
    fn new(spawns_first: bool) -> Arc<Self> {
        let run = OnceLock::new();
        let sprung = OnceLock::new();
        Arc::new(Self {
            run,
            spawns_first,
            threads: Handle::current(),
            sprung,
        })
    }

    /// Starts both operations. They continue in the background.
    fn spring(&self) {
        let _within = self.threads.enter();
        let run = self.run.wait();
        let canceller = run.clone();
        let adder = run.clone();
        let mut cancelling = async move { canceller.cancel().await }.boxed();
        let mut adding = async move { adder.spawn(ChildSpec::new("added")).await }.boxed();
        // `now_or_never` completes an operation only if it does not have to wait. Otherwise, the
        // operation is polled again below.
        let (cancelled, added) = if self.spawns_first {
            let added = (&mut adding).now_or_never();
            ((&mut cancelling).now_or_never(), added)
        } else {
            (
                (&mut cancelling).now_or_never(),
                (&mut adding).now_or_never(),
            )
        };
        let cancelling = async move {
            if cancelled.is_none() {
                cancelling.await.unwrap();
            }
        };
        let adding = async move {
            match added {
                Some(added) => added,
                None => adding.await,
            }
        };
        let cancelling = Mutex::new(Some(self.threads.spawn(cancelling)));
        let adding = Mutex::new(Some(self.threads.spawn(adding)));
        assert!(
            self.sprung.set(Sprung { cancelling, adding }).is_ok(),
            "once"
        );
    }

    fn is_sprung(&self) -> bool {
        self.sprung.get().is_some()
    }
}

/// Checks the state after a run was caught in a trap, and returns the final status of the run.
async fn check_caught(
    world: &TestRuntime,
    trap: &Trap,
    model: &ScriptedModel,
    case: &str,
) -> RunStatus {
    let run = trap.run.get().unwrap();
    let sprung = trap.sprung.get().unwrap();
    let cancelling = sprung.cancelling.lock().unwrap().take().unwrap();
    with_timeout(cancelling).await.unwrap();
    let calls = model.calls();
    let outcome = with_timeout(run.wait()).await.unwrap();
    let adding = sprung.adding.lock().unwrap().take().unwrap();
    match with_timeout(adding).await.unwrap() {
        Ok(child) => {
            let added = with_timeout(child.wait()).await.unwrap();
            assert_eq!(
                added.status,
                RunStatus::Cancelled,
                "{case}: the child that was added"
            );
        }
        Err(error) => assert_eq!(error.code, ErrorCode::NothingRunning, "{case}: {error}"),
    }
    for child in run.children().await.unwrap() {
        assert!(child.status.is_terminal(), "{case}: {child:?}");
    }
    assert_eq!(
        world.runtime().info().live_runs(),
        0,
        "{case}: a run is alive"
    );
    assert_eq!(
        (model.in_flight(), model.calls()),
        (0, calls),
        "{case}: a model call after the cancel"
    );
    outcome.status
}

/// Checks that a run of another session gets all permits.
async fn check_free(world: &TestRuntime, case: &str) {
    let other = world
        .runtime()
        .start(RunRequest::new("other").session("t"))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(other.wait()).await.unwrap().output,
        "done",
        "{case}"
    );
}

/// Runs the job with a trap, and returns the final status of the run if the trap was sprung.
async fn spring_in_a_job(
    case: &str,
    spawns_first: bool,
    set: impl FnOnce(RuntimeBuilder, Arc<Trap>) -> RuntimeBuilder,
) -> Option<RunStatus> {
    let tasks: Arc<Mutex<Vec<String>>> = Arc::default();
    let model = job(&tasks);
    let trap = Trap::new(spawns_first);
    let world = TestRuntime::with(model.clone(), |builder| {
        set(narrow(builder), Arc::clone(&trap))
    })
    .await;
    let run = world
        .runtime()
        .start(
            RunRequest::new("job")
                .session("s")
                .mode(RunMode::Orchestrator),
        )
        .await
        .unwrap();
    assert!(trap.run.set(run.clone()).is_ok());
    let outcome = with_timeout(run.wait()).await.unwrap();
    let mut caught = None;
    if trap.is_sprung() {
        caught = Some(check_caught(&world, &trap, &model, case).await);
        assert_eq!(caught, Some(outcome.status), "{case}");
    } else {
        assert_eq!(
            outcome.status,
            RunStatus::Completed,
            "{case}: {:?}",
            outcome.error
        );
    }
    assert!(
        !tasks.lock().unwrap().contains(&"added".to_owned()),
        "{case}: the added child begins nothing"
    );
    check_session(world.runtime(), run.session_id()).await;
    check_free(&world, case).await;
    drop((run, trap));
    world.finish().await;
    caught
}

/// Number of times that a trap was sprung, and number of runs that completed nevertheless.
#[derive(Default)]
struct Tally {
    sprung: AtomicU64,
    completed: AtomicU64,
}

/// Runs the job repeatedly, with a trap at the first occurrence, the second, and so on, until the
/// trap is no longer reached; each time with the cancel before and after the new child.
fn spring_in_turn(
    what: &str,
    set: impl Fn(RuntimeBuilder, Arc<Trap>, u64) -> RuntimeBuilder + Sync,
) -> (u64, u64) {
    let tally = Tally::default();
    run_until_false(async |number| {
        let nth = number.div_ceil(2);
        let spawns_first = number % 2 == 0;
        let case = format!("{what} number {nth}, spawns first: {spawns_first}");
        let caught =
            spring_in_a_job(&case, spawns_first, |builder, trap| set(builder, trap, nth)).await;
        tally.sprung.fetch_add(u64::from(caught.is_some()), SeqCst);
        match caught {
            None => return false,
            Some(RunStatus::Completed) => tally.completed.fetch_add(1, SeqCst),
            Some(status) => {
                assert_eq!(status, RunStatus::Cancelled, "{case}");
                0
            }
        };
        true
    });
    (tally.sprung.load(SeqCst), tally.completed.load(SeqCst))
}

/// Returns the fault points that a run reaches.
fn points() -> impl Iterator<Item = FaultPoint> {
    FaultPoint::ALL
        .into_iter()
        .filter(|point| point.place() == FaultComponent::Run)
}

fn spring_at(point: FaultPoint, of_root: bool) -> (u64, u64) {
    spring_in_turn(
        &format!("{point:?}, of the root: {of_root}"),
        |builder, trap, nth| {
            let met = AtomicU64::new(0);
            builder.fault_hook(Arc::new(move |run: &RunId, here| {
                let is_here = here == point && (trap.run.wait().run_id() == run) == of_root;
                if is_here && met.fetch_add(1, SeqCst) + 1 == nth {
                    trap.spring();
                }
            }))
        },
    )
}

/// (RT-6)
#[test]
fn cancel_at_any_point_of_the_run_leaves_nothing_alive() {
    for point in points() {
        let (sprung, completed) = spring_at(point, true);
        assert!(sprung >= 2, "{point:?}: {sprung}");
        // The last append of a run records its end, and only a cancel after the end is too late.
        let ends = matches!(
            point,
            FaultPoint::BeforeAppend | FaultPoint::AfterAppend | FaultPoint::Ended
        );
        assert_eq!(completed, if ends { 2 } else { 0 }, "{point:?}: {sprung}");
    }
}

/// (RT-6)
#[test]
fn cancel_at_any_point_of_a_descendant_leaves_nothing_alive() {
    for point in points() {
        let (sprung, completed) = spring_at(point, false);
        let has_none = matches!(point, FaultPoint::StartChildren | FaultPoint::Flush);
        assert!(has_none || sprung >= 4, "{point:?}: {sprung}");
        assert_eq!(completed, 0, "{point:?}: its parent waits for it");
    }
}

/// Store that springs a trap at its nth commit, before or after the write.
struct Springing {
    store: Box<dyn Store>,
    trap: Arc<Trap>,
    left: u64,
    behind: bool,
}

impl Store for Springing {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        self.left = self.left.saturating_sub(u64::from(self.left < u64::MAX));
        let is_now = self.left == 0;
        if is_now {
            self.left = u64::MAX;
        }
        if is_now && !self.behind {
            self.trap.spring();
        }
        let acks = self.store.commit(batch);
        if is_now && self.behind {
            self.trap.spring();
        }
        acks
    }
}

/// (RT-6)
#[test]
fn cancel_during_any_commit_leaves_nothing_alive() {
    // Before the write, the cancel comes first; after it, the child. The other two orders make no
    // difference here.
    let (sprung, completed) = spring_in_turn("commit", |builder, trap, nth| {
        let behind = trap.spawns_first;
        // The first commit accepts the run; before it, there is nothing to cancel.
        let springing = move |store| Springing {
            store: Box::new(store),
            trap,
            left: nth + 1,
            behind,
        };
        builder.wrap_store(move |store| Box::new(springing(store)))
    });
    assert!(
        sprung >= 40 && completed <= 8,
        "{sprung} sprung, {completed} completed"
    );
}

/// Model with these first turns in the root and in a child, which hold up the job until it is
/// cancelled.
fn held_up(root: fn() -> Turn, child: fn() -> Turn) -> Arc<ScriptedModel> {
    scripted_model(
        move |request| match (task_of(request), assistant_count(request)) {
            ("job", 0) => root(),
            ("other", _) | (_, 1..) => Turn::say("done"),
            _ => child(),
        },
    )
}

fn children() -> Turn {
    Turn::call("agent", json!({"task": ["a", "b", "c"]}))
}

fn delegate() -> Turn {
    Turn::call("agent", json!({"task": "a"}))
}

fn hang() -> Turn {
    Turn::Hang("half")
}

fn call_hang() -> Turn {
    Turn::call("hang", json!({}))
}

fn out_of_reach() -> Turn {
    // Not 429, which would hold back the calls of all runs.
    Turn::Fail(ModelError::new(Failure::Unavailable, "later"))
}

/// Name of the slow step; first turn of the model in the root and in a child; and the counts at the
/// time of the cancel: model calls, model calls in flight (0 or 1), and tool calls.
type Row = (
    &'static str,
    fn() -> Turn,
    fn() -> Turn,
    (usize, usize, usize),
);

/// Adds children until the run accepts no more because it has ended.
fn add_children(run: &RunHandle) -> JoinHandle<Vec<RunHandle>> {
    let run = run.clone();
    tokio::spawn(async move {
        let mut added = Vec::new();
        loop {
            match run.spawn(ChildSpec::new("added")).await {
                Ok(child) => added.push(child),
                Err(error) if error.code == ErrorCode::ChildLimitExceeded => {
                    tokio::task::yield_now().await
                }
                Err(error) => {
                    assert_eq!(error.code, ErrorCode::NothingRunning, "{error}");
                    return added;
                }
            }
        }
    })
}

/// (RT-6)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_cancelled_during_a_slow_step_accepts_no_more_children() {
    let rows: [Row; 6] = [
        ("its model", hang, hang, (1, 1, 0)),
        ("its tool", call_hang, hang, (1, 0, 1)),
        ("its model's next try", out_of_reach, hang, (1, 0, 0)),
        (
            "a child's model; the permit; a slot",
            children,
            hang,
            (2, 1, 0),
        ),
        ("a child's tool", delegate, call_hang, (2, 0, 1)),
        (
            "a child's model's next try; a slot",
            children,
            out_of_reach,
            (2, 0, 0),
        ),
    ];
    for (what, root, child, (calls, in_flight, tools)) in rows {
        let called = Arc::default();
        let model = held_up(root, child);
        let world = TestRuntime::with(model.clone(), |builder| {
            let mut config = quick_non_durable_config();
            config.model.max_concurrency = Some(1);
            config.agents.max_concurrent_children_per_session = 2;
            config.agents.max_children_per_run = 24;
            config.model.retry.initial_backoff_ms = 60_000;
            config.model.retry.max_backoff_ms = 60_000;
            builder
                .config(config)
                .tool(HangOnceTool::new(false, &called))
        })
        .await;
        // An orchestrator only delegates and has no such tool.
        let mode = if what == "its tool" {
            RunMode::Normal
        } else {
            RunMode::Orchestrator
        };
        let run = world
            .runtime()
            .start(RunRequest::new("job").session("s").mode(mode))
            .await
            .unwrap();
        wait_until(what, || {
            model.calls() >= calls && model.in_flight() >= in_flight && called.load(SeqCst) >= tools
        })
        .await;
        let is_cheap = what == "its model's next try";
        if is_cheap {
            let waits = || {
                serde_json::to_string(&world.runtime().tree().snapshot())
                    .unwrap()
                    .contains("before attempt 2")
            };
            wait_until(what, waits).await;
        }
        let adders: Vec<_> = (0..4).map(|_| add_children(&run)).collect();
        // Some children are accepted, some arrive at the moment of the cancel, some after it.
        with_timeout(async { while run.children().await.unwrap().is_empty() {} }).await;
        with_timeout(run.cancel()).await.unwrap();
        let after = model.calls();
        let ended = with_timeout(run.wait()).await.unwrap();
        assert_eq!(ended.status, RunStatus::Cancelled, "{what}");
        if is_cheap {
            assert_eq!(
                ended.stats.own.total_tokens, 0,
                "a try that failed used nothing, and no other one has begun"
            );
        }
        for adder in adders {
            for child in with_timeout(adder).await.unwrap() {
                assert!(
                    with_timeout(child.wait())
                        .await
                        .unwrap()
                        .status
                        .is_terminal(),
                    "{what}"
                );
            }
        }
        let children = run.children().await.unwrap();
        assert!(
            children.iter().all(|child| child.status.is_terminal()),
            "{what}: {children:?}"
        );
        assert_eq!(
            (world.runtime().info().live_runs(), model.in_flight()),
            (0, 0),
            "{what}"
        );
        assert_eq!(
            model.calls(),
            after,
            "{what}: a model call after the cancel"
        );
        check_session(world.runtime(), run.session_id()).await;
        check_free(&world, what).await;
        drop(run);
        world.finish().await;
    }
}

/// A run that has failed waits for its children (R7). A cancel still reaches them (SUB-10).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_reaches_children_of_a_run_that_has_failed() {
    let fail_now = Arc::new(tokio::sync::Notify::new());
    let wait_for_failure = Arc::clone(&fail_now);
    let model = Arc::new(respond_async(move |request| {
        let is_root = task_of(request) == "job";
        let wait_for_failure = Arc::clone(&wait_for_failure);
        let question = Turn::call("ask_human", json!({"question": "which colour?"})).step(request);
        async move {
            if !is_root {
                return question;
            }
            wait_for_failure.notified().await;
            fail(Failure::Rejected, "the service rejects the request")
        }
    }));
    let world = TestRuntime::with(model.clone(), |builder| {
        builder.config(quick_non_durable_config())
    })
    .await;
    let runtime = world.runtime();
    let run = runtime
        .start(
            RunRequest::new("job")
                .session("s")
                .mode(RunMode::Orchestrator),
        )
        .await
        .unwrap();
    wait_until("the run calls its model", || model.in_flight() == 1).await;
    let child = run.spawn(ChildSpec::new("ask")).await.unwrap();
    with_timeout(wait_for_questions(runtime, 1)).await;
    let mut events = run.events().unwrap();
    fail_now.notify_one();
    read_until(&mut events, "model_failed").await;

    with_timeout(run.request_cancel()).await.unwrap();
    let child_outcome = with_timeout(child.wait()).await.unwrap();
    assert_eq!(child_outcome.status, RunStatus::Cancelled);
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        outcome.status,
        RunStatus::Failed,
        "the reason that came first stays"
    );
    check_session(runtime, run.session_id()).await;
    drop((events, child, run));
    world.finish().await;
}
