//! Watching the actor tree: applying all updates to the first snapshot yields the current tree
//! (ACT-6).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::json;
use soong::{
    ActorKind, ActorView, RunEnd, RunRequest, Runtime, TreeEvent, TreeWatch,
    model::{Failure, ModelError},
    protocol::{Budget, BudgetDimension, Config, Decision, RunId, RunStatus},
};
use tokio::sync::Notify;

use crate::support::{
    model::{Turn, assistant_count, scripted_model},
    stamp::StampTool,
    world::{TestRuntime, wait_for_permissions, wait_for_questions, wait_until, with_timeout},
};

/// The tree as a watcher knows it, flattened.
#[derive(Default)]
struct Known {
    actors: BTreeMap<String, ActorView>,
    dropped: u64,
    snapshots: usize,
    ends: Vec<RunEnd>,
}

impl Known {
    async fn receive(&mut self, watch: &mut TreeWatch) -> bool {
        match watch.next().await {
            None => return false,
            Some(TreeEvent::Snapshot { tree, dropped }) => {
                self.actors = flat(*tree);
                self.dropped = dropped;
                self.snapshots += 1;
            }
            Some(TreeEvent::Changed {
                changed,
                gone,
                ended,
                dropped,
            }) => {
                assert!(
                    !changed.is_empty() || !gone.is_empty(),
                    "an update contains a change"
                );
                for end in ended.iter() {
                    assert!(
                        gone.contains(&format!("run:{}", end.run_id)),
                        "who has ended goes"
                    );
                }
                self.ends.extend_from_slice(&ended);
                for id in gone.iter() {
                    self.actors.remove(id);
                }
                for view in changed.iter() {
                    assert!(
                        view.children.is_empty(),
                        "where it hangs is said by its parent"
                    );
                    self.actors.insert(view.actor_id.clone(), view.clone());
                }
                self.dropped = dropped;
            }
        }
        true
    }
}

fn flat(tree: ActorView) -> BTreeMap<String, ActorView> {
    let mut flat = BTreeMap::new();
    let mut open = vec![tree];
    while let Some(mut view) = open.pop() {
        open.append(&mut view.children);
        flat.insert(view.actor_id.clone(), view);
    }
    flat
}

async fn driven(runtime: &Runtime, session: &str) {
    let run = runtime
        .start(RunRequest::driven("work").session(session))
        .await
        .unwrap();
    run.finish("done").unwrap();
    run.wait().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn watchers_stay_current_and_slow_ones_get_the_drop_count() {
    // Paused time passes quickly while all tasks wait, and sessions must not be passivated because
    // of it.
    let mut config = Config::default();
    config.runtime.idle_session_s = 365 * 24 * 3_600;
    let mut world = TestRuntime::with(scripted_model(|_| Turn::say("done")), |builder| {
        builder.config(config)
    })
    .await;
    let runtime = world.runtime();
    let mut quick = runtime.tree().watch();
    let mut slow = runtime.tree().watch();
    let mut known = Known::default();
    let mut late = Known::default();
    assert!(known.receive(&mut quick).await && late.receive(&mut slow).await);
    assert_eq!(
        known.actors,
        flat(runtime.tree().snapshot().unwrap()),
        "the first is a picture of all"
    );
    {
        let mut work = std::pin::pin!(async {
            for session in 0..50 {
                driven(runtime, &format!("s{session}")).await;
            }
        });
        loop {
            tokio::select! {
                () = work.as_mut() => break,
                is_there = known.receive(&mut quick) => assert!(is_there),
            }
        }
    }
    assert_eq!(
        (known.dropped, known.snapshots),
        (0, 1),
        "who reads loses nothing"
    );
    // More updates have been sent than the watch keeps.
    while late.dropped == 0 {
        assert!(late.receive(&mut slow).await);
    }
    assert_eq!(
        late.snapshots, 2,
        "a whole picture replaces the updates that were left out"
    );
    assert!((0..50).all(|session| late.actors.contains_key(&format!("session:s{session}"))));
    // Both watches receive the latest update.
    driven(runtime, "last").await;
    for (known, watch) in [(&mut known, &mut quick), (&mut late, &mut slow)] {
        for _ in 0..1_000 {
            if known.actors == flat(runtime.tree().snapshot().unwrap()) {
                break;
            }
            assert!(known.receive(watch).await);
        }
        assert_eq!(known.actors, flat(runtime.tree().snapshot().unwrap()));
    }
    world.close_runtime().await;
    while known.receive(&mut quick).await {}
    assert!(
        !late.receive(&mut slow).await || !late.receive(&mut slow).await,
        "a watch ends with the runtime"
    );
    world.finish().await;
}

fn actor(runtime: &Runtime, kind: ActorKind) -> Option<ActorView> {
    flat(runtime.tree().snapshot()?)
        .into_values()
        .find(|view| view.kind == kind)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_view_shows_recorded_usage_request_and_last_error() {
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("read", json!({"path": "no-such-file"})),
        1 => Turn::call("stamp", json!({"word": "a", "place": "here"})),
        _ => Turn::say("done"),
    });
    let tool = StampTool::new();
    let world = TestRuntime::with(model, |builder| {
        builder.tool(tool.clone()).permissions_by_users()
    })
    .await;
    let runtime = world.runtime();
    let budget = Budget {
        tokens: Some(9_000_000),
        model_calls: Some(10),
        ..Budget::default()
    };
    let run = runtime
        .start(RunRequest::new("look").budget(budget))
        .await
        .unwrap();
    let permissions = wait_for_permissions(runtime, 1).await;
    wait_until("all of it is shown", || {
        actor(runtime, ActorKind::Run)
            .is_some_and(|view| view.run.is_some_and(|run| run.asks == 1 && run.events > 0))
    })
    .await;
    let view = actor(runtime, ActorKind::Run).unwrap();
    let shown = view.run.clone().unwrap();
    let recorded = runtime
        .traces()
        .run(&RunId::new(view.id.as_str()))
        .await
        .unwrap();
    assert_eq!(
        (shown.turn, shown.tokens, shown.cost),
        (recorded.turn, recorded.usage.total_tokens, recorded.cost)
    );
    let shares: Vec<(BudgetDimension, &str, &str)> = shown
        .budget
        .iter()
        .map(|share| (share.dimension, share.used.as_str(), share.limit.as_str()))
        .collect();
    let used = recorded.usage.total_tokens.to_string();
    assert_eq!(
        shares,
        [
            (BudgetDimension::Tokens, &*used, "9000000"),
            (BudgetDimension::ModelCalls, "2", "10")
        ]
    );
    assert!(
        view.last_error.unwrap().starts_with("tool read: "),
        "what failed last is shown"
    );
    assert!(
        shown
            .last_progress
            .is_some_and(|at| at >= recorded.created_at)
    );
    let gateway = actor(runtime, ActorKind::ModelGateway)
        .unwrap()
        .gateway
        .unwrap();
    assert_eq!(
        (gateway.in_flight, gateway.waiting, gateway.sent),
        (0, 0, 2)
    );
    assert!(gateway.max_concurrency > 0 && gateway.retry_after.is_none() && !gateway.is_down);

    runtime
        .permissions()
        .decide(&permissions[0].permission_id, Decision::AllowOnce, None)
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let events = crate::support::world::read_to_end(run.events().unwrap()).await;
    assert!(
        events
            .iter()
            .filter_map(|event| event.run_seq)
            .max()
            .unwrap()
            > shown.events,
        "it went on"
    );
    assert_eq!(
        events[usize::try_from(shown.events).unwrap() - 1].run_seq,
        Some(shown.events)
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watcher_receives_the_recorded_end_of_each_run() {
    let model = scripted_model(|request| {
        match (
            assistant_count(request),
            request.messages.iter().any(|it| it.content == "fail"),
        ) {
            (0, _) => Turn::call("ask_human", json!({"question": "Now?"})),
            (_, true) => Turn::Fail(ModelError::new(Failure::Rejected, "no")),
            (_, false) => Turn::say("done"),
        }
    });
    let world = TestRuntime::open(model).await;
    let runtime = world.runtime();
    let mut runs = Vec::new();
    for task in ["complete", "fail", "cancel"] {
        runs.push(runtime.start(RunRequest::new(task)).await.unwrap());
    }
    let questions = wait_for_questions(runtime, runs.len()).await;
    let mut watch = runtime.tree().watch();
    let mut known = Known::default();
    assert!(known.receive(&mut watch).await);
    runs[2].cancel().await.unwrap();
    for question in questions
        .iter()
        .filter(|question| question.run_id != *runs[2].run_id())
    {
        runtime
            .questions()
            .answer(&question.question_id, "yes")
            .await
            .unwrap();
    }
    while known.ends.len() < runs.len() {
        assert!(with_timeout(known.receive(&mut watch)).await);
    }
    for (run, status) in runs.iter().zip([
        RunStatus::Completed,
        RunStatus::Failed,
        RunStatus::Cancelled,
    ]) {
        let end = known
            .ends
            .iter()
            .find(|end| end.run_id == *run.run_id())
            .unwrap();
        let recorded = runtime.traces().run(run.run_id()).await.unwrap();
        assert_eq!(
            (end.status, end.error.is_some()),
            (status, status == RunStatus::Failed)
        );
        assert_eq!((end.status, &end.error), (recorded.status, &recorded.error));
        assert_eq!(
            (Some(end.completed_at), end.turn),
            (recorded.completed_at, recorded.turn)
        );
        assert_eq!(
            (end.tokens, end.cost),
            (recorded.usage.total_tokens, recorded.cost)
        );
        assert!(end.tokens > 0, "{end:?}");
    }
    drop(watch);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actor_that_ends_right_after_the_snapshot_is_removed() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("done"))).await;
    let runtime = world.runtime();
    let mut watch = runtime.tree().watch();
    let mut known = Known::default();
    let run = runtime.start(RunRequest::driven("work")).await.unwrap();
    let actor = format!("run:{}", run.run_id());
    assert!(known.receive(&mut watch).await && known.actors.contains_key(&actor));
    run.finish("done").unwrap();
    run.wait().await.unwrap();
    while known.actors.contains_key(&actor) {
        assert!(with_timeout(known.receive(&mut watch)).await);
    }
    assert_eq!(
        known.ends.iter().map(|end| &end.run_id).collect::<Vec<_>>(),
        [run.run_id()]
    );
    drop(watch);
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn unchanged_tree_sends_no_updates() {
    let go_on = Arc::new(Notify::new());
    let signal = Arc::clone(&go_on);
    let model = scripted_model(move |_| Turn::When(Arc::clone(&signal), "done".to_owned()));
    let mut config = Config::default();
    config.model.max_concurrency = Some(1);
    let world = TestRuntime::with(model.clone(), |builder| builder.config(config)).await;
    let runtime = world.runtime();
    let run = runtime.start(RunRequest::new("look")).await.unwrap();
    wait_until("the model is asked", || model.in_flight() == 1).await;
    // It waits for a permit, and checks every second whether it has one.
    let other = runtime
        .start(RunRequest::new("look as well"))
        .await
        .unwrap();
    let mut watch = runtime.tree().watch();
    let mut known = Known::default();
    // The updates that follow from the start arrive first.
    let still = async |watch: &mut TreeWatch, known: &mut Known| {
        tokio::time::timeout(Duration::from_secs(60), known.receive(watch))
            .await
            .is_err()
    };
    let mut news = 0;
    while !still(&mut watch, &mut known).await {
        news += 1;
        assert!(news < 20, "the updates do not end");
    }
    drop(watch);
    go_on.notify_one();
    run.wait().await.unwrap();
    go_on.notify_one();
    other.wait().await.unwrap();
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn time_budget_view_advances_except_while_waiting_for_user() {
    let go_on = Arc::new(Notify::new());
    let signal = Arc::clone(&go_on);
    let model = scripted_model(move |request| match assistant_count(request) {
        0 => Turn::call("ask_human", json!({"question": "Which colour?"})),
        _ => Turn::When(Arc::clone(&signal), "done".to_owned()),
    });
    let world = TestRuntime::open(model.clone()).await;
    let runtime = world.runtime();
    // More than the time that passes during waits for the disk, because paused time passes quickly
    // while all tasks wait.
    let budget = Budget {
        wall_time_s: Some(1_000_000_000),
        ..Budget::default()
    };
    let run = runtime
        .start(RunRequest::new("look").budget(budget))
        .await
        .unwrap();
    let question = wait_for_questions(runtime, 1).await.remove(0);
    let used = |view: &ActorView| -> u64 {
        let share = view
            .run
            .as_ref()
            .and_then(|run| run.budget.first())
            .unwrap();
        assert_eq!(
            (share.dimension, share.limit.as_str()),
            (BudgetDimension::WallTimeS, "1000000000")
        );
        share.used.parse().unwrap()
    };
    let now = || used(&actor(runtime, ActorKind::Run).unwrap());
    let before = now();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(now(), before);
    runtime
        .questions()
        .answer(&question.question_id, "red")
        .await
        .unwrap();
    wait_until("the model is asked", || model.in_flight() == 1).await;
    let mut watch = runtime.tree().watch();
    let mut known = Known::default();
    let before = now();
    while !known
        .actors
        .values()
        .any(|view| view.kind == ActorKind::Run && used(view) >= before + 20)
    {
        assert!(
            known.receive(&mut watch).await,
            "an update arrives while nothing else happens"
        );
    }
    drop(watch);
    go_on.notify_one();
    run.wait().await.unwrap();
    world.finish().await;
}
