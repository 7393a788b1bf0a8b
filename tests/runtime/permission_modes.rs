//! Permission modes: what each allows, requests or refuses, and how a run changes its mode
//! (PERM-2).

use std::sync::Arc;

use serde_json::{Value, json};
use soong::{
    Config, ErrorCode, RunHandle, RunRequest, RuntimeBuilder,
    model::Model,
    protocol::{
        Decision, Event, PermissionEvent, PermissionMode, RunStatus, SessionId, ToolEvent, TraceId,
    },
};

use crate::support::{
    artifacts::{open_with_gate, pause, prompt_driven_model, recording_model, turns},
    history::{check_session, stored},
    model::{Turn, scripted_model},
    world::{TestRuntime, quick_config, wait_for_permissions, wait_until, with_timeout},
};

fn write(path: &str) -> Value {
    json!(["write", {"path": path, "content": "x"}])
}

fn request(steps: &[Value], mode: PermissionMode) -> RunRequest {
    RunRequest::new(turns(steps))
        .session("s")
        .permission_mode(mode)
        .unattended()
}

/// Returns the outcome of each tool call: `ok`, or why it was denied.
async fn outcomes(world: &TestRuntime, trace: &TraceId) -> Vec<&'static str> {
    let outcome = |event: &Event| match event {
        Event::Tool(ToolEvent::Completed { .. }) => Some("ok"),
        Event::Tool(ToolEvent::Denied { reason, .. })
            if reason.contains("permission mode `plan`") =>
        {
            Some("plan")
        }
        Event::Tool(ToolEvent::Denied { reason, .. }) if reason.contains("no approver") => {
            Some("asked")
        }
        Event::Tool(ToolEvent::Denied { reason, .. }) if reason.contains("deny rule") => {
            Some("rule")
        }
        Event::Tool(ToolEvent::Denied { .. } | ToolEvent::Failed { .. }) => Some("other"),
        _ => None,
    };
    stored(world.runtime(), trace)
        .await
        .iter()
        .filter_map(|record| outcome(&record.event))
        .collect()
}

async fn ended(run: &RunHandle) -> String {
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    outcome.output.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mode_allows_requests_or_refuses() {
    let outside = tempfile::tempdir().unwrap();
    let mut config = quick_config();
    config.tools.allowed_write_roots = vec![outside.path().display().to_string()];
    // The mode comes before the policy for the network.
    config.permissions.network = soong::protocol::NetworkPolicy::Allow;
    config.permissions.allowed_hosts = vec!["example.org".into()];
    let world = TestRuntime::with(prompt_driven_model(), |builder| builder.config(config)).await;
    std::fs::write(world.project().join(".env"), "TOKEN=abc\n").unwrap();
    let elsewhere = outside.path().join("x.txt").display().to_string();
    let cases = [
        (json!(["read", {"path": "a.txt"}]), ["ok", "ok", "ok", "ok"]),
        (
            json!(["read", {"path": ".env"}]),
            ["asked", "asked", "asked", "asked"],
        ),
        (
            json!(["create_artifact", {"name": "plan", "content": "x"}]),
            ["ok", "ok", "ok", "ok"],
        ),
        (write("new.txt"), ["plan", "asked", "ok", "ok"]),
        (
            json!(["edit", {"path": "a.txt", "edits": [{"old": "alpha", "new": "gamma"}]}]),
            ["plan", "asked", "ok", "ok"],
        ),
        (
            write(".git/hooks/pre-commit"),
            ["plan", "asked", "asked", "asked"],
        ),
        (write(&elsewhere), ["plan", "asked", "asked", "ok"]),
        (
            json!(["bash", {"command": "touch y"}]),
            ["plan", "asked", "asked", "ok"],
        ),
    ];
    for (call, expected) in cases {
        for (mode, expected) in PermissionMode::ALL.into_iter().zip(expected) {
            std::fs::write(world.project().join("a.txt"), "alpha\n").unwrap();
            let _ = (
                std::fs::remove_file(world.project().join("new.txt")),
                std::fs::remove_file(&elsewhere),
            );
            let start = RunRequest::new(turns(std::slice::from_ref(&call)))
                .permission_mode(mode)
                .unattended();
            let run = world.runtime().start(start).await.unwrap();
            ended(&run).await;
            let outcome = outcomes(&world, run.trace_id()).await;
            if call[0] == "bash" && mode == PermissionMode::All && outcome == ["other"] {
                continue; // this machine cannot confine commands
            }
            assert_eq!(outcome, [expected], "{mode:?}: {call}");
        }
    }
    let fetch = json!(["webfetch", {"url": "http://example.org/"}]);
    let run = world
        .runtime()
        .start(request(&[fetch], PermissionMode::Plan))
        .await
        .unwrap();
    ended(&run).await;
    assert_eq!(outcomes(&world, run.trace_id()).await, ["plan"]);
    // Deny rules override every mode.
    let denied = RunRequest::new(turns(&[write("z.txt")]))
        .permission_mode(PermissionMode::All)
        .deny("write");
    let run = world.runtime().start(denied).await.unwrap();
    ended(&run).await;
    assert_eq!(outcomes(&world, run.trace_id()).await, ["rule"]);
    world.finish().await;
}

/// The mode changes between two calls; sub-agents follow, also one that starts later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_mode_applies_from_the_next_call_also_to_sub_agents() {
    let (world, gate) = open_with_gate(|builder| builder.config(quick_config())).await;
    let permissions = world.runtime().permissions();
    let session = SessionId::new("s");
    let child = json!(["agent", {"task": turns(&[write("c1.txt"), pause(), write("c2.txt")])}]);
    let steps = [write("a.txt"), pause(), write("b.txt"), child];
    let run = world
        .runtime()
        .start(request(&steps, PermissionMode::Plan))
        .await
        .unwrap();
    gate.reached(1).await;
    with_timeout(permissions.set_mode(&session, PermissionMode::Edits))
        .await
        .unwrap();
    gate.pass();
    gate.reached(2).await;
    with_timeout(permissions.set_mode(&session, PermissionMode::Plan))
        .await
        .unwrap();
    // The same mode again is no change.
    with_timeout(permissions.set_mode(&session, PermissionMode::Plan))
        .await
        .unwrap();
    gate.pass();
    ended(&run).await;
    assert_eq!(
        outcomes(&world, run.trace_id()).await,
        ["plan", "ok", "ok", "ok"]
    );
    let child = run.children().await.unwrap().remove(0);
    assert_eq!(
        outcomes(&world, &child.trace_id).await,
        ["ok", "ok", "plan"]
    );
    for (trace, expected) in [
        (
            run.trace_id(),
            vec![PermissionMode::Edits, PermissionMode::Plan],
        ),
        (&child.trace_id, vec![PermissionMode::Plan]),
    ] {
        let events = stored(world.runtime(), trace).await;
        let changes = events.iter().filter_map(|record| match &record.event {
            Event::Permission(PermissionEvent::ModeChanged { mode }) => Some(*mode),
            _ => None,
        });
        assert_eq!(changes.collect::<Vec<_>>(), expected, "{trace}");
    }
    check_session(world.runtime(), &session).await;
    let ended = permissions
        .set_mode(&session, PermissionMode::All)
        .await
        .unwrap_err();
    assert_eq!(ended.code, ErrorCode::NothingRunning);
    let unknown = permissions
        .set_mode(&SessionId::new("none"), PermissionMode::All)
        .await
        .unwrap_err();
    assert_eq!(unknown.code, ErrorCode::SessionNotFound);
    world.finish().await;
}

/// A mode that is set while a call waits for permission decides about it too, and one level of
/// agents limits all below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stricter_mode_applies_to_approved_calls_and_to_all_levels() {
    let world = TestRuntime::with(prompt_driven_model(), |builder| {
        builder.config(quick_config()).permissions_by_users()
    })
    .await;
    let start = RunRequest::new(turns(&[write("n.txt")])).session("s");
    let run = world.runtime().start(start).await.unwrap();
    let permission = wait_for_permissions(world.runtime(), 1).await.remove(0);
    let permissions = world.runtime().permissions();
    with_timeout(permissions.set_mode(&SessionId::new("s"), PermissionMode::Plan))
        .await
        .unwrap();
    permissions
        .decide(&permission.permission_id, Decision::AllowOnce, None)
        .await
        .unwrap();
    ended(&run).await;
    assert_eq!(outcomes(&world, run.trace_id()).await, ["plan"]);
    assert!(!world.project().join("n.txt").exists());
    world.finish().await;

    let mut config = quick_config();
    config.agents.max_depth = 2;
    let (world, gate) = open_with_gate(|builder| builder.config(config)).await;
    let agent = |steps: &[Value]| json!(["agent", {"task": turns(steps)}]);
    let steps = [agent(&[agent(&[pause(), write("n.txt")])])];
    let run = world
        .runtime()
        .start(request(&steps, PermissionMode::All))
        .await
        .unwrap();
    gate.reached(1).await;
    let permissions = world.runtime().permissions();
    with_timeout(permissions.set_mode(&SessionId::new("s"), PermissionMode::Plan))
        .await
        .unwrap();
    gate.pass();
    ended(&run).await;
    assert!(!world.project().join("n.txt").exists());
    world.runtime().close().await;
    let closing = permissions
        .set_mode(&SessionId::new("s"), PermissionMode::All)
        .await
        .unwrap_err();
    assert_eq!(closing.code, ErrorCode::Closing);
    world.finish().await;
}

/// The model reads the mode in plan, and after it; in the other modes its prompts have no such
/// section.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_update_names_the_mode() {
    let model = recording_model();
    let world = TestRuntime::with(model.clone(), |builder| builder.config(quick_config())).await;
    let list = json!(["list_files", {}]);
    for (mode, expected) in [
        (PermissionMode::Edits, [None, None]),
        (PermissionMode::Plan, [Some("plan: "), None]),
        (PermissionMode::Plan, [None, None]),
        (PermissionMode::Ask, [Some("ask: "), None]),
    ] {
        let before = model.calls();
        let run = world
            .runtime()
            .start(request(std::slice::from_ref(&list), mode))
            .await
            .unwrap();
        ended(&run).await;
        let requests = model.requests().split_off(before);
        for (request, expected) in requests.iter().zip(expected) {
            let update = request.context_update.as_deref().unwrap_or_default();
            let section = update
                .split_once("## Permission mode\n")
                .map(|(_, text)| text);
            assert_eq!(section.is_some(), expected.is_some(), "{mode:?}: {update}");
            assert!(
                section.is_none_or(|text| text.starts_with(expected.unwrap())),
                "{mode:?}: {update}"
            );
        }
    }
    world.finish().await;
}

fn in_mode(mode: PermissionMode) -> impl FnOnce(RuntimeBuilder) -> RuntimeBuilder {
    let mut config: Config = quick_config();
    config.permissions.mode = mode;
    |builder| builder.config(config)
}

/// The configuration decides about new runs; a run that is resumed keeps its mode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_runs_have_the_configured_mode_resumed_ones_their_own() {
    let hanging = scripted_model(|_| Turn::Hang(""));
    let mut world = TestRuntime::with(hanging.clone(), in_mode(PermissionMode::Plan)).await;
    let start = |session: &str| {
        RunRequest::new(turns(&[write(&format!("{session}.txt"))]))
            .session(session)
            .unattended()
    };
    let (kept_run, changed) = {
        let kept_run = world
            .runtime()
            .start(start("kept").permission_mode(PermissionMode::Edits))
            .await
            .unwrap();
        let changed = world.runtime().start(start("changed")).await.unwrap();
        wait_until("both think", || hanging.in_flight() == 2).await;
        let session = SessionId::new("changed");
        with_timeout(
            world
                .runtime()
                .permissions()
                .set_mode(&session, PermissionMode::All),
        )
        .await
        .unwrap();
        (kept_run.run_id().clone(), changed.run_id().clone())
    };
    let model: Arc<dyn Model> = prompt_driven_model();
    world
        .reopen_with(model, in_mode(PermissionMode::Plan))
        .await;
    for (run, session) in [(kept_run, "kept"), (changed, "changed")] {
        with_timeout(world.runtime().wait(&run)).await.unwrap();
        assert_eq!(
            outcomes(&world, &TraceId::new(session)).await,
            ["ok"],
            "{session}"
        );
    }
    // The mode of a run is not that of the next one.
    let next = world.runtime().start(start("kept")).await.unwrap();
    ended(&next).await;
    assert_eq!(outcomes(&world, next.trace_id()).await, ["ok", "plan"]);
    world.finish().await;
}
