//! Single model calls (RT-5): one answer without tools, in a session of its own.

use std::sync::{Arc, Mutex};

use serde_json::json;
use soong::{
    ErrorCode, RunRequest, SessionFilter, TraceFilter,
    model::{Completion, ModelRequest},
    protocol::{Budget, GivenMessage, Role, RunMode, RunStatus, SessionKind, TraceMode},
};

use crate::support::{
    history::check_session,
    model::{Turn, last_of, scripted_model},
    world::{TestRuntime, with_timeout},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_sends_its_messages_and_nothing_else() {
    let requests: Arc<Mutex<Vec<ModelRequest>>> = Arc::default();
    let model = scripted_model({
        let requests = Arc::clone(&requests);
        move |request| {
            requests.lock().unwrap().push(request.clone());
            Turn::say("bonjour")
        }
    });
    let world = TestRuntime::open(model).await;
    let runtime = world.runtime();
    let given = |role, text: &str| GivenMessage {
        role,
        content: text.into(),
        tool_call_id: None,
    };
    let request = RunRequest::call("good morning")
        .messages([given(Role::User, "hello"), given(Role::Assistant, "salut")])
        .temperature(0.5);
    let run = runtime.start(request).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "bonjour")
    );
    assert_eq!(
        (
            outcome.stats.own.model_calls,
            outcome.stats.own.total_tokens
        ),
        (1, 15)
    );
    let prompted = runtime
        .start(RunRequest::call("hi").system_prompt("Be terse."))
        .await
        .unwrap();
    with_timeout(prompted.wait()).await.unwrap();
    let requests = requests.lock().unwrap().clone();
    let texts: Vec<&str> = requests[0]
        .messages
        .iter()
        .map(|message| &*message.content)
        .collect();
    assert_eq!(texts, ["hello", "salut", "good morning"]);
    let system = |request: &ModelRequest| request.system.concat();
    assert_eq!(
        (system(&requests[0]).as_str(), system(&requests[1]).as_str()),
        ("", "Be terse.")
    );
    assert!(
        requests
            .iter()
            .all(|request| request.tools.is_empty() && request.context_update.is_none())
    );
    assert_eq!(requests[0].temperature, Some(0.5));

    // A call is a session of a kind of its own, which lists can leave out.
    let session = runtime.sessions().get(run.session_id()).await.unwrap();
    assert_eq!(session.kind, SessionKind::Call);
    let trace = runtime.traces().get(run.trace_id()).await.unwrap();
    assert_eq!(
        (trace.mode, trace.run_mode),
        (TraceMode::Call, RunMode::Call)
    );
    let talk = with_timeout(runtime.start("hi").await.unwrap().wait())
        .await
        .unwrap();
    for (hides_calls, count) in [(false, 3), (true, 1)] {
        let filter = SessionFilter {
            hides_calls,
            ..SessionFilter::default()
        };
        let sessions = runtime
            .sessions()
            .list(filter, 10, None)
            .await
            .unwrap()
            .items;
        assert_eq!(sessions.len(), count);
        let filter = TraceFilter {
            hides_calls,
            ..TraceFilter::default()
        };
        assert_eq!(
            runtime
                .traces()
                .list(filter, 10, None)
                .await
                .unwrap()
                .items
                .len(),
            count
        );
    }
    assert_eq!(talk.status, RunStatus::Completed);
    check_session(runtime, run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_ends_with_its_answer_or_its_error() {
    let model = scripted_model(
        |request| match last_of(request).split('\n').next().unwrap() {
            "refuse" => {
                let refusal = Completion {
                    finish_reason: "refusal".into(),
                    ..Completion::text("no")
                };
                Turn::Whole(Vec::new(), Box::new(refusal))
            }
            "use a tool" => Turn::call("read", json!({"path": "a.txt"})),
            "person" => Turn::say("{\"name\": 1}"),
            _ => Turn::say("{\"name\": \"Goethe\"}"),
        },
    );
    let world = TestRuntime::open(model).await;
    let schema = || json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    for (request, code, calls) in [
        (
            RunRequest::call("refuse"),
            Some(ErrorCode::ContentRefused),
            1,
        ),
        (
            RunRequest::call("use a tool"),
            Some(ErrorCode::BudgetExceeded),
            1,
        ),
        // The answer is corrected once.
        (RunRequest::call("person").expect(schema()), None, 2),
        (
            RunRequest::call("x").budget(Budget {
                tokens: Some(0),
                ..Budget::default()
            }),
            Some(ErrorCode::BudgetExceeded),
            0,
        ),
    ] {
        let run = world.runtime().start(request).await.unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(outcome.error.as_ref().map(|error| error.code), code);
        assert_eq!(outcome.stats.own.model_calls, calls, "{code:?}");
        check_session(world.runtime(), run.session_id()).await;
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_continues_nothing_and_is_not_continued() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("hi"))).await;
    let runtime = world.runtime();
    let call = runtime.start(RunRequest::call("x")).await.unwrap();
    with_timeout(call.wait()).await.unwrap();
    let talk = runtime
        .start(RunRequest::new("x").session("talk"))
        .await
        .unwrap();
    with_timeout(talk.wait()).await.unwrap();
    for request in [
        RunRequest::new("more").session(call.session_id().as_str()),
        RunRequest::call("more").session("talk"),
        RunRequest::call("more").session("talk").after(2),
        RunRequest::call("more").tools(["read"]),
        RunRequest {
            driven: true,
            ..RunRequest::call("more")
        },
    ] {
        let error = runtime.start(request).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::ValidationError, "{error}");
    }
    world.finish().await;
}
