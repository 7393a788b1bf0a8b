//! Facts that a server states about its model: read before the first run of a process, kept in the
//! home, and read again when the server may have been restarted (MOD-3).

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use serde_json::json;
use soong::{
    Config, Environment, ErrorCode, RunRequest, Runtime,
    model::{ServerProgram, known_server_facts},
    protocol::{Event, ModelEvent, RunStatus, tree::ActorKind},
};

use crate::support::{
    history::stored,
    scripted::{Reply, ScriptedServer, delta},
    world::{quick_config, with_timeout},
};

const MODEL: &str = "a-local-model";

/// A llama.cpp server with this window and one slot, whose first `broken` chat completions fail
/// without an answer.
fn llama_cpp(window: &Arc<AtomicU64>, broken: u64) -> ScriptedServer {
    let window = Arc::clone(window);
    let left = AtomicU64::new(broken);
    ScriptedServer::start_with_routes(move |request| match request.path.as_str() {
        "/v1/models" => Reply::status(200, json!({ "data": [{ "id": MODEL }] }).to_string()),
        "/props" => {
            let settings = json!({ "n_ctx": window.load(SeqCst) });
            let props = json!({ "default_generation_settings": settings, "total_slots": 1 });
            Reply::status(200, props.to_string())
        }
        "/v1/chat/completions"
            if left
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_ok() =>
        {
            Reply::raw(Vec::new())
        }
        "/v1/chat/completions" => Reply::answer("fine"),
        _ => Reply::status(404, "none"),
    })
}

fn config_for(server: &ScriptedServer) -> Config {
    let mut config = quick_config();
    config.model.base_url = Some(server.base_url());
    config.model.name = Some(MODEL.to_owned());
    config.model.retry.max_attempts = 1;
    config
}

async fn open(dir: &Path, config: Config) -> Runtime {
    let builder = Runtime::builder()
        .home(dir.join("home"))
        .project_dir(dir)
        .config(config);
    builder
        .environment(Environment::default())
        .build()
        .await
        .unwrap()
}

async fn status_of_run(runtime: &Runtime) -> RunStatus {
    let run = runtime.start(RunRequest::new("say it")).await.unwrap();
    with_timeout(run.wait()).await.unwrap().status
}

fn max_concurrency(runtime: &Runtime) -> u64 {
    let mut open = vec![runtime.tree().snapshot().unwrap()];
    while let Some(mut view) = open.pop() {
        open.append(&mut view.children);
        if let Some(gateway) = view
            .gateway
            .filter(|_| view.kind == ActorKind::ModelGateway)
        {
            return gateway.max_concurrency;
        }
    }
    panic!("there is no gateway")
}

fn questions(server: &ScriptedServer) -> usize {
    server
        .requests()
        .iter()
        .filter(|request| request.path == "/props")
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_is_asked_once_in_each_process_and_its_facts_are_kept() {
    let window = Arc::new(AtomicU64::new(8_192));
    let server = llama_cpp(&window, 0);
    let dir = tempfile::tempdir().unwrap();
    let config = config_for(&server);
    let home = dir.path().join("home");
    let known = || known_server_facts(&home, &config.model, &Environment::default(), MODEL);
    assert_eq!(known(), None);

    let runtime = open(dir.path(), config.clone()).await;
    assert_eq!(status_of_run(&runtime).await, RunStatus::Completed);
    assert_eq!(status_of_run(&runtime).await, RunStatus::Completed);
    assert_eq!(questions(&server), 1);
    assert_eq!(max_concurrency(&runtime), 1, "the slots of the server");
    let facts = known().unwrap();
    assert_eq!(
        (facts.program, facts.context_window),
        (Some(ServerProgram::LlamaCpp), Some(8_192))
    );
    runtime.close().await;

    window.store(16_384, SeqCst);
    let mut config = config.clone();
    config.model.max_concurrency = Some(7);
    let runtime = open(dir.path(), config.clone()).await;
    assert_eq!(status_of_run(&runtime).await, RunStatus::Completed);
    assert_eq!(questions(&server), 2);
    assert_eq!(max_concurrency(&runtime), 7, "the configured number");
    assert_eq!(known().unwrap().context_window, Some(16_384));
    runtime.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_is_limited_to_half_of_the_rest_of_the_window() {
    let window = Arc::new(AtomicU64::new(8_192));
    let server = llama_cpp(&window, 0);
    let dir = tempfile::tempdir().unwrap();
    for (configured, least, most) in [(None, 3_500, 4_096), (Some(77), 77, 77)] {
        let mut config = config_for(&server);
        config.model.max_output_tokens = configured;
        let runtime = open(dir.path(), config).await;
        let start = RunRequest::new("say it")
            .system_prompt("brief")
            .tools([""; 0]);
        let run = runtime.start(start).await.unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().status,
            RunStatus::Completed
        );
        let sent = server.requests().last().unwrap().body["max_tokens"]
            .as_u64()
            .unwrap();
        assert!((least..=most).contains(&sent), "{sent}");
        runtime.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_that_repeats_a_passage_without_an_end_is_stopped() {
    let server = ScriptedServer::start_with_routes(|request| match request.path.as_str() {
        "/props" => Reply::status(200, r#"{"default_generation_settings": {"n_ctx": 65536}}"#),
        "/v1/chat/completions" => {
            let piece = delta(
                json!({ "content": "and then it reads the file again, line by line; " }),
                json!(null),
            );
            Reply::sse(std::iter::repeat_n(piece, 100)).then_hang()
        }
        _ => Reply::status(404, "none"),
    });
    let dir = tempfile::tempdir().unwrap();
    let runtime = open(dir.path(), config_for(&server)).await;
    let run = runtime.start(RunRequest::new("say it")).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    let error = outcome.error.as_ref().unwrap();
    assert_eq!(error.code, ErrorCode::ProviderError, "{error}");
    assert!(error.message.contains("repeats a passage"), "{error}");
    server.until_hung_up(1).await;
    runtime.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_is_asked_again_after_a_connection_that_failed() {
    let window = Arc::new(AtomicU64::new(8_192));
    let server = llama_cpp(&window, 1);
    let dir = tempfile::tempdir().unwrap();
    let runtime = open(dir.path(), config_for(&server)).await;
    assert_eq!(status_of_run(&runtime).await, RunStatus::Failed);
    assert_eq!(status_of_run(&runtime).await, RunStatus::Completed);
    assert_eq!(status_of_run(&runtime).await, RunStatus::Completed);
    assert_eq!(questions(&server), 2);
    runtime.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stated_window_decides_when_a_conversation_is_summarized() {
    let window = Arc::new(AtomicU64::new(6_000));
    let server = llama_cpp(&window, 0);
    let dir = tempfile::tempdir().unwrap();
    let runtime = open(dir.path(), config_for(&server)).await;
    let long = "word ".repeat(3_000);
    let start = |task: &str| {
        RunRequest::new(format!("{task} {long}"))
            .session("s")
            .system_prompt("brief")
            .tools([""; 0])
    };
    for task in ["first", "second", "third"] {
        let run = runtime.start(start(task)).await.unwrap();
        let _ = with_timeout(run.wait()).await;
    }
    let prompts = server.requests();
    let is_summary = |body: &serde_json::Value| body.to_string().contains("## Request and intent");
    assert!(
        prompts.iter().any(|request| is_summary(&request.body)),
        "the conversation is summarized"
    );
    runtime.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn estimates_are_corrected_by_what_the_service_counts() {
    // A tokenizer that needs more tokens than the estimate expects.
    let server = ScriptedServer::start(|request| {
        let counted = request.body.to_string().len() / 3;
        Reply::answer("fine").usage(counted as u64, 5)
    });
    let dir = tempfile::tempdir().unwrap();
    // Returns the share by which the size of a prompt, as it was estimated, differs from the
    // counted one.
    let deviation = async |runtime: &Runtime| {
        let run = runtime.start(RunRequest::new("say it")).await.unwrap();
        with_timeout(run.wait()).await.unwrap();
        let events = stored(runtime, run.trace_id()).await;
        let mut estimated = 0.0;
        let mut counted = 0.0;
        for record in &events {
            match &record.event {
                Event::Model(ModelEvent::ContextBuilt {
                    estimated_tokens, ..
                }) => estimated = *estimated_tokens as f64,
                Event::Model(ModelEvent::Completed { usage, .. }) => {
                    counted = usage.prompt_tokens as f64
                }
                _ => {}
            }
        }
        (counted - estimated) / counted
    };
    let runtime = open(dir.path(), config_for(&server)).await;
    let first = deviation(&runtime).await;
    let second = deviation(&runtime).await;
    runtime.close().await;
    // The next process reads it from the home.
    let runtime = open(dir.path(), config_for(&server)).await;
    let of_next_process = deviation(&runtime).await;
    runtime.close().await;
    assert!(
        first > 0.2 && second.abs() < 0.05 && of_next_process.abs() < 0.05,
        "{first} {second} {of_next_process}"
    );
}
