//! Task journals: a file in the project with the plan of each orchestrator run (TASK-1, TASK-2).

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use serde_json::json;
use soong::{
    ErrorCode, FaultPoint, RunRequest, RuntimeBuilder,
    protocol::{GoalTree, RunMode, RunStatus, RunWrite, SessionId, TraceId, Write},
    task_journal::{
        ProjectTask, TaskCleanup, TaskEvent, TaskLine, TaskPlace, TaskStatus, goal_tree,
        project_tasks as read_tasks,
    },
};
use soong_storage::store::{Ack, Append, Store, StoreError};
use tokio::sync::Notify;

use crate::support::{
    model::{ScriptedModel, Turn, assistant_count, is_parent, scripted_model},
    world::{TestRuntime, quick_non_durable_config, wait_until, with_timeout},
};

/// Model that plans three goals, completes one of them, starts children for another, and answers.
fn planner() -> Arc<ScriptedModel> {
    scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call(
                "goal",
                json!({"add": ["look", "write", "check"], "focus": "1"}),
            ),
            (true, 1) => Turn::call("goal", json!({"done": "looked", "focus": "2"})),
            (true, 2) => Turn::call("agent", json!({"task": ["left", "right"]})),
            (true, 3) => Turn::call("goal", json!({"add": ["later"], "under": "3"})),
            _ => Turn::say("done"),
        },
    )
}

fn orchestrate(session: &str) -> RunRequest {
    RunRequest::new("Explore this project!")
        .session(session)
        .mode(RunMode::Orchestrator)
}

fn tasks(world: &TestRuntime) -> Vec<ProjectTask> {
    read_tasks(
        Some(&world.home()),
        &world.project().canonicalize().unwrap(),
    )
    .unwrap()
}

/// Waits until `count` tasks have ended according to their journals, and returns all tasks.
async fn complete(world: &TestRuntime, count: usize) -> Vec<ProjectTask> {
    let is_over = |task: &ProjectTask| task.status != TaskStatus::Unfinished;
    let what = format!("{count} journals are complete");
    wait_until(&what, || {
        tasks(world).iter().filter(|task| is_over(task)).count() == count
    })
    .await;
    tasks(world)
}

fn lines(path: &Path) -> Vec<TaskLine> {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<TaskLine> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let numbers: Vec<u64> = lines.iter().map(|line| line.wal_seq).collect();
    assert_eq!(numbers, (1..=lines.len() as u64).collect::<Vec<_>>());
    lines
}

/// Returns the stored goals of a session without their usage.
async fn goals(world: &TestRuntime, session: &str) -> GoalTree {
    let mut tree = world
        .runtime()
        .traces()
        .goal_tree(&TraceId::new(session))
        .await
        .unwrap();
    for goal in &mut tree.goals {
        goal.sub_trace_metadata.clear();
        goal.self_stats = None;
        goal.cumulative_stats = None;
    }
    tree
}

/// Removes the sub-trace ids of all goals: a journal knows only those of its own run.
fn bare(mut tree: GoalTree) -> GoalTree {
    tree.goals
        .iter_mut()
        .for_each(|goal| goal.sub_trace_ids.clear());
    tree
}

/// Store that never records that a journal is complete, as if the process had died before.
struct NeverDone(Box<dyn Store>);

impl Store for NeverDone {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        let is_done =
            |write: &Write| matches!(write, Write::Run(RunWrite::TaskJournalCompleted(_)));
        let answers = batch.iter().map(|append| {
            if append.writes.iter().any(is_done) {
                Ok(Err(StoreError::Io("it died".into())))
            } else {
                Ok(self.0.commit(std::slice::from_ref(append))?.remove(0))
            }
        });
        answers.collect()
    }
}

fn never_done(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .config(quick_non_durable_config())
        .wrap_store(|store| Box::new(NeverDone(Box::new(store))))
}

/// (TASK-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orchestrator_run_writes_its_plan_to_the_project() {
    let world = TestRuntime::open(planner()).await;
    let runtime = world.runtime();
    let first = runtime.start(orchestrate("s")).await.unwrap();
    with_timeout(first.wait()).await.unwrap();
    let task = complete(&world, 1).await.remove(0);
    let run = first.record().await.unwrap();
    let stamp = run.created_at.compact();
    let tail = &run.run_id.as_str()[run.run_id.as_str().len() - 6..];
    let name = format!(
        "{}-{}-explore-this-project-{tail}.wal.jsonl",
        &stamp[..8],
        &stamp[8..]
    );
    let folder = world
        .project()
        .canonicalize()
        .unwrap()
        .join(".soong-agent/tasks/s");
    assert_eq!(
        (&task.path, task.status, task.kept_in),
        (
            &folder.join(name),
            TaskStatus::Completed,
            TaskPlace::Project
        )
    );
    assert_eq!(
        (task.mission.as_str(), task.run_id.as_ref()),
        ("Explore this project!", Some(first.run_id()))
    );
    let written = lines(&task.path);
    assert_eq!(task.lines, written.len() as u64);
    assert_eq!(goal_tree(&written).unwrap(), goals(&world, "s").await);
    let kinds: Vec<&str> = written.iter().map(|line| line.event.kind()).collect();
    assert_eq!(
        (kinds[0], *kinds.last().unwrap()),
        ("task_created", "task_completed")
    );
    for (kind, count) in [
        ("goal_added", 4),
        ("goal_focused", 2),
        ("child_started", 2),
        ("child_completed", 2),
    ] {
        assert_eq!(
            kinds.iter().filter(|found| **found == kind).count(),
            count,
            "{kind}: {kinds:?}"
        );
    }

    // The journal of the next run of the session starts with the goals of the session. Runs in
    // normal mode and driven runs have no journal.
    let second = runtime.start(orchestrate("s")).await.unwrap();
    with_timeout(second.wait()).await.unwrap();
    let normal = runtime
        .start(RunRequest::new("x").session("n"))
        .await
        .unwrap();
    with_timeout(normal.wait()).await.unwrap();
    let driven = RunRequest::driven("x")
        .session("d")
        .mode(RunMode::Orchestrator);
    let driven = runtime.start(driven).await.unwrap();
    driven.finish("it is done").unwrap();
    with_timeout(driven.wait()).await.unwrap();
    let all = complete(&world, 2).await;
    let later = all
        .iter()
        .find(|task| task.run_id.as_ref() == Some(second.run_id()))
        .unwrap();
    let written = lines(&later.path);
    let TaskEvent::TaskCreated(created) = &written[0].event else {
        panic!("{:?}", written[0])
    };
    assert_eq!(created.goal_tree.goals.len(), 4);
    assert_eq!(
        bare(goal_tree(&written).unwrap()),
        bare(goals(&world, "s").await)
    );

    // Deleting the session does not change the journals.
    runtime
        .sessions()
        .delete(&SessionId::new("s"))
        .await
        .unwrap();
    assert_eq!(tasks(&world), all);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_run_has_no_journal_until_it_starts() {
    let go = Arc::new(Notify::new());
    let signal = Arc::clone(&go);
    let model = scripted_model(move |_| Turn::When(Arc::clone(&signal), "done".into()));
    let world = TestRuntime::open(model.clone()).await;
    let active = world.runtime().start(orchestrate("s")).await.unwrap();
    wait_until("it thinks", || model.in_flight() == 1).await;
    let waiting = world.runtime().start(orchestrate("s")).await.unwrap();
    let never = world.runtime().start(orchestrate("s")).await.unwrap();
    wait_until("the first has begun its journal", || {
        tasks(&world).first().is_some_and(|task| task.lines == 1)
    })
    .await;
    never.cancel().await.unwrap();
    go.notify_one();
    with_timeout(active.wait()).await.unwrap();
    wait_until("the second thinks", || model.in_flight() == 1).await;
    waiting.cancel().await.unwrap();
    let mut found: Vec<(TaskStatus, bool)> = complete(&world, 2)
        .await
        .iter()
        .map(|task| (task.status, task.run_id.as_ref() == Some(active.run_id())))
        .collect();
    found.sort_by_key(|(_, is_first)| !is_first);
    assert_eq!(
        found,
        [
            (TaskStatus::Completed, true),
            (TaskStatus::Cancelled, false)
        ]
    );
    world.finish().await;
}

/// (TASK-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reported_end_is_in_the_file_after_the_runtime_closes() {
    for _ in 0..8 {
        let mut world = TestRuntime::with(planner(), |builder| {
            builder.config(quick_non_durable_config())
        })
        .await;
        let run = world.runtime().start(orchestrate("s")).await.unwrap();
        with_timeout(run.wait()).await.unwrap();
        world.close_runtime().await;
        assert_eq!(tasks(&world)[0].status, TaskStatus::Completed);
        world.finish().await;
    }
}

/// (TASK-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_owner_completes_a_file_left_by_a_crash() {
    let mut world = TestRuntime::with(planner(), never_done).await;
    let run = world.runtime().start(orchestrate("s")).await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    let path = complete(&world, 1).await.remove(0).path;
    let whole = fs::read(&path).unwrap();
    let middle = whole.iter().position(|byte| *byte == b'\n').unwrap() / 2;
    let mut damaged = whole.clone();
    damaged[middle] = b'\n';
    let mut cases: Vec<(String, Option<Vec<u8>>)> =
        vec![("no file".into(), None), ("damaged".into(), Some(damaged))];
    // Cuts at 16 or 17 evenly spaced positions, before the last byte, and at the end. The unit test
    // of the file cuts at every byte.
    for cut in (0..whole.len())
        .step_by(whole.len() / 16)
        .chain([whole.len() - 1, whole.len()])
    {
        cases.push((format!("cut at {cut}"), Some(whole[..cut].to_vec())));
    }
    for (what, left) in cases {
        world.close_runtime().await;
        match &left {
            Some(text) => fs::write(&path, text).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        world.reopen_with(planner(), never_done).await;
        wait_until(&what, || fs::read(&path).is_ok_and(|text| text == whole)).await;
    }
    let damaged_path = PathBuf::from(format!("{}.damaged-1", path.display()));
    assert!(damaged_path.exists(), "what was damaged is kept");
    assert_eq!(tasks(&world).len(), 1, "and is no journal any more");

    // After the journal is recorded as complete, the file belongs to the user: if the user deletes
    // it, it is not restored.
    for process in 1.. {
        world.reopen(planner()).await;
        fs::remove_file(&path).unwrap();
        world.reopen(planner()).await;
        world.close_runtime().await;
        if !path.exists() {
            break;
        }
        assert!(process < 20, "it is noted in one of the first processes");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_owner_writes_the_last_line_of_an_interrupted_run() {
    for file_is_lost in [false, true] {
        let model = scripted_model(|request| match assistant_count(request) {
            0 => Turn::call("goal", json!({"add": ["one"], "focus": "1"})),
            _ => Turn::Hang("thinking"),
        });
        let mut world = TestRuntime::open(model.clone()).await;
        world.runtime().start(orchestrate("s")).await.unwrap();
        wait_until("the plan is in the file", || {
            tasks(&world).first().is_some_and(|task| task.lines == 3)
        })
        .await;
        world.close_runtime().await;
        let path = tasks(&world).remove(0).path;
        assert_eq!(tasks(&world)[0].status, TaskStatus::Unfinished);
        if file_is_lost {
            fs::remove_file(&path).unwrap();
        }
        let ending = |builder: soong::RuntimeBuilder| {
            let mut config = crate::support::world::quick_config();
            config.runtime.recovery = Some(soong::protocol::RecoveryMode::Fail);
            builder.config(config)
        };
        world.reopen_with(planner(), ending).await;
        let task = complete(&world, 1).await.remove(0);
        assert_eq!(
            (task.path, task.status),
            (path.clone(), TaskStatus::Failed),
            "lost: {file_is_lost}"
        );
        let written = lines(&path);
        assert_eq!(goal_tree(&written).unwrap(), goals(&world, "s").await);
        let TaskEvent::TaskFailed { error, .. } = &written.last().unwrap().event else {
            panic!("{written:?}")
        };
        assert_eq!(error.code, ErrorCode::Interrupted);
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actor_crash_at_any_point_does_not_change_the_journal() {
    for point in FaultPoint::ALL {
        for nth in [1, 2, 4] {
            let met = Mutex::new(HashMap::new());
            let root = Mutex::new(None);
            let hook = Arc::new(move |run: &soong::protocol::RunId, here| {
                let is_root = root.lock().unwrap().get_or_insert_with(|| run.clone()) == run;
                let count = {
                    let mut met = met.lock().unwrap();
                    let count = met.entry(here).or_insert(0);
                    *count += u32::from(is_root);
                    *count
                };
                assert!(!is_root || here != point || count != nth, "provoked");
            });
            let world = TestRuntime::with(planner(), |builder| {
                builder.config(quick_non_durable_config()).fault_hook(hook)
            })
            .await;
            let run = world.runtime().start(orchestrate("s")).await.unwrap();
            let outcome = with_timeout(run.wait()).await.unwrap();
            assert_eq!(outcome.status, RunStatus::Completed, "{point:?} {nth}");
            let task = complete(&world, 1).await.remove(0);
            let written = lines(&task.path);
            assert_eq!(
                goal_tree(&written).unwrap(),
                goals(&world, "s").await,
                "{point:?} {nth}"
            );
            let created = written
                .iter()
                .filter(|line| line.event.kind() == "task_created")
                .count();
            assert_eq!(
                (created, task.status),
                (1, TaskStatus::Completed),
                "{point:?} {nth}"
            );
            world.finish().await;
        }
    }
}

/// (TASK-1)
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journal_is_in_the_home_if_the_project_cannot_store_it() {
    type Prepare = fn(&TestRuntime);
    let cases: [(&str, TaskPlace, Prepare); 4] = [
        ("nothing is to be written there", TaskPlace::Home, |_| {}),
        ("a file is in the way", TaskPlace::Project, |world| {
            fs::write(world.project().join(".soong-agent"), "a file").unwrap();
        }),
        ("a link leads out of it", TaskPlace::Project, |world| {
            std::os::unix::fs::symlink(world.home(), world.project().join(".soong-agent")).unwrap();
        }),
        (
            "a link below leads out of it",
            TaskPlace::Project,
            |world| {
                fs::create_dir(world.project().join(".soong-agent")).unwrap();
                std::os::unix::fs::symlink(
                    world.home(),
                    world.project().join(".soong-agent/tasks"),
                )
                .unwrap();
            },
        ),
    ];
    for (what, location, prepare) in cases {
        let mut world =
            TestRuntime::with(planner(), |builder| builder.task_journals(location)).await;
        prepare(&world);
        let before: Vec<_> = fs::read_dir(world.project())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        let run = world.runtime().start(orchestrate("s")).await.unwrap();
        with_timeout(run.wait()).await.unwrap();
        let task = complete(&world, 1).await.remove(0);
        assert_eq!(task.kept_in, TaskPlace::Home, "{what}");
        assert_eq!(
            task.path.parent(),
            Some(world.home().join("tasks/s").as_path()),
            "{what}"
        );
        assert_eq!(
            goal_tree(&lines(&task.path)).unwrap(),
            goals(&world, "s").await,
            "{what}"
        );
        let after: Vec<_> = fs::read_dir(world.project())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(after, before, "{what}");
        assert!(
            !world.home().join("s").exists(),
            "{what}: nothing was written through the link"
        );
        // The journal is listed under its project, and is deleted by a cleanup of the project.
        world.reopen(planner()).await;
        let other = tempfile::tempdir().unwrap();
        assert_eq!(
            world
                .runtime()
                .traces()
                .project_tasks(other.path())
                .await
                .unwrap(),
            [],
            "{what}"
        );
        let request = TaskCleanup {
            dry_run: false,
            ..TaskCleanup::dry_run_for(world.project())
        };
        let report = world
            .runtime()
            .traces()
            .clean_up_project_tasks(request)
            .await
            .unwrap();
        assert_eq!(report.candidates.len(), 1, "{what}");
        assert!(
            tasks(&world).is_empty() && !world.home().join("tasks/s").exists(),
            "{what}"
        );
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journal_moves_to_the_home_if_its_project_is_deleted() {
    let go = Arc::new(Notify::new());
    let signal = Arc::clone(&go);
    let model = scripted_model(move |request| match assistant_count(request) {
        0 => Turn::call("goal", json!({"add": ["one"], "focus": "1"})),
        _ => Turn::When(Arc::clone(&signal), "done".into()),
    });
    let world = TestRuntime::open(model.clone()).await;
    let project = world.project().canonicalize().unwrap();
    let run = world.runtime().start(orchestrate("s")).await.unwrap();
    let in_project = || read_tasks(None, &project).unwrap();
    wait_until("the plan is in the project", || {
        in_project().first().is_some_and(|task| task.lines == 3)
    })
    .await;
    fs::remove_dir_all(&project).unwrap();
    go.notify_one();
    with_timeout(run.wait()).await.unwrap();
    let at_home = || read_tasks(Some(&world.home()), &project).unwrap();
    wait_until("it is complete", || {
        at_home()
            .first()
            .is_some_and(|task| task.status == TaskStatus::Completed)
    })
    .await;
    assert_eq!(lines(&at_home()[0].path).len(), 4);
    assert!(!project.exists(), "it is not made anew");
    world.finish().await;
}

/// (TASK-2)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleanup_defaults_to_dry_run_and_skips_active_runs() {
    let go = Arc::new(Notify::new());
    let signal = Arc::clone(&go);
    let model = scripted_model(
        move |request| match (is_parent(request), request.messages.len()) {
            (true, _)
                if request
                    .messages
                    .iter()
                    .any(|message| message.content.contains("wait")) =>
            {
                Turn::When(Arc::clone(&signal), "done".into())
            }
            _ => Turn::say("done"),
        },
    );
    let world = TestRuntime::open(model.clone()).await;
    let runtime = world.runtime();
    with_timeout(runtime.start(orchestrate("over")).await.unwrap().wait())
        .await
        .unwrap();
    complete(&world, 1).await;
    let at_work = RunRequest::new("wait for me")
        .session("at-work")
        .mode(RunMode::Orchestrator);
    let at_work = runtime.start(at_work).await.unwrap();
    wait_until("both have begun", || tasks(&world).len() == 2).await;
    let plain = || TaskCleanup::dry_run_for(world.project());
    let listed = runtime
        .traces()
        .clean_up_project_tasks(plain())
        .await
        .unwrap();
    assert_eq!(
        (listed.dry_run, listed.candidates.len(), tasks(&world).len()),
        (true, 1, 2)
    );
    assert!(!listed.candidates[0].deleted && listed.candidates[0].reason.contains("completed"));
    let all = TaskCleanup {
        dry_run: false,
        include_failed: true,
        include_cancelled: true,
        ..plain()
    };
    let done = runtime
        .traces()
        .clean_up_project_tasks(all.clone())
        .await
        .unwrap();
    assert!(done.candidates.len() == 1 && done.candidates[0].deleted);
    assert_eq!(done.candidates[0].path, listed.candidates[0].path);
    let left: Vec<SessionId> = tasks(&world)
        .into_iter()
        .map(|task| task.session_id)
        .collect();
    assert_eq!(left, [SessionId::new("at-work")]);
    go.notify_one();
    with_timeout(at_work.wait()).await.unwrap();
    complete(&world, 1).await;
    let gone = TaskCleanup {
        project_dir: world.project().join("no"),
        ..all
    };
    assert_eq!(
        runtime
            .traces()
            .clean_up_project_tasks(gone)
            .await
            .unwrap_err()
            .code,
        ErrorCode::FileNotFound
    );
    world.finish().await;
}
