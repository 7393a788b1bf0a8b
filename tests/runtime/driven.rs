//! Driven runs (runs that a program controls) after a crash of their process (RT-4).

use soong::{
    ActorView, Child, ChildSpec, ErrorCode, RunRequest, RuntimeBuilder,
    protocol::{EndReason, RunId, RunStatus, Timestamp},
};

use crate::support::{
    history::check_session,
    model::{Turn, scripted_model, task_of},
    world::{TestRuntime, quick_config, wait_until, with_timeout},
};

fn tasks(names: &[&str]) -> Vec<ChildSpec> {
    names.iter().map(|name| ChildSpec::new(*name)).collect()
}

/// Configures a stall timeout of one second.
fn impatient(builder: RuntimeBuilder) -> RuntimeBuilder {
    let mut config = quick_config();
    config.runtime.stuck_after_s = 1;
    builder.config(config)
}

/// Opens a home whose previous process ended while a driven run had two children: `ended` has
/// completed, `works` has not.
async fn left_behind() -> TestRuntime {
    let first = scripted_model(|request| match task_of(request) {
        "ended" => Turn::say("early"),
        _ => Turn::Hang("half"),
    });
    let mut world = TestRuntime::with(first.clone(), impatient).await;
    let run = world
        .runtime()
        .start(RunRequest::driven("drive").session("s"))
        .await
        .unwrap();
    let children = run.spawn_all(tasks(&["ended", "works"])).await.unwrap();
    with_timeout(children[0].wait()).await.unwrap();
    wait_until("the other one thinks", || first.in_flight() == 1).await;
    world.close_runtime().await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_resumes_a_driven_run_after_a_crash() {
    let mut world = left_behind().await;
    let second = scripted_model(|request| Turn::say(format!("{} late", task_of(request))));
    world.reopen_with(second.clone(), impatient).await;
    let undriven = world.runtime().info().resumed_driven_runs();
    let [run] = &undriven[..] else {
        panic!("{undriven:?}")
    };
    for (names, part) in [
        (&["ended"][..], "already has 2 children"),
        (&["ended", "other"], "a different task"),
    ] {
        let error = run.children_or_spawn(tasks(names)).await.unwrap_err();
        assert!(
            error.code == ErrorCode::ValidationError && error.message.contains(part),
            "{error}"
        );
    }
    let children = run
        .children_or_spawn(tasks(&["ended", "works", "new"]))
        .await
        .unwrap();
    assert!(matches!(&children[0], Child::Ended(outcome) if outcome.output == "early"));
    let mut outputs = Vec::new();
    for child in &children {
        outputs.push(with_timeout(child.wait()).await.unwrap().output.clone());
    }
    assert_eq!(outputs, ["early", "works late", "new late"]);
    assert_eq!(second.calls(), 2, "what had ended is not repeated");
    assert!(
        world.runtime().info().resumed_driven_runs().is_empty(),
        "it has a driver"
    );
    run.finish("all done").unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "all done");
    check_session(world.runtime(), run.session_id()).await;
    drop(undriven);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driven_run_without_a_handle_ends_as_interrupted() {
    let mut world = left_behind().await;
    let second = scripted_model(|_| Turn::say("late"));
    world.reopen_with(second.clone(), impatient).await;
    let id = world.runtime().info().resumed_driven_runs()[0]
        .run_id()
        .clone();
    wait_until("it has ended", || {
        world.runtime().traces().handle(&id).is_err()
    })
    .await;
    let ended = world.runtime().traces().run(&id).await.unwrap();
    assert_eq!(
        (ended.status, ended.end_reason),
        (RunStatus::Failed, Some(EndReason::Interrupted))
    );
    assert!(
        ended
            .error
            .unwrap()
            .message
            .contains("no program has driven the run")
    );
    check_session(world.runtime(), &ended.session_id).await;
    // The session accepts runs again.
    let next = world
        .runtime()
        .start(RunRequest::new("next").session("s"))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(next.wait()).await.unwrap().status,
        RunStatus::Completed
    );

    // A driven run with a handle keeps waiting while one without a handle ends.
    let driven = world
        .runtime()
        .start(RunRequest::driven("drive").session("t"))
        .await
        .unwrap();
    let dropped = world
        .runtime()
        .start(RunRequest::driven("drive").session("u"))
        .await
        .unwrap()
        .run_id()
        .clone();
    wait_until("the one without a handle has ended", || {
        world.runtime().traces().handle(&dropped).is_err()
    })
    .await;
    assert_eq!(driven.status().await.unwrap(), RunStatus::Running);
    driven.finish("done").unwrap();
    with_timeout(driven.wait()).await.unwrap();
    drop((driven, next));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn driver_check_does_not_count_as_progress() {
    let model = scripted_model(|_| Turn::Hang("half"));
    let world = TestRuntime::with(model.clone(), impatient).await;
    let run = world
        .runtime()
        .start(RunRequest::driven("drive").session("s"))
        .await
        .unwrap();
    let run_id = run.run_id().clone();
    run.spawn_all(tasks(&["works"])).await.unwrap();
    wait_until("the child thinks", || model.in_flight() == 1).await;
    drop(run);
    // Each of these runs ends when it is found without a handle. The run above was checked as well,
    // and it stays because it has an open child.
    let mut seen = Vec::new();
    for session in ["t", "u"] {
        let dropped = world
            .runtime()
            .start(RunRequest::driven("drive").session(session))
            .await
            .unwrap()
            .run_id()
            .clone();
        wait_until("the one without a handle has ended", || {
            world.runtime().traces().handle(&dropped).is_err()
        })
        .await;
        seen.push(last_progress(
            &world.runtime().tree().snapshot().unwrap(),
            &run_id,
        ));
    }
    assert!(seen[0].is_some() && seen[0] == seen[1], "{seen:?}");
    world
        .runtime()
        .traces()
        .handle(&run_id)
        .unwrap()
        .cancel()
        .await
        .unwrap();
    world.finish().await;
}

fn last_progress(tree: &ActorView, run: &RunId) -> Option<Timestamp> {
    match &tree.run {
        Some(view) if tree.id == run.as_str() => view.last_progress,
        _ => tree
            .children
            .iter()
            .find_map(|child| last_progress(child, run)),
    }
}
