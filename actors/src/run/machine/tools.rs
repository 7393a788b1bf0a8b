//! Tools that the run itself executes.

use serde::Deserialize;

/// Returns whether the run executes a tool itself, so that its calls can be repeated safely.
pub(crate) fn is_internal_tool(name: &str) -> bool {
    matches!(name, "goal" | "ask_human") || is_spawning_tool(name)
}

/// Returns whether a tool changes only documents of the session.
pub(crate) fn changes_only_artifacts(name: &str) -> bool {
    matches!(
        name,
        "create_artifact" | "update_artifact" | "rewrite_artifact"
    )
}

/// Returns whether calls of a tool are executed by children.
pub(crate) fn is_spawning_tool(name: &str) -> bool {
    matches!(name, "agent" | "evaluate")
}

/// Returns whether calls of a tool wait for a person or for children.
pub(crate) fn is_waiting_tool(name: &str) -> bool {
    name == "ask_human" || is_spawning_tool(name)
}

#[derive(Deserialize)]
#[serde(untagged)]
/// A text, or a list of texts.
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}
