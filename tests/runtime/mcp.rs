//! MCP servers: runs call them, share one connection, and continue if a server fails; no process is
//! left.
//!
//! The server is this test program: a runtime starts it with the single test [`serves`], which runs
//! the example `mcp_server`. Elsewhere: how the tools of a server describe themselves
//! (`actors/src/mcp/tests.rs`).

mod http;
#[path = "../../examples/support/mcp_server.rs"]
mod server;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::json;
use soong::{
    ActorKind, ActorView, Environment, RunRequest, Runtime, RuntimeBuilder,
    model::{Model, ModelRequest},
    protocol::{Config, Event, McpConfig, Preset, Role, RunMode, RunStatus},
};

use crate::support::{
    model::{ScriptedModel, Turn, assistant_count, last_of, scripted_model, task_of},
    world::{TestRuntime, kinds, quick_config, read_to_end, wait_until, with_timeout},
};

/// Variables with the mode of the server and with the path of its log.
const MODE: &str = "TEST_MODE";
const LOG: &str = "TEST_LOG";

/// Not a test: runs the server if a runtime has started this process.
#[test]
fn serves() {
    if std::env::var_os("SOONG_CALL").is_some() {
        server::serve();
        std::process::exit(0);
    }
}

/// Returns the configuration of a server that is this program.
fn program() -> McpConfig {
    let exe = std::env::current_exe().unwrap();
    let args = ["--exact", "mcp::serves", "--nocapture", "--quiet"];
    McpConfig {
        command: Some(exe.to_str().unwrap().to_owned()),
        args: args.map(str::to_owned).to_vec(),
        env: [("MCP_MODE", MODE), ("MCP_LOG", LOG)]
            .map(|(name, of)| (name.to_owned(), of.to_owned()))
            .into(),
        timeout_ms: 10_000,
        ..McpConfig::default()
    }
}

fn config(servers: impl IntoIterator<Item = (&'static str, McpConfig)>) -> Config {
    let mut config = quick_config();
    config.mcp = servers
        .into_iter()
        .map(|(name, server)| (name.to_owned(), server))
        .collect();
    config
}

/// Log of servers, in a folder that is removed with it.
struct Log(tempfile::TempDir);

impl Log {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("log")
    }

    fn count(&self, line: &str) -> usize {
        fs::read_to_string(self.path())
            .unwrap_or_default()
            .lines()
            .filter(|other| *other == line)
            .count()
    }

    fn environment(&self, mode: &str) -> Environment {
        let log = self.path();
        Environment::of([
            (MODE, mode),
            (LOG, log.to_str().unwrap()),
            ("PATH", "/usr/bin:/bin"),
        ])
    }

    /// Returns the processes of servers that write to this log, recognized by their environment.
    fn processes(&self) -> Vec<u32> {
        let wanted = format!("MCP_LOG={}", self.path().display());
        let carries = |id: &u32| {
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            let variables: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
            let has_mark = variables
                .iter()
                .any(|variable| variable.starts_with(b"SOONG_CALL="));
            has_mark && variables.contains(&wanted.as_bytes())
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(carries)
            .collect()
    }
}

async fn world(log: &Log, mode: &str, model: Arc<dyn Model>, config: Config) -> TestRuntime {
    let environment = log.environment(if mode.is_empty() { "good" } else { mode });
    TestRuntime::with(model, |builder| {
        builder.config(config).environment(environment)
    })
    .await
}

fn server_view(runtime: &Runtime, name: &str) -> Option<ActorView> {
    view_of(runtime, ActorKind::McpServer, name)
}

fn view_of(runtime: &Runtime, kind: ActorKind, id: &str) -> Option<ActorView> {
    fn find(view: &ActorView, kind: ActorKind, id: &str) -> Option<ActorView> {
        let own = view.kind == kind && view.id == id;
        own.then(|| view.clone())
            .or_else(|| view.children.iter().find_map(|child| find(child, kind, id)))
    }
    runtime
        .tree()
        .snapshot()
        .and_then(|tree| find(&tree, kind, id))
}

fn offered(request: &ModelRequest) -> Vec<&str> {
    request
        .tools
        .iter()
        .map(|tool| tool.name.as_str())
        .filter(|name| name.starts_with("mcp."))
        .collect()
}

/// Model that makes these calls, one per turn, and answers with all results.
fn caller(calls: Vec<(&'static str, serde_json::Value)>) -> Arc<ScriptedModel> {
    scripted_model(move |request| match calls.get(assistant_count(request)) {
        Some((name, arguments)) => Turn::call(name, arguments.clone()),
        None => {
            let results = request
                .messages
                .iter()
                .filter(|message| message.role == Role::Tool);
            Turn::say(
                results
                    .map(|message| message.content.as_str())
                    .collect::<Vec<_>>()
                    .join("\n---\n"),
            )
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_answer_fails_only_its_call() {
    let log = Log::new();
    let model = caller(vec![
        ("mcp.demo.flood", json!({})),
        ("mcp.demo.add", json!({"a": 1, "b": 2})),
    ]);
    let server = McpConfig {
        timeout_ms: 600_000,
        ..program()
    };
    let world = world(&log, "", model, config([("demo", server)])).await;
    let run = world.runtime().start("go").await.unwrap();
    let answer = with_timeout(run.wait()).await.unwrap().output.clone();
    assert!(
        answer.contains("16777216 bytes") && answer.ends_with("\n---\n3"),
        "{answer}"
    );
    assert_eq!(log.count("start"), 1);
    world.finish().await;
    assert_eq!(log.processes(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_calls_server_tools_and_no_process_is_left() {
    let log = Log::new();
    let model = caller(vec![
        ("mcp.demo.add", json!({"a": 1, "b": 2})),
        ("mcp.demo.fail", json!({})),
        ("mcp.demo.picture", json!({})),
        ("mcp.demo.measure", json!({})),
        ("mcp.demo.add", json!({"a": "one"})),
    ]);
    let world = world(&log, "", model, config([("demo", program())])).await;
    let run = world.runtime().start("go").await.unwrap();
    let answer = with_timeout(run.wait()).await.unwrap().output.clone();
    for part in [
        "3",
        "the moon is not full",
        "[resource note://1]\na note",
        "\"celsius\": 21",
        "do not fit",
    ] {
        assert!(answer.contains(part), "{part:?} is missing in {answer}");
    }
    assert_eq!(log.count("initialize"), 1);
    assert_eq!(log.processes().len(), 1);
    world.finish().await;
    assert_eq!(
        (log.count("end of input"), log.processes()),
        (1, vec![]),
        "it ends by itself, and is gone"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_tools_are_left_out_and_the_others_are_offered() {
    let log = Log::new();
    let model = scripted_model(|request| Turn::say(offered(request).join(" ")));
    let mut demo = program();
    demo.disabled_tools = vec!["crash".to_owned()];
    let world = world(&log, "", model, config([("demo", demo)])).await;
    let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
        .await
        .unwrap();
    let want = ["add", "wait", "fail", "picture", "measure", "flood", "grow"]
        .map(|name| format!("mcp.demo.{name}"))
        .join(" ");
    assert_eq!(outcome.output, want);
    let view = server_view(world.runtime(), "demo").unwrap();
    assert_eq!(
        (
            view.state.as_ref(),
            view.activity.as_str(),
            view.restart_limit.as_ref()
        ),
        ("running", "7 tools", "5/60s")
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_children_share_one_connection() {
    let log = Log::new();
    let model = scripted_model(
        |request| match (task_of(request), assistant_count(request)) {
            ("all", 0) => Turn::call(
                "agent",
                json!({"task": vec!["one"; 50], "agent_type": "default"}),
            ),
            ("one", 0) => Turn::call("mcp.demo.add", json!({"a": 1, "b": 2})),
            _ => Turn::say(last_of(request)),
        },
    );
    let mut config = config([("demo", program())]);
    config.agents.max_concurrent_children_per_session = 50;
    let world = world(&log, "", model, config).await;
    let run = world
        .runtime()
        .start(RunRequest::new("all").mode(RunMode::Orchestrator))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    assert_eq!(
        (
            log.count("initialize"),
            log.count("start"),
            log.count("call add")
        ),
        (1, 1, 50)
    );
    world.finish().await;
    assert_eq!(log.processes(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_crash_fails_the_call_and_the_server_restarts() {
    let log = Log::new();
    let model = caller(vec![
        ("mcp.demo.crash", json!({})),
        ("mcp.demo.add", json!({"a": 20, "b": 22})),
    ]);
    let world = world(&log, "", model, config([("demo", program())])).await;
    let run = world.runtime().start("go").await.unwrap();
    let events = run.events().unwrap();
    let answer = with_timeout(run.wait()).await.unwrap().output.clone();
    let (first, second) = answer.split_once("\n---\n").unwrap();
    assert!(
        first.contains("interrupted") && first.contains("\"demo\"") && first.contains("tools/call"),
        "{first}"
    );
    assert_eq!(second, "42", "the call behind it waits for the server");
    assert!(kinds(&read_to_end(events).await).contains(&"tool_failed"));
    let view = server_view(world.runtime(), "demo").unwrap();
    assert_eq!((view.restarts, view.state.as_ref()), (1, "running"));
    let why = view.last_error.unwrap();
    assert!(
        why.contains("exit status: 9") && why.contains("going down"),
        "{why}"
    );
    assert_eq!(log.processes().len(), 1);
    world.finish().await;
    assert_eq!(log.processes(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_waits_for_reconnect_while_the_old_process_exists() {
    let log = Log::new();
    let model = caller(vec![
        ("mcp.demo.crash", json!({})),
        ("mcp.demo.add", json!({"a": 20, "b": 22})),
    ]);
    let mut slow = program();
    let serve = slow.command.replace("sh".to_owned()).unwrap();
    let linger = "\"$0\" \"$@\"; exec >&-; sleep 0.5; exit 9";
    slow.args = ["-c".to_owned(), linger.to_owned(), serve]
        .into_iter()
        .chain(slow.args)
        .collect();
    let world = world(&log, "", model, config([("demo", slow)])).await;
    let run = world.runtime().start("go").await.unwrap();
    let answer = with_timeout(run.wait()).await.unwrap().output.clone();
    let (first, second) = answer.split_once("\n---\n").unwrap();
    assert!(first.contains("interrupted"), "{first}");
    assert_eq!(second, "42");
    world.finish().await;
    assert_eq!(log.processes(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_actor_and_supervisor_restart_after_a_crash() {
    let log = Log::new();
    let model = scripted_model(|request| match assistant_count(request) % 2 {
        0 => Turn::call("mcp.demo.add", json!({"a": 20, "b": 22})),
        _ => Turn::say(last_of(request)),
    });
    let world = world(&log, "", model, config([("demo", program())])).await;
    let runtime = world.runtime();
    let is_there = || {
        server_view(runtime, "demo").is_some_and(|view| view.state == "running")
            && log.processes().len() == 1
    };
    for (number, actor) in [(2, "mcp_server:demo"), (3, "mcp_supervisor:0")] {
        wait_until("the server is there", is_there).await;
        runtime.tree().inject_crash(actor).unwrap();
        wait_until("the server is started anew", || {
            log.count("initialize") == number
        })
        .await;
        wait_until("the server is there again", is_there).await;
        let outcome = with_timeout(runtime.start("go").await.unwrap().wait())
            .await
            .unwrap();
        assert_eq!(outcome.output, "42", "{actor}");
    }
    assert!(runtime.tree().inject_crash("mcp_server:other").is_err());
    world.finish().await;
    assert_eq!(log.processes(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn startup_failure_hides_only_that_server_and_is_reported() {
    for (mode, change, want) in [
        ("hang", None, "has not answered yet"),
        ("refuse", None, "closed on Mondays"),
        ("leave", None, "exit status: 3"),
        ("flood", None, "larger than 16 MiB"),
        (
            "",
            Some(("command", "/no/such/program")),
            "could not be started",
        ),
        (
            "",
            Some(("env", "NOT_SET")),
            "NOT_SET (mcp.bad.env.MCP_MODE)",
        ),
    ] {
        let log = Log::new();
        let mut bad = program();
        match change {
            Some(("command", command)) => bad.command = Some(command.to_owned()),
            Some((_, variable)) => drop(bad.env.insert("MCP_MODE".to_owned(), variable.to_owned())),
            None => {}
        }
        // The second server is good, because it does not get the variable with the mode.
        let mut good = program();
        good.env.remove("MCP_MODE");
        bad.start_timeout_ms = match mode {
            "hang" => 1_500,
            // An oversized message fails immediately, not after the timeout.
            "flood" => 600_000,
            _ => bad.start_timeout_ms,
        };
        let model = scripted_model(|request| Turn::say(offered(request).len().to_string()));
        let world = world(&log, mode, model, config([("bad", bad), ("good", good)])).await;
        let run = world.runtime().start("go").await.unwrap();
        let events = run.events().unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            (outcome.status, outcome.output.as_str()),
            (RunStatus::Completed, "8"),
            "{mode} {change:?}"
        );
        let events = read_to_end(events).await;
        let failures: Vec<String> = events
            .iter()
            .filter(|event| event.event.kind() == "mcp_server_failed")
            .map(|event| event.event.data_json())
            .collect();
        assert_eq!(failures.len(), 1, "{mode} {change:?}: {:?}", kinds(&events));
        assert!(failures[0].contains("\"server\":\"bad\""), "{failures:?}");
        let is_reported = failures[0].contains(want)
            || (mode == "hang" && failures[0].contains("did not answer"));
        assert!(is_reported, "{mode} {change:?}: {failures:?}");
        assert!(
            matches!(&events[0].event, Event::Run(_)),
            "the run begins first"
        );
        world.finish().await;
        assert_eq!(log.processes(), Vec::<u32>::new(), "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_server_is_retried_while_the_runtime_is_open() {
    let log = Log::new();
    let model = scripted_model(|request| Turn::say(offered(request).len().to_string()));
    let world = world(&log, "leave", model, config([("bad", program())])).await;
    let runtime = world.runtime();
    wait_until("it is tried again", || log.count("start") >= 4).await;
    let view = server_view(runtime, "bad").unwrap();
    assert!(
        view.restarts >= 3 && view.activity.contains("no licence for today"),
        "{view:?}"
    );
    assert_ne!(view.state, "failed");
    let run = runtime.start("go").await.unwrap();
    let events = run.events().unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "0");
    assert!(kinds(&read_to_end(events).await).contains(&"mcp_server_failed"));
    world.finish().await;
    assert_eq!(log.processes(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisor_over_crash_limit_affects_nothing_else() {
    let log = Log::new();
    let model = scripted_model(|request| Turn::say(offered(request).len().to_string()));
    let world = world(&log, "", model, config([("demo", program())])).await;
    let runtime = world.runtime();
    let has_given_up = || {
        let _ = runtime.tree().inject_crash("mcp_supervisor:0"); // the supervisor may be restarting or stopped
        server_view(runtime, "demo").unwrap().state == "failed"
    };
    wait_until("it is given up", has_given_up).await;
    assert_eq!(
        view_of(runtime, ActorKind::McpSupervisor, "0")
            .unwrap()
            .restarts,
        5
    );
    wait_until("no process is left", || log.processes().is_empty()).await;
    assert_eq!(
        with_timeout(runtime.start("go").await.unwrap().wait())
            .await
            .unwrap()
            .output,
        "0",
        "runs go on without"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn initial_garbage_from_a_server_is_ignored() {
    let log = Log::new();
    let model = caller(vec![("mcp.demo.add", json!({"a": 1, "b": 2}))]);
    let world = world(&log, "garbage", model, config([("demo", program())])).await;
    assert_eq!(
        with_timeout(world.runtime().start("go").await.unwrap().wait())
            .await
            .unwrap()
            .output,
        "3"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_preset_has_the_tools_of_servers_too() {
    let log = Log::new();
    let model = scripted_model(|request| {
        let names: Vec<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
        Turn::say(names.join(" "))
    });
    let mut config = config([("demo", program())]);
    config.model.context_window = Some(15_000);
    let world = world(&log, "", model, config).await;
    let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
        .await
        .unwrap();
    let tools: Vec<&str> = outcome.output.split(' ').collect();
    let own: Vec<&&str> = tools
        .iter()
        .filter(|tool| !tool.starts_with("mcp."))
        .collect();
    assert_eq!(own.len(), 5, "{tools:?}");
    assert!(tools.contains(&"mcp.demo.add"), "{tools:?}");
    world.finish().await;
}

/// No server information, a byte order mark, and messages in an array.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sloppy_messages_of_a_server_are_read() {
    let log = Log::new();
    let model = caller(vec![("mcp.demo.measure", json!({}))]);
    let world = world(&log, "sloppy", model, config([("demo", program())])).await;
    let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
        .await
        .unwrap();
    assert!(outcome.output.contains("21"), "{}", outcome.output);
    let tools = world.runtime().info().tools();
    assert!(tools.iter().any(|tool| tool.name == "mcp.demo.measure"));
    assert!(
        !tools.iter().any(|tool| tool.name == "mcp.demo.batch"),
        "it requires a task"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_does_not_exit_is_killed() {
    let log = Log::new();
    let model = caller(vec![("mcp.demo.add", json!({"a": 1, "b": 2}))]);
    let world = world(&log, "stubborn", model, config([("demo", program())])).await;
    with_timeout(world.runtime().start("go").await.unwrap().wait())
        .await
        .unwrap();
    assert_eq!(log.processes().len(), 1);
    world.finish().await;
    assert_eq!(log.processes(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_call_is_cancelled_at_the_server() {
    let log = Log::new();
    let model = caller(vec![("mcp.demo.wait", json!({"steps": 1_000_000}))]);
    let world = world(&log, "", model, config([("demo", program())])).await;
    let run = world.runtime().start("go").await.unwrap();
    wait_until("the call is at work", || log.count("call wait") == 1).await;
    with_timeout(run.cancel()).await.unwrap();
    wait_until("the server hears of it", || log.count("cancelled") == 1).await;
    assert_eq!(log.count("initialize"), 1, "the server stays");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timed_out_call_is_cancelled_and_progress_is_streamed() {
    let log = Log::new();
    let model = caller(vec![
        ("mcp.demo.wait", json!({"steps": 3})),
        ("mcp.demo.wait", json!({"steps": 1_000_000})),
    ]);
    let mut demo = program();
    // Progress extends the limit, at most ten times.
    demo.timeout_ms = 400;
    let world = world(&log, "", model, config([("demo", demo)])).await;
    let run = world.runtime().start("go").await.unwrap();
    let mut events = run.events().unwrap();
    let mut deltas = Vec::new();
    while let Some(item) = with_timeout(events.next()).await {
        if let soong::StreamItem::Delta(delta) = item.unwrap() {
            deltas.push(format!("{:?}", delta.delta));
        }
    }
    assert!(
        deltas
            .iter()
            .any(|delta| delta.contains("waiting (1 of 3)")),
        "{deltas:?}"
    );
    let answer = with_timeout(run.wait()).await.unwrap().output.clone();
    assert!(
        answer.contains("waited 3 steps") && answer.contains("longer than 4000 ms"),
        "{answer}"
    );
    wait_until("the server hears of it", || log.count("cancelled") == 1).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_added_later_are_offered_to_later_runs() {
    let log = Log::new();
    let model = scripted_model(
        |request| match (task_of(request), assistant_count(request)) {
            ("grow", 0) => Turn::call("mcp.demo.grow", json!({})),
            _ => Turn::say(offered(request).contains(&"mcp.demo.late").to_string()),
        },
    );
    let world = world(&log, "", model, config([("demo", program())])).await;
    let runtime = world.runtime();
    assert_eq!(
        with_timeout(runtime.start("grow").await.unwrap().wait())
            .await
            .unwrap()
            .output,
        "false",
        "it keeps its own"
    );
    wait_until("the list is read anew", || {
        server_view(runtime, "demo").unwrap().activity == "9 tools"
    })
    .await;
    assert_eq!(
        with_timeout(runtime.start("look").await.unwrap().wait())
            .await
            .unwrap()
            .output,
        "true"
    );
    world.finish().await;
}

/// (SUB-6)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_and_preset_may_name_tools_of_unavailable_server() {
    let log = Log::new();
    let model = scripted_model(|request| Turn::say(offered(request).len().to_string()));
    let mine = Preset {
        name: "mine".to_owned(),
        allowed_tools: Some(vec!["read".to_owned(), "mcp.demo.add".to_owned()]),
        ..soong::protocol::builtin_presets().remove(0)
    };
    let mut gone = program();
    gone.command = Some("/no/such/program".to_owned());
    let environment = log.environment("good");
    let build = |builder: RuntimeBuilder| {
        builder
            .config(config([("demo", gone)]))
            .environment(environment)
            .preset(mine)
    };
    let world = TestRuntime::with(model, build).await;
    let start = RunRequest::new("go")
        .preset("mine")
        .tools(["read", "mcp.demo.add"]);
    let outcome = with_timeout(world.runtime().start(start).await.unwrap().wait())
        .await
        .unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "0")
    );
    let start = RunRequest::new("go").tools(["mcp.other.add"]);
    let refused = world.runtime().start(start).await.map(drop).unwrap_err();
    assert!(refused.message.contains("mcp.other.add"), "{refused}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_runtime_leaves_no_server_process() {
    let log = Log::new();
    let home = tempfile::tempdir().unwrap();
    let model = caller(vec![("mcp.demo.add", json!({"a": 1, "b": 2}))]);
    let runtime = builder(
        &home.path().join("home"),
        model,
        config([("demo", program())]),
        log.environment("good"),
    );
    let runtime = runtime.build().await.unwrap();
    with_timeout(runtime.start("go").await.unwrap().wait())
        .await
        .unwrap();
    assert_eq!(log.processes().len(), 1);
    drop(runtime);
    wait_until("the server is gone", || log.processes().is_empty()).await;
}

fn builder(
    home: &Path,
    model: Arc<dyn Model>,
    config: Config,
    environment: Environment,
) -> RuntimeBuilder {
    let project = home.parent().unwrap();
    let builder = Runtime::builder()
        .home(home)
        .project_dir(project)
        .config(config)
        .environment(environment);
    builder.model("default", model)
}
