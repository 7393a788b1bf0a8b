//! Runtime and artifacts of an agent core: start, follow, queue, cancel, delete, clean up.

use serde_json::json;
use soong::{
    ErrorCode, MessagePath, RunRequest, Runtime,
    artifact::{Cleanup, Save},
    protocol::{Artifact, Role, RunMode, RunStatus},
    schemars::{self, JsonSchema},
    task_journal::{TaskCleanup, TaskStatus, project_tasks},
    tool::{self, ToolContext},
};

use crate::support::{
    artifacts::{folder, local_owner},
    history::check_session,
    model::{Turn, assistant_count, last_of, scripted_model, task_of},
    world::{TestRuntime, kinds, quick_config, read_to_end, wait_until, with_timeout},
};

#[derive(serde::Deserialize, JsonSchema)]
struct Nothing {}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_runtime_serves_both_modes_and_shows_each_child() {
    let model = scripted_model(
        |request| match (task_of(request), assistant_count(request)) {
            ("plan", 0) => Turn::call("agent", json!({"task": ["left", "right"]})),
            ("plan", _) => Turn::say("both are done"),
            (task, _) => Turn::say(format!("done: {task}")),
        },
    );
    let world = TestRuntime::open(model).await;
    let runtime = world.runtime();
    let normal = runtime
        .start(RunRequest::new("hello").mode(RunMode::Normal))
        .await
        .unwrap();
    let orchestrator = RunRequest::new("plan")
        .session("s")
        .mode(RunMode::Orchestrator);
    let orchestrator = runtime.start(orchestrator).await.unwrap();
    assert_eq!(
        with_timeout(normal.wait()).await.unwrap().output,
        "done: hello"
    );
    let events = read_to_end(orchestrator.events().unwrap()).await;
    assert_eq!(
        (kinds(&events)[0], *kinds(&events).last().unwrap()),
        ("loop_started", "run_completed")
    );

    let children = orchestrator.children().await.unwrap();
    assert_eq!(children.len(), 2);
    for (child, task) in children.iter().zip(["left", "right"]) {
        let record = orchestrator.inspect_child(&child.run_id).await.unwrap();
        assert_eq!(
            (record.status, record.task.as_str()),
            (RunStatus::Completed, task)
        );
        let events = read_to_end(orchestrator.child_events(&child.run_id).await.unwrap()).await;
        assert!(
            events
                .iter()
                .all(|event| event.run_id.as_ref() == Some(&child.run_id))
        );
        assert_eq!(*kinds(&events).last().unwrap(), "run_completed");
    }
    check_session(runtime, orchestrator.session_id()).await;
    runtime.close().await;
    runtime.close().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_run_is_queued_and_active_session_is_not_deleted() {
    let model = scripted_model(|_| Turn::Hang("thinking"));
    let world = TestRuntime::open(model.clone()).await;
    let runtime = world.runtime();
    let active = runtime
        .start(RunRequest::new("wait").session("s"))
        .await
        .unwrap();
    wait_until("the model is called", || model.in_flight() == 1).await;
    let queued = runtime
        .start(RunRequest::new("next").session("s"))
        .await
        .unwrap();
    assert!(queued.was_queued());
    assert_eq!(queued.status().await.unwrap(), RunStatus::Queued);
    let refused = runtime
        .sessions()
        .delete(active.session_id())
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::SessionActive);

    with_timeout(queued.cancel()).await.unwrap();
    let events = read_to_end(queued.events().unwrap()).await;
    assert_eq!(
        kinds(&events),
        ["run_queued", "run_dequeued", "run_cancelled"]
    );
    with_timeout(active.cancel()).await.unwrap();
    assert_eq!(
        with_timeout(active.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    assert_eq!(model.calls(), 1, "a queued run makes no request");

    // The conversation ends at the last message that a user sees; the partial answer is stored too.
    let trace = runtime.traces().get(active.trace_id()).await.unwrap();
    let messages = runtime
        .traces()
        .messages(active.trace_id(), MessagePath::All)
        .await
        .unwrap();
    let head = messages
        .iter()
        .find(|message| message.sequence == trace.head_sequence)
        .unwrap();
    assert_eq!((head.role, &*head.content), (Role::User, "wait"));
    assert!(
        messages
            .iter()
            .any(|message| message.partial && message.content == "thinking")
    );

    with_timeout(runtime.sessions().delete(active.session_id()))
        .await
        .unwrap();
    assert_eq!(
        runtime
            .sessions()
            .get(active.session_id())
            .await
            .unwrap_err()
            .code,
        ErrorCode::SessionNotFound
    );
    world.finish().await;
}

#[tokio::test]
async fn project_folder_may_be_a_file_in_it_but_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let project = folder.path().join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("notes.txt"), "").unwrap();
    let open = |dir| {
        Runtime::builder()
            .home(&home)
            .project_dir(dir)
            .offline()
            .build()
    };
    let runtime = open(project.join("notes.txt")).await.unwrap();
    assert_eq!(
        runtime.info().project_dir(),
        project.canonicalize().unwrap()
    );
    runtime.close().await;
    assert_eq!(
        open(project.join("none")).await.unwrap_err().code,
        ErrorCode::FileNotFound
    );
}

/// A large tool output becomes a file of the session; the message has its beginning and its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_output_is_stored_and_explicit_calls_delete_it() {
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("build_log", json!({})),
        _ => Turn::say(last_of(request)),
    });
    let log = |_: ToolContext, Nothing {}| async { Ok("a line of the log\n".repeat(1_000)) };
    let tool = tool::function("build_log", "Builds.", log).reads().build();
    let mut config = quick_config();
    config.artifacts.max_inline_bytes = 2_000;
    let world = TestRuntime::with(model, |builder| builder.config(config).tool(tool)).await;
    let runtime = world.runtime();
    let here = local_owner("s");
    let run = runtime
        .start(RunRequest::new("build it").session("s"))
        .await
        .unwrap();
    let shown = with_timeout(run.wait()).await.unwrap().output.clone();
    let stored = runtime.artifacts().list(&here).await.unwrap().remove(0);
    assert!(
        shown.len() < 4_000 && shown.contains(stored.artifact_id.as_str()),
        "{shown}"
    );
    let file = folder(&world, &stored).join("v1").join(&stored.filename);
    assert!(
        file.starts_with(
            world
                .home()
                .join("sessions/s/artifacts")
                .join(stored.artifact_id.as_str())
        )
    );
    assert_eq!(std::fs::metadata(&file).unwrap().len(), stored.size);

    // A cleanup lists only diagnostic artifacts and deletes nothing, unless the request says
    // otherwise.
    let service = runtime.artifacts().service();
    let debug = Save {
        debug: true,
        ..Save::new("hook.log", "text/plain", "log")
    };
    service.save(&here, debug).await.unwrap();
    let report = runtime
        .artifacts()
        .clean_up(Cleanup::default())
        .await
        .unwrap();
    assert_eq!(
        report
            .candidates
            .iter()
            .map(|found| found.name.as_deref())
            .collect::<Vec<_>>(),
        [Some("hook.log")]
    );
    assert_eq!(runtime.artifacts().list(&here).await.unwrap().len(), 2);
    let clean_up = Cleanup {
        dry_run: false,
        session_id: Some(run.session_id().clone()),
        ..Cleanup::default()
    };
    runtime.artifacts().clean_up(clean_up).await.unwrap();
    let left = runtime.artifacts().list(&here).await.unwrap();
    assert_eq!(
        left.iter().map(Artifact::key).collect::<Vec<_>>(),
        [stored.artifact_id.as_str()]
    );

    runtime
        .artifacts()
        .delete(&here, stored.artifact_id.as_str())
        .await
        .unwrap();
    assert!(runtime.artifacts().list(&here).await.unwrap().is_empty() && !file.exists());
    world.finish().await;
}

/// Deleting a session keeps the experiences and the journal of its task, which has a cleanup of its
/// own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_session_keeps_memory_and_journals_of_the_project() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("done"))).await;
    let runtime = world.runtime();
    let lessons = world.home().join("memory/experiences.md");
    std::fs::create_dir_all(lessons.parent().unwrap()).unwrap();
    std::fs::write(&lessons, "---\nid: ex_001\n---\nLook first.\n").unwrap();
    let run = runtime
        .start(
            RunRequest::new("plan")
                .session("s")
                .mode(RunMode::Orchestrator),
        )
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let project = world.project().canonicalize().unwrap();
    let is_complete = || {
        let tasks = project_tasks(Some(&world.home()), &project).unwrap();
        tasks
            .iter()
            .any(|task| task.status == TaskStatus::Completed)
    };
    wait_until("the journal is complete", is_complete).await;
    with_timeout(runtime.sessions().delete(run.session_id()))
        .await
        .unwrap();
    assert!(lessons.exists());
    let journals = project.join(".soong-agent/tasks/s");
    let count = || std::fs::read_dir(&journals).map_or(0, Iterator::count);
    assert_eq!(count(), 1);

    let request = TaskCleanup::dry_run_for(&project);
    let report = runtime
        .traces()
        .clean_up_project_tasks(request.clone())
        .await
        .unwrap();
    assert_eq!(
        (report.candidates.len(), count()),
        (1, 1),
        "a dry run deletes nothing"
    );
    runtime
        .traces()
        .clean_up_project_tasks(TaskCleanup {
            dry_run: false,
            ..request
        })
        .await
        .unwrap();
    assert_eq!(count(), 0);
    world.finish().await;
}
