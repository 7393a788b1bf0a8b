//! Crashes during document edits: no edit is lost, each edit is applied once, and every call gets
//! its real outcome (ART-4, ART-5).

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::FutureExt;
use serde_json::json;
use soong::{
    ChildSpec, EventStream, FaultHook, FaultPoint, RunHandle, RunRequest, Runtime,
    model::Model,
    protocol::{EndReason, Event, EventRecord, RecoveryMode, RunMode, RunStatus, ToolEvent},
};
use soong_storage::store::StoreError;

use crate::support::{
    artifacts::{
        EditHookStore, begin, calls, edits, flushes, growing, is_alive, listed, local_owner,
        open_with_gate, pause, prompt_driven_model, read, run, text, text_at, turns, update,
        versions,
    },
    history::{check_session, stored},
    model::{Turn, assistant_count, is_parent, last_of, scripted_model, task_of},
    world::{
        TestRuntime, quick_config, quick_non_durable_config, read_until, wait_until, with_timeout,
    },
};

/// Checks a run of `growing("doc", 3)`, whose result must be the same wherever a crash occurred.
async fn check_grown(
    world: &TestRuntime,
    run: &soong::RunHandle,
    about: &str,
) -> Vec<Arc<EventRecord>> {
    let events = stored(world.runtime(), run.trace_id()).await;
    let want: Vec<_> = [(1, "0"), (2, "0 1"), (3, "0 1 2"), (4, "0 1 2 3")]
        .map(|(n, text)| (n, text.to_owned()))
        .into();
    assert_eq!(edits(&events, "doc"), want, "{about}");
    assert_eq!(
        calls(&events, "update_artifact"),
        [Ok(()), Ok(()), Ok(())],
        "{about}"
    );
    assert_eq!(calls(&events, "create_artifact"), [Ok(())], "{about}");
    let here = local_owner(run.session_id().as_str());
    assert_eq!(versions(world, &here, "doc").await, [4], "{about}");
    assert_eq!(text_at(world, &here, "doc", 4).await, "0 1 2 3", "{about}");
    assert_eq!(flushes(&events), [[("doc".to_owned(), 4)]], "{about}");
    check_session(world.runtime(), run.session_id()).await;
    events
}

/// Returns a hook that panics when any run reaches `point` for the `nth` time.
fn panic_at(point: FaultPoint, nth: usize) -> FaultHook {
    let met = AtomicUsize::new(0);
    Arc::new(move |_, here| {
        if here == point && met.fetch_add(1, SeqCst) + 1 == nth {
            panic!("provoked at {here:?}");
        }
    })
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_crash_at_any_point_applies_each_edit_once() {
    for (point, times) in [
        (FaultPoint::BeforeAppend, 12),
        (FaultPoint::AfterAppend, 12),
        (FaultPoint::CallModel, 5),
        (FaultPoint::RunTool, 4),
        (FaultPoint::Flush, 1),
        (FaultPoint::Ended, 1),
    ] {
        for nth in 1..=times {
            let world = TestRuntime::with(prompt_driven_model(), |builder| {
                builder
                    .config(quick_non_durable_config())
                    .fault_hook(panic_at(point, nth))
            })
            .await;
            let (run, outcome) = run(&world, "s", &growing("doc", 3)).await;
            let about = format!("{point:?} number {nth}");
            assert_eq!(
                outcome.status,
                RunStatus::Completed,
                "{about}: {:?}",
                outcome.error
            );
            check_grown(&world, &run, &about).await;
            assert_eq!(outcome.artifacts[0].version, 4, "{about}");
            world.finish().await;
        }
    }
}

/// Opens a test runtime that crashes `actor` when an edit is committed: before the commit if
/// `before`, otherwise after it. Crashes it at most `times` times.
async fn crashing_at_edits(actor: &'static str, before: bool, times: usize) -> TestRuntime {
    let slot: Arc<OnceLock<Runtime>> = Arc::default();
    let crashed = Arc::clone(&slot);
    let mut left = times;
    let hook = move |_, is_committed: bool| {
        if is_committed != before && left > 0 {
            left -= 1;
            slot.wait().tree().inject_crash(actor).unwrap();
        }
        Ok(())
    };
    let world = TestRuntime::with(prompt_driven_model(), |builder| {
        builder
            .config(quick_non_durable_config())
            .wrap_store(move |store| Box::new(EditHookStore::new(store, hook)))
    })
    .await;
    assert!(crashed.set(world.runtime().clone()).is_ok());
    world
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn working_set_crash_during_edit_applies_it_once() {
    for actor in ["working_set:s", "artifact_store_supervisor:0"] {
        for before in [true, false] {
            for times in [1, 4, 5] {
                let world = crashing_at_edits(actor, before, times).await;
                let (run, outcome) = run(&world, "s", &growing("doc", 3)).await;
                let about = format!("{actor}, {times} times, before={before}");
                assert_eq!(
                    outcome.status,
                    RunStatus::Completed,
                    "{about}: {:?}",
                    outcome.error
                );
                check_grown(&world, &run, &about).await;
                world.finish().await;
            }
        }
    }
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edit_with_unknown_commit_outcome_is_applied_once() {
    for before in [true, false] {
        for nth in 1..=4 {
            let hook = move |edit, is_committed: bool| {
                if (edit, is_committed) == (nth, !before) {
                    Err(StoreError::Io("no space left on device".into()))
                } else {
                    Ok(())
                }
            };
            let world = TestRuntime::with(prompt_driven_model(), |builder| {
                builder
                    .config(quick_non_durable_config())
                    .wrap_store(move |store| Box::new(EditHookStore::new(store, hook)))
            })
            .await;
            let (run, outcome) = run(&world, "s", &growing("doc", 3)).await;
            let about = format!("edit {nth}, before={before}");
            assert_eq!(
                outcome.status,
                RunStatus::Completed,
                "{about}: {:?}",
                outcome.error
            );
            check_grown(&world, &run, &about).await;
            world.finish().await;
        }
    }
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_between_edits_lose_no_edit() {
    for actor in ["working_set:s", "artifact_store_supervisor:0", "session:s"] {
        let (world, gate) = open_with_gate(|builder| builder).await;
        let steps: Vec<_> = growing("doc", 3)
            .into_iter()
            .flat_map(|step| [step, pause()])
            .collect();
        let run = begin(&world, "s", &steps).await;
        for n in 1..=4 {
            gate.reached(n + if actor == "session:s" { n - 1 } else { 0 })
                .await;
            world.runtime().tree().inject_crash(actor).unwrap();
            if actor == "session:s" {
                // A crash of the session also restarts its run, which reaches the gate again.
                gate.reached(2 * n).await;
            }
            gate.pass();
        }
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().status,
            RunStatus::Completed
        );
        check_grown(&world, &run, actor).await;
        world.finish().await;
    }
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn working_set_crash_limit_rejects_edits_but_allows_reads() {
    let (world, gate) = open_with_gate(|builder| builder).await;
    let steps = [
        &growing("doc", 2)[..],
        &[pause(), update("doc", "2", "2 3"), read("doc")],
    ]
    .concat();
    let run_a = begin(&world, "s", &steps).await;
    gate.reached(1).await;
    for n in 1..=6 {
        // The tree shows a restart slightly before the actor accepts messages.
        wait_until("it can be reached", || {
            world.runtime().tree().inject_crash("working_set:s").is_ok()
        })
        .await;
        wait_until("it is back, or given up", || {
            let tree = serde_json::to_value(world.runtime().tree().snapshot())
                .unwrap()
                .to_string();
            let set = tree.split("\"actor_id\":\"working_set:s\"").nth(1);
            match n {
                6 => set.is_none(),
                _ => set.is_some_and(|set| {
                    set.split("\"actor_id\"")
                        .next()
                        .unwrap()
                        .contains(&format!("\"restarts\":{n}"))
                }),
            }
        })
        .await;
    }
    assert_eq!(text(&world, &local_owner("s"), "doc").await, "0 1 2");
    gate.pass();
    let outcome = with_timeout(run_a.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "0 1 2\n")
    );
    let events = stored(world.runtime(), run_a.trace_id()).await;
    assert_eq!(
        calls(&events, "update_artifact"),
        [Ok(()), Ok(()), Err("actor_crashed".to_owned())]
    );
    assert_eq!(
        flushes(&events),
        [[("doc".to_owned(), 3)]],
        "what was recorded is stored"
    );
    // Saving a product does not involve the working set, and other sessions have separate working
    // sets.
    crate::support::artifacts::save(&world, &local_owner("s"), "doc", "product").await;
    assert_eq!(versions(&world, &local_owner("s"), "doc").await, [3, 4]);
    let (other, _) = run(&world, "t", &growing("doc", 3)).await;
    check_grown(&world, &other, "another session").await;
    check_session(world.runtime(), run_a.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_working_set_is_passivated_and_reloads_its_text() {
    let mut config = quick_config();
    config.runtime.idle_session_s = 0;
    let (world, gate) = open_with_gate(|builder| builder.config(config)).await;
    let steps: Vec<_> = growing("doc", 3)
        .into_iter()
        .flat_map(|step| [step, pause()])
        .collect();
    let run_a = begin(&world, "s", &steps).await;
    for n in 1..=4 {
        gate.reached(n).await;
        wait_until("the set goes", || !is_alive(&world, "working_set:s")).await;
        gate.pass();
    }
    with_timeout(run_a.wait()).await.unwrap();
    check_grown(&world, &run_a, "within a run").await;
    wait_until("the session goes", || !is_alive(&world, "session:s")).await;
    run(&world, "s", &[update("doc", "3", "3 4")]).await;
    assert_eq!(text(&world, &local_owner("s"), "doc").await, "0 1 2 3 4");
    assert_eq!(versions(&world, &local_owner("s"), "doc").await, [4, 5]);
    world.finish().await;
}

/// Returns the results of the run's tool calls as the model reads them.
async fn read_back(world: &TestRuntime, run: &soong::RunHandle) -> Vec<String> {
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), soong::MessagePath::All)
        .await
        .unwrap();
    messages
        .into_iter()
        .filter(|message| message.tool_call_id.is_some())
        .map(|message| message.content.into_text())
        .collect()
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_over_crash_limit_keeps_outcome_of_its_last_edit() {
    // The run crashes each time before it records the outcome of its second call.
    let begun = Arc::new(AtomicUsize::new(0));
    let world_before = Arc::new(AtomicUsize::new(0));
    let tools = Arc::clone(&begun);
    let crashes = Arc::clone(&world_before);
    let hook: FaultHook = Arc::new(move |_, point| match point {
        FaultPoint::RunTool => drop(tools.fetch_add(1, SeqCst)),
        FaultPoint::BeforeAppend if tools.load(SeqCst) >= 2 && crashes.fetch_add(1, SeqCst) < 9 => {
            panic!("provoked")
        }
        _ => {}
    });
    let world = TestRuntime::with(prompt_driven_model(), |builder| builder.fault_hook(hook)).await;
    let (run, outcome) = run(&world, "s", &growing("doc", 3)).await;
    assert_eq!(
        (outcome.status, outcome.end_reason),
        (RunStatus::Failed, EndReason::ActorCrashed)
    );
    let events = stored(world.runtime(), run.trace_id()).await;
    assert_eq!(calls(&events, "update_artifact"), [Ok(())]);
    assert_eq!(edits(&events, "doc").len(), 2);
    let read = read_back(&world, &run).await;
    assert!(
        read[1].starts_with("<artifact version=\"2\"><id>doc</id>"),
        "{read:?}"
    );
    assert!(
        read[1].contains("<match layer=\"exact\" similarity=\"1.000\"/>"),
        "{read:?}"
    );
    assert_eq!(versions(&world, &local_owner("s"), "doc").await, [2]);
    assert_eq!(flushes(&events), [[("doc".to_owned(), 2)]]);
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reopened_home_ends_interrupted_run_with_real_outcomes() {
    for nth in 1..=4 {
        // The disk is full after this edit.
        let full = Arc::new(Mutex::new(false));
        let filled = Arc::clone(&full);
        let world = TestRuntime::with(prompt_driven_model(), |builder| {
            builder.wrap_store(move |store| {
                let after = Arc::clone(&filled);
                let full = move |edit, is_committed| {
                    *after.lock().unwrap() |= is_committed && edit == nth;
                    Ok(())
                };
                Box::new(Full {
                    store: EditHookStore::new(store, full),
                    full: filled,
                })
            })
        })
        .await;
        let mut world = world;
        let run = begin(&world, "s", &growing("doc", 3)).await;
        wait_until("the edit is written", || *full.lock().unwrap()).await;
        let ending = |builder: soong::RuntimeBuilder| {
            let mut config = quick_config();
            config.runtime.recovery = Some(RecoveryMode::Fail);
            builder.config(config)
        };
        world
            .reopen_with(prompt_driven_model() as Arc<dyn Model>, ending)
            .await;
        assert_eq!(world.runtime().info().interrupted_runs().ended.len(), 1);
        let stored_run = world.runtime().traces().run(run.run_id()).await.unwrap();
        assert_eq!(
            (stored_run.status, stored_run.end_reason),
            (RunStatus::Failed, Some(EndReason::Interrupted))
        );
        let events = stored(world.runtime(), run.trace_id()).await;
        assert_eq!(edits(&events, "doc").len(), nth);
        assert_eq!(
            flushes(&events),
            [[("doc".to_owned(), nth as u64)]],
            "the finalization flushes"
        );
        let ended: Vec<_> = [
            calls(&events, "create_artifact"),
            calls(&events, "update_artifact"),
        ]
        .concat();
        assert_eq!(
            ended,
            vec![Ok(()); nth],
            "none is interrupted: its outcome is known"
        );
        let read = read_back(&world, &run).await;
        assert!(
            read[nth - 1].starts_with(&format!("<artifact version=\"{nth}\">")),
            "{read:?}"
        );
        let here = local_owner("s");
        assert_eq!(versions(&world, &here, "doc").await, [nth as u64]);
        assert!(!listed(&world, &here, "doc").await.dirty);
        // The session continues, and its next edit builds on the stored text.
        drop(run);
        let go =
            RunRequest::new(turns(&[update("doc", &(nth - 1).to_string(), "on")])).session("s");
        let next = world.runtime().start(go).await.unwrap();
        assert_eq!(
            with_timeout(next.wait()).await.unwrap().status,
            RunStatus::Completed
        );
        assert_eq!(
            versions(&world, &here, "doc").await,
            [nth as u64, nth as u64 + 1]
        );
        check_session(world.runtime(), next.session_id()).await;
        world.finish().await;
    }
}

/// Store that rejects every commit once `full` is set.
struct Full<S> {
    store: S,
    full: Arc<Mutex<bool>>,
}

impl<S: soong_storage::store::Store> soong_storage::store::Store for Full<S> {
    fn commit(
        &mut self,
        batch: &[soong_storage::store::Append],
    ) -> Result<Vec<Result<soong_storage::store::Ack, StoreError>>, StoreError> {
        let is_full = *self.full.lock().unwrap();
        if is_full {
            Err(StoreError::Io("no space left on device".into()))
        } else {
            self.store.commit(batch)
        }
    }
}

/// A parent and three children edit one document, and a run crashes (ART-5).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_child_edits_lose_no_line_after_a_crash() {
    for (point, nth) in [
        (FaultPoint::RunTool, 3),
        (FaultPoint::BeforeAppend, 9),
        (FaultPoint::AfterAppend, 12),
        (FaultPoint::Flush, 1),
        (FaultPoint::Ended, 1),
    ] {
        let model =
            scripted_model(
                |request| match (is_parent(request), assistant_count(request)) {
                    (true, 0) => {
                        Turn::call("create_artifact", json!({"name": "doc", "content": "END"}))
                    }
                    (true, 1) => Turn::call(
                        "agent",
                        json!({"task": ["a", "b", "c"], "agent_type": "default"}),
                    ),
                    (true, _) => Turn::say("done"),
                    (false, turn @ 0..4) => {
                        let line =
                            format!("{}{turn}\nEND", crate::support::model::task_of(request));
                        Turn::call(
                            "update_artifact",
                            json!({"name": "doc", "old": "END", "new": line}),
                        )
                    }
                    (false, _) => Turn::say("ok"),
                },
            );
        let world =
            TestRuntime::with(model, |builder| builder.fault_hook(panic_at(point, nth))).await;
        let run = world
            .runtime()
            .start(
                RunRequest::new("x")
                    .session("s")
                    .mode(RunMode::Orchestrator),
            )
            .await
            .unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().output,
            "done",
            "{point:?}"
        );
        let whole = text(&world, &local_owner("s"), "doc").await;
        let mut lines: Vec<&str> = whole.lines().collect();
        lines.sort_unstable();
        let want: Vec<String> = ["a", "b", "c"]
            .iter()
            .flat_map(|who| (0..4).map(move |n| format!("{who}{n}")))
            .collect();
        assert_eq!(lines[1..], want, "{point:?} number {nth}");
        assert!(
            !listed(&world, &local_owner("s"), "doc").await.dirty,
            "{point:?}"
        );
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// (ART-10)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watcher_sees_each_edit_once_despite_crashes() {
    let world = crashing_at_edits("working_set:s", true, 3).await;
    let run = begin(&world, "s", &growing("doc", 3)).await;
    let mut stream: EventStream = run.events().unwrap();
    let events = with_timeout(tokio::time::timeout(
        Duration::from_secs(10),
        read_until(&mut stream, "run_completed"),
    ))
    .await
    .unwrap();
    let snapshots: Vec<u64> = events
        .iter()
        .filter_map(|event| match &event.event {
            Event::Tool(ToolEvent::Completed {
                artifact_snapshot,
                artifact_delta,
                ..
            }) => {
                let version = artifact_delta["doc"];
                assert!(
                    artifact_snapshot
                        .as_ref()
                        .is_none_or(|snapshot| snapshot.version == version)
                );
                Some(version)
            }
            _ => None,
        })
        .collect();
    assert_eq!(snapshots, [1, 2, 3, 4]);
    with_timeout(run.wait()).await.unwrap();
    check_grown(&world, &run, "as it is watched").await;
    world.finish().await;
}

/// Edits after a flush are flushed too, also if a later process continues the run (ART-4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn document_that_is_edited_after_its_flush_is_flushed_again() {
    let first = scripted_model(
        |request| match (task_of(request), assistant_count(request)) {
            ("job", 0) => Turn::call("create_artifact", json!({"name": "doc", "content": "old"})),
            ("job", _) => Turn::say("one"),
            _ => Turn::Hang("half"),
        },
    );
    // A child that is added at the moment of the flush keeps the run from ending.
    let run_cell: Arc<OnceLock<RunHandle>> = Arc::default();
    let added: Arc<Mutex<Option<tokio::task::JoinHandle<()>>>> = Arc::default();
    let handle_of_run = run_cell.clone();
    let adding = added.clone();
    let threads = tokio::runtime::Handle::current();
    let hook: FaultHook = Arc::new(move |run, point| {
        if point == FaultPoint::Flush && handle_of_run.wait().run_id() == run {
            let _within = threads.enter();
            let handle = handle_of_run.wait().clone();
            let mut spawning = async move { handle.spawn(ChildSpec::new("stay")).await }.boxed();
            // The first poll sends the request, before the outcome of the flush can arrive.
            assert!((&mut spawning).now_or_never().is_none());
            *adding.lock().unwrap() =
                Some(threads.spawn(async move { drop(spawning.await.unwrap()) }));
        }
    });
    let mut world = TestRuntime::with(first.clone(), |builder| {
        builder.config(quick_config()).fault_hook(hook)
    })
    .await;
    let request = RunRequest::new("job")
        .session("s")
        .mode(RunMode::Orchestrator);
    let run = world.runtime().start(request).await.unwrap();
    assert!(run_cell.set(run.clone()).is_ok());
    let mut events = run.events().unwrap();
    read_until(&mut events, "artifacts_flushed").await;
    let spawning = added.lock().unwrap().take().unwrap();
    with_timeout(spawning).await.unwrap();
    wait_until("the child calls its model", || first.in_flight() == 1).await;
    let trace = run.trace_id().clone();
    drop((events, run, run_cell, added));

    let go = Arc::new(tokio::sync::Notify::new());
    let stay = Arc::clone(&go);
    let second = scripted_model(move |request| match (task_of(request), last_of(request)) {
        ("stay", _) => Turn::When(Arc::clone(&stay), "stayed".to_owned()),
        ("late", _) => Turn::say("late result"),
        (_, last) if last.starts_with("A sub-agent has ended") => {
            Turn::call("rewrite_artifact", json!({"name": "doc", "content": "new"}))
        }
        _ => Turn::say("two"),
    });
    world.reopen(second.clone()).await;
    let runtime = world.runtime();
    wait_until("the child is resumed", || second.in_flight() == 1).await;
    let run = runtime.traces().active_run(&trace).unwrap();
    let late = run.spawn(ChildSpec::new("late").deliver()).await.unwrap();
    with_timeout(late.wait()).await.unwrap();
    go.notify_one();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "two");
    let events = stored(runtime, &trace).await;
    assert_eq!(
        flushes(&events),
        [[("doc".to_owned(), 1)], [("doc".to_owned(), 2)]]
    );
    assert_eq!(text(&world, &local_owner("s"), "doc").await, "new");
    assert!(!listed(&world, &local_owner("s"), "doc").await.dirty);
    check_session(runtime, run.session_id()).await;
    drop((late, run));
    world.finish().await;
}
