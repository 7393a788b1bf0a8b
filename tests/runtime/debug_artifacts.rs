//! Debug artifacts: model calls, hooks and crashes of actors, stored if `runtime.debug_artifacts`
//! is set (ART-13).

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use serde_json::{Value, json};
use soong::{
    Environment, FaultPoint, MessagePath, RunRequest, Runtime, RuntimeBuilder,
    model::{Failure, ModelError},
    protocol::{Artifact, Cleanup, Role, RunStatus},
};

use crate::support::{
    artifacts::{local_owner, text},
    model::{ScriptedModel, Turn, assistant_count, scripted_model, task_of},
    scripted::{Reply, Request, ScriptedServer, delta},
    world::{TestRuntime, quick_config, with_timeout},
};

/// A key that no artifact may contain.
const SECRET: &str = "sk-never-show-this-0123456789";

/// Opens a runtime with hooks. `is_on`: whether debug artifacts are stored.
async fn open(
    model: Arc<ScriptedModel>,
    is_on: bool,
    build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> TestRuntime {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let hook = r#"echo careful >&2; echo '{"decision": "deny", "reason": "not now"}'"#;
    let hooks = json!({"PreToolUse": [{"hooks": [{"type": "command", "command": hook}]}]});
    std::fs::write(
        home.join("hooks.json"),
        json!({"version": 1, "hooks": hooks}).to_string(),
    )
    .unwrap();
    let config = format!("[runtime]\ndebug_artifacts = {is_on}\n");
    std::fs::write(home.join("config.toml"), config).unwrap();
    TestRuntime::open_in(dir, model, |builder| build(builder).load_config()).await
}

async fn debug_artifacts(world: &TestRuntime) -> Vec<Artifact> {
    let mut all = world
        .runtime()
        .artifacts()
        .list(&local_owner("s"))
        .await
        .unwrap();
    all.retain(|artifact| artifact.debug);
    all.sort_by(|a, b| a.title.cmp(&b.title));
    all
}

fn titles(artifacts: &[Artifact]) -> Vec<&str> {
    artifacts
        .iter()
        .map(|artifact| artifact.title.as_str())
        .collect()
}

async fn json_of(world: &TestRuntime, artifact: &Artifact) -> Value {
    serde_json::from_str(&text(world, &local_owner("s"), artifact.artifact_id.as_str()).await)
        .unwrap()
}

fn reading() -> Arc<ScriptedModel> {
    scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("list_files", json!({})),
        _ => Turn::say("listed"),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_calls_and_hooks_are_stored_only_if_wanted() {
    for is_on in [true, false] {
        let world = open(reading(), is_on, |builder| builder).await;
        let run = world
            .runtime()
            .start(RunRequest::new("list").session("s"))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert!(
            outcome.artifacts.is_empty(),
            "they are no results of the run"
        );
        let stored = debug_artifacts(&world).await;
        if !is_on {
            assert_eq!(titles(&stored), [""; 0]);
            world.finish().await;
            continue;
        }
        assert_eq!(
            titles(&stored),
            [
                "hooks: PreToolUse",
                "model call: turn 1",
                "model call: turn 2"
            ]
        );
        assert!(
            stored
                .iter()
                .all(|artifact| artifact.provenance.run_id.as_ref() == Some(run.run_id()))
        );
        let calls = json_of(&world, &stored[0]).await;
        let [call] = &calls.as_array().unwrap()[..] else {
            panic!("one hook: {calls}")
        };
        assert_eq!(
            (&call["end"], &call["stderr"]),
            (&json!("exit status: 0"), &json!("careful\n"))
        );
        assert_eq!(
            (&call["input"]["tool"], &call["failure"]),
            (&json!("list_files"), &Value::Null)
        );
        assert!(
            call["stdout"].as_str().unwrap().contains("not now") && call["command"].is_string(),
            "{call}"
        );
        // A cleanup deletes them without any further option.
        let cleanup = Cleanup {
            dry_run: false,
            ..Cleanup::default()
        };
        world.runtime().artifacts().clean_up(cleanup).await.unwrap();
        assert_eq!(titles(&debug_artifacts(&world).await), [""; 0]);
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_model_call_is_stored_with_its_error() {
    let model = scripted_model(|_| {
        Turn::Fail(ModelError::new(
            Failure::Rejected,
            "HTTP 400: no such model",
        ))
    });
    let world = open(model, true, |builder| builder).await;
    let run = world
        .runtime()
        .start(RunRequest::new("list").session("s"))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Failed
    );
    let stored = debug_artifacts(&world).await;
    assert_eq!(titles(&stored), ["model call: turn 1"]);
    let traffic = json_of(&world, &stored[0]).await;
    assert!(
        traffic["answer"]["error"]["message"]
            .as_str()
            .unwrap()
            .contains("no such model"),
        "{traffic}"
    );
    assert_eq!(traffic["request"]["messages"][0]["content"], "list");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_of_an_actor_is_stored_with_its_backtrace() {
    let met = AtomicUsize::new(0);
    let hook: soong::FaultHook = Arc::new(move |_, here| {
        if here == FaultPoint::ModelAnswered && met.fetch_add(1, SeqCst) == 0 {
            panic!("the bug of this test");
        }
    });
    let world = open(reading(), true, |builder| builder.fault_hook(hook)).await;
    let run = world
        .runtime()
        .start(RunRequest::new("list").session("s"))
        .await
        .unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "listed");
    let mut stored = Vec::new();
    let is_crash = |artifact: &&Artifact| artifact.title == "crash: run actor";
    while !stored.iter().any(|artifact| is_crash(&artifact)) {
        stored = debug_artifacts(&world).await;
        tokio::task::yield_now().await;
    }
    let crash = stored.iter().find(is_crash).unwrap();
    let report = text(&world, &local_owner("s"), crash.artifact_id.as_str()).await;
    for part in [
        run.run_id().as_str(),
        "the bug of this test",
        "debug_artifacts.rs:",
        "soong::run::actor",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    world.finish().await;
}

/// A sub-agent with a long answer waits for its own sub-agent when its actor crashes. The report of the
/// crash is stored after the answer, and is not taken for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_of_a_crash_is_not_the_answer_of_a_sub_agent() {
    let answer = "long ".repeat(20_000);
    let reply = answer.clone();
    let is_released = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&is_released);
    let model = scripted_model(move |request| match task_of(request) {
        "answer" => Turn::say(reply.clone()),
        _ if released.load(SeqCst) => Turn::say("done"),
        _ => Turn::Fail(ModelError::new(Failure::Unavailable, "not yet")),
    });
    let world = open(model, true, |builder| {
        let mut config = quick_config();
        config.agents.max_depth = 2;
        config.runtime.debug_artifacts = true;
        builder.config(config)
    })
    .await;
    let driven = RunRequest::driven("two levels").session("s");
    let parent = world.runtime().start(driven).await.unwrap();
    let child = parent.spawn("answer").await.unwrap();
    let grandchild = child.spawn("wait").await.unwrap();
    let actor = format!("run:{}", child.run_id());
    let has_answered = || async {
        let messages = world.runtime().traces();
        let path = messages.messages(child.trace_id(), MessagePath::Main).await;
        path.is_ok_and(|path| path.iter().any(|message| message.role == Role::Assistant))
    };
    while !has_answered().await {
        tokio::task::yield_now().await;
    }
    // The report is stored after the first crash, and read after the second one.
    let crashes = || async {
        let stored = debug_artifacts(&world).await;
        let is_crash = |artifact: &&Artifact| artifact.title.starts_with("crash: ");
        stored.iter().filter(is_crash).count()
    };
    for count in [1, 2] {
        while world.runtime().tree().inject_crash(&actor).is_err() {
            tokio::task::yield_now().await;
        }
        while crashes().await < count {
            tokio::task::yield_now().await;
        }
    }
    is_released.store(true, SeqCst);
    with_timeout(grandchild.wait()).await.unwrap();
    let outcome = with_timeout(child.wait()).await.unwrap();
    assert_eq!(outcome.output, answer);
    let stored: Vec<&str> = outcome
        .artifacts
        .iter()
        .map(|artifact| artifact.artifact_id.as_str())
        .collect();
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert_eq!(text(&world, &local_owner("s"), stored[0]).await, answer);
    parent.finish("both answered").unwrap();
    with_timeout(parent.wait()).await.unwrap();
    world.finish().await;
}

/// Opens a home whose model is this server. Its key is a secret.
async fn open_with_server(server: &ScriptedServer) -> (Runtime, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick_config();
    config.runtime.debug_artifacts = true;
    config.model.base_url = Some(format!("{}?key={SECRET}", server.base_url()));
    let environment = Environment::of([("OPENAI_API_KEY", SECRET)]);
    let builder = Runtime::builder()
        .home(dir.path().join("home"))
        .project_dir(dir.path());
    let runtime = builder
        .config(config)
        .environment(environment)
        .build()
        .await
        .unwrap();
    (runtime, dir)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanges_with_the_service_are_stored_as_they_were() {
    for (parts, is_left_out) in [
        (["all is", " well"], false),
        (["sk-never-show-", "this-0123456789"], true),
    ] {
        let server = ScriptedServer::start(move |request: &Request| match request.number {
            0 => Reply::status(500, r#"{"error":{"message":"boom"}}"#),
            1 => Reply::sse([delta(json!({"content": "half of it"}), Value::Null)]).then_cut(),
            _ => Reply::sse(parts.map(|part| delta(json!({"content": part}), json!("stop")))),
        });
        let (runtime, _dir) = open_with_server(&server).await;
        let run = runtime
            .start(RunRequest::new("say it").session("s"))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
        let mut all = runtime.artifacts().list(&local_owner("s")).await.unwrap();
        all.retain(|artifact| artifact.title == "model call: turn 1");
        let [stored] = &all[..] else {
            panic!("one call: {all:?}")
        };
        let loaded = runtime
            .artifacts()
            .load(&local_owner("s"), stored.artifact_id.as_str(), None)
            .await
            .unwrap();
        let content = loaded.text().await.unwrap();
        assert!(!content.contains(SECRET), "{content}");
        let traffic: Value = serde_json::from_str(&content).unwrap();
        let exchanges = traffic["exchanges"].as_array().unwrap();
        let statuses: Vec<&Value> = exchanges
            .iter()
            .map(|exchange| &exchange["status"])
            .collect();
        assert_eq!(
            statuses,
            [&json!(500), &json!(200), &json!(200)],
            "{traffic}"
        );
        assert_eq!(exchanges[0]["response"]["error"]["message"], "boom");
        let sent = exchanges[0]["request"]["messages"][1]["content"]
            .as_str()
            .unwrap();
        assert!(sent.starts_with("say it\n\n[Context of this run"), "{sent}");
        assert!(!exchanges[0]["url"].as_str().unwrap().contains('?'));
        assert!(
            exchanges[1]["response"]
                .as_str()
                .unwrap()
                .contains("half of it"),
            "{traffic}"
        );
        let answer = exchanges[2]["response"].as_str().unwrap();
        assert_eq!(answer.starts_with("left out"), is_left_out, "{answer}");
        assert_eq!(answer.contains(parts[0]), !is_left_out, "{answer}");
        with_timeout(runtime.close()).await;
    }
}
