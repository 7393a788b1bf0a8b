//! Runs against an OpenAI-compatible server with many kinds of failures (MOD-3, MOD-4, RUN-5).

use std::time::{Duration, Instant};

use serde_json::json;
use soong::{
    Environment, ErrorCode, MessagePath, RunRequest, Runtime,
    protocol::{EndReason, RunMode, RunStatus, TraceId},
};

use crate::support::{
    history::{check_session, stored},
    scripted::{Reply, Request, ScriptedServer, delta},
    world::{kinds, quick_config, with_timeout},
};

/// Opens a runtime that knows its model server only from the two environment variables.
async fn open(server: &ScriptedServer, timeout_ms: u64) -> (Runtime, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "alpha\n").unwrap();
    let mut config = quick_config();
    config.model.timeout_ms = timeout_ms;
    config.model.retry.max_attempts = 3;
    config.model.retry.max_backoff_ms = 2_000;
    let environment = Environment::of([
        ("OPENAI_API_KEY", "k"),
        ("OPENAI_BASE_URL", &server.base_url()),
    ]);
    let runtime = Runtime::builder()
        .home(dir.path().join("home"))
        .project_dir(dir.path())
        .config(config)
        .environment(environment)
        .build()
        .await
        .unwrap();
    (runtime, dir)
}

/// Creates the faulty reply of the server.
type Trouble = fn() -> Reply;

/// An answer whose stream is cut off.
fn half() -> Reply {
    Reply::sse([delta(
        json!({"content": "half of the answer"}),
        serde_json::Value::Null,
    )])
    .then_cut()
}

fn answer_count(request: &Request) -> usize {
    let messages = request.body["messages"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    messages
        .iter()
        .filter(|message| message["role"] == "assistant")
        .count()
}

fn last(request: &Request) -> String {
    let messages = request.body["messages"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    messages
        .last()
        .and_then(|message| message["content"].as_str().map(str::to_owned))
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transient_failures_are_retried_and_reported() {
    let troubles: Vec<(&str, Trouble)> = vec![
        ("500", || Reply::status(500, "boom")),
        ("429", || {
            Reply::status(429, r#"{"error":{"message":"slow down"}}"#)
        }),
        ("429 with Retry-After", || {
            Reply::status(429, r#"{"error":{"message":"slow down"}}"#).header("Retry-After", "1")
        }),
        ("a cut stream", half),
        ("an empty answer", || Reply::answer("")),
        ("nonsense", || {
            Reply::raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec())
        }),
        ("a server that hangs", Reply::hang),
    ];
    for (name, trouble) in troubles {
        let server = ScriptedServer::start(move |request: &Request| match request.number {
            0 => trouble(),
            _ => Reply::answer("fine"),
        });
        let (runtime, _dir) = open(&server, 300).await;
        let start = Instant::now();
        let run = runtime.start("x").await.unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            (outcome.status, outcome.output.as_str()),
            (RunStatus::Completed, "fine"),
            "{name}"
        );
        if name.contains("Retry-After") {
            assert!(
                start.elapsed() >= Duration::from_secs(1),
                "Retry-After was broken"
            );
        }
        let events = stored(&runtime, run.trace_id()).await;
        assert!(
            kinds(&events).contains(&"model_retrying"),
            "{name}: {:?}",
            kinds(&events)
        );
        check_session(&runtime, run.session_id()).await;
        runtime.close().await;
        assert_eq!(runtime.tree().live_count(), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permanent_failures_end_the_run_with_their_reason() {
    let troubles: Vec<(&str, Trouble, ErrorCode, EndReason, usize)> = vec![
        (
            "500",
            || Reply::status(500, "boom"),
            ErrorCode::ProviderError,
            EndReason::Failed,
            3,
        ),
        (
            "429",
            || Reply::status(429, "{}"),
            ErrorCode::ProviderRateLimited,
            EndReason::Failed,
            3,
        ),
        (
            "401",
            || Reply::status(401, "{}"),
            ErrorCode::ProviderAuthFailed,
            EndReason::Failed,
            1,
        ),
        (
            "404",
            || Reply::status(404, "{}"),
            ErrorCode::ProviderError,
            EndReason::Failed,
            1,
        ),
        (
            "too long",
            || {
                Reply::status(
                    400,
                    r#"{"error":{"message":"maximum context length","code":"context_length_exceeded"}}"#,
                )
            },
            ErrorCode::PromptTooLong,
            EndReason::PromptTooLong,
            1,
        ),
        (
            "cut at its limit",
            || {
                Reply::sse([
                    delta(json!({"content": "half of it"}), serde_json::Value::Null),
                    delta(json!({}), "length".into()),
                ])
            },
            ErrorCode::MaxOutputTokens,
            EndReason::MaxOutputTokens,
            1,
        ),
        (
            "refused by a filter",
            || Reply::sse([delta(json!({}), "content_filter".into())]),
            ErrorCode::ContentRefused,
            EndReason::ContentRefused,
            1,
        ),
        (
            "refused in words",
            || Reply::sse([delta(json!({"refusal": "I cannot help."}), "stop".into())]),
            ErrorCode::ContentRefused,
            EndReason::ContentRefused,
            1,
        ),
        (
            "too many calls",
            too_many_calls,
            ErrorCode::ModelAnswerTooLarge,
            EndReason::Failed,
            3,
        ),
        (
            "hangs",
            Reply::hang,
            ErrorCode::ProviderTimeout,
            EndReason::Failed,
            3,
        ),
        (
            "cut after text",
            half,
            ErrorCode::ProviderError,
            EndReason::AbortedStreaming,
            3,
        ),
    ];
    for (name, trouble, code, reason, requests) in troubles {
        let server = ScriptedServer::start(move |_: &Request| trouble());
        let (runtime, _dir) = open(&server, 150).await;
        let run = runtime.start("x").await.unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        let error = outcome
            .error
            .clone()
            .unwrap_or_else(|| panic!("{name} did not fail"));
        assert_eq!(
            (outcome.status, error.code, outcome.end_reason),
            (RunStatus::Failed, code, reason),
            "{name}: {error}"
        );
        assert_eq!(server.requests().len(), requests, "{name}");
        assert!(!error.message.contains("Bearer"), "{error}");
        let messages = runtime
            .traces()
            .messages(run.trace_id(), soong::MessagePath::All)
            .await
            .unwrap();
        let keeps_text = matches!(name, "cut after text" | "cut at its limit");
        let keeps_message = keeps_text || name.starts_with("refused");
        assert_eq!(
            messages.iter().any(|message| message.partial),
            keeps_message,
            "{name}"
        );
        assert_eq!(
            outcome.output.contains("half"),
            keeps_text,
            "{name}: {}",
            outcome.output
        );
        check_session(&runtime, run.session_id()).await;
        runtime.close().await;
        assert_eq!(runtime.tree().live_count(), 0, "{name}");
    }
}

/// An answer with more tool calls than allowed.
fn too_many_calls() -> Reply {
    Reply::calls(&[("c", "read", "{}"); 257])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_can_correct_an_oversized_answer() {
    let server = ScriptedServer::start(|request: &Request| match answer_count(request) {
        0 if !last(request).contains("model_answer_too_large") => too_many_calls(),
        _ => Reply::answer(&last(request)),
    });
    let (runtime, _dir) = open(&server, 5_000).await;
    let run = runtime.start("x").await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{outcome:?}");
    let output = &outcome.output;
    assert!(
        output.contains("model_answer_too_large") && output.contains("model.max_tool_calls"),
        "{output}"
    );
    let events = stored(&runtime, run.trace_id()).await;
    assert!(
        kinds(&events).contains(&"model_retrying") && !kinds(&events).contains(&"tool_started"),
        "{events:?}"
    );
    check_session(&runtime, run.session_id()).await;
    runtime.close().await;
    assert_eq!(runtime.tree().live_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_can_correct_invalid_tool_calls() {
    for (name, arguments, part) in [
        ("fly", "{}", "[tool_not_available]"),
        ("read", "this is no json", "[validation_error]"),
        ("read", r#"{"path": 5}"#, "[validation_error]"),
        ("read", r#"{"path": "none.txt"}"#, "[file_not_found]"),
        (
            "read",
            r#"{"path": "../../etc/passwd"}"#,
            "[outside_allowed_roots]",
        ),
    ] {
        let server = ScriptedServer::start(move |request: &Request| match answer_count(request) {
            0 => Reply::calls(&[("c1", name, arguments)]),
            1 => {
                assert!(
                    last(request).contains(part),
                    "{name} {arguments}: {}",
                    last(request)
                );
                Reply::calls(&[("c1", "read", r#"{"path": "a.txt"}"#)])
            }
            _ => Reply::answer(&last(request)),
        });
        let (runtime, _dir) = open(&server, 5_000).await;
        let run = runtime.start("x").await.unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert!(
            outcome.output.contains("alpha"),
            "{name} {arguments}: {}",
            outcome.output
        );
        check_session(&runtime, run.session_id()).await;
        runtime.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_without_usage_is_recorded_as_an_estimate() {
    let server =
        ScriptedServer::start(|_: &Request| Reply::answer("twelve letters").without_usage());
    let (runtime, _dir) = open(&server, 5_000).await;
    let run = runtime.start("x").await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert!(outcome.stats.own.estimated && outcome.stats.own.completion_tokens > 0);
    assert!(
        outcome.stats.own.cost.is_some(),
        "the price of this model is built in"
    );
    runtime.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_slow_children_run_in_parallel() {
    let server = ScriptedServer::start(|request: &Request| {
        let offered = request.body["tools"].to_string().contains("\"agent\"");
        match (offered, answer_count(request)) {
            (true, 0) => {
                Reply::calls(&[("c1", "agent", &json!({"task": ["a", "b", "c"]}).to_string())])
            }
            (true, _) => Reply::answer("joined"),
            (false, _) => Reply::answer("looked").after(Duration::from_millis(600)),
        }
    });
    let (runtime, _dir) = open(&server, 5_000).await;
    let run = runtime
        .start(RunRequest::new("x").mode(RunMode::Orchestrator))
        .await
        .unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "joined");
    assert_eq!(server.max_in_flight(), 3);
    runtime.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_a_hung_call_is_fast_and_closes_the_connection() {
    let server = ScriptedServer::start(|_: &Request| Reply::hang());
    let (runtime, _dir) = open(&server, 60_000).await;
    let run = runtime.start("x").await.unwrap();
    with_timeout(server.until_requests(1)).await;
    let start = Instant::now();
    with_timeout(run.cancel()).await.unwrap();
    let took = start.elapsed();
    assert!(
        took < Duration::from_secs(2),
        "cancelling took {took:?} against a call that may take a minute"
    );
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().end_reason,
        EndReason::AbortedStreaming
    );
    with_timeout(server.until_hung_up(1)).await;
    runtime.close().await;
    assert_eq!(runtime.tree().live_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_api_key_is_reported_before_a_run_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let none: [(&str, &str); 0] = [];
    let runtime = Runtime::builder()
        .home(dir.path().join("home"))
        .project_dir(dir.path())
        .environment(Environment::of(none))
        .build()
        .await
        .unwrap();
    let error = runtime.start("x").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ConfigError);
    for word in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "offline"] {
        assert!(error.message.contains(word), "{error}");
    }
    assert!(
        runtime
            .sessions()
            .list(soong::SessionFilter::default(), 10, None)
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let run = runtime
        .start(RunRequest::new("what is in here?").model("offline"))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    runtime.close().await;
}

/// Returns the arguments of all calls in the request's conversation, parsed as a service parses
/// them.
fn arguments(request: &Request) -> Vec<serde_json::Value> {
    let messages = request.body["messages"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let calls = messages
        .iter()
        .filter_map(|message| message["tool_calls"].as_array())
        .flatten();
    let parsed =
        calls.map(|call| serde_json::from_str(call["function"]["arguments"].as_str().unwrap()));
    parsed
        .collect::<Result<_, _>>()
        .expect("a service parses the arguments of each earlier call")
}

/// A call whose arguments are cut off at the token limit.
fn cut_call(arguments: &'static str) -> Reply {
    let function = json!({ "name": "read", "arguments": arguments });
    let call = json!({ "index": 0, "id": "c", "type": "function", "function": function });
    Reply::sse([
        delta(json!({ "tool_calls": [call] }), serde_json::Value::Null),
        delta(json!({}), "length".into()),
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_arguments_do_not_poison_the_session() {
    for (broken, wire, quoted) in [
        (r#"{"path": "a.t"#, json!({}), Some(r#"{"path": "a.t"#)),
        (
            r#"{"path": "a.txt"}}"#,
            json!({}),
            Some(r#"{"path": "a.txt"}}"#),
        ),
        (r#"["README.md"]"#, json!({}), Some(r#"["README.md"]"#)),
        ("7", json!({}), Some("It was called with: 7")),
        ("nonsense", json!({}), Some("nonsense")),
        // Encoded twice: the call is executed as intended.
        (
            r#""{\"path\": \"a.txt\"}""#,
            json!({ "path": "a.txt" }),
            None,
        ),
    ] {
        let server = ScriptedServer::start(move |request: &Request| match answer_count(request) {
            0 => Reply::calls(&[("c", "read", broken)]),
            _ => Reply::answer(&last(request)),
        });
        let (runtime, _dir) = open(&server, 2_000).await;
        for message in ["one", "two"] {
            let run = runtime
                .start(RunRequest::new(message).session("s"))
                .await
                .unwrap();
            let outcome = with_timeout(run.wait()).await.unwrap();
            assert_eq!(
                outcome.status,
                RunStatus::Completed,
                "{broken}: {:?}",
                outcome.error
            );
            if message == "one" {
                let wanted = quoted.unwrap_or("alpha");
                assert!(
                    outcome.output.contains(wanted),
                    "{broken}: {}",
                    outcome.output
                );
            }
        }
        for request in server.requests().iter().skip(1) {
            assert_eq!(arguments(request), std::slice::from_ref(&wire), "{broken}");
        }
        // The stored message keeps the arguments as the model wrote them.
        let messages = runtime
            .traces()
            .messages(&TraceId::new("s"), MessagePath::All)
            .await
            .unwrap();
        let call = messages
            .iter()
            .find_map(|message| message.tool_calls.first())
            .unwrap();
        assert_eq!(call.arguments, broken);
        runtime.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn third_call_cut_at_the_token_limit_ends_the_run() {
    // The model corrects its call after two cut-off calls.
    let server = ScriptedServer::start(|request: &Request| match answer_count(request) {
        0 | 1 => cut_call(r#"{"path": "a"#),
        _ => Reply::answer(&last(request)),
    });
    let (runtime, _dir) = open(&server, 2_000).await;
    let run = runtime.start("x").await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    assert!(
        outcome.output.contains("cut at the token limit"),
        "{}",
        outcome.output
    );
    runtime.close().await;

    let server = ScriptedServer::start(|_: &Request| cut_call(r#"{"path": "a"#));
    let (runtime, _dir) = open(&server, 2_000).await;
    let run = runtime
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.end_reason),
        (RunStatus::Failed, EndReason::MaxOutputTokens)
    );
    assert_eq!(
        outcome.error.as_ref().map(|error| error.code),
        Some(ErrorCode::MaxOutputTokens)
    );
    assert_eq!(server.requests().len(), 3);
    check_session(&runtime, run.session_id()).await;
    runtime.close().await;

    // Complete calls are executed, whatever the finish reason is.
    let server = ScriptedServer::start(|request: &Request| match answer_count(request) {
        0..=3 => cut_call(r#"{"path": "a.txt"}"#),
        _ => Reply::answer(&last(request)),
    });
    let (runtime, _dir) = open(&server, 2_000).await;
    let run = runtime.start("x").await.unwrap();
    assert!(
        with_timeout(run.wait())
            .await
            .unwrap()
            .output
            .contains("alpha")
    );
    runtime.close().await;
}
