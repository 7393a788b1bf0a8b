//! What a tool says about itself (TOOL-1).

use serde::{Deserialize, Serialize};

/// Says of a tool that it reaches beyond this machine: its calls ask, also where they only read (PERM-1).
pub const NETWORK: &str = "network";

/// What calling a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing: neighbours run in parallel.
    Read,
    /// Changes something: runs alone, and a failure stops the turn's later calls (TOOL-3).
    Write,
    /// The same, and nobody can say in advance what it changes.
    Dangerous,
}

impl Effect {
    /// Returns the effect as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Dangerous => "dangerous",
        }
    }

    /// Returns whether something is changed: such a call runs alone.
    pub const fn changes(self) -> bool {
        !matches!(self, Self::Read)
    }
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
    /// What else is to be known of it; [`NETWORK`] has its calls ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// How long one call may take, in milliseconds; `None` = the configured default.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Whether it keeps its output within the limits by paging: what exceeds them is cut, never stored (ART-9).
    #[serde(default)]
    pub paged: bool,
    /// Parameters whose text is for a model or a person: an object given for one is taken as its JSON. `a/b` is `b` of
    /// each object of the list `a`. If there is a parameter `path`, that is done for JSON files alone.
    #[serde(skip)]
    pub json_as_text: Vec<String>,
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
            tags: Vec::new(),
            timeout_ms: None,
            paged: false,
            json_as_text: Vec::new(),
        }
    }

    /// Makes a spec of a tool that writes: serial, and not repeated after a crash.
    pub fn write(name: &str, title: &str, description: &str, parameters: serde_json::Value) -> Self {
        Self { effect: Effect::Write, idempotent: false, ..Self::read(name, title, description, parameters) }
    }

    /// Makes a spec of a tool of which nobody can say in advance what it changes.
    pub fn dangerous(name: &str, title: &str, description: &str, parameters: serde_json::Value) -> Self {
        Self { effect: Effect::Dangerous, ..Self::write(name, title, description, parameters) }
    }

    /// Adds a tag.
    #[must_use]
    pub fn tagged(mut self, tag: &str) -> Self {
        self.tags.push(tag.to_owned());
        self
    }

    /// Marks parameters of which an object is taken as its JSON (see [`ToolSpec::json_as_text`]).
    #[must_use]
    pub fn taking_json(mut self, parameters: &[&str]) -> Self {
        self.json_as_text.extend(parameters.iter().map(|name| (*name).to_owned()));
        self
    }

    /// Returns whether the tool has a tag.
    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }

    /// Returns whether its calls need leave where it says nothing more about them (PERM-1).
    pub fn needs_leave(&self) -> bool {
        self.effect.changes() || self.has_tag(NETWORK)
    }
}
