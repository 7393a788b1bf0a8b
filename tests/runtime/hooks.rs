//! User hooks: the events that they are notified of, the calls that they can deny, and that a
//! failing hook stops nothing (HOOK-1).

use std::sync::Arc;

use serde_json::{Value, json};
use soong::{
    ChildSpec, ErrorCode, RunRequest, Runtime,
    protocol::{EndReason, Event, HookEvent, RunStatus, ToolEvent},
};

use crate::support::{
    history::check_session,
    model::{ScriptedModel, Turn, assistant_count, is_parent, last_of, scripted_model},
    stamp::StampTool,
    world::{TestRuntime, kinds, read_to_end, wait_until, with_timeout},
};

/// Opens a test runtime with these hooks in its home.
async fn world(model: Arc<ScriptedModel>, tool: &Arc<StampTool>, hooks: Value) -> TestRuntime {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("home")).unwrap();
    let file = json!({"version": 1, "hooks": hooks}).to_string();
    std::fs::write(dir.path().join("home/hooks.json"), file).unwrap();
    TestRuntime::open_in(dir, model, |builder| {
        builder.tool(tool.clone()).load_config()
    })
    .await
}

fn command(command: &str) -> Value {
    json!([{"hooks": [{"type": "command", "command": command}]}])
}

fn hook_inputs(world: &TestRuntime, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(world.project().join(name)).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns a command that appends its input to a file, one line per event. It uses a single write,
/// because hooks may run at the same time.
fn scribe(name: &str) -> Value {
    command(&format!("line=$(cat); printf '%s\\n' \"$line\" >> {name}"))
}

fn stamping() -> Arc<ScriptedModel> {
    scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("stamp", json!({"word": "one", "place": "free"})),
        _ => Turn::say(last_of(request)),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_denies_a_call_before_permission_is_requested() {
    let deny = r#"echo '{"decision": "deny", "reason": "not on a Sunday"}'"#;
    let tool = StampTool::new();
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("stamp", json!({"word": "one", "place": "a"})),
        _ => Turn::say(last_of(request)),
    });
    let world = world(model, &tool, json!({"PreToolUse": command(deny)})).await;
    let run = world.runtime().start("stamp").await.unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    assert!(
        output.contains("[permission_denied]") && output.contains("not on a Sunday"),
        "{output}"
    );
    assert_eq!(tool.done(), [""; 0]);
    let events = read_to_end(run.events().unwrap()).await;
    let kinds = kinds(&events);
    let at = |kind: &str| {
        kinds
            .iter()
            .position(|other| *other == kind)
            .unwrap_or_else(|| panic!("{kind}: {kinds:?}"))
    };
    assert!(at("hook_denied") < at("tool_denied"), "{kinds:?}");
    assert!(
        !kinds.contains(&"permission_requested"),
        "hooks come first (PERM-1)"
    );
    let by = events.iter().find_map(|record| match &record.event {
        Event::Tool(ToolEvent::Denied { by, .. }) => by.clone(),
        _ => None,
    });
    assert_eq!(by.as_deref(), Some("hook"));
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deny_rule_for_a_folder_applies_to_every_path_to_it() {
    const CANARY: &str = "canary-of-the-secret";
    let deny = r#"cat > heard; echo '{"decision": "deny", "reason": "it is secret"}'"#;
    let rule = json!([{"matcher": {"path_prefix": "secret"}, "hooks": [{"type": "command", "command": deny}]}]);
    let calls = |project: &str| {
        let read = |path: &str| ("read", json!({ "path": path }));
        vec![
            read("secret/key"),
            read("./secret/key"),
            read("open/../secret/key"),
            read("secret//key"),
            read("link/key"),
            read("link/../secret/key"),
            read("open/link/key"),
            read("file-link"),
            read("chain/key"),
            read(&format!("{project}/secret/key")),
            read(&format!("{project}/link/key")),
            read("/proc/self/cwd/secret/key"),
            read(&format!("/proc/self/root{project}/secret/key")),
            read("sec\\x72et/key"),
            read("secret\\/key"),
            ("grep", json!({ "pattern": "canary", "path": "link" })),
            ("list_files", json!({ "path": "link" })),
            ("glob", json!({ "pattern": "*", "path": "link" })),
            ("write", json!({ "path": "link/new", "content": "x" })),
            (
                "edit",
                json!({ "path": "link/key", "edits": [{ "old": "canary", "new": "x" }] }),
            ),
        ]
    };
    let model = scripted_model(move |request| {
        let project = request
            .system
            .iter()
            .flat_map(|text| text.lines())
            .find_map(|line| line.split_once("PROJECT="));
        let project = project.map_or(String::new(), |(_, path)| path.trim().to_owned());
        match assistant_count(request) {
            turn if turn < calls("").len() => Turn::Call(vec![calls(&project).remove(turn)]),
            _ => Turn::say("done"),
        }
    });
    let world = world(model, &StampTool::new(), json!({ "PreToolUse": rule })).await;
    let project = world.project().canonicalize().unwrap();
    std::fs::create_dir_all(project.join("secret")).unwrap();
    std::fs::create_dir_all(project.join("open")).unwrap();
    std::fs::write(project.join("secret/key"), CANARY).unwrap();
    for (link, to) in [
        ("link", "secret"),
        ("open/link", "../secret"),
        ("file-link", "secret/key"),
        ("chain", "link"),
    ] {
        std::os::unix::fs::symlink(to, project.join(link)).unwrap();
    }
    let start = RunRequest::new("read it").allow("write").allow("edit");
    let start = start.system_prompt(format!("PROJECT={}", project.display()));
    let run = world.runtime().start(start).await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), soong::MessagePath::All)
        .await
        .unwrap();
    let results: Vec<&str> = messages
        .iter()
        .filter(|m| m.tool_call_id.is_some())
        .map(|m| m.content.as_str())
        .collect();
    assert_eq!(results.len(), 20, "{results:#?}");
    for outcome in &results {
        assert!(
            !outcome.contains(CANARY) && !outcome.contains("key:"),
            "{outcome}"
        );
        assert!(outcome.starts_with("Error ["), "{outcome}");
    }
    assert!(
        results
            .iter()
            .filter(|outcome| outcome.contains("it is secret"))
            .count()
            > 14,
        "{results:#?}"
    );
    assert_eq!(
        std::fs::read_to_string(project.join("secret/key")).unwrap(),
        CANARY
    );
    assert!(!project.join("secret/new").exists());
    let input = hook_inputs(&world, "heard").pop().unwrap();
    assert_eq!(
        input["resolved_path"],
        project.join("secret/key").to_str().unwrap()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_apply_to_calls_that_the_run_handles_itself() {
    let deny = json!([{"matcher": {"tool": "agent"},
        "hooks": [{"type": "command", "command": r#"echo '{"decision": "deny", "reason": "alone"}'"#}]}]);
    let tool = StampTool::new();
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("goal", json!({"add": "look"})),
            (true, 1) => Turn::call("agent", json!({"task": "x"})),
            _ => Turn::say(last_of(request)),
        },
    );
    let world = world(model, &tool, json!({"PreToolUse": deny})).await;
    let run = world.runtime().start("work").await.unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    assert!(
        output.contains("`agent` was not run: a hook denied it: alone"),
        "{output}"
    );
    assert!(run.children().await.unwrap().is_empty());
    let goals = world
        .runtime()
        .traces()
        .goal_tree(run.trace_id())
        .await
        .unwrap();
    assert_eq!(
        goals.goals[0].description, "look",
        "what no hook refuses is done"
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_hook_is_reported_and_stops_nothing() {
    let tool = StampTool::new();
    let hooks =
        json!({"PreToolUse": command("echo broken >&2; exit 2"), "Stop": command("exit 3")});
    let world = world(stamping(), &tool, hooks).await;
    let run = world.runtime().start("stamp").await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().output,
        "stamped one"
    );
    assert_eq!(tool.done(), ["one"]);
    let events = read_to_end(run.events().unwrap()).await;
    let failed: Vec<(&str, &str)> = events
        .iter()
        .filter_map(|record| match &record.event {
            Event::Hook(HookEvent::Failed { event, error }) => {
                Some((event.as_str(), error.as_str()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        failed.iter().map(|(event, _)| *event).collect::<Vec<_>>(),
        ["PreToolUse", "Stop"]
    );
    assert!(failed[0].1.contains("broken"), "{failed:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_stop_returns_its_reason_to_the_model() {
    let tool = StampTool::new();
    let stop = r#"if [ -e asked ]; then exit 0; fi; touch asked
        echo '{"decision": "deny", "reason": "say please"}'"#;
    let model = scripted_model(|request| match last_of(request) {
        "You cannot end yet: say please" => Turn::say("please"),
        _ => Turn::say("done"),
    });
    let world = world(model, &tool, json!({"Stop": command(stop)})).await;
    let run = world.runtime().start("work").await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "please")
    );
    let events = read_to_end(run.events().unwrap()).await;
    assert!(kinds(&events).contains(&"hook_denied"));
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn always_denied_stop_is_bounded_and_can_be_cancelled() {
    let deny = r#"echo '{"decision": "deny", "reason": "never"}'"#;
    let world = world(
        scripted_model(|_| Turn::say("done")),
        &StampTool::new(),
        json!({"Stop": command(deny)}),
    )
    .await;
    let start = RunRequest::new("work").max_turns(3);
    let outcome = with_timeout(world.runtime().start(start).await.unwrap().wait())
        .await
        .unwrap();
    assert_eq!(outcome.end_reason, EndReason::MaxTurns);
    let run = world.runtime().start("work").await.unwrap();
    with_timeout(run.cancel()).await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_are_notified_of_starts_and_outcomes() {
    let tool = StampTool::new();
    let hooks = json!({
        "SessionStart": scribe("sessions"), "UserPromptSubmit": scribe("prompts"), "PostToolUse": scribe("outcomes"),
    });
    let world = world(stamping(), &tool, hooks).await;
    let runtime: &Runtime = world.runtime();
    let run = runtime
        .start(RunRequest::new("first").session("s"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    with_timeout(
        runtime
            .start(RunRequest::new("second").session("s"))
            .await
            .unwrap()
            .wait(),
    )
    .await
    .unwrap();
    wait_until("the hooks have been called", || {
        hook_inputs(&world, "prompts").len() == 2 && hook_inputs(&world, "outcomes").len() == 1
    })
    .await;
    assert_eq!(
        hook_inputs(&world, "sessions").len(),
        1,
        "a session begins once"
    );
    let mut prompts: Vec<String> = hook_inputs(&world, "prompts")
        .iter()
        .map(|input| input["prompt"].to_string())
        .collect();
    prompts.sort();
    assert_eq!(prompts, ["\"first\"", "\"second\""]);
    let outcome = hook_inputs(&world, "outcomes").remove(0);
    assert_eq!(
        (&outcome["tool"], &outcome["outcome"]["output"]),
        (&json!("stamp"), &json!("stamped one"))
    );
    assert_eq!(outcome["run_id"], json!(run.run_id()));
    world.finish().await;
}

#[tokio::test]
async fn unreadable_hooks_file_prevents_opening_the_home() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("hooks.json"), "{").unwrap();
    let builder = || {
        Runtime::builder()
            .home(home.path())
            .project_dir(home.path())
            .offline()
    };
    let refused = builder().load_config().build().await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::ConfigError);
    assert!(refused.message.contains("hooks.json"), "{refused}");
}

/// (SAFE-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn project_hooks_are_not_read() {
    let tool = StampTool::new();
    let world = world(stamping(), &tool, json!({})).await;
    for file in ["hooks.json", ".soong-agent/hooks.json", "config.toml"] {
        let path = world.project().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let deny = command(r#"touch ran; echo '{"decision": "deny"}'"#);
        std::fs::write(
            path,
            json!({"version": 1, "hooks": {"PreToolUse": deny}}).to_string(),
        )
        .unwrap();
    }
    let run = world.runtime().start("stamp").await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().output,
        "stamped one"
    );
    assert!(!world.project().join("ran").exists());
    world.finish().await;
}

/// A result of a child opens another turn while the hook decides: its decision about the first
/// answer does not apply to the second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_hook_decides_about_the_answer_that_ends_the_run() {
    let tool = StampTool::new();
    let stop = r#"line=$(cat); printf '%s\n' "$line" >> asked
        while [ ! -e go ]; do sleep 0.01; done
        if [ ! -e first ]; then touch first; echo '{"decision": "deny", "reason": "the first"}'; fi"#;
    let second_answer = Arc::new(tokio::sync::Notify::new());
    let wait = Arc::clone(&second_answer);
    let model = scripted_model(move |request| match last_of(request) {
        "work" => Turn::say("one"),
        "side work" => Turn::say("side result"),
        _ => Turn::When(Arc::clone(&wait), "two".to_owned()),
    });
    let world = world(Arc::clone(&model), &tool, json!({"Stop": command(stop)})).await;
    let run = world.runtime().start("work").await.unwrap();
    wait_until("the hook decides about the first answer", || {
        hook_inputs(&world, "asked").len() == 1
    })
    .await;
    let child = run
        .spawn(ChildSpec::new("side work").deliver())
        .await
        .unwrap();
    with_timeout(child.wait()).await.unwrap();
    wait_until("the second turn", || {
        model.calls() == 3 && model.in_flight() == 1
    })
    .await;
    std::fs::write(world.project().join("go"), "").unwrap();
    wait_until("the hook has denied the first answer", || {
        world.project().join("first").exists()
    })
    .await;
    second_answer.notify_one();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.output, "two");
    let inputs = hook_inputs(&world, "asked");
    assert_eq!(inputs.len(), 2, "{inputs:?}");
    assert_eq!(inputs[1]["outcome"]["output"], "two", "{inputs:?}");
    check_session(world.runtime(), run.session_id()).await;
    drop((child, run));
    world.finish().await;
}
