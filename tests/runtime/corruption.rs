//! A database that is permanently damaged while runs are active: no caller waits forever (DUR-6).
//!
//! Each test would hang if an operation that can never succeed were retried forever. Elsewhere:
//! disks that fail temporarily (`storage_faults.rs`), homes that cannot be opened at all
//! (`homes.rs`).

use std::{io::Write, path::Path, sync::Arc};

use serde_json::json;
use soong::{
    ChildSpec, ErrorCode, ErrorInfo, EventStream, RunHandle, RunRequest, RuntimeBuilder,
    StreamItem, UnrecordedRun,
    model::ModelRequest,
    protocol::{EndReason, Event, Role, RunEvent, RunId, RunStatus, SessionId},
};
use soong_storage::{
    fault::{Fault, FaultPlan, FaultStore},
    store::StoreError,
};
use tokio::sync::Notify;

use crate::support::{
    artifacts::is_alive,
    history::{check_session, stored},
    model::{ScriptedModel, Turn, assistant_count, scripted_model},
    world::{TestRuntime, quick_non_durable_config, wait_until, with_timeout},
};

fn damaged() -> Fault {
    Fault::FailBeforeWrite(StoreError::Corrupt(
        "a page of the database is damaged".into(),
    ))
}

fn with_faults(plan: &FaultPlan) -> impl FnOnce(RuntimeBuilder) -> RuntimeBuilder {
    let plan = plan.clone();
    |builder| {
        builder
            .config(quick_non_durable_config())
            .wrap_store(move |store| Box::new(FaultStore::new(store, plan)))
    }
}

/// Returns the last user message of the request.
fn last_user_message(request: &ModelRequest) -> &str {
    let user_message = request
        .messages
        .iter()
        .rfind(|message| message.role == Role::User);
    user_message.map_or("", |message| &message.content)
}

/// Model that creates a document if the task is `write`, and answers after a notification.
fn waiting_model(signal: &Arc<Notify>) -> Arc<ScriptedModel> {
    let signal = Arc::clone(signal);
    scripted_model(
        move |request| match (last_user_message(request), assistant_count(request)) {
            ("again", _) => Turn::say("done"),
            ("write", 0) => Turn::call("create_artifact", json!({"name": "doc", "content": "one"})),
            _ => Turn::When(Arc::clone(&signal), "done".to_owned()),
        },
    )
}

/// Overwrites the database after its first page, and the write-ahead log after its header.
fn damage(home: &Path) {
    for (name, header_bytes) in [("sessions.sqlite", 4096), ("sessions.sqlite-wal", 32)] {
        let path = home.join(name);
        let Ok(length) = std::fs::metadata(&path).map(|file| file.len()) else {
            continue;
        };
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(header_bytes)).unwrap();
        file.write_all(&vec![
            0xa5;
            usize::try_from(length.saturating_sub(header_bytes))
                .unwrap()
        ])
        .unwrap();
    }
}

async fn begin(world: &TestRuntime, model: &ScriptedModel, task: &str) -> RunHandle {
    let run = world
        .runtime()
        .start(RunRequest::new(task).session("s"))
        .await
        .unwrap();
    // The first call of the task `write` creates the document.
    let calls = if task == "write" { 2 } else { 1 };
    wait_until("the model is asked", || {
        model.calls() == calls && model.in_flight() == 1
    })
    .await;
    run
}

/// Reads a stream until it reports that the end of a run cannot be recorded.
async fn until_lost(stream: &mut EventStream, run: &RunId) -> Arc<UnrecordedRun> {
    loop {
        match with_timeout(stream.next())
            .await
            .expect("the stream ended")
            .unwrap()
        {
            StreamItem::Lost(lost) if lost.run_id == *run => return lost,
            item => {
                assert!(!matches!(&item, StreamItem::Event(record) if record.event.is_terminal()))
            }
        }
    }
}

fn says_why(error: &ErrorInfo) {
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::StorageError, false),
        "{error}"
    );
    assert!(error.message.contains("damaged"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_fails_on_permanent_commit_error_and_session_continues() {
    // Reject the commit of the answer; then also the first commit of the actor that is restarted
    // after the crash.
    for (refused, ends) in [(1, RunStatus::Completed), (2, RunStatus::Failed)] {
        let plan = FaultPlan::new();
        let signal = Arc::new(Notify::new());
        let model = waiting_model(&signal);
        let world = TestRuntime::with(model.clone(), with_faults(&plan)).await;
        let run = begin(&world, &model, "hold").await;
        let from = plan.commits() + 1;
        (from..from + refused).for_each(|commit| plan.inject_at(commit, damaged()));
        signal.notify_waiters();
        if ends == RunStatus::Completed {
            wait_until("it asks again", || {
                model.calls() == 2 && model.in_flight() == 1
            })
            .await;
            signal.notify_waiters();
        }
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(outcome.status, ends, "{outcome:?}");
        if ends == RunStatus::Failed {
            says_why(outcome.error.as_ref().unwrap());
            let events = stored(world.runtime(), run.trace_id()).await;
            let end = events.last().map(|event| event.event.clone());
            assert!(
                matches!(
                    end,
                    Some(Event::Run(RunEvent::Failed {
                        end_reason: EndReason::Failed,
                        ..
                    }))
                ),
                "{end:?}"
            );
        }
        check_session(world.runtime(), &SessionId::new("s")).await;
        let next = world
            .runtime()
            .start(RunRequest::new("again").session("s"))
            .await
            .unwrap();
        assert_eq!(
            with_timeout(next.wait()).await.unwrap().status,
            RunStatus::Completed
        );
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_get_the_error_if_no_end_can_be_recorded() {
    let plan = FaultPlan::new();
    let signal = Arc::new(Notify::new());
    let model = waiting_model(&signal);
    let world = TestRuntime::with(model.clone(), with_faults(&plan)).await;
    let parent = world
        .runtime()
        .start(RunRequest::driven("drive").session("s"))
        .await
        .unwrap();
    let children = [
        parent.spawn(ChildSpec::new("a")).await.unwrap(),
        parent.spawn(ChildSpec::new("b")).await.unwrap(),
    ];
    let mut own = parent.events().unwrap();
    let mut session = world.runtime().sessions().events(parent.session_id(), 0);
    wait_until("both ask the model", || model.in_flight() == 2).await;
    plan.inject_always(damaged());
    signal.notify_waiters();
    for child in &children {
        says_why(&with_timeout(child.wait()).await.unwrap_err());
    }
    parent.finish("all done").unwrap();
    says_why(&with_timeout(parent.wait()).await.unwrap_err());
    // Streams report the error as well, including a stream that is opened later.
    let lost = until_lost(&mut own, parent.run_id()).await;
    says_why(&lost.error);
    assert!(
        with_timeout(own.next()).await.is_none(),
        "the run's own stream ends with it"
    );
    for run in [children[0].run_id(), parent.run_id()] {
        until_lost(&mut session, run).await;
    }
    until_lost(&mut children[1].events().unwrap(), children[1].run_id()).await;
    wait_until("nothing is left of them", || {
        world.runtime().info().live_runs() == 0
    })
    .await;
    says_why(
        &with_timeout(world.runtime().start(RunRequest::new("another")))
            .await
            .unwrap_err(),
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_database_ends_active_runs() {
    // The model answers and the document has to be stored, or the actor of the run or of its
    // session restarts.
    for crashed in [None, Some("run"), Some("session")] {
        let signal = Arc::new(Notify::new());
        let model = waiting_model(&signal);
        let world = TestRuntime::with(model.clone(), |builder| {
            builder.config(quick_non_durable_config())
        })
        .await;
        let run = begin(&world, &model, "write").await;
        let queued = world
            .runtime()
            .start(RunRequest::new("later").session("s"))
            .await
            .unwrap();
        damage(&world.home());
        let id = match crashed {
            Some("run") => format!("run:{}", run.run_id()),
            _ => "session:s".to_owned(),
        };
        assert!(is_alive(&world, &id), "{id}");
        match crashed {
            Some(_) => world.runtime().tree().inject_crash(&id).unwrap(),
            None => signal.notify_waiters(),
        }
        match with_timeout(run.wait()).await {
            Err(error) => says_why(&error),
            Ok(outcome) => {
                assert_eq!(
                    outcome.status,
                    RunStatus::Failed,
                    "{crashed:?}: {outcome:?}"
                );
                says_why(outcome.error.as_ref().unwrap());
            }
        }
        let _ = with_timeout(queued.wait()).await;
        wait_until("nothing is left of them", || {
            world.runtime().info().live_runs() == 0
        })
        .await;
        world.finish().await;
    }
}
