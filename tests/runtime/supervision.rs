//! Crashes, restarts and cancelling: unaffected runs, restarted actors and stopped runs (ACT-1 …
//! ACT-5).

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

use serde_json::json;
use soong::{
    ErrorCode, FaultComponent, FaultPoint, RunFilter, RunRequest, Runtime, StreamItem,
    protocol::{EndReason, Event, RunEvent, RunId, RunMode, RunStatus},
};
use soong_storage::store::{Ack, Append, Store, StoreError};

use crate::support::{
    history::{check_session, stored},
    model::{ScriptedModel, Turn, assistant_count, is_parent, last_of, scripted_model, task_of},
    world::{TestRuntime, quick_config, read_until, wait_until, with_timeout},
};

/// Model of a run with a tool call, two children with a tool call each, and an artifact.
fn whole_job() -> Arc<ScriptedModel> {
    scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("list_files", json!({})),
            (true, 1) => Turn::call("agent", json!({"task": ["a", "b"]})),
            (true, 2) => Turn::call(
                "create_artifact",
                json!({"name": "report", "content": "# Report"}),
            ),
            (true, _) => Turn::say("the end"),
            (false, 0) => Turn::call("read", json!({"path": "a.txt"})),
            (false, _) => Turn::say(format!("looked at {}", task_of(request))),
        },
    )
}

/// Returns a hook that panics when a run of this depth reaches `point` for the `nth` time or later,
/// at most `times` times.
fn crash_at(
    point: FaultPoint,
    nth: usize,
    times: usize,
    root: Arc<Mutex<Option<RunId>>>,
    of_root: bool,
) -> soong::FaultHook {
    let met: Mutex<HashMap<RunId, usize>> = Mutex::default();
    let crashed = Mutex::new(0);
    Arc::new(move |run, here| {
        if here != point {
            return;
        }
        let mut first = root.lock().unwrap();
        let is_root = first.get_or_insert_with(|| run.clone()) == run;
        drop(first);
        if is_root != of_root {
            return;
        }
        let count = {
            let mut met = met.lock().unwrap();
            let count = met.entry(run.clone()).or_default();
            *count += 1;
            *count
        };
        let mut crashed = crashed.lock().unwrap();
        if count >= nth && *crashed < times {
            *crashed += 1;
            drop(crashed);
            panic!("provoked at {here:?}");
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_recovers_from_the_journal_after_a_crash_at_any_point() {
    for of_root in [true, false] {
        for point in FaultPoint::ALL
            .into_iter()
            .filter(|point| point.place() == FaultComponent::Run)
        {
            for nth in 1..=6 {
                let hook = crash_at(point, nth, 1, Arc::default(), of_root);
                let world =
                    TestRuntime::with(whole_job(), |builder| builder.fault_hook(hook)).await;
                let run = world
                    .runtime()
                    .start(RunRequest::new("job").mode(RunMode::Orchestrator))
                    .await
                    .unwrap();
                let outcome = with_timeout(run.wait()).await.unwrap();
                let case = format!("{point:?} number {nth} of_root={of_root}");
                assert_eq!(
                    (outcome.status, outcome.output.as_str()),
                    (RunStatus::Completed, "the end"),
                    "{case}"
                );
                let events = stored(world.runtime(), run.trace_id()).await;
                let saved = events
                    .iter()
                    .filter(|event| event.event.kind() == "artifact_saved")
                    .count();
                assert_eq!(saved, 1, "{case}");
                let messages = world
                    .runtime()
                    .traces()
                    .messages(run.trace_id(), soong::MessagePath::All)
                    .await
                    .unwrap();
                // system, user, two messages for each of three tool turns, and the answer
                assert_eq!(messages.len(), 9, "{case}");
                assert_eq!(run.children().await.unwrap().len(), 2, "{case}");
                check_session(world.runtime(), run.session_id()).await;
                world.finish().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_continue_while_their_parent_restarts() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model =
        scripted_model(
            move |request| match (is_parent(request), assistant_count(request)) {
                (true, 0) => Turn::call("agent", json!({"task": ["a", "b", "c"]})),
                (true, _) => Turn::say(last_of(request)),
                (false, _) => Turn::When(Arc::clone(&signal), "child's answer".into()),
            },
        );
    let world = TestRuntime::open(model.clone()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").mode(RunMode::Orchestrator))
        .await
        .unwrap();
    wait_until("three children think", || model.in_flight() == 3).await;
    let mut events = run.events().unwrap();
    world
        .runtime()
        .tree()
        .inject_crash(&format!("run:{}", run.run_id()))
        .unwrap();
    let so_far = read_until(&mut events, "actor_restarted").await;
    assert!(
        so_far
            .iter()
            .all(|event| event.event.kind() != "sub_trace_completed")
    );
    assert_eq!(model.in_flight(), 3, "no child was disturbed");
    let calls = model.calls();
    go.notify_waiters();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.output.matches("child's answer").count(), 3);
    assert_eq!(
        model.calls(),
        calls + 1,
        "only the parent's next turn was added"
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fourth_crash_in_a_minute_ends_only_that_run() {
    for (crashes, status) in [(3, RunStatus::Completed), (4, RunStatus::Failed)] {
        let hook = crash_at(FaultPoint::CallModel, 1, crashes, Arc::default(), true);
        let model = scripted_model(|_| Turn::say("ok"));
        let world = TestRuntime::with(model, |builder| builder.fault_hook(hook)).await;
        let bad = world
            .runtime()
            .start(RunRequest::new("bad").session("bad"))
            .await
            .unwrap();
        let good = world
            .runtime()
            .start(RunRequest::new("good").session("good"))
            .await
            .unwrap();
        let outcome = with_timeout(bad.wait()).await.unwrap();
        assert_eq!(outcome.status, status, "{crashes} crashes");
        if status == RunStatus::Failed {
            assert_eq!(outcome.end_reason, EndReason::ActorCrashed);
            assert_eq!(
                outcome.error.as_ref().unwrap().code,
                ErrorCode::ActorCrashed
            );
        }
        assert_eq!(
            with_timeout(good.wait()).await.unwrap().status,
            RunStatus::Completed
        );
        // The session and its trace can continue.
        let next_run = world
            .runtime()
            .start(RunRequest::new("again").session("bad"))
            .await
            .unwrap();
        assert_eq!(with_timeout(next_run.wait()).await.unwrap().output, "ok");
        check_session(world.runtime(), bad.session_id()).await;
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_over_crash_limit_fails_and_its_parent_continues() {
    let hook = crash_at(FaultPoint::CallModel, 1, 4, Arc::default(), false);
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({"task": "x"})),
            (true, _) => Turn::say(last_of(request)),
            (false, _) => Turn::say("never"),
        },
    );
    let world = TestRuntime::with(model, |builder| builder.fault_hook(hook)).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").mode(RunMode::Orchestrator))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed);
    assert!(
        outcome.output.contains("actor_crashed"),
        "{}",
        outcome.output
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// Starts a run with children that wait, and returns once they wait.
async fn waiting_children(world: &TestRuntime, model: &ScriptedModel) -> soong::RunHandle {
    let run = world
        .runtime()
        .start(RunRequest::new("x").mode(RunMode::Orchestrator))
        .await
        .unwrap();
    wait_until("the children think", || model.in_flight() == 2).await;
    run
}

fn children_that_wait(go: Arc<tokio::sync::Notify>) -> Arc<ScriptedModel> {
    scripted_model(
        move |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({"task": ["a", "b"]})),
            (true, _) => Turn::say(last_of(request)),
            (false, _) => Turn::When(Arc::clone(&go), "child's answer".into()),
        },
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_and_its_supervisors_restart_with_their_runs() {
    for victim in [
        "session:s",
        "session_supervisor:0",
        "run_supervisor:s",
        "sub_agent_supervisor:s",
    ] {
        let go = Arc::new(tokio::sync::Notify::new());
        let model = children_that_wait(Arc::clone(&go));
        let world = TestRuntime::open(model.clone()).await;
        let start = RunRequest::new("x")
            .mode(RunMode::Orchestrator)
            .session("s");
        let run = world.runtime().start(start).await.unwrap();
        wait_until("the children think", || model.in_flight() == 2).await;
        let queued = world
            .runtime()
            .start(RunRequest::new("y").session("s"))
            .await
            .unwrap();
        let calls = model.calls();
        world.runtime().tree().inject_crash(victim).unwrap();
        // The model calls of the children ended with their actors, and the restarted actors repeat
        // them.
        wait_until("the children think again", || {
            model.calls() == calls + 2 && model.in_flight() == 2
        })
        .await;
        let restarts = |runtime: &Runtime| {
            serde_json::to_value(runtime.tree().snapshot())
                .unwrap()
                .to_string()
                .contains("\"restarts\":1")
        };
        assert!(restarts(world.runtime()), "{victim}");
        go.notify_waiters();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            outcome.output.matches("child's answer").count(),
            2,
            "{victim}: {}",
            outcome.output
        );
        wait_until("the queued run has its turn", || {
            go.notify_waiters();
            model.in_flight() == 0
        })
        .await;
        assert_eq!(
            with_timeout(queued.wait()).await.unwrap().status,
            RunStatus::Completed
        );
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_crashes_loses_no_call_and_no_permit() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model =
        scripted_model(move |request| Turn::When(Arc::clone(&signal), task_of(request).into()));
    let world = TestRuntime::with(model.clone(), |builder| {
        let mut config = quick_config();
        config.model.max_concurrency = Some(1);
        builder.config(config)
    })
    .await;
    let first = world.runtime().start("first").await.unwrap();
    wait_until("it thinks", || model.in_flight() == 1).await;
    let second = world.runtime().start("second").await.unwrap();
    world
        .runtime()
        .tree()
        .inject_crash("model_gateway:default")
        .unwrap();
    let third = world.runtime().start("third").await.unwrap();
    let all = async {
        for run in [&first, &second, &third] {
            with_timeout(run.wait()).await.unwrap();
        }
    };
    tokio::select! {
        () = all => {}
        () = async { loop { go.notify_one(); tokio::task::yield_now().await; } } => {}
    }
    assert_eq!(
        model.max_in_flight(),
        1,
        "the permit that was out stayed out"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_session_is_passivated_and_reactivated() {
    let model = scripted_model(|request| Turn::say(format!("answer {}", assistant_count(request))));
    let world = TestRuntime::with(model, |builder| {
        let mut config = quick_config();
        config.runtime.idle_session_s = 0;
        builder.config(config)
    })
    .await;
    for n in 0..5 {
        let run = world
            .runtime()
            .start(RunRequest::new("x").session("s"))
            .await
            .unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().output,
            format!("answer {n}")
        );
        let is_idle = || {
            !serde_json::to_string(&world.runtime().tree().snapshot())
                .unwrap()
                .contains("session:s")
        };
        wait_until("its actors go", is_idle).await;
    }
    check_session(world.runtime(), &soong::protocol::SessionId::new("s")).await;
    world.finish().await;
}

/// A parent that crashed reads the end of its child from the store, and may end before the child's
/// actor has reported it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn session_with_an_unreported_end_is_not_passivated() {
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({"task": "a"})),
            (true, _) => Turn::say("the end"),
            (false, _) => Turn::say("looked"),
        },
    );
    let parent: Arc<OnceLock<RunId>> = Arc::default();
    let is_stored = Arc::new(AtomicBool::new(false));
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(Some(released));
    let known = Arc::clone(&parent);
    let reached = Arc::clone(&is_stored);
    // The actor of the child crashes in its last step, when its parent has crashed and ended.
    let hook = Arc::new(move |run: &RunId, point: FaultPoint| {
        if point != FaultPoint::Ended || run == known.wait() {
            return;
        }
        let released = released.lock().unwrap().take();
        if let Some(released) = released {
            reached.store(true, SeqCst);
            released.recv().unwrap();
            std::panic::resume_unwind(Box::new("a crash before the report"));
        }
    });
    let world = TestRuntime::with(model, |builder| {
        let mut config = quick_config();
        config.runtime.idle_session_s = 0;
        builder.config(config).fault_hook(hook)
    })
    .await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    let _ = parent.set(run.run_id().clone());
    wait_until("the end of the child is stored", || is_stored.load(SeqCst)).await;
    world
        .runtime()
        .tree()
        .inject_crash(&format!("run:{}", run.run_id()))
        .unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "the end");
    let open = world.runtime().runs(RunFilter::active());
    assert_eq!(open.len(), 1, "the child has not reported its end");
    let tree = || serde_json::to_string(&world.runtime().tree().snapshot()).unwrap();
    let passivated = async {
        while tree().contains("session:s") {
            tokio::task::yield_now().await;
        }
    };
    let passivated = tokio::time::timeout(Duration::from_millis(200), passivated).await;
    assert!(
        passivated.is_err(),
        "the session stopped together with the actor of the child"
    );
    release.send(()).unwrap();
    assert_eq!(with_timeout(open[0].wait()).await.unwrap().output, "looked");
    wait_until("the actors of the session go", || {
        !tree().contains("session:s")
    })
    .await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_a_tree_stops_all_runs_and_keeps_partial_text() {
    let model =
        scripted_model(
            move |request| match (is_parent(request), assistant_count(request)) {
                (true, _) => Turn::call(
                    "agent",
                    json!({"task": (0..40).map(|n| n.to_string()).collect::<Vec<_>>()}),
                ),
                (false, _) => Turn::Hang("half of it"),
            },
        );
    let world = TestRuntime::open(model.clone()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").mode(RunMode::Orchestrator))
        .await
        .unwrap();
    wait_until("the slots are full", || model.in_flight() == 16).await;
    let calls = model.calls();
    let start = Instant::now();
    with_timeout(run.cancel()).await.unwrap();
    let took = start.elapsed();
    assert!(took.as_millis() < 2_000, "cancelling took {took:?}");
    assert_eq!(model.in_flight(), 0, "a model call goes on");
    assert_eq!(
        model.calls(),
        calls,
        "a model call was made after the request"
    );
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.end_reason),
        (RunStatus::Cancelled, EndReason::AbortedTools)
    );
    let children = run.children().await.unwrap();
    assert_eq!(children.len(), 40);
    assert!(
        children
            .iter()
            .all(|child| child.status == RunStatus::Cancelled)
    );
    let streamed = children
        .iter()
        .filter(|child| child.end_reason == Some(EndReason::AbortedStreaming))
        .count();
    assert_eq!(streamed, 16);
    let partial = world
        .runtime()
        .traces()
        .messages(&children[0].trace_id, soong::MessagePath::All)
        .await
        .unwrap();
    let partial_message = partial
        .iter()
        .find(|message| message.partial)
        .expect("the partial text is kept");
    assert_eq!(partial_message.content, "half of it");
    // The result of the call says how to continue each child.
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), soong::MessagePath::Main)
        .await
        .unwrap();
    let content: serde_json::Value =
        serde_json::from_str(&messages.last().unwrap().content).unwrap();
    let results = content["results"].as_array().unwrap();
    assert_eq!(results.len(), 40);
    for (result, child) in results.iter().zip(&children) {
        assert_eq!(
            (&result["status"], &result["sub_trace_id"]),
            (&json!("cancelled"), &json!(child.trace_id))
        );
        assert!(
            result["stats"]["own"]["total_tokens"].is_u64(),
            "{result:#}"
        );
        let way = format!(
            "it was cancelled; to let it go on, call agent(task=\"…\", continue_from=\"{}\")",
            child.trace_id
        );
        assert_eq!(result["hint"], json!(way));
    }
    with_timeout(run.cancel()).await.unwrap(); // cancelling an ended run changes nothing
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_one_child_does_not_affect_its_siblings() {
    let go = Arc::new(tokio::sync::Notify::new());
    let model = children_that_wait(Arc::clone(&go));
    let world = TestRuntime::open(model.clone()).await;
    let run = waiting_children(&world, &model).await;
    let children = run.children().await.unwrap();
    let child = world
        .runtime()
        .traces()
        .handle(&children[0].run_id)
        .unwrap();
    with_timeout(child.cancel()).await.unwrap();
    assert_eq!(
        with_timeout(child.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    assert_eq!(model.in_flight(), 1);
    go.notify_waiters();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed);
    assert!(
        outcome.output.contains("\"status\":\"cancelled\"")
            && outcome.output.contains("child's answer")
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_run_that_crashes_stays_cancelled() {
    let model = scripted_model(|_| Turn::Hang("text"));
    let hook: soong::FaultHook = {
        let crashes = Mutex::new(0);
        Arc::new(move |_, point| {
            let mut crashes = crashes.lock().unwrap();
            // The append after the one that starts the run records the cancel.
            if point == FaultPoint::BeforeAppend && *crashes < 2 {
                *crashes += 1;
                drop(crashes);
                panic!("provoked while cancelling");
            }
        })
    };
    let world = TestRuntime::with(model.clone(), |builder| builder.fault_hook(hook)).await;
    let run = world.runtime().start("x").await.unwrap();
    wait_until("it thinks", || model.in_flight() == 1).await;
    with_timeout(run.cancel()).await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (SUB-10)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timed_out_child_fails_and_its_parent_is_notified() {
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({"task": "slow", "timeout_ms": 30})),
            (true, _) => Turn::say(last_of(request)),
            (false, _) => Turn::Hang("so far"),
        },
    );
    let world = TestRuntime::open(model).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").mode(RunMode::Orchestrator))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed);
    assert!(
        outcome.output.contains("\"timeout\"") && outcome.output.contains("so far"),
        "{}",
        outcome.output
    );
    let child = &run.children().await.unwrap()[0];
    assert_eq!(
        (child.status, child.end_reason),
        (RunStatus::Failed, Some(EndReason::TimedOut))
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_are_counted_and_reported_on_the_stream() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model = scripted_model(move |_| Turn::When(Arc::clone(&signal), "ok".into()));
    let world = TestRuntime::open(model.clone()).await;
    let run = world.runtime().start("x").await.unwrap();
    for n in 1..=2 {
        wait_until("it thinks", || model.in_flight() == 1).await;
        world
            .runtime()
            .tree()
            .inject_crash(&format!("run:{}", run.run_id()))
            .unwrap();
        wait_until("it thinks again", || model.calls() == n + 1).await;
    }
    go.notify_one();
    with_timeout(run.wait()).await.unwrap();
    let events = stored(world.runtime(), run.trace_id()).await;
    let counts: Vec<u32> = events
        .iter()
        .filter_map(|event| match &event.event {
            Event::Run(RunEvent::ActorRestarted { count, .. }) => Some(*count),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [1, 2]);
    assert!(
        world.runtime().tree().inject_crash("journal:0").is_err(),
        "the journal is no drill's victim"
    );
    assert!(world.runtime().tree().inject_crash("run:none").is_err());
    world.finish().await;
}

/// Store whose thread panics at its nth commit.
struct Dying {
    store: Box<dyn Store>,
    left: usize,
}

impl Store for Dying {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        assert!(self.left > 0, "provoked in the writer");
        self.left -= 1;
        self.store.commit(batch)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_thread_panic_fails_the_runtime_and_ends_waits() {
    let model = scripted_model(|request| match assistant_count(request) {
        0..=4 => Turn::call("read", json!({"path": "a.txt"})),
        _ => Turn::say("end"),
    });
    let world = TestRuntime::with(model, |builder| {
        builder.wrap_store(|store| {
            Box::new(Dying {
                store: Box::new(store),
                left: 4,
            })
        })
    })
    .await;
    let run = world.runtime().start("x").await.unwrap();
    let events = world.runtime().sessions().events(run.session_id(), 0);
    let failure = with_timeout(run.wait()).await.unwrap_err();
    assert_eq!(
        (failure.code, world.runtime().info().failure()),
        (ErrorCode::RuntimeFailed, Some(failure.clone()))
    );
    assert_eq!(
        with_timeout(world.runtime().start("y")).await.unwrap_err(),
        failure
    );
    let stored = world.runtime().traces().run(run.run_id()).await.unwrap();
    assert_eq!(
        stored.status,
        RunStatus::Interrupted,
        "what was committed can be read"
    );
    // Streams deliver all stored events and then the reason, including streams that are opened now.
    for mut events in [
        events,
        world.runtime().sessions().events(run.session_id(), 0),
    ] {
        let mut seen = 0;
        let end = loop {
            match with_timeout(events.next()).await {
                Some(Ok(StreamItem::Event(record))) => seen = record.session_seq,
                Some(Ok(_)) => {}
                end => break end,
            }
        };
        assert_eq!(end.unwrap().unwrap_err(), failure);
        assert_eq!(
            seen,
            world
                .runtime()
                .sessions()
                .get(run.session_id())
                .await
                .unwrap()
                .last_session_seq
        );
        assert!(with_timeout(events.next()).await.is_none());
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisor_crash_limit_fails_the_runtime_and_ends_waits() {
    let model = scripted_model(|_| Turn::Hang("x"));
    let world = TestRuntime::open(model.clone()).await;
    let run = world.runtime().start("x").await.unwrap();
    for n in 1..=6 {
        wait_until("it thinks", || model.in_flight() == 1 && model.calls() == n).await;
        world
            .runtime()
            .tree()
            .inject_crash("session_supervisor:0")
            .unwrap();
    }
    assert_eq!(
        with_timeout(run.wait()).await.unwrap_err().code,
        ErrorCode::RuntimeFailed
    );
    assert_eq!(
        world.runtime().start("y").await.unwrap_err().code,
        ErrorCode::RuntimeFailed
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finish_of_a_driven_run_survives_a_crash() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model = scripted_model(move |_| Turn::When(Arc::clone(&signal), "child's".into()));
    let world = TestRuntime::open(model.clone()).await;
    let parent = world
        .runtime()
        .start(RunRequest::driven("by program"))
        .await
        .unwrap();
    let child = parent.spawn(soong::ChildSpec::new("x")).await.unwrap();
    wait_until("the child thinks", || model.in_flight() == 1).await;
    parent.finish("all done").unwrap();
    let mut events = parent.events().unwrap();
    world
        .runtime()
        .tree()
        .inject_crash(&format!("run:{}", parent.run_id()))
        .unwrap();
    read_until(&mut events, "actor_restarted").await;
    go.notify_waiters();
    with_timeout(child.wait()).await.unwrap();
    assert_eq!(
        with_timeout(parent.wait()).await.unwrap().output,
        "all done"
    );
    check_session(world.runtime(), parent.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_during_a_session_crash_is_executed_or_rejected() {
    let world = TestRuntime::open(scripted_model(|request| Turn::say(task_of(request)))).await;
    let mut accepted = 0;
    let mut refused = 0;
    for round in 0..40 {
        // Four crashes per session: a fifth crash in 30 s would still restart the session, a sixth
        // would not.
        let session = format!("s{}", round / 4);
        let runtime = world.runtime().clone();
        let id = session.clone();
        let starting =
            tokio::spawn(async move { runtime.start(RunRequest::new("x").session(id)).await });
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        let _ = world
            .runtime()
            .tree()
            .inject_crash(&format!("session:{session}"));
        match with_timeout(starting).await.unwrap() {
            Ok(run) => {
                assert_eq!(
                    with_timeout(run.wait()).await.unwrap().status,
                    RunStatus::Completed
                );
                accepted += 1;
            }
            Err(error) => {
                assert!(error.retryable, "{error}");
                refused += 1;
            }
        }
    }
    assert!(accepted > 0, "{accepted} accepted, {refused} refused");
    let page = world
        .runtime()
        .sessions()
        .list(soong::SessionFilter::default(), 100, None)
        .await
        .unwrap();
    wait_until("nothing is left at work", || {
        world
            .runtime()
            .tree()
            .snapshot()
            .is_some_and(|tree| !format!("{tree:?}").contains("kind: Run,"))
    })
    .await;
    for session in page.items {
        check_session(world.runtime(), &session.session_id).await;
    }
    world.finish().await;
}

/// (SUB-7)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_that_crashes_at_its_timeout_still_ends() {
    let armed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let crash = Arc::clone(&armed);
    let hook: soong::FaultHook = Arc::new(move |_, point| {
        assert!(
            point != FaultPoint::BeforeAppend || !crash.swap(false, SeqCst),
            "provoked"
        );
    });
    let model = scripted_model(|_| Turn::Hang("half"));
    let world = TestRuntime::with(model.clone(), |builder| {
        builder.config(quick_config()).fault_hook(hook)
    })
    .await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").timeout(Duration::from_millis(300)))
        .await
        .unwrap();
    wait_until("the model is asked", || model.in_flight() == 1).await;
    // The next append records the consequences of the timeout.
    armed.store(true, SeqCst);
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert!(!armed.load(SeqCst), "it crashed");
    assert_eq!(
        outcome.error.as_ref().map(|error| error.code),
        Some(ErrorCode::Timeout),
        "{outcome:?}"
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}
