//! Tools that act on the tree of their run: they start children, keep collaborators, use artifacts,
//! and ask people.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde::Deserialize;
use serde_json::json;
use soong::{
    ChildSpec, ErrorCode, RunRequest, RuntimeBuilder,
    model::{Completion, ModelRequest},
    protocol::{
        Budget, Collaborator, CollaboratorKind, CollaboratorStatus, Event, RunStatus, SessionId,
        SubAgentEvent, ToolCall, TraceId,
    },
    schemars::{self, JsonSchema},
    tool::{self, Tool, ToolContext, ToolError},
};
use tokio::sync::{Notify, Semaphore};

use crate::support::{
    history::{check_session, stored},
    model::{ScriptedModel, Turn, assistant_count, last_of, scripted_model, task_of},
    world::{TestRuntime, quick_config, wait_for_questions, wait_until, with_timeout},
};

#[derive(Deserialize, JsonSchema)]
struct Tasks {
    /// Tasks of the children.
    tasks: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Tool that lets a child work on each task, and returns their answers.
fn share_out(name: &str) -> Arc<dyn Tool> {
    tool::function(
        name,
        "Shares out tasks.",
        |context: ToolContext, Tasks { tasks }| async move {
            let mut answers = Vec::new();
            for child in context.spawn_all(tasks).await? {
                answers.push(child.result().await?.summary);
            }
            Ok(answers.join(" and "))
        },
    )
    .reads()
    .build()
}

/// Returns whether the request is of the parent: the tasks of its children are single letters.
fn is_parent(request: &ModelRequest) -> bool {
    task_of(request).len() > 1
}

/// Model whose first run calls a tool, and whose children answer with their task.
fn calling(tool: &'static str, arguments: serde_json::Value) -> Arc<ScriptedModel> {
    scripted_model(
        move |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call(tool, arguments.clone()),
            (true, _) => Turn::say(last_of(request)),
            (false, _) => Turn::say(format!("did {}", task_of(request))),
        },
    )
}

fn with_tool(tool: Arc<dyn Tool>) -> impl FnOnce(RuntimeBuilder) -> RuntimeBuilder {
    move |builder| builder.config(quick_config()).tool(tool)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_starts_children_and_uses_their_results() {
    let model = calling("share_out", json!({"tasks": ["a", "b"]}));
    let world = TestRuntime::with(model, with_tool(share_out("share_out"))).await;
    let run = world
        .runtime()
        .start(RunRequest::new("the parent").session("s"))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "did a and did b")
    );
    let events = stored(world.runtime(), run.trace_id()).await;
    let started: Vec<(&str, Option<&str>)> = events
        .iter()
        .filter_map(|record| match &record.event {
            Event::SubAgent(SubAgentEvent::Started {
                task, tool_call_id, ..
            }) => Some((task.as_str(), tool_call_id.as_deref())),
            _ => None,
        })
        .collect();
    assert_eq!(started, [("a", Some("call_0_0")), ("b", Some("call_0_0"))]);
    assert_eq!(run.children().await.unwrap().len(), 2);
    assert_eq!(outcome.stats.tree.model_calls, 4);
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_tools_have_the_limits_of_sub_agents() {
    let model = calling("share_out", json!({"tasks": ["a", "b", "c"]}));
    for (change, code) in [
        (
            (|config| config.agents.max_children_per_run = 2) as fn(&mut soong::Config),
            ErrorCode::ChildLimitExceeded,
        ),
        (
            |config| config.agents.max_depth = 0,
            ErrorCode::ChildLimitExceeded,
        ),
    ] {
        let mut config = quick_config();
        change(&mut config);
        let build = |builder: RuntimeBuilder| builder.config(config).tool(share_out("share_out"));
        let world = TestRuntime::with(model.clone(), build).await;
        let run = world.runtime().start("the parent").await.unwrap();
        let output = with_timeout(run.wait()).await.unwrap().output.clone();
        assert!(output.contains(code.as_str()), "{output}");
        assert!(run.children().await.unwrap().is_empty(), "all or none");
        world.finish().await;
    }
    let world = TestRuntime::with(model, with_tool(share_out("share_out"))).await;
    let budget = Budget {
        children: Some(2),
        ..Budget::default()
    };
    let run = world
        .runtime()
        .start(RunRequest::new("the parent").budget(budget))
        .await
        .unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    assert!(
        output.contains(ErrorCode::BudgetExceeded.as_str()),
        "{output}"
    );
    world.finish().await;
}

/// Each level waits for the next one in a tool, and only one child of a session may be active.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_that_waits_for_children_frees_its_slot() {
    let model = scripted_model(
        |request| match (task_of(request), assistant_count(request)) {
            ("leaf", _) => Turn::say("leaf done"),
            ("middle", 0) => Turn::call("share_out", json!({"tasks": ["leaf", "leaf"]})),
            (_, 0) => Turn::call("share_out", json!({"tasks": ["middle", "middle"]})),
            _ => Turn::say(last_of(request)),
        },
    );
    let mut config = quick_config();
    config.agents.max_concurrent_children_per_session = 1;
    config.agents.max_depth = 2;
    let build = |builder: RuntimeBuilder| builder.config(config).tool(share_out("share_out"));
    let world = TestRuntime::with(model, build).await;
    let run = world.runtime().start("the parent").await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.output, ["leaf done"; 4].join(" and "));
    world.finish().await;
}

/// The tool is interrupted while its second child works, and its call is repeated by the next
/// process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_tool_gets_the_children_of_its_interrupted_attempt() {
    let tool = || share_out("share_out");
    let arguments = json!({"tasks": ["a", "b"]});
    let first = scripted_model({
        let arguments = arguments.clone();
        move |request| match (is_parent(request), task_of(request)) {
            (true, _) => Turn::call("share_out", arguments.clone()),
            (false, "a") => Turn::say("did a"),
            (false, _) => Turn::Hang("half"),
        }
    });
    let mut world = TestRuntime::with(first.clone(), with_tool(tool())).await;
    let run = world
        .runtime()
        .start(RunRequest::new("the parent").session("s"))
        .await
        .unwrap();
    wait_until("the children work", || first.calls() == 3).await;
    loop {
        let results = run.results().await.unwrap();
        if results.len() == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    let run_id = run.run_id().clone();
    drop(run);
    let second = calling("share_out", arguments);
    world.reopen_with(second.clone(), with_tool(tool())).await;
    let outcome = with_timeout(world.runtime().wait(&run_id)).await.unwrap();
    assert_eq!(outcome.output, "did a and did b");
    assert_eq!(
        second.calls(),
        2,
        "only child b and the parent call the model again"
    );
    check_session(world.runtime(), &SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_keeps_a_person_as_collaborator() {
    let chat = tool::function(
        "send_chat",
        "Sends a message.",
        |context: ToolContext, Nothing {}| async move {
            let person = |status, summary: &str| Collaborator {
                name: "Ada".into(),
                kind: CollaboratorKind::Human,
                trace_id: None,
                status,
                summary: summary.into(),
            };
            let known = context.collaborators().await?;
            let (status, summary) = match known.iter().find(|known| known.name == "Ada") {
                None => (
                    CollaboratorStatus::Waiting,
                    "the plan was sent, waiting\nfor an answer",
                ),
                Some(_) => (CollaboratorStatus::Completed, "agrees"),
            };
            context.set_collaborator(person(status, summary))?;
            Ok("sent")
        },
    );
    // The reminder is due in every turn.
    let seen: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let model = scripted_model({
        let seen = Arc::clone(&seen);
        move |request| {
            let context = request.system_and_context();
            seen.lock().unwrap().extend(
                context
                    .lines()
                    .filter(|line| line.contains("- Ada"))
                    .map(str::to_owned),
            );
            match assistant_count(request) {
                0 | 1 => Turn::call("send_chat", json!({})),
                _ => Turn::say("done"),
            }
        }
    });
    let mut config = quick_config();
    config.context.inject_every_turns = 1;
    let build = |builder: RuntimeBuilder| builder.config(config).tool(chat.reads().build());
    let world = TestRuntime::with(model, build).await;
    let run = world.runtime().start("ask Ada").await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    let lines = seen.lock().unwrap().clone();
    assert!(
        lines.contains(
            &"- Ada [human, waiting]: the plan was sent, waiting for an answer".to_owned()
        ),
        "{lines:?}"
    );
    assert_eq!(lines.last().unwrap(), "- Ada [human, completed]: agrees");
    let trace = world.runtime().traces().get(run.trace_id()).await.unwrap();
    assert_eq!(trace.context.collaborators.len(), 1);
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_saves_and_loads_artifacts_by_name() {
    let tool = tool::function(
        "report",
        "Reports.",
        |context: ToolContext, Nothing {}| async move {
            let artifacts = context.named_artifacts()?;
            let first = artifacts.save("report.md", "text/markdown", "one").await?;
            let second = artifacts.save("report.md", "text/markdown", "two").await?;
            artifacts
                .save("user:logo.png", "image/png", vec![0xff_u8, 0xfe])
                .await?;
            let text = |bytes: Option<bytes::Bytes>| {
                String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
            };
            let old = artifacts.load("report.md", Some(first)).await?;
            let new = artifacts.load("report.md", None).await?;
            assert!(artifacts.load("missing", None).await?.is_none());
            let names = artifacts.names().await?.join(" ");
            Ok(format!(
                "{first}{second} {} {} {names}",
                text(old),
                text(new)
            ))
        },
    );
    let world = TestRuntime::with(
        calling("report", json!({})),
        with_tool(tool.reads().build()),
    )
    .await;
    let run = world.runtime().start("report").await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().output,
        "12 one two report.md user:logo.png"
    );
    world.finish().await;
}

/// Tool that asks two questions, and counts how often it is called. `first_answers` gets a permit
/// for each first answer.
fn asking(calls: &Arc<AtomicUsize>, first_answers: &Arc<Semaphore>) -> Arc<dyn Tool> {
    let calls = Arc::clone(calls);
    let first_answers = Arc::clone(first_answers);
    let ask = move |context: ToolContext, Nothing {}| {
        calls.fetch_add(1, SeqCst);
        let first_answers = Arc::clone(&first_answers);
        async move {
            let color = context.ask("which color?", Some("Ada")).await?;
            first_answers.add_permits(1);
            let size = context.ask("which size?", None).await?;
            Ok(format!("{color} {size}"))
        }
    };
    tool::function("order", "Orders.", ask).reads().build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_asks_people_and_gets_earlier_answers_when_repeated() {
    // The last answer may arrive before or after the repeated call asks the first question.
    for answers_late in [true, false] {
        let calls = Arc::new(AtomicUsize::new(0));
        let first_answers = Arc::new(Semaphore::new(0));
        let with_asking = || with_tool(asking(&calls, &first_answers));
        let mut world = TestRuntime::with(calling("order", json!({})), with_asking()).await;
        let run = world
            .runtime()
            .start(RunRequest::new("order it").session("s"))
            .await
            .unwrap();
        let run_id = run.run_id().clone();
        let first = with_timeout(wait_for_questions(world.runtime(), 1))
            .await
            .remove(0);
        assert_eq!(
            (first.question.as_str(), first.to.as_deref()),
            ("which color?", Some("Ada"))
        );
        world
            .runtime()
            .questions()
            .answer(&first.question_id, "red")
            .await
            .unwrap();
        with_timeout(first_answers.acquire())
            .await
            .unwrap()
            .forget();
        let second = with_timeout(wait_for_questions(world.runtime(), 1))
            .await
            .remove(0);
        assert_eq!(second.question, "which size?");
        drop(run);
        world
            .reopen_with(calling("order", json!({})), with_asking())
            .await;
        if answers_late {
            with_timeout(first_answers.acquire())
                .await
                .unwrap()
                .forget();
        }
        let pending_question = with_timeout(wait_for_questions(world.runtime(), 1))
            .await
            .remove(0);
        assert_eq!(
            pending_question.question_id, second.question_id,
            "no question is asked again"
        );
        world
            .runtime()
            .questions()
            .answer(&pending_question.question_id, "large")
            .await
            .unwrap();
        assert_eq!(
            with_timeout(world.runtime().wait(&run_id))
                .await
                .unwrap()
                .output,
            "red large"
        );
        assert_eq!(calls.load(SeqCst), 2);
        let people = world
            .runtime()
            .traces()
            .get(&TraceId::new("s"))
            .await
            .unwrap()
            .context
            .collaborators;
        assert!(
            people
                .iter()
                .all(|person| person.status == CollaboratorStatus::Completed),
            "{people:?}"
        );
        check_session(world.runtime(), &SessionId::new("s")).await;
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_tool_leaves_no_question_and_no_child() {
    let calls = Arc::new(AtomicUsize::new(0));
    let world = TestRuntime::with(
        calling("order", json!({})),
        with_tool(asking(&calls, &Arc::new(Semaphore::new(0)))),
    )
    .await;
    let run = world.runtime().start("order it").await.unwrap();
    with_timeout(wait_for_questions(world.runtime(), 1)).await;
    with_timeout(run.cancel()).await.unwrap();
    assert_eq!(run.status().await.unwrap(), RunStatus::Cancelled);
    let people = world
        .runtime()
        .traces()
        .get(run.trace_id())
        .await
        .unwrap()
        .context
        .collaborators;
    assert_eq!(people[0].status, CollaboratorStatus::Failed);
    world.finish().await;

    let begun = Arc::new(Notify::new());
    let model = scripted_model({
        let begun = Arc::clone(&begun);
        move |request| {
            if is_parent(request) {
                Turn::call("share_out", json!({"tasks": ["a"]}))
            } else {
                begun.notify_one();
                Turn::Hang("half")
            }
        }
    });
    let world = TestRuntime::with(model, with_tool(share_out("share_out"))).await;
    let run = world.runtime().start("the parent").await.unwrap();
    with_timeout(begun.notified()).await;
    with_timeout(run.cancel()).await.unwrap();
    assert_eq!(
        run.children().await.unwrap()[0].status,
        RunStatus::Cancelled
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misused_requests_of_tools_are_named() {
    let tool = tool::function(
        "misuse",
        "Misuses.",
        |context: ToolContext, Nothing {}| async move {
            let empty = context.ask(" ", None).await.err();
            let no_task = context.spawn(ChildSpec::new(" ")).await.err();
            let preset = context
                .spawn(ChildSpec::new("x").preset("nobody"))
                .await
                .err();
            let errors: Vec<String> = [empty, no_task, preset]
                .into_iter()
                .flatten()
                .map(|error| error.message)
                .collect();
            Ok::<_, ToolError>(errors.join(" | "))
        },
    );
    let world = TestRuntime::with(
        calling("misuse", json!({})),
        with_tool(tool.reads().build()),
    )
    .await;
    let run = world.runtime().start("misuse").await.unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    for part in [
        "the question is empty",
        "no task may be empty",
        "there is no agent_type \"nobody\"",
    ] {
        assert!(output.contains(part), "{output}");
    }
    world.finish().await;
}

/// A child outlives the call that started it, and a later turn has a call with the same id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_of_an_earlier_turn_is_not_that_of_an_equal_call_id() {
    let fire = tool::function(
        "fire",
        "Starts a child.",
        |context: ToolContext, Nothing {}| async move {
            context.spawn("z").await?;
            Ok("started")
        },
    );
    let left = Arc::new(Notify::new());
    let right = Arc::new(Notify::new());
    let model = scripted_model({
        let left = Arc::clone(&left);
        let right = Arc::clone(&right);
        move |request| {
            let call = |name: &str, arguments: serde_json::Value| {
                let call = ToolCall {
                    id: "c".into(),
                    name: name.into(),
                    arguments: arguments.to_string(),
                };
                Turn::Whole(Vec::new(), Box::new(Completion::tool_calls(vec![call])))
            };
            match (task_of(request), assistant_count(request)) {
                ("z", _) => Turn::When(Arc::clone(&left), "z done".into()),
                ("y", _) => Turn::When(Arc::clone(&right), "y done".into()),
                (_, 0) => call("fire", json!({})),
                (_, 1) => call("agent", json!({"task": "y"})),
                _ => Turn::say("both done"),
            }
        }
    });
    let world = TestRuntime::with(model.clone(), with_tool(fire.reads().build())).await;
    let run = world.runtime().start("the parent").await.unwrap();
    wait_until("both children work", || model.calls() == 4).await;
    left.notify_waiters();
    loop {
        if run.results().await.unwrap().len() == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    right.notify_waiters();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "both done");
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// A tool that fails does not leave its children behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_a_failed_tool_are_cancelled() {
    let slow = tool::function(
        "slow",
        "Waits too long.",
        |context: ToolContext, Nothing {}| async move {
            Ok(context.spawn("z").await?.result().await?.summary)
        },
    );
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("slow", json!({})),
            (true, _) => Turn::say("gave up"),
            (false, _) => Turn::Hang("half"),
        },
    );
    let world = TestRuntime::with(model, with_tool(slow.reads().timeout_ms(100).build())).await;
    let run = world.runtime().start("the parent").await.unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "gave up");
    assert_eq!(
        run.children().await.unwrap()[0].status,
        RunStatus::Cancelled
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}
