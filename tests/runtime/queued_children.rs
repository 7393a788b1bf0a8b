//! Children of runs that have not started: they are recorded at once, start with their run, and end
//! with it.

use std::sync::Arc;

use soong::{
    ChildSpec, ErrorCode, MessagePath, RunHandle, RunRequest,
    protocol::{Budget, Config, Event, MessageEvent, RunStatus},
    testing::respond_async,
};
use tokio::sync::Semaphore;

use crate::support::{
    history::{check_session, stored},
    model::{ScriptedModel, Turn, last_of, scripted_model},
    world::{TestRuntime, kinds, quick_config, wait_until, with_timeout},
};

/// Model that hangs when it is asked `ahead`, and answers everything else.
fn model() -> Arc<ScriptedModel> {
    scripted_model(|request| match last_of(request) {
        "ahead" => Turn::Hang("busy"),
        task => Turn::say(format!("{task} done")),
    })
}

fn config() -> Config {
    let mut config = quick_config();
    config.agents.max_depth = 2;
    config
}

/// Starts a run that hangs, and queues another one behind it.
async fn queue_behind(world: &TestRuntime, request: RunRequest) -> (RunHandle, RunHandle) {
    let runtime = world.runtime();
    let ahead = runtime
        .start(RunRequest::new("ahead").session("s"))
        .await
        .unwrap();
    let queued = runtime.start(request.session("s")).await.unwrap();
    (ahead, queued)
}

async fn statuses(run: &RunHandle) -> Vec<(String, RunStatus)> {
    run.children()
        .await
        .unwrap()
        .into_iter()
        .map(|child| (child.task, child.status))
        .collect()
}

fn all(status: RunStatus) -> Vec<(String, RunStatus)> {
    vec![("one".to_owned(), status), ("two".to_owned(), status)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_a_queued_run_start_with_it() {
    let model = model();
    let world = TestRuntime::with(model.clone(), |builder| builder.config(config())).await;
    let (ahead, queued) = queue_behind(&world, RunRequest::new("parent")).await;
    wait_until("the run ahead has called its model", || model.calls() == 1).await;
    let children = with_timeout(queued.spawn_all([ChildSpec::new("one"), ChildSpec::new("two")]))
        .await
        .unwrap();
    let children: Vec<RunHandle> = children.into_iter().collect();
    assert_eq!(statuses(&queued).await, all(RunStatus::Queued));
    let record = queued.record().await.unwrap();
    assert_eq!(
        (record.status, model.calls()),
        (RunStatus::Queued, 1),
        "nothing has started"
    );

    // The run ahead adds a child of its own to the same trace.
    let other = with_timeout(ahead.spawn(ChildSpec::new("other")))
        .await
        .unwrap();
    with_timeout(other.wait()).await.unwrap();
    with_timeout(ahead.cancel()).await.unwrap();
    for child in &children {
        let outcome = with_timeout(child.wait()).await.unwrap();
        assert_eq!(outcome.status, RunStatus::Completed);
    }
    let outcome = with_timeout(queued.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "parent done")
    );
    assert_eq!(statuses(&queued).await, all(RunStatus::Completed));
    let parent = queued.record().await.unwrap();
    for child in queued.children().await.unwrap() {
        assert!(child.started_at >= parent.started_at, "{child:?}");
    }
    let of_run: Vec<_> = stored(world.runtime(), queued.trace_id())
        .await
        .into_iter()
        .filter(|event| event.run_id.as_ref() == Some(queued.run_id()))
        .collect();
    let kinds = kinds(&of_run);
    let index_of = |kind: &str| kinds.iter().position(|one| *one == kind).unwrap();
    assert!(
        index_of("run_queued") < index_of("sub_trace_started")
            && index_of("sub_trace_started") < index_of("loop_started")
    );
    check_session(world.runtime(), queued.session_id()).await;
    world.finish().await;
}

/// A run that rewinds its conversation replaces the collaborators, but not its own children.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_a_queued_run_stay_collaborators_if_it_rewinds() {
    let world = TestRuntime::with(model(), |builder| builder.config(config())).await;
    let first = world
        .runtime()
        .start(RunRequest::new("first").session("s"))
        .await
        .unwrap();
    with_timeout(first.wait()).await.unwrap();
    let messages = world
        .runtime()
        .traces()
        .messages(first.trace_id(), MessagePath::Main)
        .await
        .unwrap();
    let (ahead, discarded) = queue_behind(&world, RunRequest::new("discarded")).await;
    let old = with_timeout(ahead.spawn(ChildSpec::new("old")))
        .await
        .unwrap();
    with_timeout(old.wait()).await.unwrap();
    with_timeout(ahead.cancel()).await.unwrap();
    with_timeout(discarded.wait()).await.unwrap();

    // A run on the trace of a sub-agent does not move the end of the conversation, so a rewinding
    // run waits for it.
    let ahead = world
        .runtime()
        .start(RunRequest::new("ahead").trace(old.trace_id()))
        .await
        .unwrap();
    let rewinding = RunRequest::new("again")
        .session("s")
        .after(messages.last().unwrap().sequence);
    let queued = world.runtime().start(rewinding).await.unwrap();
    let child = with_timeout(queued.spawn(ChildSpec::new("one")))
        .await
        .unwrap();
    with_timeout(ahead.cancel()).await.unwrap();
    with_timeout(child.wait()).await.unwrap();
    with_timeout(queued.wait()).await.unwrap();
    let mut after_rewind = Vec::new();
    for record in stored(world.runtime(), queued.trace_id()).await {
        if let Event::Message(MessageEvent::Rewind { collaborators, .. }) = &record.event {
            let collaborators = collaborators.clone().unwrap();
            after_rewind.extend(
                collaborators
                    .into_iter()
                    .map(|collaborator| collaborator.trace_id),
            );
        }
    }
    assert_eq!(after_rewind, [Some(child.trace_id().clone())]);
    let trace = world
        .runtime()
        .traces()
        .get(queued.trace_id())
        .await
        .unwrap();
    assert_eq!(trace.context.collaborators.len(), 1);
    check_session(world.runtime(), queued.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_a_queued_run_end_with_it() {
    for cancels_child_first in [false, true] {
        let model = model();
        let world = TestRuntime::with(model.clone(), |builder| builder.config(config())).await;
        let (ahead, queued) = queue_behind(&world, RunRequest::new("parent")).await;
        let children =
            with_timeout(queued.spawn_all([ChildSpec::new("one"), ChildSpec::new("two")]))
                .await
                .unwrap();
        let children: Vec<RunHandle> = children.into_iter().collect();
        // A child that has not started can have children too.
        with_timeout(children[0].spawn(ChildSpec::new("below")))
            .await
            .unwrap();
        if cancels_child_first {
            // The second request finds the child ending, or ended.
            let (first, second) = tokio::join!(
                with_timeout(children[0].cancel()),
                with_timeout(children[0].cancel())
            );
            first.unwrap();
            second.unwrap();
            with_timeout(children[0].wait()).await.unwrap();
            assert_eq!(queued.record().await.unwrap().status, RunStatus::Queued);
        }
        with_timeout(queued.cancel()).await.unwrap();
        assert_eq!(
            with_timeout(queued.wait()).await.unwrap().status,
            RunStatus::Cancelled
        );
        assert_eq!(statuses(&queued).await, all(RunStatus::Cancelled));
        assert_eq!(
            children[0].children().await.unwrap()[0].status,
            RunStatus::Cancelled
        );
        let refused = with_timeout(queued.spawn(ChildSpec::new("late")))
            .await
            .unwrap_err();
        assert_eq!(refused.code, ErrorCode::NothingRunning);
        with_timeout(ahead.cancel()).await.unwrap();
        with_timeout(ahead.wait()).await.unwrap();
        check_session(world.runtime(), queued.session_id()).await;
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_a_queued_run_survive_a_restart() {
    let mut world = TestRuntime::with(model(), |builder| builder.config(config())).await;
    let (_, queued) = queue_behind(&world, RunRequest::new("parent")).await;
    let children = with_timeout(queued.spawn_all([ChildSpec::new("one"), ChildSpec::new("two")]))
        .await
        .unwrap();
    let child = children.into_iter().next().unwrap();
    with_timeout(child.spawn(ChildSpec::new("below")))
        .await
        .unwrap();
    let run_id = queued.run_id().clone();
    let child_id = child.run_id().clone();
    drop((queued, child));

    let gate = Arc::new(Semaphore::new(0));
    let waiting_gate = Arc::clone(&gate);
    let second = Arc::new(respond_async(move |request| {
        let waiting_gate = Arc::clone(&waiting_gate);
        let is_ahead = last_of(request) == "ahead";
        let step = Turn::say(format!("{} done", last_of(request))).step(request);
        async move {
            if is_ahead {
                waiting_gate.acquire().await.unwrap().forget();
            }
            step
        }
    }));
    world
        .reopen_with(second.clone(), |builder| builder.config(config()))
        .await;
    wait_until("the run ahead has resumed", || second.in_flight() == 1).await;
    let queued = world.runtime().traces().handle(&run_id).unwrap();
    let child = world.runtime().traces().handle(&child_id).unwrap();
    assert_eq!(statuses(&queued).await, all(RunStatus::Queued));
    assert_eq!(second.calls(), 1, "the children wait for their run");
    gate.add_permits(1);
    assert_eq!(
        with_timeout(queued.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    assert_eq!(statuses(&queued).await, all(RunStatus::Completed));
    let below = child.children().await.unwrap();
    assert_eq!((below.len(), below[0].status), (1, RunStatus::Completed));
    check_session(world.runtime(), queued.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_a_queued_run_hold_for_its_children() {
    let world = TestRuntime::with(model(), |builder| builder.config(config())).await;
    let budget = Budget {
        children: Some(1),
        ..Budget::default()
    };
    let (ahead, queued) = queue_behind(&world, RunRequest::new("parent").budget(budget)).await;
    let refused = with_timeout(queued.spawn_all([ChildSpec::new("one"), ChildSpec::new("two")]))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::BudgetExceeded);
    assert_eq!(statuses(&queued).await, []);
    with_timeout(queued.spawn(ChildSpec::new("one")))
        .await
        .unwrap();
    let refused = with_timeout(queued.spawn(ChildSpec::new("two")))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::BudgetExceeded);
    with_timeout(ahead.cancel()).await.unwrap();
    with_timeout(queued.wait()).await.unwrap();
    assert_eq!(
        statuses(&queued).await,
        [("one".to_owned(), RunStatus::Completed)]
    );
    world.finish().await;
}
