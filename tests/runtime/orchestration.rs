//! Sub-agents: parallel exploration, delegation and evaluation; limits; children started by a
//! program (SUB-1 … SUB-8).

use std::sync::Arc;

use serde_json::{Value, json};
use soong::{
    ChildSpec, ErrorCode, RunRequest,
    protocol::{ChildMode, GoalStatus, Role, RunMode, RunStatus},
};

use crate::support::{
    history::check_session,
    model::{ScriptedModel, Turn, assistant_count, is_parent, last_of, scripted_model, task_of},
    world::{TestRuntime, kinds, quick_config, read_until, wait_until, with_timeout},
};

/// Model whose orchestrator calls `agent` with these arguments, and whose children answer with
/// `child`.
fn orchestrator(
    arguments: Value,
    child: impl Fn(&soong::model::ModelRequest) -> Turn + Send + Sync + 'static,
) -> Arc<ScriptedModel> {
    scripted_model(
        move |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", arguments.clone()),
            (true, _) => Turn::say(last_of(request)),
            (false, _) => child(request),
        },
    )
}

fn start(message: &str) -> RunRequest {
    RunRequest::new(message).mode(RunMode::Orchestrator)
}

/// (SUB-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explore_runs_children_in_parallel_and_joins_in_task_order() {
    let together = Arc::new(tokio::sync::Barrier::new(3));
    let meet = Arc::clone(&together);
    let meeting = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&meeting);
    // Each child waits until all three are in flight. Children that run one after the other would
    // wait forever.
    let model = orchestrator(json!({"task": ["a", "b", "c"]}), move |request| {
        let meet = Arc::clone(&meet);
        let signal = Arc::clone(&signal);
        let gone = Arc::new(tokio::sync::Notify::new());
        let go = Arc::clone(&gone);
        tokio::spawn(async move {
            meet.wait().await;
            signal.notify_one();
            go.notify_one();
        });
        Turn::When(gone, format!("found {}", task_of(request)))
    });
    let world = TestRuntime::open(model.clone()).await;
    let run = world.runtime().start(start("look")).await.unwrap();
    with_timeout(meeting.notified()).await;
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed);
    let results: Value = serde_json::from_str(&outcome.output).unwrap();
    let summaries: Vec<&str> = results["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["summary"].as_str().unwrap())
        .collect();
    assert_eq!(summaries, ["found a", "found b", "found c"]);
    let children = run.children().await.unwrap();
    for (index, child) in children.iter().enumerate() {
        assert!(child.trace_id.as_str().starts_with(&format!(
            "{}@explore-{:03}-",
            run.trace_id(),
            index + 1
        )));
        assert_eq!(
            (child.depth, child.settings.agent_type.as_str()),
            (1, "explore")
        );
    }
    let tree = world
        .runtime()
        .traces()
        .goal_tree(run.trace_id())
        .await
        .unwrap();
    assert_eq!(tree.goals[0].sub_trace_ids.len(), 3);
    assert!(
        tree.goals[0]
            .summary
            .as_deref()
            .unwrap()
            .starts_with("3 of 3 sub-agents completed")
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (SUB-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_transcript_is_not_in_the_parent_prompt() {
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({"task": "look closely"})),
            (true, _) => {
                let all: String = request
                    .messages
                    .iter()
                    .map(|message| message.content.as_str())
                    .collect();
                assert!(
                    !all.contains("alpha"),
                    "what the child read is in its parent's prompt: {all}"
                );
                Turn::say("done")
            }
            (false, 0) => Turn::call("read", json!({"path": "a.txt"})),
            (false, _) => {
                assert!(last_of(request).contains("alpha"), "{}", last_of(request));
                Turn::say("it is short")
            }
        },
    );
    let world = TestRuntime::open(model).await;
    let run = world.runtime().start(start("look")).await.unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "done");
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (SUB-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_child_does_not_affect_its_siblings() {
    let model = orchestrator(
        json!({"task": ["good", "bad", "fine"]}),
        |request| match task_of(request) {
            "bad" => Turn::Fail(soong::model::ModelError::new(
                soong::model::Failure::Rejected,
                "no",
            )),
            task => Turn::say(format!("{task} is done")),
        },
    );
    let world = TestRuntime::open(model).await;
    let run = world.runtime().start(start("try")).await.unwrap();
    let results: Value =
        serde_json::from_str(&with_timeout(run.wait()).await.unwrap().output).unwrap();
    let statuses: Vec<&str> = results["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["completed", "failed", "completed"]);
    assert_eq!(results["results"][1]["error"]["code"], "provider_error");
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (SUB-7)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_children_run_at_most_sixteen_at_a_time() {
    let tasks: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let model = orchestrator(json!({"task": tasks}), |request| {
        match assistant_count(request) {
            0 => Turn::call("read", json!({"path": "a.txt"})),
            _ => Turn::say(task_of(request)),
        }
    });
    let world = TestRuntime::with(model.clone(), |builder| {
        let mut config = quick_config();
        config.model.max_concurrency = Some(1000);
        builder.config(config)
    })
    .await;
    let run = world.runtime().start(start("many")).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    let results: Value = serde_json::from_str(&outcome.output).unwrap();
    for (index, result) in results["results"].as_array().unwrap().iter().enumerate() {
        assert_eq!(
            (result["status"].as_str(), result["summary"].as_str()),
            (Some("completed"), Some(&*index.to_string()))
        );
    }
    assert!(
        model.max_in_flight() <= 16,
        "{} at once",
        model.max_in_flight()
    );
    // 200 children with two turns each, and the two turns of the parent, 15 tokens per turn. The
    // tree of the parent includes all of them.
    assert_eq!(outcome.stats.tree.total_tokens, 402 * 15);
    assert_eq!(outcome.stats.own.total_tokens, 2 * 15);
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (SUB-7)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_tool_calls_return_errors_and_the_run_continues() {
    for (name, arguments, part) in [
        ("agent", json!({"task": []}), "[validation_error]"),
        (
            "agent",
            json!({"task": "x", "agent_type": "poet"}),
            "there is no agent_type \"poet\"",
        ),
        (
            "agent",
            json!({"task": (0..300).map(|n| n.to_string()).collect::<Vec<_>>()}),
            "[child_limit_exceeded]",
        ),
        ("agent", json!({}), "[validation_error]"),
        ("agent", json!("not json {"), "[validation_error]"),
        (
            "evaluate",
            json!({"target_goal_id": "9"}),
            "[goal_not_found]",
        ),
        ("fly", json!({}), "[tool_not_available]"),
        ("goal", json!({"focus": "3"}), "[goal_not_found]"),
        ("goal", json!({}), "[validation_error]"),
    ] {
        let input = arguments.clone();
        let model = scripted_model(move |request| match assistant_count(request) {
            0 => Turn::call(name, input.clone()),
            _ => Turn::say(last_of(request)),
        });
        let world = TestRuntime::open(model).await;
        let run = world.runtime().start(start("try")).await.unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(outcome.status, RunStatus::Completed, "{name} {arguments}");
        assert!(
            outcome.output.contains(part),
            "{name} {arguments}: {}",
            outcome.output
        );
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// (SUB-1a)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_agent_tools_are_not_offered_at_the_depth_limit() {
    let model = scripted_model(|request| {
        let names: Vec<&str> = request
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({"task": "x", "agent_type": "default"})),
            (true, _) => Turn::say(last_of(request)),
            (false, _) => Turn::say(names.join(" ")),
        }
    });
    let world = TestRuntime::open(model).await;
    let run = world.runtime().start(start("x")).await.unwrap();
    let result: Value =
        serde_json::from_str(&with_timeout(run.wait()).await.unwrap().output).unwrap();
    let offered = result["summary"].as_str().unwrap();
    assert!(
        offered.contains("read") && offered.contains("goal"),
        "{offered}"
    );
    assert!(
        !offered.contains("agent") && !offered.contains("evaluate"),
        "{offered}"
    );
    world.finish().await;
}

/// (SUB-7)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_do_not_deadlock_with_three_levels() {
    // Two slots, and a tree in which two parents at a time wait for two children each.
    let model = scripted_model(|request| {
        let level = task_of(request).split('-').count();
        match (level, assistant_count(request)) {
            (1..=3, 0) => {
                let task = task_of(request);
                Turn::call(
                    "agent",
                    json!({"task": [format!("{task}-l"), format!("{task}-r")], "agent_type": "default"}),
                )
            }
            _ => Turn::say("ok"),
        }
    });
    let world = TestRuntime::with(model.clone(), |builder| {
        let mut config = quick_config();
        config.agents.max_depth = 3;
        config.agents.max_concurrent_children_per_session = 2;
        builder.config(config)
    })
    .await;
    let run = world.runtime().start(RunRequest::new("t")).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed);
    // 1 root, then 2, 4 and 8 descendants per level. The first seven runs have two turns.
    assert_eq!(outcome.stats.tree.total_tokens, (7 * 2 + 8) * 15);
    assert!(model.max_in_flight() <= 3, "two slots and the root");
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (SUB-6)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_tools_are_limited_to_the_parent_tools() {
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({"task": "x", "agent_type": "default"})),
            (true, _) => Turn::say(last_of(request)),
            (false, 0) => Turn::call("grep", json!({"pattern": "alpha"})),
            (false, _) => Turn::say(last_of(request)),
        },
    );
    let world = TestRuntime::open(model).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").tools(["agent", "read"]))
        .await
        .unwrap();
    let result: Value =
        serde_json::from_str(&with_timeout(run.wait()).await.unwrap().output).unwrap();
    assert!(
        result["summary"]
            .as_str()
            .unwrap()
            .contains("[tool_not_available]"),
        "{result}"
    );
    world.finish().await;
}

/// (SUB-2)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evaluation_passes_fails_or_is_reported_as_invalid() {
    for (answer, passed, error) in [
        (
            r#"{"passed": true, "summary": "good"}"#,
            json!(true),
            Value::Null,
        ),
        (
            r#"{"passed": false, "summary": "bad", "findings": ["x"]}"#,
            json!(false),
            Value::Null,
        ),
        (
            "looks fine to me",
            Value::Null,
            json!("child_result_schema_validation_failed"),
        ),
    ] {
        let model =
            scripted_model(
                move |request| match (is_parent(request), assistant_count(request)) {
                    (true, 0) => Turn::Call(vec![
                        ("goal", json!({"add": ["Write it"], "focus": "1"})),
                        ("evaluate", json!({})),
                    ]),
                    (true, _) => Turn::say(last_of(request)),
                    (false, _) => {
                        assert!(
                            task_of(request).contains("Write it"),
                            "{}",
                            task_of(request)
                        );
                        Turn::say(answer)
                    }
                },
            );
        let world = TestRuntime::open(model).await;
        let run = world.runtime().start(start("x")).await.unwrap();
        let result: Value =
            serde_json::from_str(&with_timeout(run.wait()).await.unwrap().output).unwrap();
        assert_eq!(
            (&result["passed"], &result["error"]["code"]),
            (&passed, &error),
            "{result}"
        );
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goals_follow_the_goal_tool() {
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::call(
            "goal",
            json!({"add": ["one", "two"], "reason": "plan", "focus": "1"}),
        ),
        1 => Turn::call("goal", json!({"done": "it is one", "focus": "2"})),
        2 => Turn::call("goal", json!({"abandon": "no need"})),
        _ => Turn::say("ok"),
    });
    let world = TestRuntime::open(model).await;
    let run = world.runtime().start(RunRequest::new("x")).await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    let tree = world
        .runtime()
        .traces()
        .goal_tree(run.trace_id())
        .await
        .unwrap();
    let goals: Vec<_> = tree
        .goals
        .iter()
        .map(|goal| (goal.number.as_str(), goal.status))
        .collect();
    assert_eq!(
        goals,
        [("1", GoalStatus::Completed), ("2", GoalStatus::Abandoned)]
    );
    assert_eq!(tree.current_id, None);
    world.finish().await;
}

/// (RT-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_starts_and_joins_children() {
    let model = scripted_model(|request| Turn::say(format!("did {}", task_of(request))));
    let world = TestRuntime::open(model).await;
    let parent = world
        .runtime()
        .start(RunRequest::driven("by program"))
        .await
        .unwrap();
    let mut events = parent.events().unwrap();
    assert!(parent.events().is_err(), "there is one consumer");
    let mut children = Vec::new();
    for n in 0..20 {
        children.push(
            parent
                .spawn(ChildSpec::new(n.to_string()).mode(ChildMode::Explore))
                .await
                .unwrap(),
        );
    }
    for (n, child) in children.iter().enumerate() {
        assert_eq!(
            with_timeout(child.wait()).await.unwrap().output,
            format!("did {n}")
        );
    }
    let listed = parent.children().await.unwrap();
    assert_eq!(listed.len(), 20);
    let one = parent.inspect_child(children[3].run_id()).await.unwrap();
    assert_eq!((one.status, one.task.as_str()), (RunStatus::Completed, "3"));
    let of_child = crate::support::world::read_to_end(
        parent.child_events(children[3].run_id()).await.unwrap(),
    )
    .await;
    crate::support::history::check_run(&of_child);
    parent.finish("all done").unwrap();
    let outcome = with_timeout(parent.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "all done")
    );
    assert_eq!(outcome.stats.tree.total_tokens, 20 * 15);
    let refused = parent.spawn(ChildSpec::new("late")).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::NothingRunning);
    assert_eq!(
        kinds(&read_until(&mut events, "run_completed").await).first(),
        Some(&"loop_started")
    );
    check_session(world.runtime(), parent.session_id()).await;
    world.finish().await;
}

/// (RT-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_waits_for_children_added_by_a_program() {
    let first = Arc::new(tokio::sync::Notify::new());
    let second = Arc::new(tokio::sync::Notify::new());
    let parent_may = Arc::clone(&first);
    let child_may = Arc::clone(&second);
    let model = scripted_model(move |request| match task_of(request) {
        "child" => Turn::When(Arc::clone(&child_may), "child's".into()),
        _ => Turn::When(Arc::clone(&parent_may), "parent's".into()),
    });
    let world = TestRuntime::open(model.clone()).await;
    let run = world.runtime().start("parent").await.unwrap();
    let child = run.spawn(ChildSpec::new("child")).await.unwrap();
    wait_until("both think", || model.in_flight() == 2).await;
    let mut events = run.events().unwrap();
    first.notify_one();
    let so_far = read_until(&mut events, "model_completed").await;
    assert!(!kinds(&so_far).contains(&"run_completed"));
    assert_eq!(run.status().await.unwrap(), RunStatus::Running);
    second.notify_one();
    assert_eq!(with_timeout(child.wait()).await.unwrap().output, "child's");
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "parent's");
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), soong::MessagePath::Main)
        .await
        .unwrap();
    assert!(
        messages.iter().all(|message| message.role != Role::Tool),
        "its result is not in the conversation"
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_ends_immediately_is_joined() {
    let world = TestRuntime::open(scripted_model(|request| Turn::say(task_of(request)))).await;
    let parent = world
        .runtime()
        .start(RunRequest::driven("by program"))
        .await
        .unwrap();
    for round in 0..10 {
        let children = (0..20).map(|n| {
            let parent = parent.clone();
            async move {
                parent
                    .spawn(ChildSpec::new(format!("{round}-{n}")))
                    .await
                    .unwrap()
                    .wait()
                    .await
                    .unwrap()
            }
        });
        for outcome in with_timeout(futures::future::join_all(children)).await {
            assert_eq!(outcome.status, RunStatus::Completed);
        }
    }
    parent.finish("done").unwrap();
    with_timeout(parent.wait()).await.unwrap();
    world.finish().await;
}

/// (SUB-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_can_use_a_different_model() {
    let model = scripted_model(|_| Turn::say("default"));
    let world = TestRuntime::with(model, |builder| {
        builder.model("small", scripted_model(|_| Turn::say("small")))
    })
    .await;
    let parent = world
        .runtime()
        .start(RunRequest::driven("by program"))
        .await
        .unwrap();
    let spec = ChildSpec::new("x").model("small");
    let child = parent.spawn(spec).await.unwrap();
    assert_eq!(with_timeout(child.wait()).await.unwrap().output, "small");
    let too_deep = child.spawn(ChildSpec::new("y")).await.unwrap_err();
    assert_eq!(too_deep.code, ErrorCode::NothingRunning);
    parent.finish("done").unwrap();
    with_timeout(parent.wait()).await.unwrap();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_is_released_if_parent_also_calls_other_tools() {
    for beside in [
        ("read", json!({"path": "a.txt"})),
        ("create_artifact", json!({"name": "n", "content": "c"})),
    ] {
        let model =
            scripted_model(
                move |request| match (task_of(request), assistant_count(request)) {
                    ("top", 0) => {
                        Turn::call("agent", json!({"task": "middle", "agent_type": "default"}))
                    }
                    ("middle", 0) => {
                        Turn::Call(vec![("agent", json!({"task": "leaf"})), beside.clone()])
                    }
                    (task, _) => Turn::say(format!("{task} is done")),
                },
            );
        let world = TestRuntime::with(model, |builder| {
            let mut config = quick_config();
            config.agents.max_depth = 2;
            config.agents.max_concurrent_children_per_session = 1;
            builder.config(config)
        })
        .await;
        let run = world.runtime().start(RunRequest::new("top")).await.unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().output,
            "top is done"
        );
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_in_another_mode_gets_the_instructions_of_that_mode() {
    let model =
        scripted_model(|request| Turn::say(request.system[0].lines().next().unwrap_or_default()));
    let world = TestRuntime::open(model).await;
    let first = world
        .runtime()
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    assert!(
        with_timeout(first.wait())
            .await
            .unwrap()
            .output
            .starts_with("You do a task carefully")
    );
    let second = world
        .runtime()
        .start(start("y").session("s"))
        .await
        .unwrap();
    assert!(
        with_timeout(second.wait())
            .await
            .unwrap()
            .output
            .starts_with("You orchestrate")
    );
    check_session(world.runtime(), first.session_id()).await;
    world.finish().await;
}
