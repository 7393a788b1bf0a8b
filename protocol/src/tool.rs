//! What a tool says about itself (TOOL-1).

use serde::{Deserialize, Serialize};

/// What calling a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing: neighbours run in parallel.
    Read,
    /// Changes something: runs alone, and a failure stops the turn's later calls (TOOL-3).
    Write,
}

/// A tool as models and the scheduler see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Unique name: what models call.
    pub name: String,
    /// A short title for people.
    pub title: String,
    /// What it does and when to use it, for models.
    pub description: String,
    /// JSON schema of the arguments, an object.
    pub parameters: serde_json::Value,
    /// What calling it does to the world.
    pub effect: Effect,
    /// Whether a call that was cut off may run again (DUR-4).
    pub idempotent: bool,
    /// How long one call may take, in milliseconds; `None` = the configured default.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Whether it keeps its output within the limits by paging: what exceeds them is cut, never stored (ART-9).
    #[serde(default)]
    pub paged: bool,
}

impl ToolSpec {
    /// Makes a spec of a tool that reads: parallel, and repeated after a crash.
    pub fn read(name: &str, title: &str, description: &str, parameters: serde_json::Value) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            description: description.to_owned(),
            parameters,
            effect: Effect::Read,
            idempotent: true,
            timeout_ms: None,
            paged: false,
        }
    }

    /// Makes a spec of a tool that writes: serial, and not repeated after a crash.
    pub fn write(name: &str, title: &str, description: &str, parameters: serde_json::Value) -> Self {
        Self { effect: Effect::Write, idempotent: false, ..Self::read(name, title, description, parameters) }
    }
}
