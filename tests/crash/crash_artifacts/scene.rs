//! Model and tools of a child: the model requests random edits.
//!
//! Documents are lists of numbered lines, so that a passage to replace is known without reading
//! them. Many requests are rejected (a name is taken or missing, a line is gone); that is part of
//! the load.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::{BoxFuture, FutureExt};
use serde::Deserialize;
use serde_json::{Value, json};
use soong::{
    Runtime, RuntimeBuilder,
    artifact::{ArtifactOwner, Save},
    model::{Completion, ModelRequest},
    protocol::{Config, Provenance, RecoveryMode, ToolCall, ToolSpec},
    testing::{ScriptedModel, respond},
    tool::{self, Tool, ToolContext, ToolOutput, ToolResult},
};

use super::report::{Random, Report};

/// Number of lines of a document.
const LINES: u64 = 20;

/// Returns the runtime builder that the child and its parent share.
pub(crate) fn builder(home: &Path, model: ScriptedModel) -> RuntimeBuilder {
    let mut config = Config::default();
    config.runtime.repeated_calls_limit = 0; // scripted models repeat themselves
    config.agents.max_concurrent_children_per_session = 4;
    // Interrupted runs fail, so that nothing changes while the home is checked. `crash_runs` covers
    // resumed runs.
    config.runtime.recovery = Some(RecoveryMode::Fail);
    Runtime::builder()
        .permission_handler(Arc::new(soong::permission::AllowAll))
        .home(home)
        .project_dir(home)
        .config(config)
        .model("default", model)
        .tool(Arc::new(Produce::new()))
        .tool(Arc::new(Chatter::new()))
}

/// Returns bytes determined by a seed; they are letters, so that they are also text.
pub(crate) fn product(seed: u64, size: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(size as usize + 8);
    while (bytes.len() as u64) < size {
        bytes.extend(random.next().to_le_bytes().map(|byte| b'a' + byte % 26));
    }
    bytes.truncate(size as usize);
    bytes
}

/// Returns a size between 10 bytes and 3 MB; small sizes are more frequent.
pub(crate) fn product_size(random: &mut Random) -> u64 {
    let most =
        [100, 1_000, 20_000, 300_000, 3_000_000][random.below(5).min(random.below(6)) as usize % 5];
    10 + random.below(most - 9)
}

/// Returns the text of a document; one in sixteen is long.
pub(crate) fn document(random: &mut Random) -> String {
    let words = if random.below(16) == 0 { 300 } else { 3 };
    let mut text = format!("# List {}\n", random.below(1_000));
    for line in 0..LINES {
        text.push_str(&format!("item {line:02}:"));
        for _ in 0..words {
            text.push_str(&format!(" w{}", random.below(100_000)));
        }
        text.push('\n');
    }
    text
}

/// Returns a passage that matches exactly or approximately, and its replacement.
pub(crate) fn replacement(random: &mut Random) -> (String, String) {
    let line = random.below(LINES);
    let word = random.below(100_000);
    let old = match random.below(3) {
        0 => format!("itam {line:02}:"),
        _ => format!("item {line:02}:"),
    };
    (old, format!("item {line:02}: e{word}"))
}

/// Creates a model that keeps requesting writes, and sometimes ends its run. Its requests are
/// determined by a seed.
pub(crate) fn busy_model(seed: u64) -> ScriptedModel {
    let random = Mutex::new(Random::new(seed));
    respond(move |request| {
        let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
        next_completion(&mut random, request).into()
    })
}

fn next_completion(random: &mut Random, request: &ModelRequest) -> Completion {
    if random.below(6) == 0 || request.messages.len() > 60 {
        return Completion::text("done");
    }
    let may_delegate =
        request.tools.iter().any(|tool| tool.name == "agent") && random.below(8) == 0;
    let mut tool_calls = Vec::new();
    for index in 0..=random.below(3) {
        let (name, arguments) = if may_delegate && index == 0 {
            ("agent", json!({"task": "edit", "agent_type": "default"}))
        } else {
            call(random)
        };
        let id = format!("call_{:x}_{index}", random.next());
        tool_calls.push(ToolCall {
            id,
            name: name.to_owned(),
            arguments: arguments.to_string(),
        });
    }
    Completion::tool_calls(tool_calls)
}

fn call(random: &mut Random) -> (&'static str, Value) {
    let name = match random.below(5) {
        0 => format!("user:note{}", random.below(2)),
        _ => format!("doc{}", random.below(4)),
    };
    match random.below(12) {
        0 | 1 => (
            "create_artifact",
            json!({"name": name, "content": document(random)}),
        ),
        2 => (
            "rewrite_artifact",
            json!({"name": name, "content": document(random)}),
        ),
        3 => {
            let key = match random.below(6) {
                0 => Value::Null,
                1 => json!(format!("user:part{}", random.below(3))),
                // The name of a document, so that the save replaces it.
                2 => json!(name),
                _ => json!(format!("part{}", random.below(4))),
            };
            let seed = random.next() >> 12;
            let size = product_size(random);
            ("produce", json!({"key": key, "seed": seed, "size": size}))
        }
        4 => ("chatter", json!({"size": 65_000 + random.below(150_000)})),
        _ => {
            let (old, new) = replacement(random);
            (
                "update_artifact",
                json!({"name": name, "old": old, "new": new}),
            )
        }
    }
}

/// Tool that saves a product and reports it.
struct Produce(ToolSpec);

#[derive(Deserialize)]
struct ProduceArguments {
    key: Option<String>,
    seed: u64,
    size: u64,
}

impl Produce {
    fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "key": {"type": ["string", "null"]},
                "seed": {"type": "integer", "minimum": 0},
                "size": {"type": "integer", "minimum": 0}
            },
            "required": ["seed", "size"]
        });
        Self(ToolSpec::write(
            "produce",
            "Produce",
            "Saves a product.",
            schema,
        ))
    }
}

impl Tool for Produce {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, context: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult> {
        async move {
            let ProduceArguments { key, seed, size } = tool::arguments(arguments)?;
            let owner = ArtifactOwner {
                session_id: context.session_id.clone(),
                uid: context.uid.to_string(),
            };
            let content_type = if seed % 2 == 0 {
                "text/plain"
            } else {
                "application/octet-stream"
            };
            let bytes = product(seed, size);
            let save = Save {
                provenance: Provenance {
                    run_id: Some(context.run_id.clone()),
                    trace_id: Some(context.trace_id.clone()),
                    message_sequence: context.message_sequence,
                    tool_call_id: Some(context.tool_call_id.clone()),
                },
                ..Save::new("", content_type, bytes.clone())
            };
            Report::Saving.write();
            let artifact = context
                .artifacts()?
                .save(&owner, Save { key, ..save })
                .await?;
            Report::saved(&artifact, &bytes).write();
            let output = ToolOutput::text("saved", format!("{} bytes", artifact.size));
            Ok(ToolOutput {
                artifact_ref: Some(artifact.reference()),
                ..output
            })
        }
        .boxed()
    }
}

/// Tool whose output is longer than a model reads at once.
struct Chatter(ToolSpec);

#[derive(Deserialize)]
struct ChatterArguments {
    size: u64,
}

impl Chatter {
    fn new() -> Self {
        let schema = json!({
            "type": "object", "properties": {"size": {"type": "integer", "minimum": 0}}, "required": ["size"]
        });
        Self(ToolSpec::read("chatter", "Chatter", "Says much.", schema))
    }
}

impl Tool for Chatter {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, _: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult> {
        async move {
            let ChatterArguments { size } = tool::arguments(arguments)?;
            let text: Vec<u8> = product(size, size)
                .chunks(79)
                .flat_map(|line| [line, b"\n"].concat())
                .collect();
            Ok(ToolOutput::text("said", String::from_utf8_lossy(&text)))
        }
        .boxed()
    }
}
