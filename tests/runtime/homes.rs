//! Homes: ownership, recovery by the next owner, and release (DUR-3).

use std::sync::Arc;

use soong::{
    ErrorCode, InterruptedRuns, RunRequest, Runtime,
    protocol::{Config, EndReason, RecoveryMode, RunStatus, TraceStatus},
};

use crate::support::{
    history::{check_session, stored},
    model::{Turn, assistant_count, scripted_model},
    world::{TestRuntime, quick_config, wait_until, with_timeout},
};

/// Configuration that ends interrupted runs.
fn ending() -> Config {
    let mut config = quick_config();
    config.runtime.recovery = Some(RecoveryMode::Fail);
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_runtime_on_a_home_is_rejected_and_changes_nothing() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("ok"))).await;
    let second = Runtime::builder()
        .home(world.home())
        .project_dir(world.project())
        .offline()
        .build()
        .await;
    let error = second.err().unwrap();
    assert_eq!(error.code, ErrorCode::HomeLocked);
    assert!(
        error.message.starts_with("this process already owns"),
        "{error}"
    );
    let run = world.runtime().start("still works").await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    world.finish().await;
}

#[cfg(unix)]
#[tokio::test]
async fn new_home_is_private_and_existing_home_keeps_its_mode() {
    use std::{fs, os::unix::fs::PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    fs::create_dir(dir.path().join("plain")).unwrap();
    let usual = mode(&dir.path().join("plain"));
    let existing = dir.path().join("there");
    fs::create_dir(&existing).unwrap();
    fs::set_permissions(&existing, fs::Permissions::from_mode(0o750)).unwrap();
    for (home, want) in [
        (dir.path().join("deep/down/home"), 0o700),
        (existing, 0o750),
    ] {
        for time in ["first", "second"] {
            let runtime = Runtime::builder()
                .home(&home)
                .project_dir(dir.path())
                .offline()
                .build()
                .await
                .unwrap();
            assert_eq!(mode(&home), want, "{} for the {time} time", home.display());
            runtime.close().await;
        }
    }
    assert_eq!(
        mode(&dir.path().join("deep/down")),
        usual,
        "what it lies in is made as folders are"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_owner_ends_interrupted_runs_children_first() {
    let model = scripted_model(|request| {
        match (
            crate::support::model::is_parent(request),
            assistant_count(request),
        ) {
            (true, 0) => Turn::call(
                "agent",
                serde_json::json!({"task": (0..20).map(|n| n.to_string()).collect::<Vec<_>>()}),
            ),
            _ => Turn::Hang("half"),
        }
    });
    let mut world = TestRuntime::open(model.clone()).await;
    let start = RunRequest::new("job")
        .mode(soong::protocol::RunMode::Orchestrator)
        .session("s");
    let run = world.runtime().start(start).await.unwrap();
    let queued = world
        .runtime()
        .start(RunRequest::new("later").session("s"))
        .await
        .unwrap();
    wait_until("the slots are full", || model.in_flight() == 16).await;
    let trace = run.trace_id().clone();
    let session = run.session_id().clone();
    let waiting = tokio::spawn(async move { run.wait().await });
    world
        .reopen_with(scripted_model(|_| Turn::say("ok")), |builder| {
            builder.config(ending())
        })
        .await;
    assert_eq!(
        with_timeout(waiting).await.unwrap().unwrap_err().code,
        ErrorCode::Closing
    );
    let InterruptedRuns {
        resumed,
        ended,
        unchanged,
    } = world.runtime().info().interrupted_runs();
    assert_eq!((resumed.len(), ended.len(), unchanged.len()), (0, 22, 0));
    let runs = stored(world.runtime(), &trace).await;
    assert!(
        runs.iter()
            .filter(|event| event.event.kind() == "sub_trace_completed")
            .count()
            == 20
    );
    let ended = world.runtime().traces().run(queued.run_id()).await.unwrap();
    assert_eq!(
        (ended.status, ended.end_reason),
        (RunStatus::Failed, Some(EndReason::Interrupted))
    );
    let trace = world.runtime().traces().get(&trace).await.unwrap();
    assert_eq!(trace.status, TraceStatus::Failed);
    check_session(world.runtime(), &session).await;
    drop(queued);
    let next_run = world
        .runtime()
        .start(RunRequest::new("go on").session("s"))
        .await
        .unwrap();
    assert_eq!(with_timeout(next_run.wait()).await.unwrap().output, "ok");
    check_session(world.runtime(), &session).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_or_closed_runtime_releases_home_and_ends_waits() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let model: Arc<dyn soong::model::Model> = scripted_model(|_| Turn::Hang("x"));
        Runtime::builder()
            .home(dir.path().join("home"))
            .project_dir(dir.path())
            .model("default", model)
            .build()
    };
    let runtime = open().await.unwrap();
    let run = runtime.start("x").await.unwrap();
    drop(runtime);
    assert_eq!(
        with_timeout(run.wait()).await.unwrap_err().code,
        ErrorCode::Closing
    );
    // The home is released after the last commit.
    let runtime = loop {
        match open().await {
            Ok(runtime) => break runtime,
            Err(error) => assert_eq!(error.code, ErrorCode::HomeLocked, "{error}"),
        }
    };
    assert_eq!(runtime.info().interrupted_runs().resumed.len(), 1);
    let second = runtime.clone();
    assert!(!second.info().is_closing());
    with_timeout(futures::future::join(runtime.close(), second.close())).await;
    assert!(runtime.info().is_closing() && second.info().is_closing());
    assert_eq!(
        runtime.start("y").await.unwrap_err().code,
        ErrorCode::Closing
    );
    let mut stream = runtime.traces().events(run.trace_id(), 1_000);
    assert!(
        with_timeout(stream.next())
            .await
            .is_none_or(|item| item.is_err()),
        "a stream of a closed runtime ends"
    );
    with_timeout(open()).await.unwrap().close().await;
}

/// (DUR-5)
#[tokio::test]
async fn unusable_home_is_rejected_with_reason_until_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let open = |home: &std::path::Path| {
        Runtime::builder()
            .home(home)
            .project_dir(dir.path())
            .offline()
            .build()
    };
    let made = dir.path().join("made");
    open(&made).await.unwrap().close().await;
    let sound = std::fs::read(made.join("sessions.sqlite")).unwrap();
    let newer = [&sound[..60], &99_u32.to_be_bytes(), &sound[64..]].concat();
    let damaged = [&sound[..4096], &vec![0xa5; sound.len() - 4096]].concat();
    for (name, bytes, what) in [
        ("newer", &newer, "the database has format 99"),
        ("damaged", &damaged, "is not a database that soong can read"),
        (
            "torn",
            &sound[..sound.len() / 2].to_vec(),
            "sessions.sqlite",
        ),
        (
            "other",
            &b"no database".repeat(1_000),
            "is not a database that soong can read",
        ),
    ] {
        let home = dir.path().join(name);
        std::fs::create_dir(&home).unwrap();
        let path = home.join("sessions.sqlite");
        std::fs::write(&path, bytes).unwrap();
        for _ in 0..2 {
            let error = open(&home).await.err().unwrap();
            assert_eq!(
                (error.code, error.retryable),
                (ErrorCode::StorageError, false),
                "{name}: {error}"
            );
            assert!(error.message.contains(what), "{name}: {error}");
        }
        assert!(
            std::fs::read(&path).unwrap() == *bytes,
            "{name}: nothing is changed"
        );
        std::fs::write(&path, &sound).unwrap();
        open(&home).await.unwrap().close().await;
    }
    let file = dir.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let error = open(&file).await.err().unwrap();
    assert!(
        error.code == ErrorCode::StorageError && error.message.contains("cannot be used"),
        "{error}"
    );
    let folder = dir.path().join("folder");
    std::fs::create_dir_all(folder.join("sessions.sqlite")).unwrap();
    let error = open(&folder).await.err().unwrap();
    assert!(
        error.code == ErrorCode::StorageError
            && error.message.contains("is a folder and not a database"),
        "{error}"
    );
}
