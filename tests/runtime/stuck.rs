//! Stalled runs are reported once; runs that wait by design are not reported (RUN-7).

use std::sync::{Arc, atomic::AtomicUsize};

use serde_json::json;
use soong::{
    ActorView, RunRequest,
    protocol::{RunMode, RunStatus, SessionId},
};

use crate::support::{
    history::{check_session, stored},
    model::{Turn, assistant_count, is_parent, scripted_model, task_of},
    tool::HangOnceTool,
    world::{TestRuntime, quick_config, read_until, wait_until, with_timeout},
};

/// Returns the tasks of the runs that the tree shows as stalled.
fn stuck(tree: &ActorView) -> Vec<String> {
    let own = tree
        .run
        .iter()
        .filter(|run| run.stuck)
        .map(|run| run.task.clone());
    own.chain(tree.children.iter().flat_map(stuck)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_hanging_tool_call_is_reported_and_only_once() {
    let called = Arc::new(AtomicUsize::new(0));
    let model = scripted_model(|request| {
        match (
            is_parent(request),
            task_of(request),
            assistant_count(request),
        ) {
            (true, _, 0) => Turn::call(
                "agent",
                json!({"task": ["hangs", "thinks", "asks"], "agent_type": "default"}),
            ),
            (true, ..) => Turn::say("done"),
            (_, "hangs", 0) => Turn::call("hang", json!({})),
            (_, "thinks", 0) => Turn::Hang("slowly"),
            (_, "asks", 0) => Turn::call("ask_human", json!({"question": "well?"})),
            _ => Turn::say("x"),
        }
    });
    let world = TestRuntime::with(model.clone(), |builder| {
        let mut config = quick_config();
        config.runtime.stuck_after_s = 1;
        builder
            .config(config)
            .tool(HangOnceTool::new(false, &called))
    })
    .await;
    let run = world
        .runtime()
        .start(
            RunRequest::new("parent")
                .session("s")
                .mode(RunMode::Orchestrator),
        )
        .await
        .unwrap();
    let mut stream = world.runtime().sessions().events(&SessionId::new("s"), 0);
    let event = read_until(&mut stream, "run_stuck").await.pop().unwrap();
    let children = run.children().await.unwrap();
    assert_eq!(event.run_id.as_ref(), Some(&children[0].run_id));
    assert_eq!(
        stuck(&world.runtime().tree().snapshot().unwrap()),
        ["hangs"]
    );
    // A second check reports nothing new: neither the runs that wait by design nor the same run
    // again.
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    for child in &children {
        let events = stored(world.runtime(), &child.trace_id).await;
        let count = events
            .iter()
            .filter(|event| event.event.kind() == "run_stuck")
            .count();
        assert_eq!(
            count,
            usize::from(child.run_id == children[0].run_id),
            "{}",
            child.task
        );
    }
    assert_eq!(
        stuck(&world.runtime().tree().snapshot().unwrap()),
        ["hangs"]
    );
    with_timeout(run.cancel()).await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    wait_until("nothing is stuck any more", || {
        stuck(&world.runtime().tree().snapshot().unwrap()).is_empty()
    })
    .await;
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}
