//! Callbacks of the program around runs, model calls and tool calls (HOOK-2).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::json;
use soong::{
    ErrorCode, ErrorInfo, Runtime, RuntimeBuilder,
    callback::{After, Before, Callback, FailurePolicy},
    model::{Completion, Failure, ModelError, ModelRequest},
    protocol::{Event, HookEvent, Role, RunId, RunStatus, SessionId, TraceId},
    schemars::{self, JsonSchema},
    tool::{self, Tool, ToolContext, ToolOutput},
};

use crate::support::{
    history::{check_session, stored},
    model::{ScriptedModel, Turn, assistant_count, last_of, scripted_model, task_of},
    world::{TestRuntime, quick_config, wait_for_permissions, wait_until, with_timeout},
};

/// The calls, in order.
type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, line: impl Into<String>) {
    log.lock().unwrap().push(line.into());
}

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut log.lock().unwrap())
}

#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Text {
    text: String,
}

/// Tool that returns its text, and notes it.
fn echo(log: &Log) -> Arc<dyn Tool> {
    let log = Arc::clone(log);
    tool::function("echo", "Echoes.", move |_: ToolContext, Text { text }| {
        note(&log, format!("echo {text}"));
        async move { Ok(text) }
    })
    .reads()
    .build()
}

/// Model that calls `echo` once with the task, and answers with its result.
fn echoing() -> Arc<ScriptedModel> {
    scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("echo", json!({"text": task_of(request)})),
        _ => Turn::say(format!("heard {}", last_of(request))),
    })
}

async fn open(model: Arc<ScriptedModel>, log: &Log, callbacks: Vec<Callback>) -> TestRuntime {
    let tool = echo(log);
    TestRuntime::with(model, |builder| {
        with_callbacks(builder, callbacks).tool(tool)
    })
    .await
}

fn with_callbacks(builder: RuntimeBuilder, callbacks: Vec<Callback>) -> RuntimeBuilder {
    callbacks
        .into_iter()
        .fold(builder.config(quick_config()), RuntimeBuilder::callback)
}

/// Runs a task to its end. Returns its status, its output or error, and what callbacks recorded.
async fn run(world: &TestRuntime, task: &str) -> (RunStatus, String, Vec<String>) {
    let run = world.runtime().start(task).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    let text = outcome
        .error
        .as_ref()
        .map_or_else(|| outcome.output.clone(), ToString::to_string);
    check_session(world.runtime(), run.session_id()).await;
    (
        outcome.status,
        text,
        recorded(world.runtime(), run.trace_id()).await,
    )
}

/// Returns the recorded events of callbacks: callback, step and decision.
async fn recorded(runtime: &Runtime, trace: &TraceId) -> Vec<String> {
    let line = |event: &Event| match event {
        Event::Hook(HookEvent::CallbackCompleted {
            callback,
            point,
            decision,
            ..
        }) => Some(format!("{callback} {point} {decision}")),
        Event::Hook(HookEvent::CallbackFailed {
            callback,
            point,
            is_closed,
            ..
        }) => Some(format!(
            "{callback} {point} {}",
            if *is_closed { "closed" } else { "open" }
        )),
        _ => None,
    };
    stored(runtime, trace)
        .await
        .iter()
        .filter_map(|record| line(&record.event))
        .collect()
}

/// Callback that notes each of its calls.
fn observer(name: &'static str, log: &Log) -> Callback {
    let log = || Arc::clone(log);
    let a = log();
    let b = log();
    let c = log();
    let d = log();
    let e = log();
    let f = log();
    Callback::new(name)
        .before_agent(move |_, task| {
            note(&a, format!("{name} before agent {task}"));
            async { Ok(Before::Continue) }
        })
        .after_agent(move |_, answer| {
            note(&b, format!("{name} after agent {answer}"));
            async { Ok(After::Keep) }
        })
        .before_model(move |_, request| {
            note(
                &c,
                format!("{name} before model {}", request.messages.len()),
            );
            async { Ok(Before::Continue) }
        })
        .after_model(move |_, completion| {
            note(
                &d,
                format!("{name} after model {}", completion.finish_reason),
            );
            async { Ok(After::Keep) }
        })
        .before_tool(move |_, call| {
            note(
                &e,
                format!("{name} before {} {}", call.name, call.arguments["text"]),
            );
            async { Ok(Before::Continue) }
        })
        .after_tool(move |_, call, result| {
            note(
                &f,
                format!("{name} after {} {}", call.name, result.unwrap().output),
            );
            async { Ok(After::Keep) }
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_surround_each_step_in_order() {
    let log = Log::default();
    let world = open(
        echoing(),
        &log,
        vec![observer("a", &log), observer("b", &log)],
    )
    .await;
    let (status, output, events) = run(&world, "hi").await;
    assert_eq!(
        (status, output.as_str()),
        (RunStatus::Completed, "heard hi")
    );
    assert!(events.is_empty(), "observing is not recorded: {events:?}");
    let expected = [
        "a before agent hi",
        "b before agent hi",
        "a before model 1",
        "b before model 1",
        "b after model tool_calls",
        "a after model tool_calls",
        "a before echo \"hi\"",
        "b before echo \"hi\"",
        "echo hi",
        "b after echo hi",
        "a after echo hi",
        "a before model 3",
        "b before model 3",
        "b after model stop",
        "a after model stop",
        "b after agent heard hi",
        "a after agent heard hi",
    ];
    assert_eq!(take(&log), expected);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_change_each_step() {
    let log = Log::default();
    let change = Callback::new("change")
        .before_agent(|_, task| async move { Ok(Before::Change(format!("{task}!"))) })
        .before_tool(|_, call| async move {
            let text = call.arguments["text"].as_str().unwrap_or_default();
            Ok(Before::Change(json!({"text": format!("<{text}>")})))
        })
        .after_tool(|_, _, result| async move {
            Ok(After::Replace(result.map(|output| ToolOutput {
                output: format!("{}?", output.output),
                ..output
            })))
        })
        .before_model(|_, mut request| async move {
            request.max_output_tokens = Some(77);
            Ok(Before::Change(request))
        })
        .after_model(|_, completion| async move {
            Ok(if completion.tool_calls.is_empty() {
                After::Replace(Completion {
                    text: completion.text.to_uppercase(),
                    ..completion
                })
            } else {
                After::Keep
            })
        })
        .after_agent(|_, answer| async move { Ok(After::Replace(format!("({answer})"))) });
    let limits = Arc::new(Mutex::new(Vec::new()));
    let model = scripted_model({
        let limits = Arc::clone(&limits);
        move |request| {
            limits.lock().unwrap().push(request.max_output_tokens);
            match assistant_count(request) {
                0 => Turn::call("echo", json!({"text": task_of(request)})),
                _ => Turn::say(format!("heard {}", last_of(request))),
            }
        }
    });
    let world = open(model, &log, vec![change]).await;
    let (status, output, events) = run(&world, "hi").await;
    assert_eq!(
        (status, output.as_str()),
        (RunStatus::Completed, "(HEARD <HI!>?)")
    );
    assert_eq!(*limits.lock().unwrap(), [Some(77); 2]);
    assert_eq!(take(&log), ["echo <hi!>"]);
    let expected = [
        "change before_agent changed",
        "change before_model changed",
        "change before_tool changed",
        "change after_tool replaced",
        "change before_model changed",
        "change after_model replaced",
        "change after_agent replaced",
    ];
    assert_eq!(events, expected);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_answer_takes_the_place_of_the_first() {
    let log = Log::default();
    let mark = Callback::new("mark")
        .after_agent(|_, answer| async move { Ok(After::Replace(format!("<{answer}>"))) });
    let model = scripted_model(|request| {
        let answers: Vec<&str> = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .map(|m| &*m.content)
            .collect();
        Turn::say(format!("after {answers:?}"))
    });
    let world = open(model, &log, vec![mark]).await;
    let runtime = world.runtime();
    let request = |text: &str| soong::RunRequest::new(text).session("s");
    with_timeout(runtime.start(request("one")).await.unwrap().wait())
        .await
        .unwrap();
    let second = with_timeout(runtime.start(request("two")).await.unwrap().wait())
        .await
        .unwrap();
    // The next run reads the conversation from the store.
    assert_eq!(second.output, "<after [\"<after []>\"]>");
    let root = soong::protocol::TraceId::new("s");
    let path = runtime
        .traces()
        .messages(&root, soong::MessagePath::Main)
        .await
        .unwrap();
    let last = path.last().unwrap();
    assert_eq!(last.content, second.output);
    assert_eq!(
        runtime.traces().get(&root).await.unwrap().head_sequence,
        last.sequence
    );
    check_session(runtime, &SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_answer_in_place_of_each_step() {
    let log = Log::default();
    let agent = Callback::new("agent")
        .before_agent(|_, task| async move { Ok(Before::Answer(format!("cached {task}"))) });
    let model = Callback::new("model")
        .before_model(|_, _| async { Ok(Before::Answer(Completion::text("cached"))) });
    let tool = Callback::new("tool")
        .before_tool(|_, _| async { Ok(Before::Answer(Ok(ToolOutput::from("cached")))) });
    let refuse = Callback::new("refuse").before_tool(|_, _| async {
        Ok(Before::Answer(Err(ErrorInfo::new(
            ErrorCode::PermissionDenied,
            "not today",
        ))))
    });
    for (callback, output, calls, event) in [
        (agent, "cached hi", 0, "agent before_agent answered"),
        (model, "cached", 0, "model before_model answered"),
        (tool, "heard cached", 2, "tool before_tool answered"),
        (
            refuse,
            "heard Error [permission_denied]: not today",
            2,
            "refuse before_tool answered",
        ),
    ] {
        let model = echoing();
        // The second callback is not called.
        let never = Callback::new("never")
            .before_model(|_, _| async { panic!("called") })
            .before_tool(|_, _| async { panic!("called") });
        let never = if calls == 0 { vec![never] } else { Vec::new() };
        let world = open(
            Arc::clone(&model),
            &log,
            [vec![callback], never]
                .concat()
                .into_iter()
                .take(2)
                .collect(),
        )
        .await;
        let (status, answer, events) = run(&world, "hi").await;
        assert_eq!(
            (status, answer.as_str(), model.calls()),
            (RunStatus::Completed, output, calls),
            "{event}"
        );
        assert_eq!(events.last().map(String::as_str), Some(event));
        assert!(take(&log).is_empty(), "the tool did not run");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_fail_the_run() {
    let stop = || ErrorInfo::new(ErrorCode::InternalError, "no more of this");
    let log = Log::default();
    let on = |name| Callback::new(name);
    for callback in [
        on("before_agent").before_agent(move |_, _| async move { Ok(Before::Fail(stop())) }),
        on("after_agent").after_agent(move |_, _| async move { Ok(After::Fail(stop())) }),
        on("before_model").before_model(move |_, _| async move { Ok(Before::Fail(stop())) }),
        on("after_model").after_model(move |_, _| async move { Ok(After::Fail(stop())) }),
        on("before_tool").before_tool(move |_, _| async move { Ok(Before::Fail(stop())) }),
        on("after_tool").after_tool(move |_, _, _| async move { Ok(After::Fail(stop())) }),
    ] {
        let world = open(echoing(), &log, vec![callback]).await;
        let (status, error, events) = run(&world, "hi").await;
        assert_eq!(status, RunStatus::Failed, "{events:?}");
        assert!(
            error.contains("callback_failed") && error.contains("no more of this"),
            "{error}"
        );
        let [event] = &events[..] else {
            panic!("{events:?}")
        };
        let (name, rest) = event.split_once(' ').unwrap();
        assert_eq!(rest, format!("{name} failed"));
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_callbacks_follow_their_policy() {
    let log = Log::default();
    let error = || ModelError::new(Failure::Unavailable, "lost");
    let broken = |policy| {
        Callback::new("broken")
            .before_tool(move |_, _| async move { Err(error().into()) })
            .after_tool(|_, _, _| async { panic!("oh no") })
            .on_failure_before(policy)
    };
    let world = open(echoing(), &log, vec![broken(FailurePolicy::FailOpen)]).await;
    let (status, output, events) = run(&world, "hi").await;
    assert_eq!(
        (status, output.as_str()),
        (RunStatus::Completed, "heard hi")
    );
    assert_eq!(
        events,
        ["broken before_tool open", "broken after_tool open"]
    );
    world.finish().await;

    let world = open(echoing(), &log, vec![broken(FailurePolicy::FailClosed)]).await;
    take(&log);
    let (status, output, events) = run(&world, "hi").await;
    assert_eq!(
        status,
        RunStatus::Completed,
        "a closed failure before a tool refuses that call only"
    );
    assert!(
        output.contains("callback \"broken\" failed: lost"),
        "{output}"
    );
    assert_eq!(events, ["broken before_tool closed"]);
    assert!(take(&log).is_empty(), "the tool did not run");
    world.finish().await;

    let slow = || Callback::new("slow").timeout(Duration::from_millis(1));
    for (callback, fails) in [
        (slow().before_agent(|_, _| std::future::pending()), true),
        (slow().before_model(|_, _| std::future::pending()), true),
        (slow().after_agent(|_, _| std::future::pending()), false),
        (slow().after_model(|_, _| std::future::pending()), false),
        (
            slow()
                .after_model(|_, _| std::future::pending())
                .on_failure_after(FailurePolicy::FailClosed),
            true,
        ),
        (
            slow()
                .after_tool(|_, _, _| std::future::pending())
                .on_failure_after(FailurePolicy::FailClosed),
            true,
        ),
    ] {
        let world = open(echoing(), &log, vec![callback]).await;
        let (status, text, _) = run(&world, "hi").await;
        assert_eq!(status == RunStatus::Failed, fails, "{text}");
        assert!(!fails || text.contains("took longer than 1 ms"), "{text}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_arguments_are_checked_and_bound_to_the_approval() {
    let log = Log::default();
    let invalid = Callback::new("invalid")
        .before_tool(|_, _| async { Ok(Before::Change(json!({"words": 1}))) });
    let world = open(echoing(), &log, vec![invalid]).await;
    let (status, output, _) = run(&world, "hi").await;
    assert_eq!(status, RunStatus::Completed);
    assert!(
        output.contains("validation_error") && take(&log).is_empty(),
        "{output}"
    );
    world.finish().await;

    let calls = Arc::new(AtomicUsize::new(0));
    let change = |calls: &Arc<AtomicUsize>| {
        let calls = Arc::clone(calls);
        Callback::new("change").before_tool(move |_, call| {
            calls.fetch_add(1, SeqCst);
            async move {
                let text = call.arguments["text"].as_str().unwrap_or_default();
                Ok(Before::Change(json!({"text": format!("<{text}>")})))
            }
        })
    };
    let written = |log: &Log| -> Arc<dyn Tool> {
        let log = Arc::clone(log);
        tool::function("echo", "Echoes.", move |_: ToolContext, Text { text }| {
            note(&log, format!("wrote {text}"));
            async move { Ok(text) }
        })
        .writes()
        .build()
    };
    let build = |builder: RuntimeBuilder, log: &Log, calls: &Arc<AtomicUsize>| {
        with_callbacks(builder, vec![change(calls)])
            .tool(written(log))
            .permissions_by_users()
    };
    let mut world = TestRuntime::with(echoing(), |builder| build(builder, &log, &calls)).await;
    let run_id: RunId = world.runtime().start("hi").await.unwrap().run_id().clone();
    let permission = with_timeout(wait_for_permissions(world.runtime(), 1))
        .await
        .remove(0);
    assert_eq!(permission.arguments, "{\"text\":\"<hi>\"}");
    // The process ends while the approval is pending.
    world
        .reopen_with(echoing(), |builder| build(builder, &log, &calls))
        .await;
    let reloaded = with_timeout(wait_for_permissions(world.runtime(), 1))
        .await
        .remove(0);
    assert_eq!(reloaded.permission_id, permission.permission_id);
    world
        .runtime()
        .permissions()
        .decide(
            &reloaded.permission_id,
            soong::protocol::Decision::AllowOnce,
            None,
        )
        .await
        .unwrap();
    let outcome = with_timeout(world.runtime().wait(&run_id)).await.unwrap();
    assert_eq!(outcome.output, "heard <hi>");
    assert_eq!(
        (take(&log), calls.load(SeqCst)),
        (vec!["wrote <hi>".to_owned()], 1),
        "the callback is not called again"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_see_calls_of_internal_tools() {
    let log = Log::default();
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("goal", json!({"add": ["first"]})),
        _ => Turn::say(last_of(request)),
    });
    let change = Callback::new("change").before_tool(|_, _| async {
        Ok(Before::Change(json!({"add": ["changed"], "focus": "1"})))
    });
    let world = open(model, &log, vec![change]).await;
    let (_, output, events) = run(&world, "plan").await;
    assert!(
        output.contains("changed") && !output.contains("first"),
        "{output}"
    );
    assert_eq!(events, ["change before_tool changed"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_agents_have_the_callbacks_unless_configured_otherwise() {
    let log = Log::default();
    let model = scripted_model(
        |request| match (task_of(request), assistant_count(request)) {
            ("the parent", 0) => Turn::call("agent", json!({"task": "child"})),
            ("the parent", _) => Turn::say("done"),
            _ => Turn::say("child done"),
        },
    );
    let noting = |name: &'static str| {
        let log = Arc::clone(&log);
        Callback::new(name).before_agent(move |context, task| {
            note(
                &log,
                format!("{name} {task} {} {}", context.depth, context.agent_type),
            );
            async { Ok(Before::Continue) }
        })
    };
    let world = open(
        model,
        &log,
        vec![noting("all"), noting("users").not_for_sub_agents()],
    )
    .await;
    run(&world, "the parent").await;
    assert_eq!(
        take(&log),
        [
            "all the parent 0 default",
            "users the parent 0 default",
            "all child 1 default"
        ]
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callback_uses_artifacts_children_and_collaborators() {
    let log = Log::default();
    let model = scripted_model(|request| Turn::say(format!("did {}", task_of(request))));
    let cache = Callback::new("cache")
        .before_agent(|context, task| async move {
            if let Some(answer) = context.artifacts().load("answer.txt", None).await? {
                return Ok(Before::Answer(
                    String::from_utf8_lossy(&answer).into_owned(),
                ));
            }
            let child = context.spawn("check").await?.result().await?;
            assert_eq!(context.collaborators().await?.len(), 1);
            Ok(Before::Change(format!("{task} after {}", child.summary)))
        })
        .after_agent(|context, answer| async move {
            context
                .artifacts()
                .save("answer.txt", "text/plain", answer)
                .await?;
            Ok(After::Keep)
        })
        .not_for_sub_agents();
    let world = open(Arc::clone(&model), &log, vec![cache]).await;
    let runtime = world.runtime();
    for _ in 0..2 {
        let run = runtime
            .start(soong::RunRequest::new("work").session("s"))
            .await
            .unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().output,
            "did work after did check"
        );
    }
    assert_eq!(
        model.calls(),
        2,
        "the second run is answered from the artifact"
    );
    check_session(runtime, &SessionId::new("s")).await;
    world.finish().await;
}

/// The process ends while a callback runs. Nothing of it is recorded, so the next process calls it
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_callback_is_called_again() {
    let log = Log::default();
    let hanging = |log: &Log| {
        let log = Arc::clone(log);
        Callback::new("hanging").before_agent(move |_, _| {
            note(&log, "called");
            std::future::pending()
        })
    };
    let mut world = open(echoing(), &log, vec![hanging(&log)]).await;
    let run_id = world.runtime().start("hi").await.unwrap().run_id().clone();
    wait_until("the callback is called", || log.lock().unwrap().len() == 1).await;
    let tool = echo(&log);
    let fine = Callback::new("fine")
        .before_agent(|_, task| async move { Ok(Before::Change(format!("{task}!"))) });
    world
        .reopen_with(echoing(), |builder| {
            with_callbacks(builder, vec![fine]).tool(tool)
        })
        .await;
    let outcome = with_timeout(world.runtime().wait(&run_id)).await.unwrap();
    assert_eq!(outcome.output, "heard hi!");
    world.finish().await;

    let world = open(echoing(), &log, vec![hanging(&log)]).await;
    let run = world.runtime().start("hi").await.unwrap();
    wait_until("the callback is called", || {
        log.lock()
            .unwrap()
            .last()
            .is_some_and(|line| line == "called")
    })
    .await;
    with_timeout(run.cancel()).await.unwrap();
    assert_eq!(run.status().await.unwrap(), RunStatus::Cancelled);
    world.finish().await;
}

/// One of two parallel calls fails the run while the other one's arguments are changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_run_ends_although_another_call_was_changed() {
    let log = Log::default();
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let callback = Callback::new("both").before_tool(move |_, call| {
        let both = Arc::clone(&both);
        async move {
            both.wait().await;
            match call.arguments["text"].as_str() {
                Some("stop") => Ok(Before::Fail(ErrorInfo::new(
                    ErrorCode::InternalError,
                    "stop",
                ))),
                _ => Ok(Before::Change(json!({"text": "changed"}))),
            }
        }
    });
    let model = scripted_model(|_| {
        Turn::Call(vec![
            ("echo", json!({"text": "stop"})),
            ("echo", json!({"text": "x"})),
        ])
    });
    let world = open(model, &log, vec![callback]).await;
    let (status, error, _) = run(&world, "hi").await;
    assert_eq!(status, RunStatus::Failed, "{error}");
    assert!(
        error.contains("callback \"both\" failed the run: stop"),
        "{error}"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_answer_is_charged_and_not_kept() {
    let log = Log::default();
    let reject = Callback::new("reject").after_model(|_, _| async {
        Ok(After::Fail(ErrorInfo::new(
            ErrorCode::InternalError,
            "no names",
        )))
    });
    let world = open(
        scripted_model(|_| Turn::say("Ada Lovelace")),
        &log,
        vec![reject],
    )
    .await;
    let run = world.runtime().start("who?").await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Failed, "")
    );
    assert_eq!(outcome.stats.own.total_tokens, 15);
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), soong::MessagePath::All)
        .await
        .unwrap();
    assert!(
        messages
            .iter()
            .all(|message| message.role != Role::Assistant),
        "{messages:?}"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_answers_of_callbacks_are_handled() {
    let log = Log::default();
    // Two calls without ids, then the result of each.
    let calls = Callback::new("calls").before_model(|_, request| async move {
        if assistant_count(&request) > 0 {
            return Ok(Before::Continue);
        }
        let call = |text: &str| soong::protocol::ToolCall {
            id: String::new(),
            name: "echo".into(),
            arguments: json!({"text": text}).to_string(),
        };
        Ok(Before::Answer(Completion::tool_calls(vec![
            call("a"),
            call("b"),
        ])))
    });
    // The calls run in parallel, so their results have no fixed order.
    let results = |request: &ModelRequest| {
        let tools = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Tool);
        let mut texts: Vec<String> = tools.map(|message| message.content.to_string()).collect();
        texts.sort();
        texts.join(" ")
    };
    let world = open(
        scripted_model(move |request| Turn::say(results(request))),
        &log,
        vec![calls],
    )
    .await;
    let (status, output, _) = run(&world, "hi").await;
    assert_eq!((status, output.as_str()), (RunStatus::Completed, "a b"));
    world.finish().await;

    // The error `cancelled` of a callback does not cancel the run.
    let cancel = Callback::new("cancel").before_tool(|_, _| async {
        Ok(Before::Answer(Err(ErrorInfo::new(
            ErrorCode::Cancelled,
            "not now",
        ))))
    });
    let world = open(echoing(), &log, vec![cancel]).await;
    let (status, output, _) = run(&world, "hi").await;
    assert_eq!(
        (status, output.as_str()),
        (RunStatus::Completed, "heard Error [interrupted]: not now")
    );
    world.finish().await;
}

/// A callback that removes what the model must not read: the goal of the run has the changed task
/// too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_task_is_used_for_the_goal() {
    let log = Log::default();
    let hide = Callback::new("hide")
        .before_agent(|_, task| async move { Ok(Before::Change(task.replace("Ada", "Grace"))) });
    let world = open(echoing(), &log, vec![hide]).await;
    let run = world.runtime().start("greet Ada").await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    let goals = world
        .runtime()
        .traces()
        .goal_tree(run.trace_id())
        .await
        .unwrap();
    assert_eq!(goals.goals[0].description, "greet Grace");
    world.finish().await;
}
