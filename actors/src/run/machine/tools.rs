//! Tools that the run itself executes.

use serde::Deserialize;

/// Returns whether the run itself answers a tool's calls, so that repeating them is safe.
pub(crate) fn is_decided_here(name: &str) -> bool {
    matches!(name, "goal" | "ask_human") || is_spawning(name)
}

/// Returns whether a tool's calls are answered by children.
pub(crate) fn is_spawning(name: &str) -> bool {
    matches!(name, "agent" | "evaluate")
}

#[derive(Deserialize)]
#[serde(untagged)]
/// A text, or a list of texts.
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}
