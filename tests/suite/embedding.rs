//! Embedding the library in a program: streams that end, clear errors, and no use of the environment.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use soong::{
    ChildSpec, Environment, ErrorCode, RunRequest, Runtime,
    protocol::{Event, RunStatus, ToolEvent, ToolSpec, TraceId},
    tool::{Tool, ToolContext, ToolResult},
};

use crate::support::{
    model::{ScriptedModel, Turn, assistant_count, last_of},
    world::{TestRuntime, kinds, read_to_end, wait_until, with_timeout},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_a_trace_ends_with_its_run() {
    let world = TestRuntime::open(ScriptedModel::new(|_| Turn::say("done"))).await;
    let runtime = world.runtime();
    let run = runtime.start(RunRequest::new("x").session("s")).await.unwrap();
    let live = with_timeout(read_to_end(runtime.trace_events(run.trace_id(), 0))).await;
    assert_eq!(kinds(&live).last(), Some(&"run_completed"));
    let last = live.last().unwrap().event_id;
    for (since, want) in [(0, live.len()), (last - 1, 1), (last, 0)] {
        assert_eq!(
            with_timeout(read_to_end(runtime.trace_events(run.trace_id(), since))).await.len(),
            want,
            "since {since}"
        );
    }
    // The next run of the trace appears in a stream that follows the trace, and in a stream that is opened while the
    // run is active.
    let mut following = runtime.follow_trace(run.trace_id(), last);
    let second = runtime.start(RunRequest::new("y").session("s")).await.unwrap();
    assert!(with_timeout(following.next()).await.unwrap().is_ok());
    with_timeout(second.wait()).await.unwrap();
    let rest = with_timeout(read_to_end(runtime.trace_events(run.trace_id(), last))).await;
    assert!(rest.iter().all(|event| event.run_id.as_ref() == Some(second.run_id())) && rest.len() > 1);
    drop(following);
    world.finish().await;
}

#[tokio::test]
async fn a_stream_of_an_unknown_trace_is_an_error() {
    let world = TestRuntime::open(ScriptedModel::new(|_| Turn::say("done"))).await;
    let mut stream = world.runtime().trace_events(&TraceId::new("nobody"), 0);
    assert_eq!(with_timeout(stream.next()).await.unwrap().unwrap_err().code, ErrorCode::TraceNotFound);
    assert!(with_timeout(stream.next()).await.is_none());
    drop(stream);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finishing_a_run_that_a_model_drives_is_an_error() {
    let world = TestRuntime::open(ScriptedModel::new(|_| Turn::say("done"))).await;
    let run = world.runtime().start("x").await.unwrap();
    let error = run.finish("too early").unwrap_err();
    assert!(error.code == ErrorCode::ValidationError && error.message.contains("driven by a model"), "{error}");
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "done");
    world.finish().await;
}

#[tokio::test]
async fn second_runtime_in_the_same_process_is_rejected() {
    let world = TestRuntime::open(ScriptedModel::new(|_| Turn::say("done"))).await;
    let error = Runtime::builder().home(world.home()).project_dir(world.home()).offline().build().await.err().unwrap();
    assert_eq!(error.code, ErrorCode::HomeLocked);
    assert!(error.message.starts_with("this process owns the home"), "{error}");
    world.finish().await;
}

#[tokio::test]
async fn environment_faults_are_opt_in() {
    let environment = Environment::of([("SOONG_FAULTS", "call_model=fail")]);
    let builder = || Runtime::builder().offline().environment(environment.clone());
    assert!(builder().fault_plan().unwrap().is_none());
    assert!(builder().faults_from_env().fault_plan().unwrap().is_some());
}

/// Tool that panics with a secret in its message.
struct Panicking(ToolSpec);

impl Tool for Panicking {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, _: ToolContext, _: Value) -> BoxFuture<'static, ToolResult> {
        async { panic!("no such row, key {}", "s3cret-0123456789") }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_message_of_a_panicking_tool_reaches_the_model_redacted() {
    let tool = Arc::new(Panicking(ToolSpec::read("lookup", "Lookup", "Looks up.", json!({"type": "object"}))));
    let model = ScriptedModel::new(|request| match assistant_count(request) {
        0 => Turn::call("lookup", json!({})),
        _ => Turn::say(last_of(request)),
    });
    let environment = Environment::of([("DB_PASSWORD", "s3cret-0123456789")]);
    let world = TestRuntime::with(model, |builder| builder.register_tool(tool).environment(environment)).await;
    let run = world.runtime().start("x").await.unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    assert!(
        output.contains("the tool crashed") && output.contains("no such row, key [redacted:DB_PASSWORD]"),
        "{output}"
    );
    let events = read_to_end(run.events().unwrap()).await;
    let failed = events.iter().find_map(|event| match &event.event {
        Event::Tool(ToolEvent::Failed { error, .. }) => Some(error.message.clone()),
        _ => None,
    });
    assert!(failed.is_some_and(|message| message.contains("no such row")));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_of_a_queued_child_reports_nothing_running() {
    let mut config = soong::Config::default();
    config.agents.max_concurrent_children_per_session = 1;
    let model = ScriptedModel::new(|_| Turn::Hang(""));
    let world = TestRuntime::with(model, |builder| builder.config(config)).await;
    let runtime = world.runtime();
    let parent = runtime.start(RunRequest::driven("work")).await.unwrap();
    let children = parent.spawn_all(["a", "b"].map(ChildSpec::new)).await.unwrap();
    let queued = || {
        let ids = children.iter().map(|child| format!("run:{}", child.run_id()));
        ids.filter(|id| runtime.inject_crash(id).is_err_and(|error| error.code == ErrorCode::NothingRunning)).count()
            == 1
    };
    wait_until("one is queued", queued).await;
    parent.cancel().await.unwrap();
    assert_eq!(with_timeout(parent.wait()).await.unwrap().status, RunStatus::Cancelled);
    world.finish().await;
}

#[tokio::test]
async fn home_config_is_used_only_after_load_config() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), "[runtime]\nmax_turns = 7\n").unwrap();
    let builder = || Runtime::builder().home(home.path()).project_dir(home.path()).offline().allow("write");
    let turns = async |builder: soong::RuntimeBuilder| {
        let runtime = builder.build().await?;
        let config = runtime.config().clone();
        runtime.close().await;
        Ok::<_, soong::ErrorInfo>((config.runtime.max_turns, config.permissions.allow))
    };
    let grants = vec!["write".to_owned()];
    assert_eq!(turns(builder()).await.unwrap(), (200, grants.clone()));
    assert_eq!(turns(builder().load_config()).await.unwrap(), (7, grants.clone()));
    let mut given = soong::Config::default();
    given.runtime.max_turns = 9;
    assert_eq!(turns(builder().load_config().config(given)).await.unwrap(), (9, grants.clone()));

    std::fs::write(home.path().join("hooks.json"), "no JSON").unwrap();
    assert_eq!(turns(builder()).await.unwrap(), (200, grants), "hooks are not read");
    assert!(turns(builder().load_config()).await.unwrap_err().message.contains("hooks.json"));
    std::fs::write(home.path().join("config.toml"), "[runtime]\nmax_turn = 7\n").unwrap();
    let error = turns(builder().load_config()).await.unwrap_err();
    assert!(error.message.contains("config.toml:2: `runtime.max_turn`"), "{error}");
}
