//! Tools whose effects outlive every process: each call appends a line to a file.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
};

use futures::future::{BoxFuture, FutureExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use soong::{
    ErrorCode, ErrorInfo,
    protocol::{RunId, ToolSpec},
    tool::{self, Tool, ToolContext, ToolOutput, ToolResult},
};

use super::Failed;

/// Name of the tool whose calls must not be repeated.
pub(crate) const EFFECT: &str = "effect";
/// Name of the tool whose calls may be repeated.
pub(crate) const NOTE: &str = "note";

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
pub(crate) struct EffectTool {
    spec: ToolSpec,
    file: PathBuf,
}

#[derive(Deserialize)]
struct Arguments {
    n: u64,
}

impl EffectTool {
    pub(crate) fn new(name: &str, idempotent: bool, file: PathBuf) -> Self {
        let schema = json!({
            "type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"]
        });
        Self {
            spec: ToolSpec {
                idempotent,
                ..ToolSpec::write(name, name, "Writes a line.", schema)
            },
            file,
        }
    }
}

impl Tool for EffectTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, context: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult> {
        let file = self.file.clone();
        let tool = self.spec.name.clone();
        async move {
            let Arguments { n } = tool::arguments(arguments)?;
            let effect = Effect {
                run: context.run_id,
                turn: context.turn,
                call: context.tool_call_id,
                tool,
                n,
            };
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

/// Reads the effects that were made.
pub(crate) fn effects(file: &Path) -> Result<Vec<Effect>, Failed> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    text.lines()
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{error}: {line}").into()))
        .collect()
}
