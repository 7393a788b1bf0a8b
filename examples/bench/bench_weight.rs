//! Measures the weight that does not depend on the machine: tokens of prompts, and what a child run
//! leaves in the database.
//!
//! `PROG HOME` runs 1000 sub-agents with 2 tool turns each in the new folder HOME, with a model
//! that follows a script, and does not delete the folder. The last line of output is JSON:
//! - `prompts`: for each kind of run, its tools and its tokens (`o200k_base`): the system prompt,
//!   and the tools as the chat API of OpenAI receives them. Neither the task, nor project notes,
//!   nor the list of artifacts is counted.
//! - `children`: number of sub-agents that HOME contains.
//!
//! `weight` reads HOME and compares everything with `budget.toml`.

#![allow(clippy::print_stdout, reason = "a measurement shows its result")]

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use soong::{
    ChildSpec, Config, ErrorInfo, RunRequest, Runtime,
    model::ModelRequest,
    protocol::{Preset, Role, RunMode, SMALL_PRESET},
    testing::{ScriptedModel, call, calls, respond, text},
};
use soong_model::tokens::TokenCounter;

/// Number of sub-agents.
const CHILDREN: usize = 1000;
/// Tools of a sub-agent that reads and edits files.
const FILE_TOOLS: [&str; 5] = ["read", "list_files", "glob", "grep", "edit"];
/// Instructions of the presets in this program: one sentence.
const INSTRUCTIONS: &str = "You are a helpful agent.";

/// A preset whose instructions are one sentence.
fn preset(name: &str, coordinates: bool) -> Preset {
    Preset {
        name: name.to_owned(),
        description: "Works on one task.".to_owned(),
        allowed_tools: coordinates.then(|| vec!["agent".to_owned()]),
        instructions: INSTRUCTIONS.to_owned(),
        coordinates,
        ..Preset::default()
    }
}

/// Requests the sub-agents, calls a tool twice in each of them, and answers every other request.
fn model() -> ScriptedModel {
    respond(|request| {
        let message = |role| {
            request
                .messages
                .iter()
                .filter(move |message| message.role == role)
        };
        let task = message(Role::User)
            .next()
            .map_or("", |message| message.content.as_str());
        let turns = message(Role::Assistant).count();
        match (task, turns) {
            ("fan out", 0) => calls(
                (0..CHILDREN).map(|i| ("agent", json!({ "task": format!("work on part {i}") }))),
            ),
            (task, 0 | 1) if task.starts_with("work on part") => {
                call("list_files", json!({ "path": "." }))
            }
            _ => text("done"),
        }
    })
}

/// Returns the tools of a request and the tokens of its prompt.
fn weigh(request: &ModelRequest) -> Value {
    let counter = TokenCounter::for_model("gpt-4o");
    let function = |tool: &soong::protocol::ToolSpec| {
        json!({ "type": "function", "function": {
            "name": tool.name, "description": tool.description, "parameters": tool.parameters,
        }})
    };
    let system: u64 = request
        .system
        .iter()
        .map(|block| counter.count_text(block))
        .sum();
    let tools: Vec<Value> = request.tools.iter().map(|tool| function(tool)).collect();
    let tool_tokens = if tools.is_empty() {
        0
    } else {
        counter.count_text(&json!(tools).to_string())
    };
    json!({ "tools": tools.len(), "system": system, "tool_json": tool_tokens, "tokens": system + tool_tokens })
}

async fn prompts(runtime: &Runtime, model: &ScriptedModel) -> Result<Value, ErrorInfo> {
    let mut found = Map::new();
    let mut last = |name: &str| {
        let request = model.requests().pop();
        found.insert(
            name.to_owned(),
            request.as_ref().map(weigh).unwrap_or_default(),
        );
    };
    for (name, tools) in [
        ("child_without_tools", &[][..]),
        ("child_with_file_tools", &FILE_TOOLS),
    ] {
        let parent = runtime.start(RunRequest::driven(name)).await?;
        parent
            .spawn(
                ChildSpec::new("hello")
                    .preset("worker")
                    .tools(tools.iter().copied()),
            )
            .await?
            .wait()
            .await?;
        parent.finish("done")?;
        parent.wait().await?;
        last(name);
    }
    runtime
        .start(RunRequest::new("hello"))
        .await?
        .wait()
        .await?;
    last("default");
    runtime
        .start(RunRequest::new("hello").preset(SMALL_PRESET))
        .await?
        .wait()
        .await?;
    last("small");
    runtime
        .start(RunRequest::new("hello").mode(RunMode::Orchestrator))
        .await?
        .wait()
        .await?;
    last("orchestrator");
    Ok(Value::Object(found))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or("usage: bench_weight HOME (a new folder)")?;
    let counter = TokenCounter::for_model("gpt-4o");
    counter.load_soon();
    while !counter.is_exact() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let project = tempfile::tempdir()?;
    let mut config = Config::default();
    config.runtime.repeated_calls_limit = 0; // scripted models repeat themselves
    config.agents.max_children_per_run = CHILDREN;
    config.model.max_tool_calls = CHILDREN;
    let open = |home: PathBuf, model: &Arc<ScriptedModel>| {
        Runtime::builder()
            .home(home)
            .project_dir(project.path())
            .config(config.clone())
            .model("default", Arc::clone(model))
            .preset(preset("worker", false))
            .preset(preset("parent", true))
            .build()
    };
    let other = tempfile::tempdir()?;
    let recording = Arc::new(model().recording());
    let runtime = open(other.path().join("home"), &recording).await?;
    let prompts = prompts(&runtime, &recording).await?;
    runtime.close().await;

    let runtime = open(home, &Arc::new(model())).await?;
    let request = RunRequest::new("fan out")
        .preset("parent")
        .tools(["agent", "list_files"]);
    let outcome = runtime.start(request).await?.wait().await?;
    if let Some(error) = &outcome.error {
        return Err(error.to_string().into());
    }
    runtime.close().await;
    println!("{}", json!({ "prompts": prompts, "children": CHILDREN }));
    Ok(())
}
