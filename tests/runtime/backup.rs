//! Backups: a copy is a consistent snapshot of a home, and a failed backup leaves no copy.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};
use soong::{
    Config, ErrorCode, ErrorInfo, RunRequest, Runtime,
    artifact::Save,
    backup,
    protocol::{RecoveryMode, SessionId, TraceId},
};
use soong_storage::{sqlite::SqliteReader, store::Reader};

use crate::support::{
    artifacts::{begin, create, growing, local_owner, prompt_driven_model, run, turns},
    history::check_session,
    world::{TestRuntime, quick_non_durable_config, wait_until, with_timeout},
};

/// Opens a copy without owning it, and checks that it is a consistent snapshot.
fn look(dir: &Path) -> SqliteReader {
    let copy = SqliteReader::open(dir.join("sessions.sqlite")).unwrap();
    assert_eq!(copy.check_integrity().unwrap(), [""; 0]);
    for session in copy
        .sessions(&soong::SessionFilter::default(), 100, None)
        .unwrap()
        .items
    {
        let events = copy
            .session_events(&session.session_id, 0, usize::MAX)
            .unwrap();
        let numbers: Vec<u64> = events.iter().map(|event| event.session_seq).collect();
        assert_eq!(
            numbers,
            (1..=session.last_session_seq).collect::<Vec<u64>>(),
            "{}",
            session.session_id
        );
    }
    copy
}

/// Opens a copy for use. Runs that were active when the copy was made are ended.
async fn open_copy(world: &TestRuntime, dir: &Path) -> Runtime {
    let mut config = Config::default();
    config.runtime.recovery = Some(RecoveryMode::Fail);
    let builder = Runtime::builder()
        .home(dir)
        .project_dir(world.project())
        .config(config);
    builder
        .model("default", prompt_driven_model())
        .build()
        .await
        .unwrap()
}

/// Returns the names of the entries of a folder, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Returns the names of unfinished copies next to the test home.
fn partials(world: &TestRuntime) -> Vec<String> {
    names(world.home().parent().unwrap())
        .into_iter()
        .filter(|name| name.contains("partial"))
        .collect()
}

async fn refused(world: &TestRuntime, dir: &Path, store: &str) -> ErrorInfo {
    let error = with_timeout(backup(&world.home(), dir, store))
        .await
        .unwrap_err();
    assert_eq!(partials(world), [""; 0], "{error}");
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_made_while_runs_write_is_a_consistent_snapshot() {
    let mut world = TestRuntime::with(prompt_driven_model(), |builder| {
        builder.config(quick_non_durable_config())
    })
    .await;
    let runtime = world.runtime().clone();
    let is_done = Arc::new(AtomicBool::new(false));
    // Runs edit documents and save products, one after the other, until all copies are made.
    let busy = |session: &'static str| {
        let runtime = runtime.clone();
        let is_done = Arc::clone(&is_done);
        tokio::spawn(async move {
            for n in 0.. {
                let run = runtime
                    .start(
                        RunRequest::new(turns(&growing(&format!("{session}{n}"), 5)))
                            .session(session),
                    )
                    .await;
                let run = run.unwrap();
                let save = Save::new(
                    format!("user:{session}{n}"),
                    "text/plain",
                    format!("{n}").repeat(1_000),
                );
                runtime
                    .artifacts()
                    .service()
                    .save(&local_owner(session), save)
                    .await
                    .unwrap();
                with_timeout(run.wait()).await.unwrap();
                if is_done.load(Ordering::Acquire) {
                    return n;
                }
            }
            0
        })
    };
    let writers = [busy("s"), busy("t")];
    let session = SessionId::new("s");
    let mut seen = 0;
    for number in 0..3 {
        // Wait until many events were written since the previous copy.
        loop {
            let now = runtime
                .sessions()
                .get(&session)
                .await
                .map_or(0, |session| session.last_session_seq);
            let has_bytes = runtime
                .artifacts()
                .load(&local_owner("s"), "user:s0", Some(1))
                .await
                .is_ok();
            if now > seen + 50 && has_bytes {
                seen = now;
                break;
            }
            tokio::task::yield_now().await;
        }
        let dir = world.home().with_file_name(format!("copy{number}"));
        let report = with_timeout(backup(&world.home(), &dir, "file"))
            .await
            .unwrap();
        assert_eq!(
            (
                report.missing.as_slice(),
                report.sessions,
                report.dir.as_path()
            ),
            (&[][..], 2, dir.as_path())
        );
        let copy = look(&dir);
        let events = copy.events(&TraceId::new("s"), 0, usize::MAX).unwrap();
        assert!(
            events.len() as u64 >= seen,
            "what was there before is in the copy"
        );
        assert!(
            report.files >= report.artifacts && report.artifacts > 0,
            "{report:?}"
        );
    }
    is_done.store(true, Ordering::Release);
    for writer in writers {
        with_timeout(writer).await.unwrap();
    }
    drop(runtime);
    world.close_runtime().await;

    // The last copy can be used as a home.
    let dir = world.home().with_file_name("copy2");
    let copy = open_copy(&world, &dir).await;
    let mut read = 0;
    for session in ["s", "t"] {
        check_session(&copy, &SessionId::new(session)).await;
        for artifact in copy.artifacts().list(&local_owner(session)).await.unwrap() {
            for version in copy
                .artifacts()
                .versions(&local_owner(session), &artifact.key())
                .await
                .unwrap()
            {
                let loaded = copy
                    .artifacts()
                    .load(
                        &local_owner(session),
                        &artifact.key(),
                        Some(version.version),
                    )
                    .await
                    .unwrap();
                assert_eq!(
                    loaded.text().await.unwrap().len() as u64,
                    version.size,
                    "{}",
                    artifact.key()
                );
                read += 1;
            }
        }
        let run = copy
            .start(RunRequest::new(turns(&[create("new", "x")])).session(session))
            .await
            .unwrap();
        with_timeout(run.wait()).await.unwrap();
    }
    assert!(read > 4);
    copy.close().await;
    drop(copy);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_files_are_copied_and_owner_files_are_not() {
    let mut world = TestRuntime::open(prompt_driven_model()).await;
    run(&world, "s", &[create("plan", "text")]).await;
    let home = world.home();
    for (path, text) in [
        ("config.toml", "[runtime]\n"),
        ("models.json", "{}"),
        ("skills/a/one.md", "one"),
        ("commands/team/review.md", "review"),
        ("tasks/s/run.jsonl", "{}"),
        ("memory/experiences.md", "many"),
        ("users/bob/memory/experiences.md", "few"),
        ("users/eve/other", "of nobody"),
        ("server.token", "secret"),
        ("logs/x.log", "words"),
        ("sessions/s/artifacts/orphan/v1/x", "never registered"),
    ] {
        fs::create_dir_all(home.join(path).parent().unwrap()).unwrap();
        fs::write(home.join(path), text).unwrap();
    }
    std::os::unix::fs::symlink("..", home.join("skills/up")).unwrap();
    std::os::unix::fs::symlink("one.md", home.join("skills/a/two.md")).unwrap();
    let parent = home.parent().unwrap().to_owned();
    // The target may be an empty folder, and missing parent folders are created.
    fs::create_dir(parent.join("empty")).unwrap();
    for (dir, owner) in [("empty", true), ("deep/down", false)] {
        if !owner {
            world.close_runtime().await;
        }
        let dir = parent.join(dir);
        let report = with_timeout(backup(&home, &dir, "file")).await.unwrap();
        assert_eq!(
            (
                report.sessions,
                report.artifacts,
                report.files,
                report.bytes
            ),
            (1, 1, 1, 4)
        );
        assert_eq!(
            (report.also.join(" ").as_str(), &report.left_out),
            (
                "config.toml models.json skills commands memory tasks users/bob/memory",
                &vec!["skills/up".to_owned()]
            )
        );
        let copied = [
            "commands",
            "config.toml",
            "memory",
            "models.json",
            "sessions",
            "sessions.sqlite",
            "skills",
            "tasks",
        ];
        assert_eq!(names(&dir), [&copied[..], &["users"]].concat());
        assert_eq!(
            fs::read_to_string(dir.join("commands/team/review.md")).unwrap(),
            "review"
        );
        assert_eq!(names(&dir.join("users")), ["bob"]);
        assert_eq!(names(&dir.join("skills/a")), ["one.md", "two.md"]);
        assert_eq!(
            fs::read_to_string(dir.join("skills/a/two.md")).unwrap(),
            "one"
        );
        assert_eq!(
            names(&dir.join("sessions/s/artifacts")).len(),
            1,
            "what is not registered is no part of it"
        );
        assert_eq!(
            fs::read_to_string(dir.join("memory/experiences.md")).unwrap(),
            "many"
        );
        look(&dir);
    }
    assert_eq!(partials(&world), [""; 0]);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(parent.join("deep/down"))
            .unwrap()
            .permissions(),
    );
    assert_eq!(mode & 0o777, 0o700, "it holds conversations");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_target_is_rejected_and_nothing_is_created() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    run(&world, "s", &[create("plan", "text")]).await;
    let home = world.home();
    let parent = home.parent().unwrap().to_owned();
    fs::write(parent.join("file"), "x").unwrap();
    std::os::unix::fs::symlink(&home, parent.join("link")).unwrap();
    let before = names(&parent);
    for (dir, says) in [
        (world.project(), "is not empty"),
        (parent.join("file"), "is not a folder"),
        (parent.join("file/x"), "is not a folder"),
        (home.clone(), "is not empty"),
        (home.join("copy"), "is inside the home"),
        (parent.join("link/a/b"), "is inside the home"),
        (parent.join("nowhere/../home/copy"), "contains `..`"),
    ] {
        let error = refused(&world, &dir, "file").await;
        assert_eq!(error.code, ErrorCode::ValidationError, "{error}");
        assert!(error.message.contains(says), "{}: {error}", dir.display());
    }
    let error = refused(&world, &parent.join("copy"), "nowhere").await;
    assert_eq!(error.code, ErrorCode::ConfigError);
    let error = with_timeout(backup(&parent.join("no"), &parent.join("copy"), "file"))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::FileNotFound);
    assert_eq!(names(&parent), before);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_files_are_reported_and_the_rest_is_copied() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    run(
        &world,
        "s",
        &[
            create("kept", "text"),
            create("gone", "text"),
            create("short", "text"),
        ],
    )
    .await;
    let of = |key: &str| {
        let reader = SqliteReader::open(world.home().join("sessions.sqlite")).unwrap();
        let [scope, _] = local_owner("s").scopes();
        let artifact = reader.artifact(&scope, key).unwrap().unwrap();
        reader
            .blob_path(&artifact.artifact_id, artifact.stored_version)
            .unwrap()
            .unwrap()
    };
    fs::remove_file(world.home().join(of("gone"))).unwrap();
    fs::write(world.home().join(of("short")), "t").unwrap();
    let dir = world.home().with_file_name("copy");
    let report = with_timeout(backup(&world.home(), &dir, "file"))
        .await
        .unwrap();
    let missing: Vec<(&str, &str)> = report
        .missing
        .iter()
        .map(|file| (file.path.as_str(), file.reason.as_str()))
        .collect();
    let gone = of("gone");
    let short = of("short");
    assert_eq!(missing.len(), 2, "{missing:?}");
    for (path, says) in [
        (gone.as_str(), "No such file"),
        (short.as_str(), "it has 1 bytes, but 4 were stored"),
    ] {
        assert!(
            missing
                .iter()
                .any(|(of, why)| *of == path && why.contains(says)),
            "{path}: {missing:?}"
        );
    }
    assert_eq!((report.artifacts, report.files), (3, 1));
    assert_eq!(fs::read_to_string(dir.join(of("kept"))).unwrap(), "text");
    // If the bytes are not stored in files, only the database rows are copied.
    let rows = with_timeout(backup(
        &world.home(),
        &world.home().with_file_name("rows"),
        "memory",
    ))
    .await
    .unwrap();
    assert_eq!(
        (
            rows.artifacts,
            rows.files,
            rows.missing.len(),
            rows.store.as_str()
        ),
        (3, 0, 0, "memory")
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_backup_leaves_no_partial_copy() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let steps: Vec<Value> = (0..20)
        .map(|n| create(&format!("d{n}"), &"x".repeat(10_000)))
        .collect();
    run(&world, "s", &steps).await;
    let dir = world.home().with_file_name("copy");
    let home = world.home();
    let target = dir.clone();
    let copying = tokio::spawn(async move { backup(&home, &target, "file").await });
    wait_until("the copy is begun", || {
        !partials(&world).is_empty() || dir.exists()
    })
    .await;
    copying.abort();
    let _ = copying.await;
    wait_until("what was begun is gone, or whole", || {
        partials(&world).is_empty()
    })
    .await;
    if dir.exists() {
        look(&dir);
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn active_run_is_ended_in_the_copy_and_keeps_its_edits() {
    let mut world = TestRuntime::open(prompt_driven_model()).await;
    let hanging = begin(&world, "s", &[create("plan", "one"), json!("hang")]).await;
    wait_until("the run is in its second turn", || {
        let tree = world.runtime().tree().snapshot().unwrap();
        format!("{tree:?}").contains("turn: 2")
    })
    .await;
    let dir = world.home().with_file_name("copy");
    with_timeout(backup(&world.home(), &dir, "file"))
        .await
        .unwrap();
    assert_eq!(look(&dir).live_runs(None).unwrap().len(), 1);
    hanging.cancel().await.unwrap();
    world.close_runtime().await;
    let copy = open_copy(&world, &dir).await;
    assert_eq!(copy.info().interrupted_runs().ended.len(), 1);
    // The edit was stored as a row without a version; ending the run stored it as version 1.
    let plan = copy
        .artifacts()
        .load(&local_owner("s"), "plan", Some(1))
        .await
        .unwrap();
    assert_eq!(plan.text().await.unwrap(), "one");
    copy.close().await;
    drop(copy);
    world.finish().await;
}
