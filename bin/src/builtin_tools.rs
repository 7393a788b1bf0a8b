//! Built-in tools of this binary.

use std::sync::Arc;

use soong::{
    protocol::ToolSpec,
    tool::{ToolEnvironment, ToolRegistry},
};

use crate::exit::{Exit, Failure};

/// Returns the built-in tools in the order in which models see them.
pub(crate) fn builtins() -> Result<Vec<ToolSpec>, Failure> {
    Ok(registry(&ToolEnvironment::default())?
        .specs()
        .map(|spec| (**spec).clone())
        .collect())
}

/// Returns the registry of the built-in tools.
pub(crate) fn registry(tool_environment: &ToolEnvironment) -> Result<ToolRegistry, Failure> {
    let broken = |error| {
        Failure::new(
            Exit::Failed,
            format!("a built-in tool is invalid: {error}"),
            "",
        )
    };
    soong::builtin_tools::registry(tool_environment, &Arc::default(), None).map_err(broken)
}
