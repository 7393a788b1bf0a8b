//! Names of traces: a model chooses one after the first answer, if `context.utility_profile` is set (RUN-6a).

use std::sync::{Arc, Mutex};

use serde_json::json;
use soong::{
    RunRequest, RuntimeBuilder,
    model::{Failure, Model, ModelError, ModelRequest},
    offline::Offline,
    protocol::{Event, EventRecord, ModelEvent, RunMode, RunStatus, SessionId, TraceId},
};

use crate::support::{
    history::{check_session, stored},
    model::{ScriptedModel, Turn, assistant_count, scripted_model},
    world::{TestRuntime, quick_config, wait_until, with_timeout},
};

const TASK: &str = "Look at the files of this project, and then tell me in one sentence what they are for.";
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

fn answering() -> Arc<ScriptedModel> {
    scripted_model(|_| Turn::say("for tests"))
}

async fn names(world: &TestRuntime) -> (String, String) {
    let session = world.runtime().sessions().get(&SessionId::new("s")).await.unwrap();
    (session.name.unwrap(), world.runtime().traces().get(&TraceId::new("s")).await.unwrap().name)
}

fn both(name: &str) -> (String, String) {
    (name.to_owned(), name.to_owned())
}

/// Returns the names that were chosen, or the codes of the errors.
fn outcomes(events: &[Arc<EventRecord>]) -> Vec<Result<String, String>> {
    let outcome = |record: &Arc<EventRecord>| match &record.event {
        Event::Model(ModelEvent::NamingEnded { name, error, .. }) => {
            Some(name.clone().ok_or_else(|| error.as_ref().unwrap().code.to_string()))
        }
        _ => None,
    };
    events.iter().filter_map(outcome).collect()
}

async fn start(world: &TestRuntime, message: &str) -> soong::RunHandle {
    world.runtime().start(RunRequest::new(message).session("s")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_is_named_during_its_first_run() {
    let shown: Arc<Mutex<Vec<String>>> = Arc::default();
    let (seen, go) = (Arc::clone(&shown), Arc::<Mutex<bool>>::default());
    let small = scripted_model(move |request| {
        seen.lock().unwrap().push(request.messages[0].content.to_string());
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
    let turns = events.iter().filter(|record| record.event.kind() == "model_completed").count() as u64;
    assert_eq!((outcome.stats.own.model_calls, outcome.stats.own.total_tokens), (turns + 1, 15 * (turns + 1)));
    let shown = shown.lock().unwrap().clone();
    assert!(shown.len() == 1 && shown[0].contains(TASK), "{shown:?}");
    // It is named once.
    with_timeout(start(&world, "And now?").await.wait()).await.unwrap();
    assert_eq!(small.calls(), 1);
    check_session(world.runtime(), &SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_of_single_answers_is_named_by_the_second() {
    let small = scripted_model(|_| Turn::say("Files"));
    let world = TestRuntime::with(answering(), named_by(&small)).await;
    with_timeout(start(&world, TASK).await.wait()).await.unwrap();
    assert_eq!((names(&world).await, small.calls()), (both(PROVISIONAL), 0));
    // The run does not wait for the name, so this can take several messages.
    while names(&world).await == both(PROVISIONAL) {
        with_timeout(start(&world, "And now?").await.wait()).await.unwrap();
    }
    assert_eq!(names(&world).await, both("Files"));
    check_session(world.runtime(), &SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_does_not_wait_for_a_name_and_the_next_one_tries_again() {
    let small = scripted_model(|_| Turn::Hang(""));
    let go = Arc::new(Mutex::new(false));
    let mut world = TestRuntime::with(working(&go), named_by(&small)).await;
    let run = start(&world, TASK).await;
    wait_until("a name is requested", || small.in_flight() == 1).await;
    *go.lock().unwrap() = true;
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!((outcome.status, outcome.output.as_str()), (RunStatus::Completed, "for tests"));
    let own = outcome.stats.own;
    let tokens_of_turns = 15 * (own.model_calls - 1);
    assert!(own.total_tokens > tokens_of_turns, "the call that was cut off is charged: {own:?}");
    wait_until("the call is cut off", || small.in_flight() == 0).await;
    drop(run);

    // A process that ends is no different.
    *go.lock().unwrap() = false;
    let run_id = start(&world, "Again.").await.run_id().clone();
    wait_until("a name is requested", || small.in_flight() == 1).await;
    let refusing = scripted_model(|_| Turn::Fail(ModelError::new(Failure::Rejected, "no")));
    world.reopen_with(answering(), named_by(&refusing)).await;
    with_timeout(world.runtime().wait(&run_id)).await.unwrap();
    let ended = |code: &str| Err(code.to_owned());
    let events = stored(world.runtime(), &TraceId::new("s")).await;
    assert_eq!(outcomes(&events), [ended("interrupted"), ended("interrupted")]);

    // A model that fails does not stop the run.
    *go.lock().unwrap() = false;
    world.reopen_with(working(&go), named_by(&refusing)).await;
    let run = start(&world, "Once more.").await;
    wait_until("a name is requested", || refusing.calls() == 1).await;
    loop {
        let events = stored(world.runtime(), &TraceId::new("s")).await;
        if outcomes(&events).last() == Some(&ended("provider_error")) {
            break;
        }
        tokio::task::yield_now().await;
    }
    *go.lock().unwrap() = true;
    assert_eq!(with_timeout(run.wait()).await.unwrap().status, RunStatus::Completed);
    assert_eq!(names(&world).await, both(PROVISIONAL));
    check_session(world.runtime(), &SessionId::new("s")).await;
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
    assert_eq!(with_timeout(run.wait()).await.unwrap().status, RunStatus::Completed);
    world.finish().await;
}

/// Only unnamed conversations of users are named, and only if a profile is set for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_traces_keep_their_names() {
    let small = scripted_model(|_| panic!("it is named"));
    let go = Arc::new(Mutex::new(true));
    let has_child = |request: &ModelRequest| request.messages.iter().any(|message| message.content.contains("part"));
    let spawning = scripted_model(move |request| match assistant_count(request) {
        0 if !has_child(request) => Turn::call("agent", json!({"task": "part of it"})),
        0 => Turn::call("list_files", json!({})),
        _ => Turn::say("done"),
    });
    // The name was given.
    let world = TestRuntime::with(spawning, named_by(&small)).await;
    let request = RunRequest::new(TASK).session("s").session_name("Mine").mode(RunMode::Orchestrator);
    let run = world.runtime().start(request).await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    with_timeout(start(&world, "And now?").await.wait()).await.unwrap();
    assert_eq!(names(&world).await, both("Mine"));
    world.finish().await;
    // No profile is set.
    let world = TestRuntime::with(working(&go), |builder| builder.config(quick_config()).model("small", small)).await;
    with_timeout(start(&world, TASK).await.wait()).await.unwrap();
    with_timeout(start(&world, "And now?").await.wait()).await.unwrap();
    assert_eq!(names(&world).await, both(PROVISIONAL));
    world.finish().await;
}
