//! Tool calls that a run returns to its caller unexecuted (RUN-3), and model parameters that a
//! caller sets.

use std::sync::{Arc, Mutex};

use serde_json::json;
use soong::{
    ErrorCode, MessagePath, RecoveryPolicy, RunRequest,
    model::ModelRequest,
    protocol::{EndReason, GivenMessage, Message, Role, RunStatus, TraceId},
};

use crate::support::{
    history::{check_run, check_session},
    model::{ScriptedModel, Turn, last_of, scripted_model},
    world::{TestRuntime, kinds, read_to_end, with_timeout},
};

/// Temperature and further parameters of a request.
type Sent = (Option<f64>, String);

/// Model that calls two tools for a user message, and answers with the last of their results.
fn caller() -> Arc<ScriptedModel> {
    scripted_model(|request| match request.messages.last() {
        Some(message) if message.role == Role::Tool => {
            Turn::say(format!("heard {}", last_of(request)))
        }
        _ => Turn::Call(vec![
            ("read", json!({"path": "a"})),
            ("write", json!({"path": "b", "content": "x"})),
        ]),
    })
}

fn by_hand(prompt: &str) -> RunRequest {
    RunRequest::new(prompt)
        .session("s")
        .auto_execute_tools(false)
}

fn result(id: &str, content: &str) -> GivenMessage {
    GivenMessage {
        role: Role::Tool,
        content: content.into(),
        tool_call_id: Some(id.into()),
    }
}

fn go_on(results: &[GivenMessage]) -> RunRequest {
    RunRequest::resume("s").messages(results.to_vec())
}

async fn path(world: &TestRuntime) -> Vec<Message> {
    world
        .runtime()
        .traces()
        .messages(&TraceId::new("s"), MessagePath::Main)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_returned_and_results_resume_the_conversation() {
    let mut world = TestRuntime::open(caller()).await;
    let run = world.runtime().start(by_hand("Do it.")).await.unwrap();
    let events = read_to_end(run.events().unwrap()).await;
    check_run(&events);
    assert!(
        kinds(&events)
            .iter()
            .all(|kind| !kind.starts_with("tool_") && !kind.starts_with("goal_")),
        "{events:?}"
    );
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.end_reason),
        (RunStatus::Completed, EndReason::Completed)
    );
    let ids: Vec<&str> = outcome
        .tool_calls
        .iter()
        .map(|call| call.id.as_str())
        .collect();
    assert_eq!(
        (ids.join(" "), outcome.tool_calls[1].name.as_str()),
        ("call_0_0 call_0_1".to_owned(), "write")
    );
    assert!(!world.project().join("b").exists(), "nothing was run");

    // A later process knows the returned calls as well.
    world
        .reopen_with(caller(), |builder| builder.recover(RecoveryPolicy::Nothing))
        .await;
    let stored = world
        .runtime()
        .traces()
        .outcome(run.run_id())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.tool_calls, outcome.tool_calls);

    for (messages, part) in [
        (vec![result("call_9", "x")], "no open tool call \"call_9\""),
        (
            vec![result("call_0_0", "x"), result("call_0_0", "y")],
            "two results",
        ),
        (
            vec![GivenMessage {
                tool_call_id: None,
                ..result("", "x")
            }],
            "requires `tool_call_id`",
        ),
        (
            vec![GivenMessage {
                role: Role::User,
                content: "x".into(),
                tool_call_id: None,
            }],
            "precede a message",
        ),
    ] {
        let refused = world.runtime().start(go_on(&messages)).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::ValidationError);
        assert!(refused.message.contains(part), "{refused}");
    }
    let mixed = by_hand("And now?").messages([result("call_0_0", "x")]);
    assert!(
        world
            .runtime()
            .start(mixed)
            .await
            .unwrap_err()
            .message
            .contains("are accepted only without a message")
    );
    assert_eq!(
        path(&world).await.len(),
        3,
        "what is refused changes nothing"
    );

    let on = world
        .runtime()
        .start(go_on(&[
            result("call_0_1", "written"),
            result("call_0_0", "A"),
        ]))
        .await
        .unwrap();
    let outcome = with_timeout(on.wait()).await.unwrap();
    assert_eq!(outcome.output, "heard A");
    assert!(outcome.tool_calls.is_empty());
    check_session(world.runtime(), on.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_without_result_counts_as_interrupted() {
    let world = TestRuntime::open(caller()).await;
    with_timeout(
        world
            .runtime()
            .start(by_hand("Do it."))
            .await
            .unwrap()
            .wait(),
    )
    .await
    .unwrap();
    let on = world
        .runtime()
        .start(go_on(&[result("call_0_0", "A")]))
        .await
        .unwrap();
    let outcome = with_timeout(on.wait()).await.unwrap();
    assert!(
        outcome.output.starts_with("heard Error [interrupted]"),
        "{}",
        outcome.output
    );
    check_session(world.runtime(), on.session_id()).await;
    let contents: Vec<(Role, Option<String>)> = path(&world)
        .await
        .into_iter()
        .map(|message| (message.role, message.tool_call_id))
        .collect();
    assert_eq!(
        contents[3..5],
        [
            (Role::Tool, Some("call_0_0".into())),
            (Role::Tool, Some("call_0_1".into()))
        ]
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_parameters_are_sent_with_each_call_and_kept_on_resume() {
    let seen: Arc<Mutex<Vec<Sent>>> = Arc::default();
    let recorded = Arc::clone(&seen);
    let model = scripted_model(move |request: &ModelRequest| {
        let params = serde_json::Value::Object(request.params.clone()).to_string();
        recorded.lock().unwrap().push((request.temperature, params));
        match request.messages.last() {
            Some(message) if message.role == Role::Tool => Turn::say("done"),
            _ => Turn::call("read", json!({"path": "a"})),
        }
    });
    let world = TestRuntime::open(model).await;
    let params = |value: serde_json::Value| value.as_object().unwrap().clone();
    let start = by_hand("Do it.")
        .temperature(0.25)
        .llm_params(params(json!({"top_p": 0.5, "seed": 7})));
    with_timeout(world.runtime().start(start).await.unwrap().wait())
        .await
        .unwrap();
    with_timeout(
        world
            .runtime()
            .start(go_on(&[result("call_0_0", "A")]))
            .await
            .unwrap()
            .wait(),
    )
    .await
    .unwrap();
    let wanted = (Some(0.25), r#"{"top_p":0.5,"seed":7}"#.to_owned());
    assert_eq!(*seen.lock().unwrap(), [wanted.clone(), wanted]);
    for (start, part) in [
        (RunRequest::new("x").temperature(2.5), "between 0 and 2"),
        (
            RunRequest::new("x").temperature(f64::NAN),
            "between 0 and 2",
        ),
        (
            RunRequest::new("x").llm_params(params(json!({"stream": false}))),
            "`stream`",
        ),
    ] {
        let refused = world.runtime().start(start).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::ValidationError);
        assert!(refused.message.contains(part), "{refused}");
    }
    world.finish().await;
}
