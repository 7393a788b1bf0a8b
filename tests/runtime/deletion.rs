//! Deletion of sessions: a session is deleted completely or stays complete, and other sessions are
//! not affected (SES-4, DUR-8).

use std::{path::Path, sync::Arc, time::Duration};

use futures::FutureExt;
use serde_json::json;
use soong::{
    ErrorCode, MessagePath, RunRequest, Runtime, RuntimeBuilder, SessionCleanup,
    SessionCleanupReport, SessionSpec, TraceFilter,
    artifact::{ArtifactOwner, Save},
    protocol::{
        Decision, Durability, EventDraft, PermissionStatus, RunEvent, RunMode, RunStatus, Session,
        SessionId, SessionWrite, Timestamp, TraceId, Write,
    },
};
use soong_storage::{
    fault::{Fault, FaultPlan, FaultStore},
    sqlite::{SqliteReader, SqliteStore},
    store::{Append, DeletionStage, Reader, SessionDeletion, Store, StoreError},
};

use crate::support::{
    history::check_session,
    model::{ScriptedModel, Turn, assistant_count, is_parent, scripted_model, task_of},
    stamp::StampTool,
    world::{TestRuntime, read_to_end, read_until, wait_for_permissions, wait_until, with_timeout},
};

fn id(text: &str) -> SessionId {
    SessionId::new(text)
}

fn artist() -> Arc<ScriptedModel> {
    scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("goal", json!({"add": ["one"], "focus": "1"})),
            (true, 1) => Turn::call("agent", json!({"task": ["left", "right"]})),
            (true, 2) => Turn::call(
                "create_artifact",
                json!({"name": "report", "content": "one old two"}),
            ),
            (true, 3) => Turn::call(
                "update_artifact",
                json!({"name": "report", "old": "old", "new": "new"}),
            ),
            (true, 4) => Turn::call(
                "create_artifact",
                json!({"name": "user:notes", "content": "of the user"}),
            ),
            _ => Turn::say("done"),
        },
    )
}

/// Runs a session once, with children, goals and artifacts.
async fn fill(runtime: &Runtime, session: &str) {
    let start = RunRequest::new("work")
        .session(session)
        .mode(RunMode::Orchestrator);
    let run = runtime.start(start).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
}

fn local_owner(session: &str) -> ArtifactOwner {
    ArtifactOwner {
        session_id: id(session),
        uid: "local".into(),
    }
}

fn folder(home: &Path, session: &str) -> std::path::PathBuf {
    home.join("sessions").join(session)
}

/// Returns the parts of a session that are still visible through any interface.
async fn left(runtime: &Runtime, home: &Path, session: &str) -> Vec<&'static str> {
    let key = id(session);
    let root = TraceId::new(session);
    let filter = TraceFilter {
        session_id: Some(key.clone()),
        ..TraceFilter::default()
    };
    let listed = runtime
        .sessions()
        .list(soong::SessionFilter::default(), 100, None)
        .await
        .unwrap()
        .items;
    let mine = runtime
        .artifacts()
        .list(&local_owner(session))
        .await
        .unwrap();
    [
        ("session", runtime.sessions().get(&key).await.is_ok()),
        ("list", listed.iter().any(|one| one.session_id == key)),
        ("trace", runtime.traces().get(&root).await.is_ok()),
        (
            "traces",
            !runtime
                .traces()
                .list(filter, 100, None)
                .await
                .unwrap()
                .items
                .is_empty(),
        ),
        (
            "messages",
            !runtime
                .traces()
                .messages(&root, MessagePath::All)
                .await
                .unwrap()
                .is_empty(),
        ),
        (
            "events",
            !runtime
                .traces()
                .replay(&root, 0, 9)
                .await
                .unwrap()
                .is_empty(),
        ),
        (
            "artifacts",
            mine.iter()
                .any(|artifact| !artifact.key().starts_with("user:")),
        ),
        ("files", folder(home, session).exists()),
        (
            "files aside",
            folder(home, &format!(".deleted/{session}")).exists(),
        ),
    ]
    .into_iter()
    .filter_map(|(what, is_there)| is_there.then_some(what))
    .collect()
}

/// Visible parts of a complete session.
const WHOLE: [&str; 8] = [
    "session",
    "list",
    "trace",
    "traces",
    "messages",
    "events",
    "artifacts",
    "files",
];

async fn text(runtime: &Runtime, session: &str, key: &str) -> String {
    runtime
        .artifacts()
        .load(&local_owner(session), key, None)
        .await
        .unwrap()
        .text()
        .await
        .unwrap()
}

/// (SES-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_removes_the_whole_session_and_nothing_else() {
    let world = TestRuntime::open(artist()).await;
    let runtime = world.runtime();
    let home = world.home();
    fill(runtime, "s").await;
    fill(runtime, "t").await;
    let service = runtime.artifacts().service();
    service
        .save(
            &local_owner("s"),
            Save::new("data", "text/csv", "a,b\n".to_owned()),
        )
        .await
        .unwrap();
    assert_eq!(left(runtime, &home, "s").await, WHOLE);
    let trace = runtime.traces().follow(&TraceId::new("s"), 0);
    let session = runtime.sessions().events(&id("s"), 0);
    let watched = [
        tokio::spawn(read_to_end(trace)),
        tokio::spawn(read_to_end(session)),
    ];
    let other = runtime.sessions().events(&id("t"), 0);
    let runs = runtime
        .traces()
        .sub_traces(&TraceId::new("s"))
        .await
        .unwrap()
        .len();
    assert_eq!(runs, 2);

    with_timeout(runtime.sessions().delete(&id("s")))
        .await
        .unwrap();
    assert_eq!(left(runtime, &home, "s").await, [""; 0]);
    for stream in watched {
        with_timeout(stream).await.unwrap();
    }
    assert_eq!(left(runtime, &home, "t").await, WHOLE);
    assert_eq!(text(runtime, "t", "report").await, "one new two");
    assert_eq!(
        text(runtime, "t", "user:notes").await,
        "of the user",
        "made by a run of the deleted session"
    );
    check_session(runtime, &id("t")).await;
    drop(other);
    let error = runtime.sessions().delete(&id("s")).await.unwrap_err();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::SessionNotFound, false)
    );

    // The id can be used again, and the new session starts empty.
    let run = runtime
        .start(
            RunRequest::new("anew")
                .session("s")
                .mode(RunMode::Orchestrator),
        )
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let messages = runtime
        .traces()
        .messages(run.trace_id(), MessagePath::Main)
        .await
        .unwrap();
    assert_eq!(messages[1].content, "anew");
    assert_eq!(text(runtime, "s", "report").await, "one new two");
    check_session(runtime, &id("s")).await;
    // A session that never had a run can be deleted as well.
    runtime
        .sessions()
        .create(SessionSpec {
            session_id: Some("p".into()),
            ..Default::default()
        })
        .await
        .unwrap();
    with_timeout(runtime.sessions().delete(&id("p")))
        .await
        .unwrap();
    assert_eq!(left(runtime, &home, "p").await, [""; 0]);
    world.finish().await;
}

/// (SES-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_with_active_or_queued_run_is_not_deleted() {
    let world = TestRuntime::open(scripted_model(|_| Turn::Hang("x"))).await;
    let runtime = world.runtime();
    let first = runtime
        .start(RunRequest::new("first").session("s"))
        .await
        .unwrap();
    let second = runtime
        .start(RunRequest::new("second").session("s"))
        .await
        .unwrap();
    for what in ["one at work, one queued", "one at work"] {
        let error = with_timeout(runtime.sessions().delete(&id("s")))
            .await
            .unwrap_err();
        assert_eq!(
            (error.code, error.retryable),
            (ErrorCode::SessionActive, true),
            "{what}"
        );
        assert!(
            runtime.sessions().get(&id("s")).await.unwrap().live_runs > 0,
            "{what}"
        );
        with_timeout(second.cancel()).await.unwrap();
    }
    with_timeout(first.cancel()).await.unwrap();
    with_timeout(first.wait()).await.unwrap();
    with_timeout(runtime.sessions().delete(&id("s")))
        .await
        .unwrap();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_file_removal_keeps_the_session_complete() {
    let world = TestRuntime::open(artist()).await;
    let runtime = world.runtime();
    let home = world.home();
    fill(runtime, "s").await;
    let before = runtime.sessions().get(&id("s")).await.unwrap();
    // A file has the name of the folder for deleted sessions.
    std::fs::write(folder(&home, ".deleted"), "in the way").unwrap();
    let error = with_timeout(runtime.sessions().delete(&id("s")))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::StorageError);
    assert_eq!(error.details["files"][0]["path"], "sessions/s", "{error:?}");
    assert_eq!(left(runtime, &home, "s").await, WHOLE);
    assert_eq!(runtime.sessions().get(&id("s")).await.unwrap(), before);
    assert_eq!(text(runtime, "s", "report").await, "one new two");
    let next_run = runtime
        .start(RunRequest::new("go on").session("s"))
        .await
        .unwrap();
    with_timeout(next_run.wait()).await.unwrap();
    check_session(runtime, &id("s")).await;

    std::fs::remove_file(folder(&home, ".deleted")).unwrap();
    with_timeout(runtime.sessions().delete(&id("s")))
        .await
        .unwrap();
    assert_eq!(left(runtime, &home, "s").await, [""; 0]);
    world.finish().await;
}

/// Opens a home in which session `s` has `count` additional events and session `t` has a run.
/// `plan` injects storage faults.
async fn with_events(count: i64, plan: &FaultPlan) -> TestRuntime {
    let mut world = TestRuntime::open(scripted_model(|_| Turn::say("ok"))).await;
    for session in ["s", "t"] {
        let run = world
            .runtime()
            .start(RunRequest::new("x").session(session))
            .await
            .unwrap();
        with_timeout(run.wait()).await.unwrap();
    }
    // Each has a time of its own, and therefore its own row.
    let event = |millis| {
        let event = RunEvent::CancelRequested {};
        Write::Event(EventDraft::new(
            TraceId::new("s"),
            None,
            Timestamp::from_millis(millis),
            event,
        ))
    };
    let append = Append {
        fence: None,
        writes: (0..count).map(event).collect(),
    };
    let wrapped = plan.clone();
    let build = |builder: RuntimeBuilder| {
        builder.wrap_store(move |mut store| {
            assert!(store.commit(&[append]).unwrap()[0].is_ok());
            Box::new(FaultStore::new(store, wrapped))
        })
    };
    world
        .reopen_with(scripted_model(|_| Turn::say("ok")), build)
        .await;
    world
}

/// (DUR-8)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_session_is_deleted_in_batches_between_other_commits() {
    let plan = FaultPlan::new();
    let world = with_events(20_000, &plan).await;
    let runtime = world.runtime();
    let before = plan.commits();
    // Hold the first commit of the deletion until other appends wait for the next commit.
    plan.block_commits();
    let deletion = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.sessions().delete(&id("s")).await }
    });
    wait_until("it begins", || plan.commits() > before).await;
    let others = tokio::spawn({
        let runtime = runtime.clone();
        async move {
            let run = runtime
                .start(RunRequest::new("y").session("t"))
                .await
                .unwrap();
            (
                with_timeout(run.wait()).await.unwrap(),
                runtime.sessions().get(&id("s")).await.is_ok(),
            )
        }
    });
    plan.unblock_commits();
    let (outcome, _) = with_timeout(others).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed);
    with_timeout(deletion).await.unwrap().unwrap();
    assert_eq!(left(runtime, &world.home(), "s").await, [""; 0]);
    let commits = plan.commits() - before;
    assert!(
        commits > 20_000 / 500,
        "20 000 events in {commits} commits: no commit takes more than 500 rows"
    );
    world.finish().await;
}

/// (DUR-8)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_complete_or_deleted_if_any_commit_fails() {
    for unclear in [false, true] {
        for nth in 1..=3 {
            let plan = FaultPlan::new();
            let wrapped = plan.clone();
            let world = TestRuntime::with(artist(), |builder| {
                builder.wrap_store(move |store| Box::new(FaultStore::new(store, wrapped)))
            })
            .await;
            let runtime = world.runtime();
            let home = world.home();
            fill(runtime, "s").await;
            // Wait for the last commit of the run, so that all later commits belong to the
            // deletion.
            let reader = SqliteReader::open(home.join("sessions.sqlite")).unwrap();
            wait_until("its task journal ends", || {
                reader.runs_with_pending_task_journal().unwrap().is_empty()
            })
            .await;
            let error = StoreError::Io("no space left on device".into());
            plan.inject_at(
                plan.commits() + nth,
                if unclear {
                    Fault::FailAfterWrite(error)
                } else {
                    Fault::FailBeforeWrite(error)
                },
            );
            match with_timeout(runtime.sessions().delete(&id("s"))).await {
                Ok(()) => {}
                Err(error) => {
                    assert!(
                        nth == 1 && !unclear && error.code == ErrorCode::StorageError,
                        "{nth} {unclear}: {error}"
                    );
                    assert_eq!(left(runtime, &home, "s").await, WHOLE);
                    with_timeout(runtime.sessions().delete(&id("s")))
                        .await
                        .unwrap();
                }
            }
            assert_eq!(
                left(runtime, &home, "s").await,
                [""; 0],
                "commit {nth} unclear={unclear}"
            );
            world.finish().await;
        }
    }
}

/// (DUR-8)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_owner_finishes_an_interrupted_deletion() {
    // Number of commits of the deletion that succeed; all later commits fail. 1: only the deletion
    // mark, 2: also the first batch of rows.
    for written in 1..=4 {
        let plan = FaultPlan::new();
        let mut world = with_events(1_700, &plan).await;
        let runtime = world.runtime().clone();
        let home = world.home();
        for nth in 1..=100 {
            plan.inject_at(
                plan.commits() + written + nth,
                Fault::FailBeforeWrite(StoreError::Io("pulled out".into())),
            );
        }
        let cut_off = plan.commits() + written;
        let deletion = tokio::spawn(async move { runtime.sessions().delete(&id("s")).await });
        wait_until("it comes so far", || plan.commits() > cut_off).await;
        let reader = SqliteReader::open(home.join("sessions.sqlite")).unwrap();
        let stage = if written == 1 {
            DeletionStage::Files
        } else {
            DeletionStage::Rows
        };
        assert_eq!(
            reader.session_deletions().unwrap(),
            [SessionDeletion {
                session_id: id("s"),
                stage
            }]
        );
        assert_eq!(
            left(world.runtime(), &home, "s").await,
            [""; 0],
            "a half session is seen"
        );
        let error = with_timeout(
            world
                .runtime()
                .start(RunRequest::new("too early").session("s")),
        )
        .await
        .unwrap_err();
        assert_eq!(
            (error.code, error.retryable),
            (ErrorCode::SessionActive, true),
            "{error}"
        );

        world.reopen(scripted_model(|_| Turn::say("anew"))).await;
        assert_eq!(
            with_timeout(deletion).await.unwrap().unwrap_err().code,
            ErrorCode::Closing
        );
        wait_until("the next owner finishes it", || {
            reader.session_deletions().unwrap().is_empty()
        })
        .await;
        assert_eq!(
            left(world.runtime(), &home, "s").await,
            [""; 0],
            "after {written} commits"
        );
        check_session(world.runtime(), &id("t")).await;
        // The row is removed slightly before the session accepts runs again.
        let run = loop {
            match world
                .runtime()
                .start(RunRequest::new("y").session("s"))
                .await
            {
                Ok(run) => break run,
                Err(error) => assert!(error.retryable, "{error}"),
            }
        };
        assert_eq!(with_timeout(run.wait()).await.unwrap().output, "anew");
        check_session(world.runtime(), &id("s")).await;
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_resumes_after_crash_between_files() {
    let world = TestRuntime::open(artist()).await;
    let home = world.home();
    fill(world.runtime(), "s").await;
    let mut world = world;
    world.close_runtime().await;
    // The state that a process leaves if it dies right after the rename.
    let mut store = SqliteStore::open(home.join("sessions.sqlite"), Durability::Normal).unwrap();
    let append = Append {
        fence: None,
        writes: vec![Write::Session(SessionWrite::BeginRemoval(id("s")))],
    };
    assert!(store.commit(&[append]).unwrap()[0].is_ok());
    drop(store);
    std::fs::create_dir(folder(&home, ".deleted")).unwrap();
    std::fs::rename(folder(&home, "s"), folder(&home, ".deleted/s")).unwrap();
    world.reopen(artist()).await;
    let reader = SqliteReader::open(home.join("sessions.sqlite")).unwrap();
    wait_until("the next owner finishes it", || {
        reader.session_deletions().unwrap().is_empty()
    })
    .await;
    assert_eq!(left(world.runtime(), &home, "s").await, [""; 0]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_concurrent_starts_and_deletions_it_is_complete_or_gone() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("ok"))).await;
    let runtime = world.runtime();
    let home = world.home();
    let mut started = 0;
    let mut deleted = 0;
    for round in 0..200 {
        let starts = (0..2).map(|n| {
            let runtime = runtime.clone();
            tokio::spawn(async move {
                runtime
                    .start(RunRequest::new(format!("{round} {n}")).session("s"))
                    .await
            })
        });
        let deletes = (0..2).map(|_| {
            let runtime = runtime.clone();
            tokio::spawn(async move { runtime.sessions().delete(&id("s")).await })
        });
        // Alternate which operations start first.
        let (starts, deletes): (Vec<_>, Vec<_>) = match round % 2 {
            0 => (starts.collect(), deletes.collect()),
            _ => {
                let deletes = deletes.collect();
                (starts.collect(), deletes)
            }
        };
        let mut runs = Vec::new();
        for start in starts {
            match with_timeout(start).await.unwrap() {
                Ok(run) => runs.push(run),
                Err(error) => assert!(error.retryable, "round {round}: {error}"),
            }
        }
        for delete in deletes {
            match with_timeout(delete).await.unwrap() {
                Ok(()) => deleted += 1,
                Err(error) => assert!(
                    matches!(
                        error.code,
                        ErrorCode::SessionActive | ErrorCode::SessionNotFound
                    ),
                    "round {round}: {error}"
                ),
            }
        }
        for run in &runs {
            assert_eq!(
                with_timeout(run.wait()).await.unwrap().status,
                RunStatus::Completed,
                "round {round}"
            );
        }
        started += runs.len();
        match runtime.sessions().get(&id("s")).await {
            Ok(session) => {
                assert_eq!(session.live_runs, 0, "round {round}");
                check_session(runtime, &id("s")).await;
            }
            Err(_) => {
                assert_eq!(left(runtime, &home, "s").await, [""; 0], "round {round}");
                for run in &runs {
                    assert!(
                        runtime.traces().run(run.run_id()).await.is_err(),
                        "round {round}: a run without a session"
                    );
                }
            }
        }
    }
    assert!(
        started > 0 && deleted > 0,
        "{started} starts, {deleted} deletions"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_saved_during_deletion_are_rejected_or_deleted() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("ok"))).await;
    let runtime = world.runtime();
    let home = world.home();
    for round in 0..40 {
        runtime
            .sessions()
            .create(SessionSpec {
                session_id: Some("s".into()),
                ..Default::default()
            })
            .await
            .unwrap();
        let saves = (0..4).map(|n| {
            let service = runtime.artifacts().service();
            tokio::spawn(async move {
                let save = Save::new(format!("a{n}"), "text/plain", format!("text of {round}"));
                service.save(&local_owner("s"), save).await
            })
        });
        let saves: Vec<_> = saves.collect();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        with_timeout(runtime.sessions().delete(&id("s")))
            .await
            .unwrap();
        for save in saves {
            if let Err(error) = with_timeout(save).await.unwrap() {
                // The save failed before its file was written, or when the file was to be
                // registered.
                let is_known = matches!(
                    error.code,
                    ErrorCode::SessionNotFound | ErrorCode::StorageError
                );
                assert!(is_known, "{error}");
            }
        }
        let reader = SqliteReader::open(home.join("sessions.sqlite")).unwrap();
        assert!(
            reader.session_artifacts().unwrap().is_empty(),
            "round {round}"
        );
        assert!(
            reader.blob_intents().unwrap().is_empty(),
            "round {round}: a file that nobody will look for"
        );
        // There is no such folder if no save came as far as its file.
        let folders = std::fs::read_dir(home.join("sessions"));
        let left = folders
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name());
        // The folder into which deleted sessions are moved.
        let left: Vec<_> = left.filter(|name| name != ".deleted").collect();
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
    world.finish().await;
}

/// (SES-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleanup_deletes_old_sessions_and_keeps_active_or_failed() {
    let model = scripted_model(|request| match task_of(request) {
        "hang" => Turn::Hang("x"),
        "write" if assistant_count(request) == 0 => Turn::call(
            "create_artifact",
            json!({"name": "report", "content": "text"}),
        ),
        _ => Turn::say("done"),
    });
    let world = TestRuntime::open(model).await;
    let runtime = world.runtime();
    let home = world.home();
    for (session, task) in [("kept", "write"), ("gone", "talk")] {
        let run = runtime
            .start(RunRequest::new(task).session(session))
            .await
            .unwrap();
        with_timeout(run.wait()).await.unwrap();
    }
    let spec = |session: &str| SessionSpec {
        session_id: Some(session.into()),
        ..Default::default()
    };
    // Sessions are ordered by time in milliseconds.
    let begun = std::time::Instant::now();
    wait_until("a millisecond passes", || {
        begun.elapsed() > Duration::from_millis(1)
    })
    .await;
    runtime.sessions().create(spec("empty")).await.unwrap();
    let busy = runtime
        .start(RunRequest::new("hang").session("busy"))
        .await
        .unwrap();
    let cleanup = |older_than, dry_run| SessionCleanup {
        older_than,
        dry_run,
    };
    let ids = |sessions: &[Session]| -> Vec<String> {
        sessions
            .iter()
            .map(|session| session.session_id.to_string())
            .collect()
    };
    let report = runtime
        .sessions()
        .clean_up(cleanup(Duration::from_secs(3_600), false))
        .await
        .unwrap();
    assert_eq!(
        report,
        SessionCleanupReport::default(),
        "nothing is that old"
    );
    // Retry until the clock has advanced by a millisecond.
    let report = loop {
        let report = runtime
            .sessions()
            .clean_up(cleanup(Duration::ZERO, true))
            .await
            .unwrap();
        if report.candidates.len() == 3 && report.busy.len() == 1 {
            break report;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (ids(&report.candidates), report.busy),
        (
            ["kept", "gone", "empty"].map(String::from).to_vec(),
            vec![id("busy")]
        )
    );
    assert!(report.dry_run && report.deleted.is_empty());
    assert_eq!(
        runtime
            .sessions()
            .list(soong::SessionFilter::default(), 100, None)
            .await
            .unwrap()
            .items
            .len(),
        4
    );

    // A file has the name of the folder to which `kept`, the only session with files, would be
    // moved.
    std::fs::write(folder(&home, ".deleted"), "in the way").unwrap();
    let report = with_timeout(runtime.sessions().clean_up(cleanup(Duration::ZERO, false)))
        .await
        .unwrap();
    assert_eq!(ids(&report.candidates), ["kept", "gone", "empty"]);
    let failed: Vec<_> = report
        .failed
        .iter()
        .map(|one| (one.session_id.as_str(), one.error.code))
        .collect();
    let deleted: Vec<_> = report.deleted.iter().map(SessionId::as_str).collect();
    assert_eq!(
        (failed, deleted),
        (
            vec![("kept", ErrorCode::StorageError)],
            vec!["gone", "empty"]
        ),
        "{report:?}"
    );
    assert_eq!(left(runtime, &home, "gone").await, [""; 0]);
    assert_eq!(text(runtime, "kept", "report").await, "text");
    with_timeout(busy.cancel()).await.unwrap();
    world.finish().await;
}

/// Ids and cursors of a deleted session do not fit the next one with its id (PERM-1, EVT-3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_and_cursors_of_a_deleted_session_are_unknown_in_the_next_one() {
    let stamping = || {
        scripted_model(|request| match assistant_count(request) {
            0 => Turn::call("stamp", json!({"word": "one", "place": "a"})),
            _ => Turn::say("done"),
        })
    };
    let tool = StampTool::new();
    let build = |builder: RuntimeBuilder| builder.tool(Arc::clone(&tool)).permissions_by_users();
    let mut world = TestRuntime::with(stamping(), build).await;
    let runtime = world.runtime();
    let root = TraceId::new("s");
    let run = runtime
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    let old_permission = with_timeout(wait_for_permissions(runtime, 1))
        .await
        .remove(0);
    assert!(
        old_permission.permission_id.as_str().starts_with("s.p"),
        "{}",
        old_permission.permission_id
    );
    runtime
        .permissions()
        .decide(&old_permission.permission_id, Decision::Deny, None)
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let last_event = runtime.traces().get(&root).await.unwrap().last_event_id;
    let last_of_session = runtime
        .sessions()
        .get(&id("s"))
        .await
        .unwrap()
        .last_session_seq;
    with_timeout(runtime.sessions().delete(&id("s")))
        .await
        .unwrap();

    let run = runtime
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    let permission = with_timeout(wait_for_permissions(runtime, 1))
        .await
        .remove(0);
    let late = runtime
        .permissions()
        .decide(&old_permission.permission_id, Decision::AllowOnce, None)
        .await;
    assert_eq!(late.unwrap_err().code, ErrorCode::PermissionNotFound);
    let pending = runtime
        .permissions()
        .get(&permission.permission_id)
        .await
        .unwrap();
    assert_eq!(pending.status, PermissionStatus::Pending);
    assert_eq!(tool.done(), [""; 0]);
    for since in [1, last_event - 1, last_event] {
        let error = runtime
            .traces()
            .events(&root, since)
            .next()
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(
            error.code,
            ErrorCode::CursorUnknown,
            "event {since} of {last_event}"
        );
    }
    for since in [1, last_of_session - 1, last_of_session] {
        let error = runtime
            .sessions()
            .events(&id("s"), since)
            .next()
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(
            error.code,
            ErrorCode::CursorUnknown,
            "event {since} of {last_of_session}"
        );
    }
    let first = runtime
        .traces()
        .replay(&root, 0, 1)
        .await
        .unwrap()
        .remove(0);
    assert_eq!(
        first.event_id,
        runtime.traces().get(&root).await.unwrap().first_event_id
    );
    assert!(first.event_id > last_event);
    runtime
        .permissions()
        .decide(&permission.permission_id, Decision::AllowOnce, None)
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    assert_eq!(tool.done(), ["one"]);
    check_session(runtime, &id("s")).await;
    with_timeout(runtime.sessions().delete(&id("s")))
        .await
        .unwrap();
    drop(run);

    world.reopen_with(stamping(), build).await;
    let runtime = world.runtime();
    let run = runtime
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    let permission = with_timeout(wait_for_permissions(runtime, 1))
        .await
        .remove(0);
    assert!(
        permission.permission_id.as_str().starts_with("s+3.p"),
        "{}",
        permission.permission_id
    );
    with_timeout(run.cancel()).await.unwrap();
    drop(run);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_session_with_a_used_id_can_be_followed() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("done"))).await;
    let runtime = world.runtime();
    let run = runtime
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    with_timeout(runtime.sessions().delete(&id("s")))
        .await
        .unwrap();
    let spec = SessionSpec {
        session_id: Some("s".into()),
        ..SessionSpec::default()
    };
    let session = runtime.sessions().create(spec).await.unwrap();
    assert!(
        session.last_session_seq > 0 && session.first_session_seq == session.last_session_seq + 1
    );
    let mut of_session = runtime
        .sessions()
        .events(&id("s"), session.last_session_seq);
    let mut of_trace = runtime.traces().follow(&TraceId::new("s"), 0);
    // Both wait for the first event.
    assert!(of_session.next().now_or_never().is_none() && of_trace.next().now_or_never().is_none());
    let run = runtime
        .start(RunRequest::new("y").session("s"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    for stream in [&mut of_session, &mut of_trace] {
        let first = read_until(stream, "loop_started").await.remove(0);
        assert_eq!(first.session_seq, session.first_session_seq);
    }
    drop((of_session, of_trace, run));
    world.finish().await;
}
