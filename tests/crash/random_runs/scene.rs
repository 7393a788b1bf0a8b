//! Definitions shared by parent and child: the files of a history, the runtime, and the model with
//! its log of calls.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use soong::{
    Runtime, RuntimeBuilder,
    model::ModelRequest,
    protocol::{Config, Durability, Preset, builtin_presets},
    testing::{ScriptedModel, respond},
};

use super::{
    drill_dir::DrillDir,
    effect::{EFFECT, EffectTool, NOTE},
    family::{Family, reported_usage},
    pairing,
};

/// Returns the file with the requests that the model received, one per line.
pub(crate) fn calls_file(dir: &DrillDir<'_>) -> PathBuf {
    dir.0.join("calls.jsonl")
}

/// Creates the project.
pub(crate) fn create_project(dir: &DrillDir<'_>) -> std::io::Result<()> {
    std::fs::create_dir_all(dir.project())?;
    std::fs::write(dir.project().join("a.txt"), "alpha\nbeta\n")?;
    std::fs::write(dir.project().join("long.txt"), "word ".repeat(900))
}

/// A request that the model received.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ModelCall {
    /// Tokens that the model reports if it answers. The estimate for a call that is cut off is
    /// smaller.
    pub(crate) tokens: u64,
    /// Why a service would reject the conversation.
    pub(crate) rejected: Option<String>,
}

/// Returns the runtime builder of a history.
pub(crate) fn builder(dir: &DrillDir<'_>, seed: u64) -> RuntimeBuilder {
    let mut config = Config::default();
    config.runtime.repeated_calls_limit = 0; // scripted models repeat themselves
    // Processes are killed, but no power is lost.
    config.storage.durability = Durability::Normal;
    config.model.retry.initial_backoff_ms = 1;
    config.model.retry.max_backoff_ms = 5;
    config.model.context_window = Some(6_000);
    config.model.max_output_tokens = Some(400);
    config.context.keep_recent_messages = 4;
    config.runtime.max_turns = 8;
    // In a third of the histories, runs that wait are passivated at once.
    config.runtime.idle_session_s = if seed.is_multiple_of(3) { 0 } else { 300 };
    config.agents.max_concurrent_children_per_session = if seed.is_multiple_of(2) { 2 } else { 16 };
    config.memory.reflect_before_summary = seed.is_multiple_of(4);
    let mut builder = Runtime::builder()
        .home(dir.home())
        .project_dir(dir.project())
        .config(config)
        .permissions_by_users()
        .model("default", Arc::new(model(seed, calls_file(dir))))
        .tool(Arc::new(EffectTool::new(EFFECT, false, dir.effects())))
        .tool(Arc::new(EffectTool::new(NOTE, true, dir.effects())));
    for preset in builtin_presets() {
        if ["explore", "orchestrator"].contains(&preset.name.as_str()) {
            builder = builder.preset(Preset {
                allowed_tools: None,
                ..preset
            });
        }
    }
    builder
}

/// Creates the model. It records each request before it responds.
fn model(seed: u64, log: PathBuf) -> ScriptedModel {
    let family = Family::new(seed);
    respond(move |request| {
        let tokens = reported_usage(request).total_tokens();
        let call = ModelCall {
            tokens,
            rejected: reason_to_reject(request),
        };
        // A call that cannot be recorded is missing in the sum, which the check reports.
        let _ = append(&log, &call);
        family.step(request)
    })
}

fn append(file: &Path, call: &ModelCall) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(call)?;
    line.push(b'\n');
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)?
        .write_all(&line)
}

/// Returns why a service would reject the conversation of a request.
fn reason_to_reject(request: &ModelRequest) -> Option<String> {
    let messages: Vec<Value> = request
        .messages
        .iter()
        .filter_map(|message| serde_json::to_value(&**message).ok())
        .collect();
    for rules in [
        pairing::openai as fn(&[Value]) -> Result<(), String>,
        pairing::anthropic,
    ] {
        if let Err(why) = rules(&messages) {
            let json = serde_json::to_string(&messages).unwrap_or_default();
            return Some(format!("{why}: {json}"));
        }
    }
    None
}
