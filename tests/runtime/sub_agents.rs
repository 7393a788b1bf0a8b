//! Sub-agents: their input, their results, and the accuracy of what is reported about them (SUB-1 …
//! SUB-8).
//!
//! Elsewhere: parallel execution, slots and goals (`orchestration.rs`), questions to users
//! (`questions.rs`), costs (`budgets.rs`).

use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde_json::{Value, json};
use soong::{
    ChildSpec, ErrorCode, MessagePath, RunHandle, RunRequest,
    model::{Failure, ModelError, ModelRequest},
    protocol::{
        ChildMode, CollaboratorStatus, Event, GivenMessage, ModelEvent, Role, RunMode, RunStatus,
        SubAgentEvent,
    },
};

use crate::support::{
    artifacts::{local_owner, text},
    history::check_session,
    model::{ScriptedModel, Turn, assistant_count, is_parent, last_of, scripted_model, task_of},
    world::{TestRuntime, quick_config, read_to_end, wait_until, with_timeout},
};

/// Model whose main agent makes these calls one after the other, and then answers with the last
/// result. `child` returns the turns of the children.
fn calls(
    calls: Vec<(&'static str, Value)>,
    child: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static,
) -> Arc<ScriptedModel> {
    scripted_model(move |request| {
        if !is_parent(request) {
            return child(request);
        }
        match calls.get(assistant_count(request)) {
            Some((name, arguments)) => Turn::call(name, arguments.clone()),
            None => Turn::say(last_of(request)),
        }
    })
}

async fn ended(world: &TestRuntime, start: RunRequest) -> (RunHandle, String) {
    let run = world.runtime().start(start).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    (run, outcome.output.clone())
}

async fn result_of(world: &TestRuntime, start: RunRequest) -> Value {
    serde_json::from_str(&ended(world, start).await.1).unwrap()
}

fn conversation(request: &ModelRequest) -> Vec<(Role, String)> {
    let spoken = request
        .messages
        .iter()
        .filter(|message| message.role != Role::System);
    spoken
        .map(|message| (message.role, message.content.to_string()))
        .collect()
}

/// (SUB-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_given_to_all_children_or_per_child() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let assistant = |text: &str| json!({"role": "assistant", "content": text});
    let one = json!([user("what came before"), assistant("this")]);
    let each = json!([[user("for a")], [user("for b"), assistant("b too")]]);
    for (messages, wanted) in [
        (
            one,
            [
                vec!["what came before", "this", "a"],
                vec!["what came before", "this", "b"],
            ],
        ),
        (each, [vec!["for a", "a"], vec!["for b", "b too", "b"]]),
        (json!([]), [vec!["a"], vec!["b"]]),
    ] {
        let seen: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
        let saw = Arc::clone(&seen);
        let model = calls(
            vec![("agent", json!({"task": ["a", "b"], "messages": messages}))],
            move |request| {
                saw.lock().unwrap().push(
                    conversation(request)
                        .into_iter()
                        .map(|(_, text)| text)
                        .collect(),
                );
                Turn::say("done")
            },
        );
        let world = TestRuntime::open(model).await;
        let (run, _) = ended(&world, RunRequest::new("x")).await;
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_by_key(|texts| texts.last().cloned());
        assert_eq!(seen, wanted);
        for result in run.results().await.unwrap() {
            assert_eq!(result.summary, "done", "what was given is no answer");
        }
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// (SUB-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_agent_calls_return_errors_and_start_nothing() {
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    for (arguments, want) in [
        (
            json!({"task": ["a", "b"], "messages": [[message("user", "x")]]}),
            "1 lists for 2 tasks",
        ),
        (
            json!({"task": "a", "messages": [message("assistant", "x")]}),
            "must have the role user",
        ),
        (
            json!({"task": "a", "messages": [message("user", "  ")]}),
            "must not contain empty messages",
        ),
        (
            json!({"task": "a", "messages": [message("system", "obey")]}),
            "must have the role user or assistant",
        ),
        (
            json!({"task": "a", "messages": [{"role": "user", "text": "x"}]}),
            "must be a list of {role, content}",
        ),
        (json!({"task": "a", "messages": ["x"]}), "do not fit"),
        (
            json!({"task": ["a"], "continue_from": "x"}),
            "give one task as a string",
        ),
        (
            json!({"task": "a", "continue_from": "x"}),
            "not a sub-agent of this trace",
        ),
        (
            json!({"task": "a", "agent_type": "nobody"}),
            "there is no agent_type",
        ),
        (
            json!({"task": "a", "expected_output_schema": {"type": "nonsense"}}),
            "not a valid JSON schema",
        ),
        (json!({"task": " "}), "no task may be empty"),
        (json!({"task": []}), "do not fit"),
    ] {
        let model = calls(vec![("agent", arguments.clone())], |_| {
            unreachable!("no child was started")
        });
        let world = TestRuntime::open(model).await;
        let (run, output) = ended(&world, RunRequest::new("x")).await;
        assert!(output.contains(want), "{arguments}: {output}");
        assert_eq!(run.children().await.unwrap().len(), 0);
        world.finish().await;
    }
}

/// (SUB-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delegate_and_evaluation_each_continue_their_own_trace() {
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::Call(vec![
                ("goal", json!({"add": "write", "focus": "1"})),
                ("agent", json!({"task": "one"})),
            ]),
            (true, 1) => {
                let result: Value = serde_json::from_str(last_of(request)).unwrap();
                Turn::call(
                    "agent",
                    json!({"task": "two", "continue_from": result["sub_trace_id"]}),
                )
            }
            (true, 2) => Turn::call(
                "evaluate",
                json!({"messages": [{"role": "user", "content": "as before"}]}),
            ),
            (true, 3) => {
                let result: Value = serde_json::from_str(last_of(request)).unwrap();
                assert_eq!(result["summary"], "2 messages", "{result}");
                Turn::call(
                    "evaluate",
                    json!({"continue_from": result["sub_trace_id"], "context": "look again"}),
                )
            }
            (true, _) => Turn::say(last_of(request)),
            (false, _)
                if request
                    .messages
                    .iter()
                    .any(|m| m.content.starts_with("Evaluate whether")) =>
            {
                let summary = format!("{} messages", conversation(request).len());
                Turn::say(json!({"passed": true, "summary": summary}).to_string())
            }
            (false, _) => Turn::say(
                conversation(request)
                    .into_iter()
                    .map(|(_, text)| text)
                    .collect::<Vec<_>>()
                    .join("|"),
            ),
        },
    );
    let world = TestRuntime::open(model).await;
    let (run, last) = ended(&world, RunRequest::new("x")).await;
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(
        (&last["summary"], &last["passed"]),
        (&json!("5 messages"), &json!(true))
    );
    let children = run.children().await.unwrap();
    assert_eq!(children[0].trace_id, children[1].trace_id);
    assert_eq!(children[2].trace_id, children[3].trace_id);
    assert_eq!(run.results().await.unwrap()[1].summary, "one|one|two");
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continued_child_keeps_its_preset_and_tools() {
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({"task": ["look"]})),
            (true, turn @ 1..=2) => {
                let result: Value = serde_json::from_str(last_of(request))
                    .unwrap_or_else(|_| panic!("{}", last_of(request)));
                // The result has the shape of its call: a list, then a single result, also for a
                // trace that an explore call started.
                let one = if turn == 1 {
                    &result["results"][0]
                } else {
                    &result
                };
                assert_eq!(
                    result["mode"],
                    if turn == 1 { "explore" } else { "delegate" },
                    "{result}"
                );
                let trace = &one["sub_trace_id"];
                let mut arguments = json!({"task": "look closer", "continue_from": trace});
                if turn == 2 {
                    // This preset has all tools.
                    arguments["agent_type"] = json!("default");
                }
                Turn::call("agent", arguments)
            }
            (true, _) => Turn::say("done"),
            (false, _) => {
                let tools: Vec<&str> = request
                    .tools
                    .iter()
                    .map(|tool| tool.name.as_str())
                    .collect();
                Turn::say(tools.join(" "))
            }
        },
    );
    let world = TestRuntime::open(model).await;
    let (run, _) = ended(
        &world,
        RunRequest::new("x").tools(["agent", "read", "glob"]),
    )
    .await;
    let results = run.results().await.unwrap();
    let tools: Vec<&str> = results
        .iter()
        .map(|result| result.summary.as_str())
        .collect();
    assert_eq!(tools, ["read glob"; 3]);
    let settings: Vec<_> = run
        .children()
        .await
        .unwrap()
        .into_iter()
        .map(|child| child.settings)
        .collect();
    assert_eq!(
        [1, 2].map(|at| settings[at].agent_type.as_str()),
        ["explore", "default"]
    );
    // A driven run of the session keeps the tools of the previous run.
    let driven = RunRequest::driven("more").session(run.session_id().as_str());
    let parent = world.runtime().start(driven).await.unwrap();
    assert_eq!(
        parent
            .record()
            .await
            .unwrap()
            .settings
            .options
            .tools
            .as_deref()
            .map(<[String]>::len),
        Some(3),
        "kept"
    );
    parent.finish("done").unwrap();
    with_timeout(parent.wait()).await.unwrap();
    world.finish().await;
}

/// (SUB-1a)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_is_stored_with_the_child_and_shown_to_it() {
    let model = calls(
        vec![(
            "agent",
            json!({"task": "look", "context": "the house is red"}),
        )],
        |request| {
            let [context, task] = &request.messages[..] else {
                panic!("{:?}", request.messages)
            };
            assert_eq!(
                (&*context.content, &*task.content),
                ("## Context\nthe house is red", "look")
            );
            Turn::say("seen")
        },
    );
    let world = TestRuntime::open(model).await;
    let (run, _) = ended(&world, RunRequest::new("x")).await;
    let child = &run.children().await.unwrap()[0];
    assert_eq!(child.settings.context, Some("the house is red".into()));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_given_as_an_object_is_kept() {
    let model = calls(
        vec![(
            "agent",
            json!({"task": "look", "context": {"house": "red"}}),
        )],
        |request| {
            assert_eq!(task_of(request), "look");
            assert_eq!(
                &*request.messages[0].content,
                "## Context\n{\"house\":\"red\"}"
            );
            Turn::say("seen")
        },
    );
    let world = TestRuntime::open(model).await;
    let (run, result) = ended(&world, RunRequest::new("x")).await;
    let child = &run.children().await.unwrap()[0];
    assert_eq!(
        child.settings.context,
        Some(json!({"house": "red"})),
        "an object is kept"
    );
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result.get("note"), None, "{result}");
    assert_eq!(
        (&result["status"], &result["summary"]),
        (&json!("completed"), &json!("seen"))
    );
    world.finish().await;
}

fn number_schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
}

/// (SUB-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_that_violates_the_schema_is_retried_once() {
    for (first, second, wanted) in [
        ("{\"n\": 1}", "never asked", Ok("{\"n\": 1}")),
        (
            "Here:\n```json\n{\"n\": 2}\n```",
            "never asked",
            Ok("{\"n\": 2}"),
        ),
        ("it is three", "{\"n\": 3}", Ok("{\"n\": 3}")),
        ("{\"n\": \"x\"}", "{\"n\": 4}", Ok("{\"n\": 4}")),
        ("it is five", "{\"n\": \"five\"}", Err("/n")),
        ("it is six", "really", Err("no JSON")),
    ] {
        let arguments = json!({"task": "count", "expected_output_schema": number_schema()});
        let model = calls(vec![("agent", arguments)], move |request| {
            assert!(task_of(request).contains("## Expected output"));
            assert!(request.output_schema.is_some());
            assert_eq!(
                request.tools.is_empty(),
                assistant_count(request) > 0,
                "a correction needs no tools"
            );
            if assistant_count(request) > 0 {
                assert!(
                    last_of(request).contains("does not match the requested JSON schema"),
                    "{}",
                    last_of(request)
                );
            }
            Turn::say([first, second][assistant_count(request)])
        });
        let world = TestRuntime::open(model).await;
        let (run, result) = ended(&world, RunRequest::new("x")).await;
        let result: Value = serde_json::from_str(&result).unwrap();
        match wanted {
            Ok(answer) => {
                assert_eq!(
                    (&result["status"], &result["summary"]),
                    (&json!("completed"), &json!(answer)),
                    "{first}"
                );
            }
            Err(why) => {
                let error = &result["error"];
                assert_eq!(
                    error["code"], "child_result_schema_validation_failed",
                    "{result}"
                );
                assert!(error["message"].as_str().unwrap().contains(why), "{error}");
                assert_eq!(
                    (&result["status"], &result["summary"]),
                    (&json!("failed"), &json!(second))
                );
            }
        }
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// (SUB-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_run_can_have_a_schema_and_return_a_typed_value() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Count {
        n: i64,
    }
    let model = scripted_model(|request| match task_of(request).split_whitespace().next() {
        Some("good") => Turn::say("```json\n{\"n\": 7}\n```"),
        Some("bad") => Turn::say("seven"),
        _ => Turn::say("{\"n\": 8}"),
    });
    let world = TestRuntime::open(model).await;
    let start = |message: &str| {
        world
            .runtime()
            .start(RunRequest::new(message).expect(number_schema()))
    };
    let good = start("good").await.unwrap();
    assert_eq!(
        with_timeout(good.wait_as::<Count>()).await.unwrap(),
        Count { n: 7 }
    );
    assert_eq!(
        with_timeout(good.wait()).await.unwrap().output,
        "{\"n\": 7}"
    );
    let bad = start("bad").await.unwrap();
    assert_eq!(
        with_timeout(bad.wait_as::<Count>()).await.unwrap_err().code,
        ErrorCode::ResultSchemaValidationFailed
    );
    let free = world.runtime().start("free").await.unwrap();
    assert_eq!(
        with_timeout(free.wait_as::<String>())
            .await
            .unwrap_err()
            .code,
        ErrorCode::ValidationError
    );
    let refused = world
        .runtime()
        .start(RunRequest::new("x").expect(json!({"type": 7})))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::ValidationError);
    world.finish().await;
}

/// The check of an answer is recorded, so that a rebuild does not repeat it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_of_an_answer_is_recorded_with_the_answer() {
    let model = scripted_model(|request| match task_of(request).split_whitespace().next() {
        Some("good") => Turn::say("```json\n{\"n\": 7}\n```"),
        Some("mended") if assistant_count(request) > 0 => Turn::say("{\"n\": 9}"),
        _ => Turn::say("{\"n\": \"seven\"}"),
    });
    let differences = Arc::new(Mutex::new(Vec::new()));
    let found = Arc::clone(&differences);
    let world = TestRuntime::with(model, |builder| {
        builder
            .config(quick_config())
            .difference_hook(Arc::new(move |_, lines| {
                found.lock().unwrap().extend_from_slice(lines)
            }))
    })
    .await;
    let matches = json!({"result": "match"});
    let mismatch =
        json!({"result": "mismatch", "violations": "at /n: \"seven\" is not of type \"integer\""});
    for (message, has_schema, wanted) in [
        ("good", true, vec![matches.clone()]),
        ("mended", true, vec![mismatch.clone(), matches]),
        ("bad", true, vec![mismatch.clone(), mismatch]),
        ("bad", false, vec![Value::Null]),
    ] {
        let request = RunRequest::new(message);
        let request = if has_schema {
            request.expect(number_schema())
        } else {
            request
        };
        let run = world.runtime().start(request).await.unwrap();
        with_timeout(run.wait()).await.unwrap();
        let mut checks = Vec::new();
        for record in read_to_end(run.events().unwrap()).await {
            if let Event::Model(ModelEvent::Completed { answer_check, .. }) = &record.event {
                checks.push(serde_json::to_value(answer_check).unwrap());
            }
        }
        assert_eq!(checks, wanted, "{message}");
    }
    assert_eq!(*differences.lock().unwrap(), Vec::<String>::new());
    world.finish().await;
}

/// (SUB-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_answer_becomes_artifact_and_summary_names_its_id() {
    let long = format!("begin {} end", "x".repeat(5_000));
    let answer = long.clone();
    let model = calls(vec![("agent", json!({"task": "write much"}))], move |_| {
        Turn::say(answer.clone())
    });
    let world = TestRuntime::with(model, |builder| {
        let mut config = quick_config();
        config.artifacts.max_inline_bytes = 4_500;
        builder.config(config)
    })
    .await;
    let (run, result) = ended(&world, RunRequest::new("x")).await;
    let result: Value = serde_json::from_str(&result).unwrap();
    let id = result["artifacts"][0]["artifact_id"].as_str().unwrap();
    let summary = result["summary"].as_str().unwrap();
    assert!(
        summary.contains(id) && summary.contains("begin") && summary.ends_with("end"),
        "{summary}"
    );
    assert_eq!(
        text(&world, &local_owner(run.session_id().as_str()), id).await,
        long
    );
    let whole = world
        .runtime()
        .traces()
        .messages(
            &run.children().await.unwrap()[0].trace_id,
            MessagePath::Main,
        )
        .await
        .unwrap();
    assert_eq!(
        whole.last().unwrap().content,
        long,
        "its trace has it whole"
    );
    world.finish().await;
}

/// (SUB-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_results_are_shortened_and_stored_completely() {
    let tasks: Vec<String> = (0..20).map(|n| format!("task {n}")).collect();
    let model = calls(vec![("agent", json!({"task": tasks}))], |request| {
        Turn::say(format!("{}: {}!", task_of(request), "y".repeat(900)))
    });
    let world = TestRuntime::with(model, |builder| {
        let mut config = quick_config();
        config.artifacts.max_inline_bytes = 8_000;
        builder.config(config)
    })
    .await;
    let (run, output) = ended(&world, RunRequest::new("x")).await;
    assert!(output.len() < 14_000, "{}", output.len());
    let short: Value = serde_json::from_str(&output).unwrap();
    let note = short["note"].as_str().unwrap();
    for (index, result) in short["results"].as_array().unwrap().iter().enumerate() {
        let summary = result["summary"].as_str().unwrap();
        assert!(
            summary.starts_with(&format!("task {index}: yyy")) && summary.ends_with('…'),
            "{summary}"
        );
    }
    let events = read_to_end(run.events().unwrap()).await;
    let reference = events.iter().find_map(|event| match &event.event {
        Event::Tool(soong::protocol::ToolEvent::Completed { artifact_ref, .. }) => {
            artifact_ref.clone()
        }
        _ => None,
    });
    let id = reference.unwrap().artifact_id;
    assert!(note.contains(id.as_str()), "{note}");
    let whole = text(&world, &local_owner(run.session_id().as_str()), id.as_str()).await;
    let whole: Value = serde_json::from_str(&whole).unwrap();
    assert!(
        whole["results"][19]["summary"]
            .as_str()
            .unwrap()
            .ends_with("yyy!")
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (SUB-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_failures_are_reported_and_the_parent_continues() {
    let broken = || ModelError::new(Failure::Rejected, "no such model");
    let model = calls(
        vec![(
            "agent",
            json!({"task": ["panic", "hang", "break", "cut", "forbidden", "fine"], "timeout_ms": 3_000}),
        )],
        move |request| match (task_of(request), assistant_count(request)) {
            ("panic", _) => panic!("this provider is broken"),
            ("hang", _) => Turn::Hang("so far so"),
            ("break", _) => Turn::Break("half an ans", broken()),
            ("cut", _) => Turn::Cut("too lo"),
            ("forbidden", 0) => Turn::call("create_artifact", json!({"name": "x", "content": "y"})),
            ("forbidden", _) => Turn::say(last_of(request)),
            (task, _) => Turn::say(task),
        },
    );
    let world = TestRuntime::open(model).await;
    let result = result_of(&world, RunRequest::new("x")).await;
    let reported: Vec<(&str, &str, &str)> = result["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let error = one["error"]["code"].as_str().unwrap_or("");
            (
                one["status"].as_str().unwrap(),
                error,
                one["summary"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(reported[0], ("failed", "internal_error", ""));
    assert_eq!(reported[1], ("failed", "timeout", "so far so"));
    assert_eq!(reported[2], ("failed", "provider_error", "half an ans"));
    assert_eq!(reported[3], ("failed", "max_output_tokens", "too lo"));
    assert_eq!((reported[4].0, reported[4].1), ("completed", ""));
    assert!(
        reported[4].2.contains("[tool_not_available]"),
        "{}",
        reported[4].2
    );
    assert_eq!(reported[5], ("completed", "", "fine"));
    world.finish().await;
}

/// (SUB-7)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_of_a_child_excludes_waiting_for_a_slot() {
    // One slot, six children of 120 ms each, and a timeout of 300 ms per child. The last children
    // wait for longer than that.
    let model = calls(
        vec![(
            "agent",
            json!({"task": ["a", "b", "c", "d", "e", "f"], "timeout_ms": 300}),
        )],
        |request| {
            let signal = Arc::new(tokio::sync::Notify::new());
            let task = task_of(request).to_owned();
            let sender = Arc::clone(&signal);
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(120)).await;
                sender.notify_one();
            });
            Turn::When(signal, task)
        },
    );
    let world = TestRuntime::with(model, |builder| {
        let mut config = quick_config();
        config.agents.max_concurrent_children_per_session = 1;
        builder.config(config)
    })
    .await;
    let result = result_of(&world, RunRequest::new("x")).await;
    let statuses: Vec<&str> = result["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["completed"; 6]);
    world.finish().await;
}

/// (SUB-8)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parent_is_notified_of_child_progress_and_crash() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model = calls(
        vec![("agent", json!({"task": "work", "agent_type": "explore"}))],
        move |request| match assistant_count(request) {
            0 => Turn::call(
                "goal",
                json!({"add": ["first thing", "second thing"], "focus": "2"}),
            ),
            1 => Turn::When(Arc::clone(&signal), "half".into()),
            _ => Turn::say("done"),
        },
    );
    let world = TestRuntime::open(model.clone()).await;
    let run = world.runtime().start(RunRequest::new("x")).await.unwrap();
    wait_until("it thinks", || model.in_flight() == 1 && model.calls() == 3).await;
    let child = run.children().await.unwrap()[0].clone();
    let summary = |world: &TestRuntime, id| {
        let runtime = world.runtime().clone();
        async move {
            let trace = runtime.traces().get(&id).await.unwrap();
            trace.context.collaborators[0].clone()
        }
    };
    let at_work = summary(&world, run.trace_id().clone()).await;
    assert_eq!(
        (at_work.summary.as_str(), at_work.status),
        ("second thing", CollaboratorStatus::Running)
    );
    world
        .runtime()
        .tree()
        .inject_crash(&format!("run:{}", child.run_id))
        .unwrap();
    wait_until("it thinks again", || {
        model.calls() == 4 && model.in_flight() == 1
    })
    .await;
    go.notify_waiters();
    with_timeout(run.wait()).await.unwrap();
    let ended = summary(&world, run.trace_id().clone()).await;
    assert_eq!(
        (ended.summary.as_str(), ended.status),
        ("half", CollaboratorStatus::Completed)
    );
    let events = read_to_end(run.events().unwrap()).await;
    let updates = events
        .iter()
        .filter(|event| event.event.kind() == "collaborator_updated")
        .count();
    assert_eq!(updates, 4, "start, goal, restart, end");
    world.finish().await;
}

/// (RT-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_starts_and_joins_children_of_each_mode() {
    let model = scripted_model(|request| match task_of(request).lines().next().unwrap() {
        "judge" => Turn::say(r#"{"passed": false, "summary": "not yet", "findings": ["a"]}"#),
        "count" => Turn::say("{\"n\": 3}"),
        "given" => Turn::say(
            conversation(request)
                .iter()
                .map(|(_, text)| text.as_str())
                .collect::<Vec<_>>()
                .join("|"),
        ),
        task => Turn::say(format!("did {task}")),
    });
    let world = TestRuntime::open(model).await;
    let run = world
        .runtime()
        .start(RunRequest::driven("a program's work"))
        .await
        .unwrap();
    let given = GivenMessage {
        role: Role::User,
        content: "given".into(),
        tool_call_id: None,
    };
    let given = ChildSpec::new("task").messages([given]);
    let children = run
        .spawn_all([
            ChildSpec::explore("look"),
            ChildSpec::new("work").context("with care"),
            ChildSpec::evaluate("judge"),
            ChildSpec::new("count").expect(number_schema()),
            given,
        ])
        .await
        .unwrap();
    let outcomes = with_timeout(children.join()).await;
    let outputs: Vec<&str> = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().unwrap().output.as_str())
        .collect();
    assert_eq!(outputs[0], "did look");
    assert!(outputs[1].starts_with("did work"));
    assert_eq!(
        with_timeout(children[3].wait_as::<Value>()).await.unwrap(),
        json!({"n": 3})
    );
    assert_eq!(outputs[4], "given|task");
    let results = run.results().await.unwrap();
    assert_eq!(
        results.iter().map(|one| one.mode).collect::<Vec<_>>()[..3],
        [ChildMode::Explore, ChildMode::Delegate, ChildMode::Evaluate]
    );
    assert_eq!(
        (results[2].passed, results[2].findings.as_slice()),
        (Some(false), &["a".to_owned()][..])
    );
    let continued = run.spawn(ChildSpec::new("more").continue_from(children[0].trace_id().clone()));
    let continued = continued.await.unwrap();
    assert_eq!(continued.trace_id(), children[0].trace_id());
    with_timeout(continued.wait()).await.unwrap();
    for (spec, code) in [
        (ChildSpec::new(" "), ErrorCode::ValidationError),
        (
            ChildSpec::new("x").preset("nobody"),
            ErrorCode::ValidationError,
        ),
        (ChildSpec::new("x").deliver(), ErrorCode::ValidationError),
    ] {
        assert_eq!(run.spawn(spec).await.unwrap_err().code, code);
    }
    run.finish("done").unwrap();
    with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        run.spawn("late").await.unwrap_err().code,
        ErrorCode::NothingRunning
    );
    world.finish().await;
}

/// (RT-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivered_result_enters_conversation_before_the_next_turn() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model = scripted_model(
        move |request| match (is_parent(request), last_of(request)) {
            (true, "talk") => Turn::When(Arc::clone(&signal), "first answer".into()),
            (true, last) if last.starts_with("A sub-agent has ended:") => {
                Turn::say(format!("heard: {last}"))
            }
            (true, last) => panic!("{last}"),
            (false, task) => Turn::say(format!("did {task}")),
        },
    );
    let world = TestRuntime::open(model.clone()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("talk"))
        .await
        .unwrap();
    wait_until("it thinks", || model.in_flight() == 1).await;
    let quiet = run.spawn("quiet work").await.unwrap();
    let loud = run
        .spawn(ChildSpec::new("loud work").deliver())
        .await
        .unwrap();
    with_timeout(quiet.wait()).await.unwrap();
    with_timeout(loud.wait()).await.unwrap();
    go.notify_one();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert!(
        outcome.output.contains("did loud work") && !outcome.output.contains("quiet"),
        "{}",
        outcome.output
    );
    let events = read_to_end(run.events().unwrap()).await;
    let delivered = |event: &&Arc<soong::protocol::EventRecord>| matches!(&event.event, Event::SubAgent(SubAgentEvent::Delivered { run_id, .. }) if run_id == loud.run_id());
    assert_eq!(events.iter().filter(delivered).count(), 1);
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (SUB-10)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_a_child_keeps_its_partial_text_and_its_siblings() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model = calls(
        vec![("agent", json!({"task": ["stay", "go", "stay"]}))],
        move |request| match task_of(request) {
            "go" => Turn::Hang("a part"),
            _ => Turn::When(Arc::clone(&signal), "whole".into()),
        },
    );
    let world = TestRuntime::open(model.clone()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").mode(RunMode::Normal))
        .await
        .unwrap();
    wait_until("all think", || model.in_flight() == 3).await;
    let child = run.children().await.unwrap()[1].run_id.clone();
    with_timeout(world.runtime().traces().handle(&child).unwrap().cancel())
        .await
        .unwrap();
    go.notify_waiters();
    let outcome = with_timeout(run.wait()).await.unwrap();
    let result: Value = serde_json::from_str(&outcome.output).unwrap();
    let outcomes: Vec<(&str, &str)> = result["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["status"].as_str().unwrap(),
                one["summary"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        outcomes,
        [
            ("completed", "whole"),
            ("cancelled", "a part"),
            ("completed", "whole")
        ]
    );
    let used = run.results().await.unwrap()[1].stats.own;
    assert!(
        used.total_tokens > 0 && used.estimated && used.model_calls == 1,
        "{used:?}"
    );
    assert_eq!(outcome.stats.tree.model_calls, 2 + 3);
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (SUB-8)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collaborators_are_named_after_their_tasks() {
    let long = "Read the changelog of this project, and list what would break a user's code";
    let tasks = json!({"task": ["Read it", "read it!", long, "查看项目结构", "…"]});
    let model = calls(vec![("agent", tasks)], |_| Turn::say("seen"));
    let world = TestRuntime::open(model).await;
    let (run, _) = ended(&world, RunRequest::new("x")).await;
    let trace = world.runtime().traces().get(run.trace_id()).await.unwrap();
    let mut names: Vec<&str> = trace
        .context
        .collaborators
        .iter()
        .map(|known| known.name.as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "read-it",
            "read-it-2",
            "read-the-changelog-of-this",
            "sub-agent",
            "查看项目结构"
        ]
    );
    let children = run.children().await.unwrap();
    assert_eq!(
        children[1].settings.collaborator.as_deref(),
        Some("read-it-2")
    );
    // A sub-agent that continues keeps its name.
    let continuation = ChildSpec::new("something else").continue_from(children[1].trace_id.clone());
    let driven = world
        .runtime()
        .start(RunRequest::driven("more").session(run.session_id().as_str()))
        .await
        .unwrap();
    let child = driven.spawn(continuation).await.unwrap();
    assert_eq!(
        child
            .record()
            .await
            .unwrap()
            .settings
            .collaborator
            .as_deref(),
        Some("read-it-2")
    );
    with_timeout(child.wait()).await.unwrap();
    driven.finish("done").unwrap();
    with_timeout(driven.wait()).await.unwrap();
    world.finish().await;
}
