//! Names of traces: a model chooses one after the first answer, if `context.utility_profile` is set
//! (RUN-6a).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use soong::{
    RunRequest, RuntimeBuilder,
    model::{Failure, Model, ModelError, ModelRequest},
    offline::Offline,
    protocol::{Event, EventRecord, ModelEvent, RunMode, RunStatus, SessionId, TraceId},
};
use tokio::{sync::Notify, time};

use crate::support::{
    history::{check_session, stored},
    model::{ScriptedModel, Turn, assistant_count, scripted_model},
    world::{TestRuntime, quick_config, wait_until, with_timeout},
};

const TASK: &str =
    "Look at the files of this project, and then tell me in one sentence what they are for.";
/// The first 60 characters of the task.
const PROVISIONAL: &str = "Look at the files of this project, and then tell me in one s…";

/// Sets the model that names traces.
fn named_by<M: Model>(model: &Arc<M>) -> impl FnOnce(RuntimeBuilder) -> RuntimeBuilder + use<M> {
    let model = Arc::clone(model);
    move |builder| {
        let mut config = quick_config();
        config.context.utility_profile = Some("small".to_owned());
        builder.config(config).model("small", model)
    }
}

/// Model that calls one tool after each message, and then waits for `go` before it answers.
fn working(go: &Arc<Mutex<bool>>) -> Arc<ScriptedModel> {
    let go = Arc::clone(go);
    scripted_model(move |request| match assistant_count(request) % 2 {
        0 => Turn::call("list_files", json!({})),
        _ if *go.lock().unwrap() => Turn::say("for tests"),
        _ => Turn::call("list_files", json!({})),
    })
}

/// Model that calls a tool after the first message, and then does not answer.
fn hanging_after_a_call() -> Arc<ScriptedModel> {
    scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("list_files", json!({})),
        _ => Turn::Hang(""),
    })
}

fn answering() -> Arc<ScriptedModel> {
    scripted_model(|_| Turn::say("for tests"))
}

async fn names(world: &TestRuntime) -> (String, String) {
    let session = world
        .runtime()
        .sessions()
        .get(&SessionId::new("s"))
        .await
        .unwrap();
    (
        session.name.unwrap(),
        world
            .runtime()
            .traces()
            .get(&TraceId::new("s"))
            .await
            .unwrap()
            .name,
    )
}

fn both(name: &str) -> (String, String) {
    (name.to_owned(), name.to_owned())
}

/// Returns the names that were chosen, or the codes of the errors.
fn outcomes(events: &[Arc<EventRecord>]) -> Vec<Result<String, String>> {
    let outcome = |record: &Arc<EventRecord>| match &record.event {
        Event::Model(ModelEvent::NamingEnded { name, error, .. }) => {
            let error = error.as_ref().map(|error| Err(error.code.to_string()));
            name.clone().map(Ok).or(error)
        }
        _ => None,
    };
    events.iter().filter_map(outcome).collect()
}

async fn run_to_end(world: &TestRuntime, message: &str) {
    with_timeout(start(world, message).await.wait())
        .await
        .unwrap();
}

async fn start(world: &TestRuntime, message: &str) -> soong::RunHandle {
    world
        .runtime()
        .start(RunRequest::new(message).session("s"))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_is_named_during_its_first_run() {
    let shown: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&shown);
    let go = Arc::<Mutex<bool>>::default();
    let small = scripted_model(move |request| {
        seen.lock()
            .unwrap()
            .push(request.messages[0].content.to_string());
        Turn::say("\"What the files are for.\"\n")
    });
    let world = TestRuntime::with(working(&go), named_by(&small)).await;
    let run = start(&world, TASK).await;
    assert_eq!(names(&world).await, both(PROVISIONAL));
    loop {
        if names(&world).await == both("What the files are for") {
            break;
        }
        tokio::task::yield_now().await;
    }
    *go.lock().unwrap() = true;
    let outcome = with_timeout(run.wait()).await.unwrap();
    let events = stored(world.runtime(), run.trace_id()).await;
    assert_eq!(outcomes(&events), [Ok("What the files are for".to_owned())]);
    // Its usage is that of the run.
    let turns = events
        .iter()
        .filter(|record| record.event.kind() == "model_completed")
        .count() as u64;
    assert_eq!(
        (
            outcome.stats.own.model_calls,
            outcome.stats.own.total_tokens
        ),
        (turns + 1, 15 * (turns + 1))
    );
    let shown = shown.lock().unwrap().clone();
    assert!(shown.len() == 1 && shown[0].contains(TASK), "{shown:?}");
    // It is named once.
    with_timeout(start(&world, "And now?").await.wait())
        .await
        .unwrap();
    assert_eq!(small.calls(), 1);
    check_session(world.runtime(), &SessionId::new("s")).await;
    world.finish().await;
}

/// The run ends with its answer, and the call for the name continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_of_one_answer_is_named_once() {
    let gate = Arc::new(Notify::new());
    let small = scripted_model({
        let gate = Arc::clone(&gate);
        move |_| Turn::When(Arc::clone(&gate), "Files".to_owned())
    });
    let world = TestRuntime::with(answering(), named_by(&small)).await;
    let run = start(&world, TASK).await;
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed);
    assert_eq!(
        (world.runtime().info().pending_names(), names(&world).await),
        (1, both(PROVISIONAL))
    );
    // The run charges an estimate of the call, because its own record is complete.
    let own = outcome.stats.own;
    assert_eq!(own.model_calls, 2);
    assert!(own.total_tokens > 15 && own.estimated, "{own:?}");
    with_timeout(start(&world, "And now?").await.wait())
        .await
        .unwrap();
    gate.notify_one();
    wait_until("the name is recorded", || {
        world.runtime().info().pending_names() == 0
    })
    .await;
    assert_eq!(names(&world).await, both("Files"));
    let events = stored(world.runtime(), run.trace_id()).await;
    let ends: Vec<bool> = events
        .iter()
        .filter(|record| record.event.kind() == "naming_ended")
        .map(|end| end.run_id.is_some())
        .collect();
    assert_eq!(ends, [true, false]);
    with_timeout(start(&world, "And now?").await.wait())
        .await
        .unwrap();
    assert_eq!(small.calls(), 1);
    check_session(world.runtime(), &SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_name_does_not_reach_a_new_session_of_the_same_id() {
    let gate = Arc::new(Notify::new());
    let small = scripted_model({
        let gate = Arc::clone(&gate);
        move |_| Turn::When(Arc::clone(&gate), "Files".to_owned())
    });
    let world = TestRuntime::with(answering(), named_by(&small)).await;
    run_to_end(&world, TASK).await;
    wait_until("a name is requested", || small.in_flight() == 1).await;
    world
        .runtime()
        .sessions()
        .delete(&SessionId::new("s"))
        .await
        .unwrap();
    let request = RunRequest::new("Another task.")
        .session("s")
        .session_name("Mine");
    with_timeout(world.runtime().start(request).await.unwrap().wait())
        .await
        .unwrap();
    gate.notify_one();
    wait_until("the late answer is handled", || {
        world.runtime().info().pending_names() == 0
    })
    .await;
    let session = world
        .runtime()
        .sessions()
        .get(&SessionId::new("s"))
        .await
        .unwrap();
    assert_eq!(session.name.as_deref(), Some("Mine"));
    assert_eq!(
        outcomes(&stored(world.runtime(), &TraceId::new("s")).await),
        []
    );
    check_session(world.runtime(), &SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test]
async fn call_for_a_name_ends_20_s_after_its_run() {
    let small = scripted_model(|_| Turn::Hang(""));
    let world = TestRuntime::with(answering(), named_by(&small)).await;
    let run = start(&world, TASK).await;
    with_timeout(run.wait()).await.unwrap();
    wait_until("a name is requested", || small.in_flight() == 1).await;
    time::pause();
    time::sleep(Duration::from_secs(19)).await;
    assert_eq!(small.in_flight(), 1);
    time::sleep(Duration::from_secs(2)).await;
    assert_eq!(small.in_flight(), 0);
    time::resume();
    wait_until("the end is recorded", || {
        world.runtime().info().pending_names() == 0
    })
    .await;
    let events = stored(world.runtime(), run.trace_id()).await;
    assert_eq!(outcomes(&events), [Err("timeout".to_owned())]);
    run_to_end(&world, "And now?").await;
    assert_eq!((small.calls(), names(&world).await), (1, both(PROVISIONAL)));
    world.finish().await;
}

/// A call that fails, is cancelled, or is lost with its process is not repeated, and nobody waits
/// for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_call_for_a_name_is_not_repeated() {
    let refusing = scripted_model(|_| Turn::Fail(ModelError::new(Failure::Rejected, "no")));
    let panicking = scripted_model(|_| panic!("provoked"));
    for (model, code) in [
        (&refusing, "provider_error"),
        (&panicking, "internal_error"),
    ] {
        let world = TestRuntime::with(answering(), named_by(model)).await;
        run_to_end(&world, TASK).await;
        wait_until("the failure is recorded", || {
            world.runtime().info().pending_names() == 0
        })
        .await;
        run_to_end(&world, "And now?").await;
        let events = stored(world.runtime(), &TraceId::new("s")).await;
        assert_eq!(outcomes(&events), [Err(code.to_owned())]);
        assert_eq!((model.calls(), names(&world).await), (1, both(PROVISIONAL)));
        world.finish().await;
    }

    // A cancelled run takes the call with it.
    let hanging = scripted_model(|_| Turn::Hang(""));
    let mut world = TestRuntime::with(hanging_after_a_call(), named_by(&hanging)).await;
    let run = start(&world, TASK).await;
    wait_until("a name is requested", || hanging.in_flight() == 1).await;
    run.cancel().await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    wait_until("the call is cut off", || hanging.in_flight() == 0).await;
    assert_eq!(world.runtime().info().pending_names(), 0);
    let events = stored(world.runtime(), run.trace_id()).await;
    let outcomes_of_cancelled = outcomes(&events);
    // The end of the run, or that of the call, whichever comes first.
    let expected = [
        [Err("cancelled".to_owned())],
        [Err("interrupted".to_owned())],
    ];
    assert!(
        expected
            .iter()
            .any(|expected| outcomes_of_cancelled == expected),
        "{outcomes_of_cancelled:?}"
    );
    drop(run);

    // Closing the runtime ends a detached call.
    world.reopen_with(answering(), named_by(&hanging)).await;
    let request = RunRequest::new(TASK).session("t");
    with_timeout(world.runtime().start(request).await.unwrap().wait())
        .await
        .unwrap();
    wait_until("a name is requested", || hanging.in_flight() == 1).await;
    assert_eq!(world.runtime().info().pending_names(), 1);
    world.reopen_with(answering(), named_by(&refusing)).await;
    assert_eq!(hanging.in_flight(), 0);

    // A process that ends during a run loses its call.
    let request = RunRequest::new(TASK).session("u");
    world
        .reopen_with(hanging_after_a_call(), named_by(&hanging))
        .await;
    let run_id = world
        .runtime()
        .start(request)
        .await
        .unwrap()
        .run_id()
        .clone();
    wait_until("a name is requested", || hanging.in_flight() == 1).await;
    world.reopen_with(answering(), named_by(&refusing)).await;
    with_timeout(world.runtime().wait(&run_id)).await.unwrap();
    let events = stored(world.runtime(), &TraceId::new("u")).await;
    assert_eq!(outcomes(&events), [Err("interrupted".to_owned())]);
    assert_eq!(refusing.calls(), 1);
    for session in ["s", "t", "u"] {
        check_session(world.runtime(), &SessionId::new(session)).await;
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offline_model_names_by_the_first_words() {
    let go = Arc::<Mutex<bool>>::default();
    let world = TestRuntime::with(working(&go), named_by(&Arc::new(Offline::new()))).await;
    let run = start(&world, TASK).await;
    while names(&world).await != both("Look at the files of this") {
        tokio::task::yield_now().await;
    }
    *go.lock().unwrap() = true;
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    world.finish().await;
}

/// Only unnamed conversations of users are named, and only if a profile is set for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_traces_keep_their_names() {
    let small = scripted_model(|_| panic!("it is named"));
    let go = Arc::new(Mutex::new(true));
    let has_child = |request: &ModelRequest| {
        request
            .messages
            .iter()
            .any(|message| message.content.contains("part"))
    };
    let spawning = scripted_model(move |request| match assistant_count(request) {
        0 if !has_child(request) => Turn::call("agent", json!({"task": "part of it"})),
        0 => Turn::call("list_files", json!({})),
        _ => Turn::say("done"),
    });
    // The name was given.
    let world = TestRuntime::with(spawning, named_by(&small)).await;
    let request = RunRequest::new(TASK)
        .session("s")
        .session_name("Mine")
        .mode(RunMode::Orchestrator);
    let run = world.runtime().start(request).await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    with_timeout(start(&world, "And now?").await.wait())
        .await
        .unwrap();
    assert_eq!(names(&world).await, both("Mine"));
    world.finish().await;
    // No profile is set.
    let world = TestRuntime::with(working(&go), |builder| {
        builder.config(quick_config()).model("small", small)
    })
    .await;
    with_timeout(start(&world, TASK).await.wait())
        .await
        .unwrap();
    with_timeout(start(&world, "And now?").await.wait())
        .await
        .unwrap();
    assert_eq!(names(&world).await, both(PROVISIONAL));
    world.finish().await;
}
