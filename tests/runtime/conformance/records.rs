//! The records of traces, goals, messages and presets have the fields that clients read.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use soong::{
    MessagePath, RunRequest,
    protocol::{PresetConfig, RunStatus},
};

use crate::support::{
    model::{Turn, assistant_count, is_parent, scripted_model},
    world::{TestRuntime, quick_config, with_timeout},
};

/// Fails unless the record has all these fields.
#[track_caller]
fn has_fields(record: &Value, fields: &str) {
    let missing: BTreeSet<&str> = fields
        .split_whitespace()
        .filter(|field| !record.as_object().unwrap().contains_key(*field))
        .collect();
    assert!(missing.is_empty(), "{missing:?} are missing: {record:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_trace_have_their_fields() {
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("goal", json!({"add": "look", "focus": "1"})),
            (true, 1) => Turn::call("agent", json!({"task": ["left", "right"]})),
            (true, 2) => Turn::call(
                "goal",
                json!({"done": "both looked", "focus": null, "add": "later"}),
            ),
            _ => Turn::say("done"),
        },
    );
    let world = TestRuntime::with(model, |builder| builder.config(quick_config())).await;
    let request = RunRequest::new("Look.").temperature(0.3);
    let run = world.runtime().start(request).await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    let traces = world.runtime().traces();
    let trace = serde_json::to_value(traces.get(run.trace_id()).await.unwrap()).unwrap();
    has_fields(
        &trace,
        "trace_id mode prompt_name task agent_type status total_messages total_tokens total_prompt_tokens
         total_completion_tokens total_cost total_duration_ms last_sequence head_sequence last_event_id uid model
         llm_params context result_summary created_at completed_at",
    );
    let shown = (
        &trace["mode"],
        &trace["status"],
        &trace["llm_params"],
        &trace["agent_type"],
    );
    assert_eq!(
        shown,
        (
            &json!("agent"),
            &json!("completed"),
            &json!({"temperature": 0.3}),
            &json!("default")
        )
    );
    assert_eq!(trace["head_sequence"], trace["last_sequence"]);

    let child = traces.sub_traces(run.trace_id()).await.unwrap().remove(0);
    let child = serde_json::to_value(child).unwrap();
    has_fields(&child, "parent_trace_id parent_goal_id");
    let id = child["trace_id"].as_str().unwrap();
    let parent = run.trace_id().as_str();
    // parent@explore-number-time-001
    let parts: Vec<&str> = id
        .strip_prefix(&format!("{parent}@explore-"))
        .unwrap()
        .split('-')
        .collect();
    assert!(
        parts.len() == 3 && parts[0].len() == 3 && parts[2] == "001",
        "{id}"
    );

    let goals = serde_json::to_value(traces.goal_tree(run.trace_id()).await.unwrap()).unwrap();
    assert_eq!(goals["mission"], "Look.");
    let goal = &goals["goals"][0];
    has_fields(
        goal,
        "id description reason type status summary sub_trace_ids agent_call_mode sub_trace_metadata self_stats
         cumulative_stats created_at",
    );
    let shown = (
        &goal["type"],
        &goal["agent_call_mode"],
        goal["sub_trace_ids"].as_array().unwrap().len(),
    );
    assert_eq!(shown, (&json!("agent_call"), &json!("explore"), 2));

    let messages = traces
        .messages(run.trace_id(), MessagePath::Main)
        .await
        .unwrap();
    let messages = serde_json::to_value(messages).unwrap();
    for message in messages.as_array().unwrap() {
        has_fields(
            message,
            "message_id trace_id role sequence description content created_at",
        );
        let id = format!("{parent}-{:04}", message["sequence"].as_u64().unwrap());
        assert_eq!(message["message_id"], id.as_str());
    }
    let answer = messages.as_array().unwrap().last().unwrap();
    has_fields(
        answer,
        "parent_sequence goal_id prompt_tokens completion_tokens duration_ms finish_reason",
    );
    assert_eq!(
        (&answer["role"], &answer["finish_reason"]),
        (&json!("assistant"), &json!("stop"))
    );
    assert!(
        messages
            .as_array()
            .unwrap()
            .iter()
            .any(|message| message["tool_call_id"].is_string())
    );
    world.finish().await;
}

/// Agents of a project that a program reads from its own file, in the form of the built-in ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn presets_are_read_from_json() {
    let presets = r#"{
        "cataloger": {
            "allowed_tools": null,
            "denied_tools": null,
            "max_iterations": 30,
            "temperature": null,
            "skills": ["planning", "research", "browser"],
            "description": "Keeps the catalog, with all tools"
        },
        "scout": {
            "allowed_tools": ["read", "glob", "grep", "list_files"],
            "denied_tools": ["write", "edit", "bash", "agent"],
            "max_iterations": 15,
            "skills": ["planning"],
            "description": "Looks around and changes nothing"
        },
        "critic": {
            "allowed_tools": ["read", "glob", "grep", "web_search", "webfetch"],
            "temperature": 0.3,
            "max_iterations": 25,
            "skills": ["planning", "research"],
            "description": null
        }
    }"#;
    let presets: std::collections::BTreeMap<String, PresetConfig> =
        serde_json::from_str(presets).unwrap();
    let model = scripted_model(|request| {
        let tools: Vec<&str> = request
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        Turn::say(format!("{:?} {}", request.temperature, tools.join(" ")))
    });
    let build = |builder: soong::RuntimeBuilder| {
        presets
            .iter()
            .fold(builder.config(quick_config()), |builder, (name, preset)| {
                builder.preset(preset.preset(name))
            })
    };
    let world = TestRuntime::with(model, build).await;
    // Without a search service, there is no tool `web_search`.
    for (name, expected) in [
        ("scout", "None read list_files glob grep"),
        ("critic", "Some(0.3) read glob grep webfetch"),
    ] {
        let run = world
            .runtime()
            .start(RunRequest::new("go").preset(name))
            .await
            .unwrap();
        let output = with_timeout(run.wait()).await.unwrap().output.clone();
        let sorted = |text: &str| text.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(sorted(&output), sorted(expected));
    }
    let built_in: Vec<_> = world
        .runtime()
        .info()
        .presets()
        .iter()
        .map(|known| known.preset.clone())
        .collect();
    for (name, turns, skills) in [
        ("explore", 15, Some(Vec::new())),
        (
            "analyst",
            25,
            Some(vec!["planning".to_owned(), "research".to_owned()]),
        ),
    ] {
        let preset = built_in.iter().find(|preset| preset.name == name).unwrap();
        assert_eq!((preset.max_turns, &preset.skills), (Some(turns), &skills));
    }
    world.finish().await;
}
