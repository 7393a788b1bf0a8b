//! Runs of traces: settings, continuing, rewinding, repeating and stopping them; sub-agents,
//! collaborators and tools.

use serde_json::{Value, json};
use soong::{
    ErrorCode, MessagePath, RunHandle, RunRequest,
    model::ModelRequest,
    protocol::{
        Collaborator, CollaboratorKind, CollaboratorStatus, GoalStatus, Message, Preset, Role,
        RunMode, RunStatus, TraceId, TraceStatus,
    },
    schemars::{self, JsonSchema},
    tool::{self, ToolContext, ToolOutput},
};

use crate::support::{
    history::check_session,
    model::{Turn, assistant_count, is_parent, last_of, scripted_model, task_of},
    world::{TestRuntime, quick_config, wait_until, with_timeout},
};

async fn ended(world: &TestRuntime, request: RunRequest) -> (RunHandle, String) {
    let run = world.runtime().start(request).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    let output = outcome.output.clone();
    (run, output)
}

async fn messages(world: &TestRuntime, trace: &TraceId, path: MessagePath) -> Vec<Message> {
    world
        .runtime()
        .traces()
        .messages(trace, path)
        .await
        .unwrap()
}

/// One request has all settings of a run. Those that are not given come from the preset and the
/// configuration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_has_every_setting_of_a_run() {
    let model = scripted_model(|request| {
        assert!(
            request.system[0].starts_with("You look at pictures.\n\n## Skill: planning\n"),
            "{:?}",
            request.system
        );
        assert_eq!(request.temperature, Some(0.3));
        assert_eq!(
            request
                .tools
                .iter()
                .map(|tool| tool.name.as_str())
                .collect::<Vec<_>>(),
            ["read", "glob"]
        );
        Turn::say("it is well composed")
    });
    let world = TestRuntime::open(model).await;
    let request = RunRequest::new("Look at the composition of this picture.")
        .model("default")
        .temperature(0.3)
        .max_turns(200)
        .tools(["read", "glob"])
        .preset("analyst")
        .uid("ann")
        .system_prompt("You look at pictures.")
        .skills(["planning"])
        .enable_memory(false)
        .auto_execute_tools(true)
        .session("picture")
        .session_name("A picture");
    let (run, output) = ended(&world, request).await;
    assert_eq!(output, "it is well composed");
    let trace = world.runtime().traces().get(run.trace_id()).await.unwrap();
    let named = (
        trace.trace_id.as_str(),
        trace.name.as_str(),
        trace.uid.as_str(),
        trace.agent_type.as_str(),
    );
    assert_eq!(named, ("picture", "A picture", "ann", "analyst"));
    world.finish().await;
}

/// One entry point: a new trace, further messages at its end, a rewind with a new message, and the
/// same question again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn same_request_continues_rewinds_and_repeats() {
    let world = TestRuntime::open(scripted_model(|request| {
        let user_messages = request
            .messages
            .iter()
            .filter(|message| message.role == Role::User);
        Turn::say(
            user_messages
                .map(|message| &*message.content)
                .collect::<Vec<_>>()
                .join(" / "),
        )
    }))
    .await;
    let path = async || -> Vec<u64> {
        let path = messages(&world, &TraceId::new("s"), MessagePath::Main).await;
        path.iter().map(|message| message.sequence).collect()
    };
    // 1 is the system message; a question and its answer follow.
    ended(&world, RunRequest::new("analyze").session("s")).await;
    ended(&world, RunRequest::new("go on").session("s")).await;
    assert_eq!(path().await, [1, 2, 3, 4, 5]);
    let (run, output) = ended(&world, RunRequest::new("another way").session("s").after(3)).await;
    assert_eq!(
        (output.as_str(), path().await),
        ("analyze / another way", vec![1, 2, 3, 6, 7])
    );
    let (_, output) = ended(&world, RunRequest::resume("s").after(6)).await;
    assert_eq!(
        (output.as_str(), path().await),
        ("analyze / another way", vec![1, 2, 3, 6, 8])
    );
    // Numbers only grow; messages off the path are kept, with their parents.
    let all = messages(&world, run.trace_id(), MessagePath::All).await;
    let parents: Vec<_> = all
        .iter()
        .map(|message| (message.sequence, message.parent_sequence))
        .collect();
    let expected = [
        (1, None),
        (2, Some(1)),
        (3, Some(2)),
        (4, Some(3)),
        (5, Some(4)),
        (6, Some(3)),
        (7, Some(6)),
    ];
    assert_eq!(parents[..7], expected);
    assert_eq!(parents[7], (8, Some(6)));
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// A trace that is stopped within a tool call is continued; the call gets a result that says what
/// happened to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_trace_continues_with_a_result_for_each_call() {
    let model = scripted_model(|request| match (task_of(request), last_of(request)) {
        ("part", _) => Turn::Hang("working"),
        (_, "continue") => {
            let results = request
                .messages
                .iter()
                .filter(|message| message.role == Role::Tool);
            Turn::say(
                results
                    .map(|message| &*message.content)
                    .collect::<Vec<_>>()
                    .join("\n"),
            )
        }
        _ => Turn::call("agent", json!({"task": "part"})),
    });
    let world = TestRuntime::open(model.clone()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("work").session("s"))
        .await
        .unwrap();
    wait_until("the sub-agent works", || {
        model.calls() == 2 && model.in_flight() == 1
    })
    .await;
    with_timeout(run.cancel()).await.unwrap();
    let stopped = world.runtime().traces().get(run.trace_id()).await.unwrap();
    assert_eq!(stopped.status, TraceStatus::Stopped);
    let child = run.children().await.unwrap().remove(0);
    let (_, output) = ended(&world, RunRequest::new("continue").session("s")).await;
    assert!(
        output.contains(child.trace_id.as_str()) && output.contains("cancelled"),
        "{output}"
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// A project has agents of its own, registered by the program, whose skills a call of `agent` can
/// replace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_tool_passes_preset_skills_messages_and_context() {
    let arguments = json!({
        "task": "take it apart",
        "agent_type": "deconstruct",
        "skills": ["planning"],
        "messages": [{"role": "user", "content": "It is an old clock."}],
        "context": {"source": "attic", "parts": 12},
    });
    let model =
        scripted_model(
            move |request| match (is_parent(request), assistant_count(request)) {
                (true, 0) => Turn::call("agent", arguments.clone()),
                (true, 1) => Turn::call(
                    "agent",
                    json!({"task": "and again", "continue_from": sub_trace(request)}),
                ),
                (true, _) => Turn::say(last_of(request)),
                (false, turn) => {
                    let texts: Vec<&str> = request
                        .messages
                        .iter()
                        .map(|message| &*message.content)
                        .collect();
                    assert!(
                        texts[1].starts_with("## Context\n") && texts[1].contains("attic"),
                        "{texts:?}"
                    );
                    assert_eq!(
                        [texts[0], texts[2]],
                        ["It is an old clock.", "take it apart"]
                    );
                    assert!(
                        request.system.concat().contains("planning") && request.tools.len() == 3
                    );
                    Turn::say(format!("part {turn}"))
                }
            },
        );
    let preset = Preset {
        name: "deconstruct".into(),
        description: "Takes things apart.".into(),
        allowed_tools: Some(vec!["read".into(), "glob".into(), "skill".into()]),
        max_turns: Some(15),
        instructions: "Name each part.".into(),
        ..Preset::default()
    };
    let world = TestRuntime::with(model, |builder| {
        builder.config(quick_config()).preset(preset)
    })
    .await;
    let (run, last) = ended(&world, RunRequest::new("the parent")).await;
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(
        (&last["summary"], &last["status"], &last["mode"]),
        (&json!("part 1"), &json!("completed"), &json!("delegate"))
    );
    let children = run.children().await.unwrap();
    assert_eq!(
        children[0].trace_id, children[1].trace_id,
        "continue_from continues a trace"
    );
    assert_eq!(
        children[0].settings.context,
        Some(json!({"source": "attic", "parts": 12}))
    );
    assert_eq!(children[0].settings.agent_type, "deconstruct");
    world.finish().await;
}

fn sub_trace(request: &ModelRequest) -> Value {
    serde_json::from_str::<Value>(last_of(request)).unwrap()["sub_trace_id"].clone()
}

#[derive(serde::Deserialize, JsonSchema)]
struct Nothing {}

/// Every ten turns, the prompt lists the people and agents that an agent works with, below its
/// goals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collaborators_are_in_the_prompt_every_ten_turns() {
    let list = "## Active Collaborators\n\
                - researcher [agent, completed]: way A is best\n\
                - Jingyu [human, waiting]: has the draft, answer is open\n\
                - coder [agent, running]: implements the extraction";
    let model = scripted_model(move |request| {
        let turn = assistant_count(request);
        let context = request.context_update.as_deref().unwrap_or_default();
        assert_eq!(context.contains(list), turn == 10, "turn {turn}: {context}");
        match turn {
            0 => Turn::call("message", json!({})),
            12 => Turn::say("done"),
            _ => Turn::call("list_files", json!({})),
        }
    });
    let message = tool::function(
        "message",
        "Sends messages.",
        |context: ToolContext, Nothing {}| async move {
            let agent = CollaboratorKind::Agent;
            let human = CollaboratorKind::Human;
            for (name, kind, status, summary) in [
                (
                    "researcher",
                    agent,
                    CollaboratorStatus::Completed,
                    "way A is best",
                ),
                (
                    "Jingyu",
                    human,
                    CollaboratorStatus::Waiting,
                    "has the draft, answer is open",
                ),
                (
                    "coder",
                    agent,
                    CollaboratorStatus::Running,
                    "implements the extraction",
                ),
            ] {
                let summary = summary.to_owned();
                context.set_collaborator(Collaborator {
                    name: name.into(),
                    kind,
                    trace_id: None,
                    status,
                    summary,
                })?;
            }
            Ok("sent")
        },
    );
    let world = TestRuntime::with(model, |builder| {
        builder.config(quick_config()).tool(message.reads().build())
    })
    .await;
    let (run, _) = ended(&world, RunRequest::new("work")).await;
    let trace =
        serde_json::to_value(world.runtime().traces().get(run.trace_id()).await.unwrap()).unwrap();
    let collaborators = trace["context"]["collaborators"].as_array().unwrap();
    let person = json!({"name": "Jingyu", "type": "human", "status": "waiting",
        "summary": "has the draft, answer is open"});
    assert!(
        collaborators.len() == 3 && collaborators.contains(&person),
        "{collaborators:?}"
    );
    world.finish().await;
}

/// Each operation of the tool `goal`, and the goals that evaluations and sub-agents leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goal_tool_adds_focuses_completes_and_abandons() {
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call(
                "goal",
                json!({"add": ["read", "write"], "reason": "plan", "focus": "1"}),
            ),
            (true, 1) => Turn::call("goal", json!({"add": "read the end", "under": "1"})),
            (true, 2) => Turn::call("goal", json!({"add": "think", "after": "1"})),
            (true, 3) => Turn::call("goal", json!({"focus": "1.1"})),
            (true, 4) => Turn::call("goal", json!({"done": "seen", "focus": "2"})),
            (true, 5) => Turn::call("goal", json!({"abandon": "no need", "focus": "3"})),
            (true, 6) => Turn::call("evaluate", json!({"target_goal_id": "1.1"})),
            (true, 7) => Turn::call("evaluate", json!({})),
            (true, _) => Turn::say(last_of(request)),
            (false, _) => Turn::say(json!({"passed": true, "summary": "good"}).to_string()),
        },
    );
    let world = TestRuntime::open(model).await;
    let (run, verdict) = ended(&world, RunRequest::new("x").mode(RunMode::Orchestrator)).await;
    let verdict: Value = serde_json::from_str(&verdict).unwrap();
    assert_eq!(
        (&verdict["passed"], &verdict["mode"]),
        (&json!(true), &json!("evaluate"))
    );
    let tree = world
        .runtime()
        .traces()
        .goal_tree(run.trace_id())
        .await
        .unwrap();
    let goals: Vec<_> = tree
        .goals
        .iter()
        .map(|goal| (goal.number.as_str(), goal.description.as_str(), goal.status))
        .collect();
    let expected = [
        ("1", "read", GoalStatus::Completed),
        ("1.1", "read the end", GoalStatus::Completed),
        ("2", "think", GoalStatus::Abandoned),
        ("3", "write", GoalStatus::InProgress),
    ];
    assert_eq!(goals, expected);
    // An evaluation belongs to its goal, else to the focused one. A finished goal keeps its
    // summary.
    for (goal, summary) in [(&tree.goals[1], "seen"), (&tree.goals[3], "good")] {
        let goal = serde_json::to_value(goal).unwrap();
        assert_eq!(
            (&goal["type"], &goal["agent_call_mode"]),
            (&json!("agent_call"), &json!("evaluate")),
            "{goal:#}"
        );
        assert_eq!(
            (
                goal["sub_trace_ids"].as_array().unwrap().len(),
                &goal["summary"]
            ),
            (1, &json!(summary))
        );
    }
    world.finish().await;
}

/// A tool of a program: a typed argument, a title, an output that is shown once, and the line that
/// replaces it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_of_a_program_has_a_schema_and_two_memories() {
    #[derive(serde::Deserialize, JsonSchema)]
    struct Page {
        /// Address of the page.
        url: String,
    }
    let fetch = tool::function(
        "fetch",
        "Fetches a page.",
        |_: ToolContext, Page { url }| async move {
            let output = ToolOutput::text("Fetched", format!("the whole page of {url}"));
            Ok(ToolOutput {
                long_term_memory: Some(format!("Read {url}")),
                include_output_only_once: true,
                ..output
            })
        },
    );
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("fetch", json!({"link": "example.org"})),
        1 => Turn::call("fetch", json!({"url": "example.org"})),
        _ => Turn::say(last_of(request)),
    });
    let world = TestRuntime::with(model, |builder| {
        builder.config(quick_config()).tool(fetch.reads().build())
    })
    .await;
    let tools = world.runtime().info().tools();
    let spec = tools.iter().find(|tool| tool.name == "fetch").unwrap();
    assert_eq!(
        spec.parameters["properties"]["url"]["description"],
        "Address of the page."
    );
    let (run, output) = ended(&world, RunRequest::new("x")).await;
    assert_eq!(output, "the whole page of example.org");
    let all = messages(&world, run.trace_id(), MessagePath::Main).await;
    let results: Vec<&Message> = all
        .iter()
        .filter(|message| message.role == Role::Tool)
        .collect();
    assert!(
        results[0]
            .content
            .contains(ErrorCode::ValidationError.as_str()),
        "{}",
        results[0].content
    );
    assert_eq!(
        results[1].long_term_memory.as_deref(),
        Some("Read example.org")
    );
    assert!(results[1].include_output_only_once);
    world.finish().await;
}
