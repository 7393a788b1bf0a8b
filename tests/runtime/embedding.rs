//! Embedding the library in a program: streams that end, clear errors, and no use of the
//! environment.

use std::sync::Arc;

use futures::{
    StreamExt,
    future::{BoxFuture, FutureExt},
};
use serde::Deserialize;
use serde_json::{Value, json};
use soong::{
    ChildSpec, Environment, ErrorCode, RunFilter, RunOutcome, RunRequest, Runtime,
    model::Completion,
    protocol::{Decision, Delta, Event, RunStatus, ToolEvent, ToolSpec, TraceId},
    schemars::{self, JsonSchema},
    tool::{self, Tool, ToolContext, ToolResult},
};

use crate::support::{
    model::{Turn, assistant_count, last_of, scripted_model, task_of},
    world::{TestRuntime, kinds, read_to_end, wait_until, with_timeout},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_a_trace_ends_with_its_run() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("done"))).await;
    let runtime = world.runtime();
    let run = runtime
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    let live = with_timeout(read_to_end(runtime.traces().events(run.trace_id(), 0))).await;
    assert_eq!(kinds(&live).last(), Some(&"run_completed"));
    let last = live.last().unwrap().event_id;
    for (since, want) in [(0, live.len()), (last - 1, 1), (last, 0)] {
        assert_eq!(
            with_timeout(read_to_end(runtime.traces().events(run.trace_id(), since)))
                .await
                .len(),
            want,
            "since {since}"
        );
    }
    // The next run of the trace appears in a stream that follows the trace, and in a stream that is
    // opened while the run is active.
    let mut following = runtime.traces().follow(run.trace_id(), last);
    let second = runtime
        .start(RunRequest::new("y").session("s"))
        .await
        .unwrap();
    assert!(with_timeout(following.next()).await.unwrap().is_ok());
    with_timeout(second.wait()).await.unwrap();
    let rest = with_timeout(read_to_end(runtime.traces().events(run.trace_id(), last))).await;
    assert!(
        rest.iter()
            .all(|event| event.run_id.as_ref() == Some(second.run_id()))
            && rest.len() > 1
    );
    drop(following);
    world.finish().await;
}

#[tokio::test]
async fn a_stream_of_an_unknown_trace_is_an_error() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("done"))).await;
    let mut stream = world.runtime().traces().events(&TraceId::new("nobody"), 0);
    assert_eq!(
        with_timeout(stream.next()).await.unwrap().unwrap_err().code,
        ErrorCode::TraceNotFound
    );
    assert!(with_timeout(stream.next()).await.is_none());
    drop(stream);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finishing_a_run_that_a_model_drives_is_an_error() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("done"))).await;
    let run = world.runtime().start("x").await.unwrap();
    let error = run.finish("too early").unwrap_err();
    assert!(
        error.code == ErrorCode::ValidationError && error.message.contains("driven by a model"),
        "{error}"
    );
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "done");
    world.finish().await;
}

#[tokio::test]
async fn second_runtime_in_the_same_process_is_rejected() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("done"))).await;
    let error = Runtime::builder()
        .home(world.home())
        .project_dir(world.home())
        .offline()
        .build()
        .await
        .err()
        .unwrap();
    assert_eq!(error.code, ErrorCode::HomeLocked);
    assert!(
        error
            .message
            .starts_with("this process already owns the home"),
        "{error}"
    );
    world.finish().await;
}

#[tokio::test]
async fn environment_faults_are_opt_in() {
    let environment = Environment::of([("SOONG_FAULTS", "call_model=fail")]);
    let builder = || {
        Runtime::builder()
            .offline()
            .environment(environment.clone())
    };
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
    let tool = Arc::new(Panicking(ToolSpec::read(
        "lookup",
        "Lookup",
        "Looks up.",
        json!({"type": "object"}),
    )));
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("lookup", json!({})),
        _ => Turn::say(last_of(request)),
    });
    let environment = Environment::of([("DB_PASSWORD", "s3cret-0123456789")]);
    let world =
        TestRuntime::with(model, |builder| builder.tool(tool).environment(environment)).await;
    let run = world.runtime().start("x").await.unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    assert!(
        output.contains("the tool crashed")
            && output.contains("no such row, key [redacted:DB_PASSWORD]"),
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
    let model = scripted_model(|_| Turn::Hang(""));
    let world = TestRuntime::with(model, |builder| builder.config(config)).await;
    let runtime = world.runtime();
    let parent = runtime.start(RunRequest::driven("work")).await.unwrap();
    let children = parent
        .spawn_all(["a", "b"].map(ChildSpec::new))
        .await
        .unwrap();
    let queued = || {
        let ids = children
            .iter()
            .map(|child| format!("run:{}", child.run_id()));
        ids.filter(|id| {
            runtime
                .tree()
                .inject_crash(id)
                .is_err_and(|error| error.code == ErrorCode::NothingRunning)
        })
        .count()
            == 1
    };
    wait_until("one is queued", queued).await;
    parent.cancel().await.unwrap();
    assert_eq!(
        with_timeout(parent.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    world.finish().await;
}

#[tokio::test]
async fn home_config_is_used_only_after_load_config() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(
        home.path().join("config.toml"),
        "[runtime]\nmax_turns = 7\n",
    )
    .unwrap();
    let builder = || {
        Runtime::builder()
            .home(home.path())
            .project_dir(home.path())
            .offline()
            .allow("write")
    };
    let turns = async |builder: soong::RuntimeBuilder| {
        let runtime = builder.build().await?;
        let config = runtime.info().config().clone();
        runtime.close().await;
        Ok::<_, soong::ErrorInfo>((config.runtime.max_turns, config.permissions.allow))
    };
    let grants = vec!["write".to_owned()];
    assert_eq!(turns(builder()).await.unwrap(), (200, grants.clone()));
    assert_eq!(
        turns(builder().load_config()).await.unwrap(),
        (7, grants.clone())
    );
    let mut given = soong::Config::default();
    given.runtime.max_turns = 9;
    assert_eq!(
        turns(builder().load_config().config(given)).await.unwrap(),
        (9, grants.clone())
    );

    std::fs::write(home.path().join("hooks.json"), "no JSON").unwrap();
    assert_eq!(
        turns(builder()).await.unwrap(),
        (200, grants),
        "hooks are not read"
    );
    assert!(
        turns(builder().load_config())
            .await
            .unwrap_err()
            .message
            .contains("hooks.json")
    );
    std::fs::write(home.path().join("config.toml"), "[runtime]\nmax_turn = 7\n").unwrap();
    let error = turns(builder().load_config()).await.unwrap_err();
    assert!(
        error.message.contains("config.toml:2: `runtime.max_turn`"),
        "{error}"
    );
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Report {
    files: u32,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_text_or_typed_and_failures_are_errors() {
    let model = scripted_model(|request| match last_of(request).split_whitespace().next() {
        Some("count") => Turn::say(r#"{"files": 3}"#),
        Some("fail") => Turn::say("not JSON"),
        _ => Turn::say("done"),
    });
    let world = TestRuntime::open(model).await;
    let runtime = world.runtime();
    assert_eq!(with_timeout(runtime.ask("x")).await.unwrap(), "done");
    assert_eq!(
        with_timeout(runtime.ask_as::<Report>("count"))
            .await
            .unwrap(),
        Report { files: 3 }
    );
    let refused = with_timeout(runtime.ask_as::<Report>("fail"))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::ResultSchemaValidationFailed);
    let failed = runtime
        .start(RunRequest::new("fail").expect(json!({"type": "object"})))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(failed.answer()).await.unwrap_err().code,
        ErrorCode::ResultSchemaValidationFailed
    );
    let parent = runtime
        .start(RunRequest::driven("two counts"))
        .await
        .unwrap();
    let children = parent
        .spawn_all([ChildSpec::new("count a"), ChildSpec::new("say b")])
        .await
        .unwrap();
    let typed = with_timeout(children.join_as::<Report>()).await;
    assert_eq!(typed[0].as_ref().unwrap(), &Report { files: 3 });
    assert_eq!(
        typed[1].as_ref().unwrap_err().code,
        ErrorCode::ValidationError
    );
    parent.finish("counted").unwrap();
    let outcome = with_timeout(parent.wait()).await.unwrap();
    let json = serde_json::to_string(&*outcome).unwrap();
    assert_eq!(serde_json::from_str::<RunOutcome>(&json).unwrap(), *outcome);
    drop((children, parent, failed));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_stream_yields_each_answer_once() {
    let text = |text: &str| Delta::Text {
        text: text.to_owned(),
    };
    let model = scripted_model(move |request| match assistant_count(request) {
        // The last piece is not streamed: it comes with the stored answer.
        0 => Turn::Whole(
            vec![
                text("one "),
                Delta::Reasoning {
                    text: "hidden".to_owned(),
                },
                text("two "),
            ],
            Box::new(Completion::text("one two three")),
        ),
        _ => Turn::say("unused"),
    });
    let world = TestRuntime::open(model).await;
    let run = world.runtime().start("x").await.unwrap();
    let pieces: Vec<String> = with_timeout(
        run.text_stream()
            .unwrap()
            .map(Result::unwrap)
            .collect::<Vec<String>>(),
    )
    .await;
    assert_eq!(pieces.concat(), "one two three");
    assert!(
        run.text_stream().is_err(),
        "the stream of a run is taken once"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_selected_by_session_trace_and_parent() {
    let world = TestRuntime::open(scripted_model(|_| Turn::Hang("…"))).await;
    let runtime = world.runtime();
    let first = runtime
        .start(RunRequest::new("x").session("a"))
        .await
        .unwrap();
    let queued = runtime
        .start(RunRequest::new("y").session("a"))
        .await
        .unwrap();
    let parent = runtime
        .start(RunRequest::driven("z").session("b"))
        .await
        .unwrap();
    let child = parent.spawn("work").await.unwrap();
    let ids = |filter: RunFilter| {
        runtime
            .runs(filter)
            .iter()
            .map(|run| run.run_id().clone())
            .collect::<Vec<_>>()
    };
    let id = |run: &soong::RunHandle| run.run_id().clone();
    assert_eq!(
        ids(RunFilter::active()),
        [id(&first), id(&queued), id(&parent), id(&child)]
    );
    assert_eq!(
        ids(RunFilter::active().session(first.session_id())),
        [id(&first), id(&queued)]
    );
    assert_eq!(
        ids(RunFilter::active().trace(child.trace_id())),
        [id(&child)]
    );
    assert_eq!(
        ids(RunFilter::active().without_children()),
        [id(&first), id(&queued), id(&parent)]
    );
    with_timeout(runtime.sessions().cancel_all()).await.unwrap();
    assert!(ids(RunFilter::active()).is_empty());
    drop((first, queued, parent, child));
    world.finish().await;
}

#[derive(Deserialize, JsonSchema)]
struct ReadFile {
    path: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_use_the_question_mark_and_handlers_read_arguments() {
    let read = tool::function(
        "slurp",
        "Reads a file.",
        |context: ToolContext, ReadFile { path }| async move {
            Ok(std::fs::read_to_string(context.project_dir.join(path))?)
        },
    )
    .dangerous()
    .build();
    let model = scripted_model(|request| match assistant_count(request) {
        turn @ 0..=2 => Turn::call(
            "slurp",
            json!({ "path": (["a.txt", "missing.txt", "secret.txt"][turn]) }),
        ),
        _ => Turn::say("done"),
    });
    let world = TestRuntime::with(model, |builder| {
        builder
            .without_builtin_tools()
            .tool(read)
            .on_permission(|request| async move {
                match request.arguments_as::<ReadFile>() {
                    Ok(ReadFile { path }) if path != "secret.txt" => Decision::AllowOnce,
                    _ => Decision::Deny,
                }
            })
    })
    .await;
    let runtime = world.runtime();
    let run = runtime.start("x").await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    let messages = runtime
        .traces()
        .messages(run.trace_id(), soong::MessagePath::Main)
        .await
        .unwrap();
    let results: Vec<&str> = messages
        .iter()
        .filter(|message| message.tool_call_id.is_some())
        .map(|message| message.content.as_str())
        .collect();
    assert!(results[0].contains("alpha"), "{results:?}");
    assert!(
        results[1].contains("internal_error") && results[1].contains("No such file"),
        "{results:?}"
    );
    assert!(results[2].contains("permission_denied"), "{results:?}");
    assert!(
        runtime
            .info()
            .tools()
            .iter()
            .all(|spec| spec.name != "bash"),
        "built-in tools are left out"
    );
    world.finish().await;
}

/// A schema that makes the check of an answer explode fails its run; the other runs of the runtime
/// continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_too_costly_to_check_fail_only_their_runs() {
    let nested = format!("{}{}", "[".repeat(60), "]".repeat(60));
    let model = scripted_model(move |request| match task_of(request) {
        "free" => Turn::say("done"),
        _ => Turn::say(nested.clone()),
    });
    let world = TestRuntime::open(model).await;
    let runtime = world.runtime();
    let doubles_per_level = json!({
        "$ref": "#/$defs/a",
        "$defs": {"a": {"items": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}},
    });
    let mut poisoned = Vec::new();
    for session in ["p", "q"] {
        let request = RunRequest::new("deep")
            .session(session)
            .expect(doubles_per_level.clone());
        poisoned.push(runtime.start(request).await.unwrap());
    }
    let free = runtime
        .start(RunRequest::new("free").session("f"))
        .await
        .unwrap();
    assert_eq!(with_timeout(free.wait()).await.unwrap().output, "done");
    for run in &poisoned {
        let outcome = with_timeout(run.wait()).await.unwrap();
        let error = outcome.error.as_ref().unwrap();
        assert_eq!(
            (outcome.status, error.code),
            (RunStatus::Failed, ErrorCode::ResultSchemaValidationFailed)
        );
        assert!(error.message.contains("#/$defs/a"), "{error}");
    }
    drop((poisoned, free));
    world.finish().await;
}
