//! Definitions shared by parent and child: the job, its tools, and the runtime.
//!
//! The job: an orchestrator creates a document, starts eight child runs, edits the document and answers. Each child
//! run makes two effects, edits the document and answers.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::{BoxFuture, FutureExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use soong::{
    ErrorCode, ErrorInfo, Runtime, RuntimeBuilder,
    protocol::{Config, RunId, SessionId, ToolSpec, TraceId, builtin_presets},
    tool::{self, Tool, ToolContext, ToolOutput, ToolResult},
};

/// Number of child runs.
pub(crate) const CHILDREN: u64 = 8;
/// Document that all of them edit.
pub(crate) const DOCUMENT: &str = "board";
/// Answer of the orchestrator.
pub(crate) const ANSWER: &str = "all parts are explored";
/// Name of the tool whose calls must not be repeated.
pub(crate) const EFFECT: &str = "effect";
/// Name of the tool whose calls may be repeated.
pub(crate) const NOTE: &str = "note";

/// Returns the session of the job.
pub(crate) fn session() -> SessionId {
    SessionId::new("crash")
}

/// Returns the main trace of the session.
pub(crate) fn root() -> TraceId {
    TraceId::root(&session())
}

/// Returns the task of a child run.
pub(crate) fn task(child: u64) -> String {
    format!("explore part {child}")
}

/// Folder of one cycle, with its home, project and files.
pub(crate) struct CycleDir<'a>(pub(crate) &'a Path);

impl CycleDir<'_> {
    pub(crate) fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.0.join("project")
    }

    /// File with the effects, one per line.
    pub(crate) fn effects(&self) -> PathBuf {
        self.0.join("effects.jsonl")
    }
}

/// Returns the runtime builder. At most `slots` child runs work at a time.
pub(crate) fn builder(stage: &CycleDir<'_>, base_url: &str, slots: usize) -> RuntimeBuilder {
    let mut config = Config::default();
    config.agents.max_concurrent_children_per_session = slots;
    config.model.base_url = Some(base_url.to_owned());
    config.model.retry.initial_backoff_ms = 5;
    let mut builder = Runtime::builder()
        .faults_from_env()
        .permission_handler(Arc::new(soong::permission::AllowAll))
        .home(stage.home())
        .project_dir(stage.project())
        .config(config)
        .tool(Arc::new(EffectTool::new(EFFECT, false, stage.effects())))
        .tool(Arc::new(EffectTool::new(NOTE, true, stage.effects())));
    // Child runs need the tools with effects as well.
    for preset in builtin_presets() {
        if ["explore", "orchestrator"].contains(&preset.name.as_str()) {
            builder = builder.preset(soong::protocol::Preset { allowed_tools: None, ..preset });
        }
    }
    builder
}

/// An external effect: a line in a file that no restart reverts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(crate) run: RunId,
    pub(crate) turn: u32,
    pub(crate) call: String,
    pub(crate) tool: String,
    pub(crate) n: u64,
}

/// A tool that makes an effect durable.
struct EffectTool {
    spec: ToolSpec,
    file: PathBuf,
}

#[derive(Deserialize)]
struct Arguments {
    n: u64,
}

impl EffectTool {
    fn new(name: &str, idempotent: bool, file: PathBuf) -> Self {
        let schema = json!({
            "type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"]
        });
        Self { spec: ToolSpec { idempotent, ..ToolSpec::write(name, name, "Writes a line.", schema) }, file }
    }
}

impl Tool for EffectTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, context: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult> {
        let (file, tool) = (self.file.clone(), self.spec.name.clone());
        async move {
            let Arguments { n } = tool::arguments(arguments)?;
            let effect = Effect { run: context.run_id, turn: context.turn, call: context.tool_call_id, tool, n };
            let written = tokio::task::spawn_blocking(move || append(&file, &effect)).await;
            match written {
                Ok(Ok(())) => Ok(ToolOutput::text("written", format!("wrote {n}"))),
                Ok(Err(error)) => Err(ErrorInfo::new(ErrorCode::InternalError, error.to_string())),
                Err(error) => Err(ErrorInfo::new(ErrorCode::InternalError, error.to_string())),
            }
        }
        .boxed()
    }
}

/// Appends a line with a single write, so that it is written completely or not at all.
fn append(file: &Path, effect: &Effect) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(effect)?;
    line.push(b'\n');
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(&line)?;
    file.sync_data()
}
