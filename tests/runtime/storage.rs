//! A disk that rejects writes: runs wait, lose nothing, and continue (DUR-6); artifacts.

use std::time::Instant;

use serde_json::json;
use soong::{RunRequest, protocol::RunStatus};
use soong_storage::{
    fault::{Fault, FaultPlan, FaultStore},
    store::StoreError,
};

use crate::support::{
    history::{check_run, check_session},
    model::{Turn, assistant_count, last_of, scripted_model},
    world::{TestRuntime, read_to_end, with_timeout},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_completes_if_any_single_commit_fails() {
    for unclear in [false, true] {
        for nth in 2..=9 {
            let plan = FaultPlan::new();
            let error = StoreError::Io("no space left on device".into());
            plan.inject_at(
                nth,
                if unclear {
                    Fault::FailAfterWrite(error)
                } else {
                    Fault::FailBeforeWrite(error)
                },
            );
            let model = scripted_model(|request| match assistant_count(request) {
                0 => Turn::call("read", json!({"path": "a.txt"})),
                1 => Turn::call("create_artifact", json!({"name": "r", "content": "text"})),
                _ => Turn::say("end"),
            });
            let wrapped = plan.clone();
            let world = TestRuntime::with(model, |builder| {
                builder.wrap_store(move |store| Box::new(FaultStore::new(store, wrapped)))
            })
            .await;
            let run = world.runtime().start(RunRequest::new("x")).await;
            let Ok(run) = run else {
                panic!("commit {nth}: the start was refused: {:?}", run.err());
            };
            let events = read_to_end(run.events().unwrap()).await;
            check_run(&events);
            let outcome = with_timeout(run.wait()).await.unwrap();
            assert_eq!(
                outcome.status,
                RunStatus::Completed,
                "commit {nth} unclear={unclear}: {:?}",
                outcome.error
            );
            check_session(world.runtime(), run.session_id()).await;
            world.finish().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_start_is_reported_and_leaves_nothing() {
    for unclear in [false, true] {
        refuse_a_start(unclear).await;
    }
}

async fn refuse_a_start(unclear: bool) {
    let plan = FaultPlan::new();
    let error = StoreError::Io("no space left on device".into());
    plan.inject_at(
        1,
        if unclear {
            Fault::FailAfterWrite(error)
        } else {
            Fault::FailBeforeWrite(error)
        },
    );
    let wrapped = plan.clone();
    let world = TestRuntime::with(scripted_model(|_| Turn::say("ok")), |builder| {
        builder.wrap_store(move |store| Box::new(FaultStore::new(store, wrapped)))
    })
    .await;
    let error = world
        .runtime()
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap_err();
    assert_eq!(error.code, soong::ErrorCode::StorageError);
    assert!(
        error.retryable && error.message.contains("no space left"),
        "{error}"
    );
    let run = world
        .runtime()
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "ok");
    let id = run.session_id().clone();
    // A run that was recorded without the caller's knowledge ends automatically.
    loop {
        match world.runtime().sessions().get(&id).await.unwrap().live_runs {
            0 => break,
            _ => tokio::task::yield_now().await,
        }
    }
    check_session(world.runtime(), &id).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waits_for_the_disk_can_be_cancelled() {
    let plan = FaultPlan::new();
    let wrapped = plan.clone();
    let world = TestRuntime::with(scripted_model(|_| Turn::Hang("x")), |builder| {
        builder.wrap_store(move |store| Box::new(FaultStore::new(store, wrapped)))
    })
    .await;
    let run = world.runtime().start(RunRequest::new("x")).await.unwrap();
    plan.inject_always(Fault::FailBeforeWrite(StoreError::Io(
        "read-only file system".into(),
    )));
    let cancelling = tokio::spawn({
        let run = run.clone();
        async move { run.cancel().await }
    });
    let start = Instant::now();
    let shows = |text: &str| {
        serde_json::to_string(&world.runtime().tree().snapshot())
            .unwrap()
            .contains(text)
    };
    crate::support::world::wait_until("it shows that it waits for storage", || {
        shows("\"activity\":\"storage\"")
    })
    .await;
    assert!(start.elapsed().as_secs() < 30);
    plan.clear();
    with_timeout(cancelling).await.unwrap().unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifact_is_stored_once_by_name_and_can_be_read_back() {
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::call(
            "create_artifact",
            json!({"name": "task_plan", "content": "- [ ] one\n- [ ] two\n"}),
        ),
        1 => {
            let system = request.system_and_context();
            assert!(
                system.contains("- [ ] two"),
                "the plan is in the system prompt: {system}"
            );
            Turn::call(
                "create_artifact",
                json!({"name": "task_plan", "content": "other"}),
            )
        }
        2 => {
            assert!(
                last_of(request).contains("[artifact_exists]"),
                "{}",
                last_of(request)
            );
            Turn::call(
                "read_artifact",
                json!({"name": "task_plan", "offset": 2, "limit": 1}),
            )
        }
        3 => {
            assert!(last_of(request).contains("- [ ] two") && !last_of(request).contains("one"));
            Turn::call(
                "create_artifact",
                json!({"name": "../evil", "content": "x"}),
            )
        }
        4 => {
            assert!(
                last_of(request).contains("cannot name an artifact"),
                "{}",
                last_of(request)
            );
            Turn::call("list_artifacts", json!({}))
        }
        _ => Turn::say(last_of(request)),
    });
    let world = TestRuntime::open(model).await;
    let run = world.runtime().start(RunRequest::new("x")).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert!(
        outcome
            .output
            .starts_with("task_plan (version 1, text/markdown, 20 bytes)"),
        "{}",
        outcome.output
    );
    assert_eq!(outcome.artifacts.len(), 1);
    let owner = world
        .runtime()
        .artifacts()
        .owner(run.session_id())
        .await
        .unwrap();
    let service = world.runtime().artifacts().service();
    let loaded = service
        .load(&owner, "task_plan", None)
        .await
        .unwrap()
        .unwrap();
    let artifact = loaded.artifact.clone();
    let bytes = loaded.bytes().await.unwrap();
    assert_eq!(
        (artifact.current_version, bytes.as_ref()),
        (1, b"- [ ] one\n- [ ] two\n".as_slice())
    );
    let folder = world
        .home()
        .join("sessions")
        .join(run.session_id().as_str())
        .join("artifacts");
    let file = folder
        .join(artifact.artifact_id.as_str())
        .join("v1/task_plan.md");
    assert_eq!(std::fs::read(file).unwrap(), bytes);
    assert!(
        service
            .load(&owner, "nothing", None)
            .await
            .unwrap()
            .is_none()
    );
    world.finish().await;
}
