//! Many children: cancelling a tree of a thousand runs, cancelling one of many children, and two
//! thousand short-lived children (SUB-7, RT-6).
//!
//! Performance is measured by `examples/bench/bench_sub_agents.rs`. Elsewhere: cancelling at each
//! point of a run (`cancelling.rs`).

use std::sync::Arc;

use futures::future::join_all;
use serde_json::json;
use soong::{
    ActorKind, ActorView, ChildSpec, MessagePath, RunHandle, RunRequest, TraceFilter,
    protocol::{Config, EndReason, RunMode, RunStatus, SessionId, TraceStatus},
};
use tokio::sync::Notify;

use crate::support::{
    history::check_session,
    model::{Turn, assistant_count, scripted_model, task_of},
    world::{TestRuntime, quick_non_durable_config, wait_until, with_timeout},
};

/// Number of branches of the tree, and of leaves per branch.
const TREE: (usize, usize) = (10, 100);
/// Total number of short-lived children, and number of simultaneous ones.
const CYCLES: (usize, usize) = (2_000, 100);

fn wide(slots: usize) -> Config {
    let mut config = quick_non_durable_config();
    config.model.max_concurrency = Some(slots);
    config.agents.max_depth = 2;
    config.agents.max_children_per_run = slots;
    config.agents.max_concurrent_children_per_session = slots;
    config.runtime.cancel_timeout_ms = 60_000;
    config
}

/// Returns the permits and slots that gateways and sub-agent supervisors report as in use.
fn left_over(actor: &ActorView) -> Vec<String> {
    let has_some = matches!(
        actor.kind,
        ActorKind::ModelGateway | ActorKind::SubAgentSupervisor
    );
    let own = (has_some && !actor.activity.is_empty())
        .then(|| format!("{}: {}", actor.actor_id, actor.activity));
    own.into_iter()
        .chain(actor.children.iter().flat_map(left_over))
        .collect()
}

/// (RT-6)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_a_thousand_runs_stops_all_and_keeps_partial_text() {
    let (branches, leaves) = TREE;
    let tasks = |name: &str, count: usize| {
        Turn::call(
            "agent",
            json!({"task": vec![name; count], "agent_type": "default"}),
        )
    };
    let model = scripted_model(
        move |request| match (task_of(request), assistant_count(request)) {
            ("job", 0) => tasks("branch", branches),
            ("branch", 0) => tasks("leaf", leaves),
            ("leaf", 0) => Turn::call("read", json!({"path": "a.txt"})),
            ("leaf", _) => Turn::Hang("half"),
            _ => Turn::say("done"),
        },
    );
    let all = branches * leaves;
    let world = TestRuntime::with(model.clone(), |builder| {
        builder.config(wide(all + branches))
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
    wait_until("every leaf is in its second call", || {
        model.in_flight() == all && model.calls() == 1 + branches + 2 * all
    })
    .await;
    let calls = model.calls();
    with_timeout(run.cancel()).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.end_reason),
        (RunStatus::Cancelled, EndReason::AbortedTools)
    );
    assert_eq!(
        (model.in_flight(), model.calls()),
        (0, calls),
        "no model request follows a cancel"
    );
    assert_eq!(runtime.info().live_runs(), 0);
    // The usage of every answered call counts.
    let answered = (1 + branches + all) as u64;
    let used = (
        outcome.stats.tree.prompt_tokens,
        outcome.stats.tree.completion_tokens,
    );
    assert!(
        used.0 >= 10 * answered && used.1 >= 5 * answered,
        "{used:?} for {answered} answers"
    );
    let mut seen = 0;
    let mut cursor = None;
    loop {
        let of_session = TraceFilter {
            session_id: Some(SessionId::new("s")),
            ..Default::default()
        };
        let page = runtime
            .traces()
            .list(of_session, 100, cursor)
            .await
            .unwrap();
        for trace in &page.items {
            assert_eq!(trace.status, TraceStatus::Stopped, "{}", trace.trace_id);
            if trace.task == "leaf" {
                let messages = runtime
                    .traces()
                    .messages(&trace.trace_id, MessagePath::All)
                    .await
                    .unwrap();
                assert!(
                    messages
                        .iter()
                        .any(|one| one.partial && one.content == "half"),
                    "{}",
                    trace.trace_id
                );
                seen += 1;
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, all);
    check_session(runtime, &SessionId::new("s")).await;
    let root = || runtime.tree().snapshot().unwrap();
    wait_until("permits and slots are back", || {
        left_over(&root()).is_empty()
    })
    .await;
    world.finish().await;
}

/// (RT-6)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_one_child_does_not_affect_its_siblings() {
    let signal = Arc::new(Notify::new());
    let script = Arc::clone(&signal);
    let model = scripted_model(move |_| Turn::When(Arc::clone(&script), "done".to_owned()));
    let world = TestRuntime::with(model.clone(), |builder| builder.config(wide(20))).await;
    let parent = world
        .runtime()
        .start(RunRequest::driven("drive").session("s"))
        .await
        .unwrap();
    let spawned =
        join_all((0..20).map(|index| parent.spawn(ChildSpec::new(index.to_string())))).await;
    let children: Vec<RunHandle> = spawned.into_iter().map(Result::unwrap).collect();
    wait_until("all are asked", || model.in_flight() == 20).await;
    with_timeout(children[7].cancel()).await.unwrap();
    assert_eq!(
        with_timeout(children[7].wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    assert_eq!(model.in_flight(), 19, "the others go on");
    let rows = parent.children().await.unwrap();
    assert_eq!(
        rows.iter()
            .filter(|run| run.status == RunStatus::Running)
            .count(),
        19
    );
    signal.notify_waiters();
    for (index, child) in children.iter().enumerate().filter(|(index, _)| *index != 7) {
        assert_eq!(
            with_timeout(child.wait()).await.unwrap().output,
            "done",
            "child {index}"
        );
    }
    parent.finish("all done").unwrap();
    assert_eq!(
        with_timeout(parent.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    check_session(world.runtime(), &SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_short_children_leak_no_permit_and_no_actor() {
    let (count, at_once) = CYCLES;
    let world = TestRuntime::with(scripted_model(|_| Turn::say("done")), |builder| {
        builder.config(wide(at_once))
    })
    .await;
    let runtime = world.runtime();
    let mut alive = None;
    for cycle in 0..count / at_once {
        let parent = runtime
            .start(RunRequest::driven("drive").session("s"))
            .await
            .unwrap();
        let one = async |index: usize| {
            let child = parent
                .spawn(ChildSpec::new(index.to_string()))
                .await
                .unwrap();
            with_timeout(child.wait()).await.unwrap().status
        };
        let ended = join_all((0..at_once).map(one)).await;
        assert!(
            ended.iter().all(|status| *status == RunStatus::Completed),
            "cycle {cycle}: {ended:?}"
        );
        parent.finish("all done").unwrap();
        with_timeout(parent.wait()).await.unwrap();
        assert_eq!(runtime.info().live_runs(), 0, "cycle {cycle}");
        wait_until("permits and slots are back", || {
            left_over(&runtime.tree().snapshot().unwrap()).is_empty()
        })
        .await;
        // The session's actors start in the first cycle, and later cycles add none.
        let before = *alive.get_or_insert_with(|| runtime.tree().live_count());
        wait_until("nothing more is alive than after the first", || {
            runtime.tree().live_count() <= before
        })
        .await;
    }
    world.finish().await;
}
