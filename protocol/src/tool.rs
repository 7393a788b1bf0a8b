//! Description of a tool: name, parameters, effect and limits (TOOL-1).

use serde::{Deserialize, Serialize};

/// Tag of a tool that uses the network. Its calls require permission, even if they only read
/// (PERM-1).
pub const NETWORK_TAG: &str = "network";

/// Effect of calling a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolEffect {
    /// Changes nothing. Consecutive calls run in parallel.
    Read,
    /// Changes something. The call runs alone, and its failure skips the later calls of the turn
    /// (TOOL-3).
    Write,
    /// Like `Write`, but what it changes is not known in advance.
    Dangerous,
}

impl ToolEffect {
    /// Returns the effect as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Dangerous => "dangerous",
        }
    }

    /// Returns whether a call changes something and therefore runs alone.
    pub const fn is_mutating(self) -> bool {
        !matches!(self, Self::Read)
    }
}

/// A tool as models and the scheduler see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Unique name by which models call the tool.
    pub name: String,
    /// Short title for display.
    pub title: String,
    /// Description for models: what the tool does, and when to use it.
    pub description: String,
    /// JSON schema of the arguments, which are an object.
    pub parameters: serde_json::Value,
    /// Effect of a call.
    pub effect: ToolEffect,
    /// Whether an interrupted call may run again (DUR-4).
    pub idempotent: bool,
    /// Further properties. [`NETWORK_TAG`] makes calls require permission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Time limit of a call, in milliseconds. Default: `tools.default_timeout_ms`.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Whether the tool pages its output. Output beyond the limits is truncated instead of being
    /// stored as an artifact (ART-9).
    #[serde(default)]
    pub paged: bool,
    /// Parameters that are text for a model or a user. If a call passes an object for one of them,
    /// it is converted to JSON text. `a/b` is the property `b` of each object in the list `a`. If
    /// the tool has a parameter `path`, the conversion applies only to JSON files.
    #[serde(skip)]
    pub json_as_text: Vec<String>,
}

impl ToolSpec {
    /// Creates the spec of a tool that only reads. Its calls run in parallel and are repeated after
    /// a crash.
    pub fn read(name: &str, title: &str, description: &str, parameters: serde_json::Value) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            description: description.to_owned(),
            parameters,
            effect: ToolEffect::Read,
            idempotent: true,
            tags: Vec::new(),
            timeout_ms: None,
            paged: false,
            json_as_text: Vec::new(),
        }
    }

    /// Creates the spec of a tool that writes. Its calls run one at a time and are not repeated
    /// after a crash.
    pub fn write(
        name: &str,
        title: &str,
        description: &str,
        parameters: serde_json::Value,
    ) -> Self {
        Self {
            effect: ToolEffect::Write,
            idempotent: false,
            ..Self::read(name, title, description, parameters)
        }
    }

    /// Creates the spec of a tool whose changes are not known in advance.
    pub fn dangerous(
        name: &str,
        title: &str,
        description: &str,
        parameters: serde_json::Value,
    ) -> Self {
        Self {
            effect: ToolEffect::Dangerous,
            ..Self::write(name, title, description, parameters)
        }
    }

    /// Adds a tag.
    #[must_use]
    pub fn with_tag(mut self, tag: &str) -> Self {
        self.tags.push(tag.to_owned());
        self
    }

    /// Adds parameters for which an object is converted to JSON text; see
    /// [`ToolSpec::json_as_text`].
    #[must_use]
    pub fn with_json_as_text(mut self, parameters: &[&str]) -> Self {
        self.json_as_text
            .extend(parameters.iter().map(|name| (*name).to_owned()));
        self
    }

    /// Returns whether the tool has a tag.
    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }

    /// Returns whether calls require permission if the tool does not decide it per call (PERM-1).
    pub fn requires_permission(&self) -> bool {
        self.effect.is_mutating() || self.has_tag(NETWORK_TAG)
    }
}
