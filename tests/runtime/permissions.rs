//! Permissions: which calls require approval, who decides, and what happens while a run waits
//! (PERM-1).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use soong::{
    ErrorCode, ErrorInfo, PermissionFilter, RunHandle, RunRequest, Runtime, RuntimeBuilder,
    permission::{ApprovalDecision, PermissionHandler},
    protocol::{
        Config, Decision, Event, NetworkPolicy, Permission, PermissionEvent, PermissionId,
        PermissionStatus, RememberPolicy, RunStatus, Scope, ToolEvent,
    },
};

use crate::support::{
    history::check_session,
    model::{ScriptedModel, Turn, assistant_count, is_parent, last_of, scripted_model},
    stamp::StampTool,
    world::{TestRuntime, kinds, read_to_end, wait_for_permissions, wait_until, with_timeout},
};

fn stamp(word: &str, folder: &str) -> Value {
    json!({"word": word, "place": folder})
}

/// Model that stamps one word per turn, and then answers with the last result.
fn stamping(words: &'static [(&'static str, &'static str)]) -> Arc<ScriptedModel> {
    scripted_model(move |request| match words.get(assistant_count(request)) {
        Some((word, folder)) => Turn::call("stamp", stamp(word, folder)),
        None => Turn::say(last_of(request)),
    })
}

async fn world(
    model: Arc<ScriptedModel>,
    tool: &Arc<StampTool>,
    build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> TestRuntime {
    TestRuntime::with(model, |builder| build(builder.tool(tool.clone()))).await
}

fn by_people(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.permissions_by_users()
}

async fn permission(runtime: &Runtime, id: &PermissionId) -> Permission {
    runtime.permissions().get(id).await.unwrap()
}

/// Starts a run in the session `s`, and waits until one of its calls waits for its permission.
async fn start_pending_call(world: &TestRuntime) -> (RunHandle, PermissionId) {
    let run = world
        .runtime()
        .start(RunRequest::new("stamp").session("s"))
        .await
        .unwrap();
    let permission = with_timeout(wait_for_permissions(world.runtime(), 1))
        .await
        .remove(0);
    (run, permission.permission_id)
}

/// Handler that decides with a function, and counts its requests.
struct Deciding<F>(F, Arc<AtomicUsize>);

impl<F: Fn(&Permission) -> Result<ApprovalDecision, ErrorInfo> + Send + Sync + 'static>
    PermissionHandler for Deciding<F>
{
    fn decide(
        &self,
        permission: Permission,
    ) -> BoxFuture<'static, Result<ApprovalDecision, ErrorInfo>> {
        self.1.fetch_add(1, SeqCst);
        let answer = (self.0)(&permission);
        async { answer }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_is_denied_immediately_without_an_approver() {
    let tool = StampTool::new();
    let calls = json!([stamp("one", "a"), stamp("two", "free")]);
    let model = scripted_model(move |request| match assistant_count(request) {
        0 => Turn::Call(
            calls
                .as_array()
                .unwrap()
                .iter()
                .map(|call| ("stamp", call.clone()))
                .collect(),
        ),
        _ => Turn::say(last_of(request)),
    });
    let world = world(model, &tool, by_people).await;
    let start = RunRequest::new("stamp").unattended();
    let run = world.runtime().start(start).await.unwrap();
    let events = read_to_end(run.events().unwrap()).await;
    let denied = |event: &Event| matches!(event, Event::Tool(ToolEvent::Denied { reason, .. }) if reason.contains("no approver is available") && reason.contains("stamp:/folder/a"));
    assert!(
        events.iter().any(|record| denied(&record.event)),
        "{:?}",
        kinds(&events)
    );
    assert!(
        !kinds(&events).contains(&"permission_requested"),
        "no question is left that nobody answers"
    );
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert!(
        outcome.output.contains("[skipped]"),
        "what follows a refused write is skipped (TOOL-3): {outcome:?}"
    );
    assert_eq!(tool.done(), [""; 0]);
    assert_eq!(
        world
            .runtime()
            .permissions()
            .list(PermissionFilter::default())
            .await
            .unwrap(),
        []
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_waits_for_permission_and_resumes_when_granted() {
    let tool = StampTool::new();
    let world = world(stamping(&[("one", "a")]), &tool, by_people).await;
    let runtime = world.runtime();
    let run = runtime
        .start(RunRequest::new("stamp").session("s"))
        .await
        .unwrap();
    let permission = with_timeout(wait_for_permissions(runtime, 1))
        .await
        .remove(0);
    assert_eq!(
        (permission.tool.as_str(), permission.demand.target.as_str()),
        ("stamp", "/folder/a/f")
    );
    assert_eq!(
        permission.demand.scope,
        Scope::Directory {
            path: "/folder/a".into()
        }
    );
    assert_eq!(
        serde_json::from_str::<Value>(&permission.arguments).unwrap(),
        stamp("one", "a")
    );
    assert_eq!(
        (permission.chain.len(), &permission.chain[0].run_id),
        (1, run.run_id())
    );
    assert!(
        runtime.sessions().awaits_input(run.session_id()),
        "it waits for people, and for nothing else"
    );
    assert!(
        serde_json::to_string(&runtime.tree().snapshot())
            .unwrap()
            .contains("\"activity\":\"a permission\"")
    );
    assert_eq!(tool.done(), [""; 0]);
    let allowed = runtime
        .permissions()
        .decide(&permission.permission_id, Decision::AllowOnce, None)
        .await
        .unwrap();
    assert_eq!(
        (allowed.status, allowed.by.as_deref()),
        (PermissionStatus::Allowed, Some("api"))
    );
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().output,
        "stamped one"
    );
    let second_decision = runtime
        .permissions()
        .decide(&permission.permission_id, Decision::Deny, None)
        .await
        .unwrap_err();
    assert_eq!(
        second_decision.code,
        ErrorCode::AlreadyDecided,
        "{second_decision}"
    );
    let unknown = runtime
        .permissions()
        .decide(&PermissionId::new("nobody"), Decision::AllowOnce, None)
        .await
        .unwrap_err();
    assert_eq!(unknown.code, ErrorCode::PermissionNotFound);
    let events = read_to_end(run.events().unwrap()).await;
    let kinds = kinds(&events);
    let order = [
        "tool_started",
        "permission_requested",
        "run_waiting",
        "permission_decided",
        "run_resumed",
        "tool_completed",
        "run_completed",
    ];
    let positions = order.map(|kind| {
        kinds
            .iter()
            .position(|other| *other == kind)
            .unwrap_or_else(|| panic!("{kinds:?}"))
    });
    assert!(positions.is_sorted(), "{kinds:?}");
    assert_eq!(tool.done(), ["one"]);
    check_session(runtime, run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denial_has_a_reason_and_the_run_continues() {
    let tool = StampTool::new();
    let world = world(stamping(&[("one", "a")]), &tool, by_people).await;
    let run = world.runtime().start("stamp").await.unwrap();
    let permission = with_timeout(wait_for_permissions(world.runtime(), 1))
        .await
        .remove(0);
    let reason = Some("not on a Sunday".to_owned());
    world
        .runtime()
        .permissions()
        .decide(&permission.permission_id, Decision::Deny, reason)
        .await
        .unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    assert!(
        output.contains("[permission_denied]") && output.contains("not on a Sunday"),
        "{output}"
    );
    let events = read_to_end(run.events().unwrap()).await;
    let kinds = kinds(&events);
    let order = [
        "permission_requested",
        "run_waiting",
        "permission_decided",
        "run_resumed",
        "tool_denied",
        "message_added",
    ];
    let after = kinds.iter().position(|kind| *kind == order[0]).unwrap();
    assert_eq!(kinds[after..after + order.len()], order, "{kinds:?}");
    assert_eq!(tool.done(), [""; 0]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_decides_and_its_failures_deny() {
    type Rule = fn(&Permission) -> Result<ApprovalDecision, ErrorInfo>;
    let rules: [(Rule, &str, usize); 4] = [
        (|_| Ok(Decision::AllowOnce.into()), "stamped two", 2),
        (
            |_| {
                Ok(ApprovalDecision {
                    decision: Decision::Deny,
                    reason: Some("no".into()),
                })
            },
            "it was refused: no",
            2,
        ),
        (
            |_| Err(ErrorInfo::new(ErrorCode::InternalError, "lost")),
            "the permission handler failed: lost",
            2,
        ),
        (
            |_| panic!("on purpose"),
            "the permission handler crashed",
            2,
        ),
    ];
    for (rule, want, call_count) in rules {
        let tool = StampTool::new();
        let count = Arc::new(AtomicUsize::new(0));
        let handler = Arc::new(Deciding(rule, Arc::clone(&count)));
        let model = stamping(&[("one", "a"), ("two", "a")]);
        let world = world(model, &tool, |builder| builder.permission_handler(handler)).await;
        let run = world.runtime().start("stamp").await.unwrap();
        let output = with_timeout(run.wait()).await.unwrap().output.clone();
        assert!(output.contains(want), "{want}: {output}");
        assert_eq!(count.load(SeqCst), call_count);
        world.finish().await;
    }
}

#[tokio::test(start_paused = true)]
async fn unanswered_request_is_denied_after_the_timeout() {
    struct Silent;
    impl PermissionHandler for Silent {
        fn decide(&self, _: Permission) -> BoxFuture<'static, Result<ApprovalDecision, ErrorInfo>> {
            std::future::pending().boxed()
        }
    }
    for by_program in [false, true] {
        let tool = StampTool::new();
        let mut config = Config::default();
        config.permissions.timeout_s = 40;
        let world = world(stamping(&[("one", "a")]), &tool, |builder| {
            let builder = builder.config(config);
            if by_program {
                builder.permission_handler(Arc::new(Silent))
            } else {
                by_people(builder)
            }
        })
        .await;
        let run = world.runtime().start("stamp").await.unwrap();
        let output = run.wait().await.unwrap().output.clone();
        assert!(output.contains("no decision within 40 s"), "{output}");
        let who = read_to_end(run.events().unwrap())
            .await
            .into_iter()
            .filter_map(|record| match &record.event {
                Event::Permission(PermissionEvent::Decided { by, .. }) => Some(by.clone()),
                Event::Tool(ToolEvent::Denied { by, .. }) => by.clone(),
                _ => None,
            });
        assert_eq!(who.collect::<Vec<_>>(), ["timeout", "timeout"]);
        assert_eq!(tool.done(), [""; 0]);
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_permission_is_limited_to_its_scope_and_session() {
    let tool = StampTool::new();
    let model = scripted_model(
        |request| match (last_of(request), assistant_count(request)) {
            ("again", _) | (_, 0) => Turn::call("stamp", stamp("one", "a")),
            (_, 1) => Turn::call("stamp", stamp("two", "a")),
            (_, 2) => Turn::call("stamp", stamp("three", "b")),
            (last, _) => Turn::say(last),
        },
    );
    let mut world = world(model.clone(), &tool, by_people).await;
    let allow = async |runtime: &Runtime, decision: Decision| {
        let permission = with_timeout(wait_for_permissions(runtime, 1))
            .await
            .remove(0);
        runtime
            .permissions()
            .decide(&permission.permission_id, decision, None)
            .await
            .unwrap()
            .demand
            .target
    };
    let first = world
        .runtime()
        .start(RunRequest::new("stamp").session("first"))
        .await
        .unwrap();
    assert_eq!(
        allow(world.runtime(), Decision::AllowForSession).await,
        "/folder/a/f"
    );
    assert_eq!(
        allow(world.runtime(), Decision::AllowOnce).await,
        "/folder/b/f",
        "another folder asks"
    );
    with_timeout(first.wait()).await.unwrap();
    let second = world
        .runtime()
        .start(RunRequest::new("stamp").session("second"))
        .await
        .unwrap();
    for target in ["/folder/a/f", "/folder/a/f", "/folder/b/f"] {
        assert_eq!(
            allow(world.runtime(), Decision::AllowOnce).await,
            target,
            "another session asks"
        );
    }
    with_timeout(second.wait()).await.unwrap();
    // Permissions for a session are kept in memory only.
    world
        .reopen_with(model, |builder| by_people(builder.tool(tool.clone())))
        .await;
    let third = world
        .runtime()
        .start(RunRequest::new("again").session("first"))
        .await
        .unwrap();
    assert_eq!(allow(world.runtime(), Decision::Deny).await, "/folder/a/f");
    third.cancel().await.unwrap();
    assert_eq!(tool.done(), ["one", "two", "three", "one", "two", "three"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_permission_covers_waiting_but_not_sensitive_calls() {
    let tool = StampTool::new();
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call(
                "agent",
                json!({"task": ["x", "y", "z"], "agent_type": "default"}),
            ),
            (true, _) => Turn::say("done"),
            (false, 0) => Turn::call("stamp", stamp("soft", "a")),
            (false, 1) => Turn::call(
                "stamp",
                json!({"word": "hard", "place": "a", "sensitive": true}),
            ),
            (false, _) => Turn::say(last_of(request)),
        },
    );
    let world = world(model, &tool, by_people).await;
    let runtime = world.runtime();
    let run = runtime.start("stamp").await.unwrap();
    let pending = with_timeout(wait_for_permissions(runtime, 3)).await;
    for permission in &pending {
        let chain: Vec<&str> = permission
            .chain
            .iter()
            .map(|link| link.agent_type.as_str())
            .collect();
        assert_eq!(
            (chain, &permission.chain[0].run_id),
            (vec!["default", "default"], run.run_id()),
            "{permission:?}"
        );
        assert_eq!(permission.chain[1].run_id, permission.run_id);
    }
    runtime
        .permissions()
        .decide(&pending[1].permission_id, Decision::AllowForSession, None)
        .await
        .unwrap();
    let hard = with_timeout(wait_for_permissions(runtime, 3)).await;
    assert!(
        hard.iter().all(|permission| permission.demand.is_sensitive),
        "{hard:?}"
    );
    let by = permission(runtime, &pending[0].permission_id).await.by;
    assert_eq!(by.as_deref(), Some("rule"));
    for permission in hard {
        // Each sensitive call needs a separate decision, even if one is allowed for the session.
        runtime
            .permissions()
            .decide(&permission.permission_id, Decision::AllowForSession, None)
            .await
            .unwrap();
    }
    with_timeout(run.wait()).await.unwrap();
    assert_eq!(tool.done().len(), 6);
    check_session(runtime, run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preapproved_calls_request_no_permission() {
    for (allow, of_run, folder, free) in [
        ("stamp", true, "a", true),
        ("stamp:/folder/a", true, "a", true),
        ("stamp:/folder/a", false, "a", true),
        ("stamp:/folder/b", true, "a", false),
        ("write", true, "a", false),
    ] {
        let tool = StampTool::new();
        let mut config = Config::default();
        if !of_run {
            config.permissions.allow.push(allow.to_owned());
        }
        let folder: &'static str = folder;
        let model =
            scripted_model(
                move |request| match (is_parent(request), assistant_count(request)) {
                    (true, 0) => Turn::call("agent", json!({"task": "x"})),
                    (false, 0) => Turn::call("stamp", stamp("one", folder)),
                    _ => Turn::say(last_of(request)),
                },
            );
        let world = world(model, &tool, |builder| builder.config(config)).await;
        let start = RunRequest::new("stamp").unattended();
        let run = world
            .runtime()
            .start(if of_run { start.allow(allow) } else { start })
            .await
            .unwrap();
        with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            tool.done().len(),
            usize::from(free),
            "a child may what its parent's run may: {allow} {of_run}"
        );
        world.finish().await;
    }
    let world = TestRuntime::open(stamping(&[])).await;
    let refused = world
        .runtime()
        .start(RunRequest::new("x").allow(":x"))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::ValidationError);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unconfined_calls_are_allowed_only_by_the_unconfined_rule() {
    for (allow, free) in [
        ("stamp", false),
        ("st*", false),
        ("stamp:/folder/a/f", false),
        ("stamp:unconfined", true),
    ] {
        let tool = StampTool::new();
        let model = scripted_model(|request| match assistant_count(request) {
            0 => Turn::call(
                "stamp",
                json!({"word": "one", "place": "a", "unconfined": true}),
            ),
            _ => Turn::say(last_of(request)),
        });
        let world = world(model, &tool, by_people).await;
        let start = RunRequest::new("stamp").unattended();
        let run = world.runtime().start(start.allow(allow)).await.unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(tool.done().len(), usize::from(free), "{allow}");
        assert_eq!(
            outcome.output.contains("(stamp:unconfined)"),
            !free,
            "{allow}: {}",
            outcome.output
        );
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_survives_crash_and_restart_and_is_made_once() {
    for answered_while_away in [false, true] {
        let tool = StampTool::new();
        let model = stamping(&[("one", "a")]);
        let mut world = world(model.clone(), &tool, by_people).await;
        let run = world
            .runtime()
            .start(RunRequest::new("stamp").session("s"))
            .await
            .unwrap();
        let run_id = run.run_id().clone();
        let id = with_timeout(wait_for_permissions(world.runtime(), 1))
            .await
            .remove(0)
            .permission_id;
        world
            .runtime()
            .tree()
            .inject_crash(&format!("run:{run_id}"))
            .unwrap();
        let tree = || serde_json::to_string(&world.runtime().tree().snapshot()).unwrap();
        wait_until("it comes back", || tree().contains("\"restarts\":1")).await;
        assert_eq!(
            with_timeout(wait_for_permissions(world.runtime(), 1)).await[0].permission_id,
            id,
            "it is not asked for again"
        );
        let build = |builder: RuntimeBuilder| by_people(builder.tool(tool.clone()));
        let handle = if answered_while_away {
            world
                .reopen_with(model.clone(), |builder| {
                    build(builder.recover(soong::RecoveryPolicy::Nothing))
                })
                .await;
            world
                .runtime()
                .permissions()
                .decide(&id, Decision::AllowOnce, None)
                .await
                .unwrap();
            assert_eq!(tool.done(), [""; 0], "nobody has the run at work");
            world
                .runtime()
                .sessions()
                .resume(run.session_id())
                .await
                .unwrap()
                .unwrap()
        } else {
            world.reopen_with(model.clone(), build).await;
            assert_eq!(
                with_timeout(wait_for_permissions(world.runtime(), 1)).await[0].permission_id,
                id
            );
            world
                .runtime()
                .permissions()
                .decide(&id, Decision::AllowOnce, None)
                .await
                .unwrap();
            world.runtime().traces().handle(&run_id).unwrap()
        };
        assert_eq!(
            with_timeout(handle.wait()).await.unwrap().output,
            "stamped one"
        );
        assert_eq!((tool.done(), model.calls()), (vec!["one".to_owned()], 2));
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// (DUR-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_allowed_call_reruns_without_a_new_request() {
    for restarts in [false, true] {
        let tool = StampTool::repeatable();
        let model = stamping(&[("one", "a")]);
        tool.hanging.store(1, SeqCst);
        let call_count = Arc::new(AtomicUsize::new(0));
        let by_program = || {
            let tool = tool.clone();
            let call_count = call_count.clone();
            move |builder: RuntimeBuilder| {
                let yes = |_: &Permission| Ok(Decision::AllowOnce.into());
                builder
                    .tool(tool)
                    .permission_handler(Arc::new(Deciding(yes, call_count)))
            }
        };
        let mut world = TestRuntime::with(model.clone(), by_program()).await;
        let run_id = world
            .runtime()
            .start(RunRequest::new("stamp").session("s"))
            .await
            .unwrap()
            .run_id()
            .clone();
        wait_until("it has begun", || tool.done().len() == 1).await;
        if restarts {
            world.reopen_with(model, by_program()).await
        } else {
            world
                .runtime()
                .tree()
                .inject_crash(&format!("run:{run_id}"))
                .unwrap()
        }
        let run = world.runtime().traces().handle(&run_id).unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().output,
            "stamped one"
        );
        assert_eq!(
            (tool.done(), call_count.load(SeqCst)),
            (vec!["one".to_owned(), "one".to_owned()], 1)
        );
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// (DUR-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_after_a_pending_request_run_after_a_restart() {
    let tool = StampTool::new();
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::Call(vec![
            ("stamp", stamp("one", "a")),
            ("stamp", stamp("two", "free")),
        ]),
        _ => Turn::say(last_of(request)),
    });
    let mut world = world(model.clone(), &tool, by_people).await;
    let (run, id) = start_pending_call(&world).await;
    world
        .reopen_with(model, |builder| by_people(builder.tool(tool.clone())))
        .await;
    world
        .runtime()
        .permissions()
        .decide(&id, Decision::AllowOnce, None)
        .await
        .unwrap();
    let handle = world.runtime().traces().handle(run.run_id()).unwrap();
    assert_eq!(
        with_timeout(handle.wait()).await.unwrap().output,
        "stamped two",
        "it is known not to have begun"
    );
    assert_eq!(tool.done(), ["one", "two"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deny_rule_of_a_later_process_forbids_an_approved_call() {
    let tool = StampTool::new();
    let model = stamping(&[("one", "a")]);
    let mut world = world(model.clone(), &tool, by_people).await;
    let (run, id) = start_pending_call(&world).await;
    let mut config = Config::default();
    config.permissions.deny = vec!["stamp:/folder/a".to_owned()];
    world
        .reopen_with(model, |builder| {
            by_people(builder.tool(tool.clone()).config(config))
        })
        .await;
    world
        .runtime()
        .permissions()
        .decide(&id, Decision::AllowOnce, None)
        .await
        .unwrap();
    let handle = world.runtime().traces().handle(run.run_id()).unwrap();
    let output = with_timeout(handle.wait()).await.unwrap().output.clone();
    assert!(output.contains("a deny rule forbids it"), "{output}");
    assert_eq!(tool.done(), [""; 0]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permission_is_bound_to_the_accessed_resource() {
    let tool = StampTool::new();
    let world = world(stamping(&[("one", "a")]), &tool, by_people).await;
    let run = world.runtime().start("stamp").await.unwrap();
    let permission = with_timeout(wait_for_permissions(world.runtime(), 1))
        .await
        .remove(0);
    *tool.folder.lock().unwrap() = "/elsewhere".to_owned();
    world
        .runtime()
        .permissions()
        .decide(&permission.permission_id, Decision::AllowForSession, None)
        .await
        .unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    assert!(output.contains("differ from the approved ones"), "{output}");
    assert_eq!(tool.done(), [""; 0]);
    world.finish().await;
}

/// Replaces `from` by `to`, which has the same length, in every file of the home. Returns the
/// number of replacements.
fn forge(home: &std::path::Path, from: &str, to: &str) -> usize {
    let mut forged = 0;
    for entry in std::fs::read_dir(home)
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_file())
    {
        let mut bytes = std::fs::read(entry.path()).unwrap();
        let found: Vec<usize> = bytes
            .windows(from.len())
            .enumerate()
            .filter(|(_, w)| *w == from.as_bytes())
            .map(|(at, _)| at)
            .collect();
        found
            .iter()
            .for_each(|at| bytes[*at..*at + to.len()].copy_from_slice(to.as_bytes()));
        forged += found.len();
        std::fs::write(entry.path(), bytes).unwrap();
    }
    forged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permission_is_bound_to_the_exact_arguments() {
    let tool = StampTool::new();
    let model = stamping(&[("harmless", "a")]);
    let mut world = world(model.clone(), &tool, by_people).await;
    let (run, id) = start_pending_call(&world).await;
    world.close_runtime().await;
    assert!(forge(&world.home(), "harmless", "poisoned") > 0);
    world
        .reopen_with(model, |builder| by_people(builder.tool(tool.clone())))
        .await;
    assert!(
        permission(world.runtime(), &id)
            .await
            .arguments
            .contains("poisoned"),
        "the forgery took"
    );
    world
        .runtime()
        .permissions()
        .decide(&id, Decision::AllowOnce, None)
        .await
        .unwrap();
    let handle = world.runtime().traces().handle(run.run_id()).unwrap();
    let output = with_timeout(handle.wait()).await.unwrap().output.clone();
    assert!(output.contains("differ from the approved ones"), "{output}");
    assert_eq!(tool.done(), [""; 0]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_approval_and_cancel_have_no_unapproved_effect() {
    let tool = StampTool::new();
    let world = world(stamping(&[("one", "a")]), &tool, by_people).await;
    let runtime = world.runtime();
    let mut allowed = 0;
    for round in 0..200 {
        let run = runtime
            .start(RunRequest::new("stamp").session(format!("s{round}")))
            .await
            .unwrap();
        let permission = with_timeout(wait_for_permissions(runtime, 1))
            .await
            .remove(0);
        let before = tool.done().len();
        let (decided, ()) = tokio::join!(
            runtime
                .permissions()
                .decide(&permission.permission_id, Decision::AllowOnce, None),
            async {
                run.cancel().await.unwrap();
            }
        );
        let effects = tool.done().len() - before;
        assert!(
            effects <= usize::from(decided.is_ok()),
            "round {round}: {effects} effects, {decided:?}"
        );
        allowed += usize::from(decided.is_ok());
        let status = with_timeout(run.wait()).await.unwrap().status;
        assert!(
            matches!(status, RunStatus::Cancelled | RunStatus::Completed),
            "{status:?}"
        );
        // A later decision is rejected as already decided, and has no effect.
        let late = runtime
            .permissions()
            .decide(&permission.permission_id, Decision::AllowOnce, None)
            .await
            .unwrap_err();
        assert_eq!(late.code, ErrorCode::AlreadyDecided);
        assert_eq!(tool.done().len() - before, effects);
    }
    assert!(
        allowed > 0,
        "the race was never won by the approval: {allowed}"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remember_never_limits_permission_to_one_call() {
    let tool = StampTool::new();
    let mut config = Config::default();
    config.permissions.remember = RememberPolicy::Never;
    config.permissions.network = NetworkPolicy::Ask;
    let world = world(stamping(&[("one", "a"), ("two", "a")]), &tool, |builder| {
        by_people(builder.config(config))
    })
    .await;
    let run = world.runtime().start("stamp").await.unwrap();
    for _ in 0..2 {
        let permission = with_timeout(wait_for_permissions(world.runtime(), 1))
            .await
            .remove(0);
        world
            .runtime()
            .permissions()
            .decide(&permission.permission_id, Decision::AllowForSession, None)
            .await
            .unwrap();
    }
    with_timeout(run.wait()).await.unwrap();
    assert_eq!(tool.done(), ["one", "two"]);
    let decided = read_to_end(run.events().unwrap()).await;
    let is_decided =
        |event: &Event| matches!(event, Event::Permission(PermissionEvent::Decided { .. }));
    assert_eq!(
        decided
            .iter()
            .filter(|record| is_decided(&record.event))
            .count(),
        2
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn very_large_timeout_denies_nothing() {
    for timeout_s in [1 << 61, u64::MAX] {
        let tool = StampTool::new();
        let mut config = Config::default();
        config.permissions.timeout_s = timeout_s;
        let build = |builder: RuntimeBuilder| by_people(builder).config(config);
        let world = world(stamping(&[("one", "a")]), &tool, build).await;
        let run = world.runtime().start("stamp").await.unwrap();
        let permission = with_timeout(wait_for_permissions(world.runtime(), 1))
            .await
            .remove(0);
        world
            .runtime()
            .permissions()
            .decide(&permission.permission_id, Decision::AllowOnce, None)
            .await
            .unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().output,
            "stamped one"
        );
        world.finish().await;
    }
}
