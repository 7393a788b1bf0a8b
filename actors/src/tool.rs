//! Tools: the [`Tool`] trait, the types that are passed to and returned from a tool, and the
//! registry (TOOL-1).
//!
//! A tool states which access a call requires, receives a context and arguments that fit its
//! schema, and returns a result. The runtime decides which calls run in parallel (TOOL-3). The
//! permission policy decides whether a call may run (PERM-1).

pub use soong_tool::{
    CheckedArguments, FunctionTool, OutputLimit, Progress, RegisterError, RegisteredTool,
    RunControl, SpawnedChild, StatedEffect, Tool, ToolContext, ToolEnvironment, ToolError,
    ToolOutput, ToolRegistry, ToolResult, ToolServices, UnstatedEffect, arguments, function,
    remove_if, replace_if, schema_of, sha256, unified_diff,
};
#[cfg(feature = "web-tools")]
pub use soong_web::{web_search::WebSearch, webfetch::WebFetch};
