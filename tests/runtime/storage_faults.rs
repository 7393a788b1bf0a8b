//! The disk rejects each write in turn: commands report it, runs wait and continue, and nothing is
//! damaged (DUR-2, DUR-6).
//!
//! Each test runtime does one whole job with one fault: before a commit, after it, or when artifact
//! files are written. Elsewhere: the store itself on a full disk (`storage`), homes that cannot be
//! opened at all (`homes.rs`).

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use serde_json::json;
use soong::{
    ErrorCode, ErrorInfo, FaultPoint, MessagePath, RunHandle, RunRequest, RuntimeBuilder,
    SessionSpec,
    artifact::{Content, Save},
    protocol::{
        ArtifactWrite, Message, Role, RunId, RunMode, RunStatus, SessionId, TraceId, Write,
    },
};
use soong_storage::{
    fault::{Fault, FaultPlan, FaultStore},
    sqlite::SqliteReader,
    store::{Ack, Append, Store, StoreError},
};

use tokio::sync::Notify;

use crate::support::{
    artifacts::{create, listed, local_owner, prompt_driven_model, run, text, text_at, versions},
    history::check_session,
    model::{ScriptedModel, Turn, scripted_model},
    world::{TestRuntime, quick_non_durable_config, run_until_false, wait_until, with_timeout},
};

/// Minimum number of commits of the job. Children may share a commit.
const COMMITS: u64 = 40;

/// Model of the job: a run with a read tool, two children, a document with three edits and a goal;
/// a queued run; and a run that starts with a rewind.
fn job() -> Arc<ScriptedModel> {
    let update = |old: &str, new: &str| {
        Turn::call(
            "update_artifact",
            json!({"name": "doc", "old": old, "new": new}),
        )
    };
    scripted_model(move |request| {
        let user_index = request
            .messages
            .iter()
            .rposition(|message| message.role == Role::User)
            .unwrap();
        let since = &request.messages[user_index..];
        let answers = since
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count();
        // The model repeats a call that failed because of the disk.
        let refused =
            |message: &&Arc<Message>| message.content.starts_with("Error [storage_error]");
        let turn = answers - since.iter().filter(refused).count();
        match (
            request.messages[user_index]
                .content
                .split_whitespace()
                .next()
                .unwrap(),
            turn,
        ) {
            ("job", 0) => Turn::call("list_files", json!({})),
            ("job", 1) => Turn::call("agent", json!({"task": ["look at a", "look at b"]})),
            ("job", 2) => Turn::call("create_artifact", json!({"name": "doc", "content": "one"})),
            ("job", 3) => update("one", "one two"),
            ("job", 4) => Turn::Call(vec![
                (
                    "update_artifact",
                    json!({"name": "doc", "old": "two", "new": "two three"}),
                ),
                ("goal", json!({"add": ["write it up"]})),
            ]),
            ("look", 0) => Turn::call("read", json!({"path": "a.txt"})),
            ("second", 0) => update("three", "three four"),
            ("third", 0) => update("three", "three five"),
            (name, _) => Turn::say(format!("{name} done")),
        }
    })
}

fn disk_full() -> StoreError {
    StoreError::Io("no space left on device".into())
}

fn broken(plan: &FaultPlan) -> impl FnOnce(RuntimeBuilder) -> RuntimeBuilder {
    let plan = plan.clone();
    |builder| {
        builder
            .config(quick_non_durable_config())
            .wrap_store(move |store| Box::new(FaultStore::new(store, plan)))
    }
}

/// Number of commands that were rejected, and that the program had to repeat.
#[derive(Default)]
struct Refusals(u64);

impl Refusals {
    /// Repeats a command until it succeeds. One fault rejects at most one command.
    async fn insist<T>(
        &mut self,
        what: &str,
        mut attempt: impl AsyncFnMut() -> Result<T, ErrorInfo>,
    ) -> T {
        loop {
            match with_timeout(attempt()).await {
                Ok(done) => return done,
                Err(error) => {
                    assert_eq!(
                        (error.code, error.retryable),
                        (ErrorCode::StorageError, true),
                        "{what}: {error}"
                    );
                    assert!(
                        error.message.contains("could not be written"),
                        "{what}: {error}"
                    );
                    self.0 += 1;
                    assert_eq!(self.0, 1, "{what}: one fault refuses one command");
                }
            }
        }
    }
}

fn session() -> SessionId {
    SessionId::new("s")
}

/// Returns the sequence of a run's answer in the conversation.
async fn answer_of(world: &TestRuntime, name: &str) -> u64 {
    let all = world
        .runtime()
        .traces()
        .messages(&TraceId::new("s"), MessagePath::All)
        .await
        .unwrap();
    let answer = format!("{name} done");
    all.iter()
        .rfind(|message| message.content == answer)
        .unwrap_or_else(|| panic!("{answer:?} is not there"))
        .sequence
}

async fn done(run: &RunHandle, name: &str) {
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, format!("{name} done").as_str())
    );
}

/// Checks that the run answered, and that it reports that its document could not be stored as a
/// version.
async fn done_but_for_its_document(run: &RunHandle, name: &str) {
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Failed, format!("{name} done").as_str())
    );
    let error = outcome.error.clone().unwrap();
    assert_eq!(
        (error.code, error.details),
        (ErrorCode::StorageError, json!({"artifacts": ["doc"]}))
    );
}

/// Does the whole job, and checks its result, which does not depend on the fault. `unflushed` names
/// the run whose document cannot be stored as a version; its edits are kept nevertheless. Returns
/// the number of rejected commands.
async fn do_the_job(world: &TestRuntime, unflushed: Option<&str>) -> u64 {
    let done = async |run: &RunHandle, name: &str| match unflushed {
        Some(failing) if failing == name => done_but_for_its_document(run, name).await,
        _ => done(run, name).await,
    };
    let runtime = world.runtime();
    let here = local_owner("s");
    let mut refusals = Refusals::default();
    let start = || {
        RunRequest::new("job")
            .session("s")
            .mode(RunMode::Orchestrator)
    };
    let first = refusals
        .insist("first", async || runtime.start(start()).await)
        .await;
    let second = refusals
        .insist("second", async || {
            runtime.start(RunRequest::new("second").session("s")).await
        })
        .await;
    refusals
        .insist("save", async || {
            let save = Save::new("data.csv", "text/csv", "a,b\n");
            runtime.artifacts().service().save(&here, save).await
        })
        .await;
    done(&first, "job").await;
    let children = first.children().await.unwrap();
    assert_eq!(children.len(), 2);
    assert!(
        children
            .iter()
            .all(|child| child.status == RunStatus::Completed),
        "{children:?}"
    );
    done(&second, "second").await;
    assert_eq!(text(world, &here, "doc").await, "one two three four");
    let end = answer_of(world, "job").await;
    let later = answer_of(world, "second").await;
    let third = async || {
        runtime
            .start(RunRequest::new("third").session("s").after(end))
            .await
    };
    let third = refusals.insist("third", third).await;
    done(&third, "third").await;
    assert_eq!(text(world, &here, "doc").await, "one two three five");
    check_session(runtime, &session()).await;
    refusals
        .insist("switch", async || {
            runtime.sessions().switch_head(&session(), later).await
        })
        .await;
    assert_eq!(text(world, &here, "doc").await, "one two three four");
    refusals.0
}

/// Checks that stored data is neither damaged nor missing nor redundant, also for the next owner.
async fn check_home(mut world: TestRuntime, place_of_fault: &str) {
    world.close_runtime().await;
    let reader = SqliteReader::open(world.home().join("sessions.sqlite")).unwrap();
    assert_eq!(
        reader.check_integrity().unwrap(),
        Vec::<String>::new(),
        "{place_of_fault}"
    );
    drop(reader);
    world
        .reopen_with(job(), |builder| builder.config(quick_non_durable_config()))
        .await;
    assert_eq!(
        world.runtime().info().live_runs(),
        0,
        "{place_of_fault}: everything has ended"
    );
    let mut files = files_in(&world.home().join("sessions/s/artifacts"));
    for key in ["doc", "data.csv"] {
        let artifact = listed(&world, &local_owner("s"), key).await;
        for version in versions(&world, &local_owner("s"), key).await {
            assert!(
                !text_at(&world, &local_owner("s"), key, version)
                    .await
                    .is_empty(),
                "{place_of_fault}"
            );
            let of_it = format!("{}/v{version}/", artifact.artifact_id);
            let before = files.len();
            files.retain(|file| !file.to_string_lossy().contains(&of_it));
            assert_eq!(
                files.len() + 1,
                before,
                "{place_of_fault}: version {version} of {key} is one file"
            );
        }
    }
    assert_eq!(
        files,
        Vec::<PathBuf>::new(),
        "{place_of_fault}: files of no version"
    );
    world.finish().await;
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_in(&path))
        } else {
            found.push(path)
        }
    }
    found
}

/// Rejects each commit in turn. Returns the number of commits and the number of rejected commands.
fn refuse_each(fault: impl Fn(StoreError) -> Fault + Sync) -> (u64, u64) {
    let rejected = AtomicU64::new(0);
    let commits = run_until_false(async |nth| {
        let plan = FaultPlan::new();
        plan.inject_at(nth, fault(disk_full()));
        let world = TestRuntime::with(job(), broken(&plan)).await;
        rejected.fetch_add(do_the_job(&world, None).await, SeqCst);
        let is_reached = plan.commits() >= nth;
        check_home(world, &format!("{:?} at commit {nth}", fault(disk_full()))).await;
        is_reached
    });
    (commits, rejected.load(SeqCst))
}

/// (DUR-6)
#[test]
fn job_result_is_the_same_if_any_commit_is_rejected() {
    let (commits, rejected) = refuse_each(Fault::FailBeforeWrite);
    // The first start has a fixed commit number; the numbers of later commands vary, so only
    // minimums are checked.
    assert!(
        commits >= COMMITS && rejected >= 1,
        "{commits} commits, {rejected} refusals"
    );
}

/// (DUR-6)
#[test]
fn job_result_is_the_same_if_any_commit_seems_to_fail() {
    let (commits, rejected) = refuse_each(Fault::FailAfterWrite);
    // The first start has a fixed commit number; the numbers of later commands vary, so only
    // minimums are checked.
    assert!(
        commits >= COMMITS && rejected >= 1,
        "{commits} commits, {rejected} refusals"
    );
}

/// (DUR-6)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_command_reports_the_error_and_changes_nothing() {
    let plan = FaultPlan::new();
    let world = TestRuntime::with(job(), broken(&plan)).await;
    let runtime = world.runtime();
    let refuse = || plan.inject_always(Fault::FailBeforeWrite(disk_full()));
    let insist = async |what: &str, start: &dyn Fn() -> RunRequest| {
        refuse();
        let error = with_timeout(runtime.start(start())).await.unwrap_err();
        assert_eq!(
            (error.code, error.retryable),
            (ErrorCode::StorageError, true),
            "{what}: {error}"
        );
        plan.clear();
        let run = runtime.start(start()).await.unwrap();
        with_timeout(run.wait()).await.unwrap();
    };
    insist("first", &|| {
        RunRequest::new("job")
            .session("s")
            .mode(RunMode::Orchestrator)
    })
    .await;
    insist("second", &|| RunRequest::new("second").session("s")).await;
    let end = answer_of(&world, "job").await;
    let later = answer_of(&world, "second").await;
    insist("third", &|| {
        RunRequest::new("third").session("s").after(end)
    })
    .await;
    assert_eq!(
        text(&world, &local_owner("s"), "doc").await,
        "one two three five"
    );
    refuse();
    let error = with_timeout(runtime.sessions().switch_head(&session(), later))
        .await
        .unwrap_err();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::StorageError, true),
        "{error}"
    );
    plan.clear();
    runtime
        .sessions()
        .switch_head(&session(), later)
        .await
        .unwrap();
    assert_eq!(
        text(&world, &local_owner("s"), "doc").await,
        "one two three four"
    );
    world.finish().await;
}

/// (DUR-6)
#[test]
fn job_result_is_the_same_if_any_file_write_fails() {
    for point in [FaultPoint::BeforeBlob, FaultPoint::AfterBlob] {
        let rejected = AtomicU64::new(0);
        let files = run_until_false(async |nth| {
            let plan = FaultPlan::new();
            let rule = format!("{point}@{nth}=fail");
            plan.add(&rule).unwrap();
            let world = TestRuntime::with(job(), |builder| {
                builder
                    .config(quick_non_durable_config())
                    .faults(plan.clone())
            })
            .await;
            rejected.fetch_add(do_the_job(&world, None).await, SeqCst);
            let is_reached = plan.hit_count(point) >= nth;
            check_home(world, &rule).await;
            is_reached
        });
        let rejected = rejected.load(SeqCst);
        // Which file belongs to the command, and not to a run, varies.
        assert!(
            files >= 4 && rejected <= files,
            "{point}: {files} files, {rejected} refusals"
        );
    }
}

/// Returns whether a run shows that it waits for the disk.
fn waits_for_storage(world: &TestRuntime) -> bool {
    let tree = serde_json::to_value(world.runtime().tree().snapshot()).unwrap();
    let mut open = vec![&tree];
    while let Some(actor) = open.pop() {
        if actor["kind"] == "run" && actor["state"] == "waiting" && actor["activity"] == "storage" {
            return true;
        }
        open.extend(actor["children"].as_array().into_iter().flatten());
    }
    false
}

/// (DUR-6)
#[test]
fn runs_wait_for_a_full_disk_and_can_be_cancelled() {
    let waited = AtomicU64::new(0);
    let cancelled = AtomicU64::new(0);
    run_until_false(async |nth| {
        let plan = FaultPlan::new();
        let model = job();
        let mut config = quick_non_durable_config();
        config.runtime.cancel_timeout_ms = 50;
        let build = broken(&plan);
        let world = TestRuntime::with(model.clone(), |builder| build(builder).config(config)).await;
        // The first commit accepts the run; without it, there is nothing to cancel.
        let first = nth + 1;
        (first..first + 1_000)
            .for_each(|commit| plan.inject_at(commit, Fault::FailBeforeWrite(disk_full())));
        let runtime = world.runtime();
        let start = RunRequest::new("job")
            .session("s")
            .mode(RunMode::Orchestrator);
        let run = runtime.start(start).await.unwrap();
        wait_until("it ends, or waits for the disk", || {
            runtime.info().live_runs() == 0 || waits_for_storage(&world)
        })
        .await;
        let is_reached = plan.commits() >= first;
        if waits_for_storage(&world) {
            waited.fetch_add(1, SeqCst);
            assert_eq!(
                runtime.sessions().get(&session()).await.unwrap().session_id,
                session(),
                "reads go on"
            );
            let health = runtime.info().check_storage().await.unwrap_err();
            assert_eq!(
                (health.code, health.retryable),
                (ErrorCode::StorageError, true)
            );
            let refused = with_timeout(runtime.start("another")).await.unwrap_err();
            assert_eq!(
                (refused.code, refused.retryable),
                (ErrorCode::StorageError, true)
            );
            if let Err(error) = with_timeout(run.cancel()).await {
                assert_eq!(
                    (error.code, error.retryable),
                    (ErrorCode::StorageError, true),
                    "nothing is stored of it"
                );
            }
            let calls = model.calls();
            assert_eq!(
                run.status().await.unwrap(),
                RunStatus::Running,
                "commit {first}: no end is reported before it is stored"
            );
            plan.clear();
            let outcome = with_timeout(run.wait()).await.unwrap();
            // If only the record of its end was pending, the run has ended, possibly with a
            // document that was not flushed.
            let code = outcome.error.as_ref().map(|error| error.code);
            let has_ended = matches!(
                (outcome.status, code),
                (RunStatus::Failed, Some(ErrorCode::StorageError))
            ) || outcome.status == RunStatus::Completed;
            assert!(
                outcome.status == RunStatus::Cancelled || has_ended,
                "{outcome:?}"
            );
            cancelled.fetch_add(u64::from(outcome.status == RunStatus::Cancelled), SeqCst);
            assert_eq!(
                model.calls(),
                calls,
                "commit {first}: no model request follows a cancel"
            );
        } else {
            plan.clear();
            with_timeout(run.wait()).await.unwrap();
        }
        check_session(runtime, &session()).await;
        let next = runtime
            .start(RunRequest::new("again").session("s"))
            .await
            .unwrap();
        done(&next, "again").await;
        check_session(runtime, &session()).await;
        world.finish().await;
        is_reached
    });
    let waited = waited.load(SeqCst);
    let cancelled = cancelled.load(SeqCst);
    assert!(
        waited >= 15 && cancelled >= 12,
        "{waited} waited, {cancelled} were cancelled"
    );
}

/// (DUR-6)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_flush_loses_no_edit_and_no_later_run() {
    for (nth, run) in ["job", "second", "third"].into_iter().enumerate() {
        let in_the_way: Arc<OnceLock<InTheWay>> = Arc::default();
        let slot = Arc::clone(&in_the_way);
        let flushes = AtomicU64::new(0);
        let ended = AtomicU64::new(0);
        let hook = move |_: &RunId, point: FaultPoint| match point {
            FaultPoint::Flush if flushes.fetch_add(1, SeqCst) == nth as u64 => slot.wait().put(),
            // The ends of the two children come before the first flush.
            FaultPoint::Ended if ended.fetch_add(1, SeqCst) == nth as u64 + 2 => {
                slot.wait().take_away()
            }
            _ => {}
        };
        let world = TestRuntime::with(job(), |builder| {
            builder
                .config(quick_non_durable_config())
                .fault_hook(Arc::new(hook))
        })
        .await;
        assert!(
            in_the_way
                .set(InTheWay(world.home().join("sessions/s/artifacts")))
                .is_ok()
        );
        assert_eq!(do_the_job(&world, Some(run)).await, 0);
        check_home(world, &format!("the flush of {run}")).await;
    }
}

/// A file in the place of a required folder.
struct InTheWay(PathBuf);

impl InTheWay {
    fn put(&self) {
        if self.0.exists() {
            std::fs::rename(&self.0, self.0.with_extension("aside")).unwrap();
        }
        std::fs::write(&self.0, "in the way").unwrap();
    }

    fn take_away(&self) {
        std::fs::remove_file(&self.0).unwrap();
        if self.0.with_extension("aside").exists() {
            std::fs::rename(self.0.with_extension("aside"), &self.0).unwrap();
        }
    }
}

/// Stores a text through each method of the library, and returns the outcomes.
async fn store_in_every_way(world: &TestRuntime) -> Vec<Result<u64, ErrorInfo>> {
    let runtime = world.runtime();
    let here = local_owner("s");
    let pieces = || {
        Content::Stream(Box::pin(futures::stream::iter([
            Ok("a".into()),
            Ok("b".into()),
        ])))
    };
    let saved = runtime
        .artifacts()
        .service()
        .save(&here, Save::new("saved", "text/plain", "text"))
        .await;
    let put = runtime
        .artifacts()
        .put(&here, "put", "text/plain", pieces())
        .await;
    let uploaded = runtime
        .artifacts()
        .upload(&here, "uploaded", "text/plain", pieces())
        .await;
    let edited = runtime
        .artifacts()
        .edit(&here, "doc", "0", "1")
        .await
        .map(|edited| edited.artifact);
    [saved, put, uploaded, edited]
        .into_iter()
        .map(|one| one.map(|artifact| artifact.current_version))
        .collect()
}

/// (DUR-6)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_file_write_is_reported_and_leaves_nothing() {
    for read_only in [false, true] {
        let kind = if read_only { "read-only" } else { "in the way" };
        let world = TestRuntime::with(prompt_driven_model(), |builder| {
            builder.config(quick_non_durable_config())
        })
        .await;
        run(&world, "s", &[create("doc", "0")]).await;
        let here = local_owner("s");
        let folder = world.home().join("sessions/s/artifacts");
        let before = files_in(&folder);
        if read_only {
            set_mode(&folder, 0o500);
        } else {
            InTheWay(folder.clone()).put();
        }
        if read_only && std::fs::create_dir(folder.join("probe")).is_ok() {
            println!("skipped: permissions do not bind this user");
            world.finish().await;
            continue;
        }
        for outcome in store_in_every_way(&world).await {
            let error = outcome.unwrap_err();
            assert_eq!(
                (error.code, error.retryable),
                (ErrorCode::StorageError, true),
                "{kind}: {error}"
            );
        }
        let names: Vec<_> = world
            .runtime()
            .artifacts()
            .list(&here)
            .await
            .unwrap()
            .into_iter()
            .map(|one| one.name)
            .collect();
        assert_eq!(names, [Some("doc".to_owned())], "{kind}");
        if read_only {
            set_mode(&folder, 0o700);
        } else {
            InTheWay(folder.clone()).take_away();
        }
        assert_eq!(files_in(&folder), before, "{kind}");
        let versions: Vec<u64> = store_in_every_way(&world)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(
            versions,
            [1, 1, 1, 2],
            "{kind}: what was refused took no number"
        );
        check_session(world.runtime(), &session()).await;
        world.finish().await;
    }
}

/// Sets the mode of a folder and of all folders below it.
fn set_mode(folder: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    for entry in std::fs::read_dir(folder)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.path().is_dir())
    {
        set_mode(&entry.path(), mode);
    }
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Store in which the session of an edit never exists.
struct Forgetful(Box<dyn Store>);

impl Store for Forgetful {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        let is_edit = |append: &Append| {
            append
                .writes
                .iter()
                .any(|write| matches!(write, Write::Artifact(ArtifactWrite::Edit(_))))
        };
        let mut outcomes = Vec::new();
        for append in batch {
            outcomes.push(if is_edit(append) {
                Err(StoreError::NotFound("session s".into()))
            } else {
                self.0.commit(std::slice::from_ref(append))?.remove(0)
            });
        }
        Ok(outcomes)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_edit_of_a_missing_session_is_rejected_not_retried() {
    let model = scripted_model(|request| match request.messages.len() {
        1 => Turn::call("create_artifact", json!({"name": "doc", "content": "one"})),
        _ => Turn::say(request.messages.last().unwrap().content.to_string()),
    });
    let build = |builder: RuntimeBuilder| {
        builder
            .config(quick_non_durable_config())
            .wrap_store(|store| Box::new(Forgetful(Box::new(store))))
    };
    let world = TestRuntime::with(model, build).await;
    let run = world
        .runtime()
        .start(RunRequest::new("write").session("s"))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert!(
        outcome.output.contains("session s does not exist"),
        "{outcome:?}"
    );
    world.finish().await;
}

/// A store that rejects the later appends of one run, as if only they did not fit on the disk.
struct OneRunRejected {
    store: Box<dyn Store>,
    run: Arc<OnceLock<RunId>>,
    has_room: Arc<AtomicBool>,
}

impl Store for OneRunRejected {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        let is_rejected =
            |append: &Append| append.fence.as_ref().map(|fence| &fence.run_id) == self.run.get();
        if self.run.get().is_some() && !self.has_room.load(SeqCst) && batch.iter().any(is_rejected)
        {
            return Err(disk_full());
        }
        self.store.commit(batch)
    }
}

/// A run waits for the disk although the last commit, of another session, was successful.
#[tokio::test]
async fn storage_is_not_healthy_while_one_run_waits_for_it() {
    let go: Arc<Notify> = Arc::default();
    let answer = Arc::clone(&go);
    let model = scripted_model(move |_| Turn::When(Arc::clone(&answer), "done".to_owned()));
    let run_id: Arc<OnceLock<RunId>> = Arc::default();
    let has_room: Arc<AtomicBool> = Arc::default();
    let rejected = (Arc::clone(&run_id), Arc::clone(&has_room));
    let world = TestRuntime::with(model, |builder| {
        builder
            .config(quick_non_durable_config())
            .wrap_store(move |store| {
                Box::new(OneRunRejected {
                    store: Box::new(store),
                    run: rejected.0,
                    has_room: rejected.1,
                })
            })
    })
    .await;
    let runtime = world.runtime();
    runtime.info().check_storage().await.unwrap();
    let run = runtime
        .start(RunRequest::new("one").session("s"))
        .await
        .unwrap();
    run_id.set(run.run_id().clone()).unwrap();
    go.notify_one();
    wait_until("it waits for the disk", || waits_for_storage(&world)).await;
    runtime
        .sessions()
        .create(SessionSpec::default())
        .await
        .unwrap();
    let health = runtime.info().check_storage().await.unwrap_err();
    assert_eq!(
        (health.code, health.retryable),
        (ErrorCode::StorageError, true)
    );
    has_room.store(true, SeqCst);
    with_timeout(run.wait()).await.unwrap();
    runtime.info().check_storage().await.unwrap();
    world.finish().await;
}
