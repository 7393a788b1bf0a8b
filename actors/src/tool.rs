//! Tools: the trait, what passes through it, and the registry (TOOL-1).
//!
//! Free of actors: a tool gets a context and arguments that fit its schema, and answers. When it
//! runs beside which others is the run's business (TOOL-3).

mod artifact;
pub mod glob;
pub mod grep;
pub mod list_files;
mod machine;
mod project;
pub mod read;
mod registry;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use futures::future::BoxFuture;
pub use registry::{RegisterError, Registered, ToolRegistry};
use serde_json::Value;
use soong_protocol::{ArtifactRef, ErrorCode, ErrorInfo, GoalId, RunId, SessionId, ToolSpec, TraceId};
use tokio_util::sync::CancellationToken;

/// What a tool may know and use while it works.
#[derive(Clone)]
pub struct ToolContext {
    /// The session.
    pub session_id: SessionId,
    /// The trace.
    pub trace_id: TraceId,
    /// The run.
    pub run_id: RunId,
    /// Whose run it is.
    pub uid: Arc<str>,
    /// The call.
    pub tool_call_id: String,
    /// The focused goal.
    pub goal_id: Option<GoalId>,
    /// The session's project directory; absolute, symlinks resolved.
    pub project_dir: Arc<Path>,
    /// Largest output in bytes; the tool pages, or cuts and says so.
    pub output_limit_bytes: usize,
    /// Tripped when the run is cancelled. The tool's future is dropped as well; a blocking part must look.
    pub cancel: CancellationToken,
    /// Where artifacts are saved and loaded.
    pub artifacts: Arc<dyn crate::artifact::ArtifactService>,
}

/// What a call brought.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// A short title for people.
    pub title: String,
    /// What the model gets to read.
    pub output: String,
    /// What the call stored.
    pub artifact_ref: Option<ArtifactRef>,
    /// The artifact names it wrote, with their versions.
    pub artifact_delta: BTreeMap<String, u64>,
}

impl ToolOutput {
    /// Makes an output of text only.
    pub fn text(title: impl Into<String>, output: impl Into<String>) -> Self {
        Self { title: title.into(), output: output.into(), ..Self::default() }
    }
}

/// What a call ends in. The error goes to the model, which may mend its call.
pub type ToolResult = Result<ToolOutput, ErrorInfo>;

/// A capability that a model may ask for.
pub trait Tool: Send + Sync + 'static {
    /// Returns what the tool says about itself; always the same.
    fn spec(&self) -> &ToolSpec;

    /// Runs one call. `arguments` fit the schema. The future may be dropped at any moment.
    fn call(&self, context: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult>;
}

/// Reads arguments into a tool's own type.
///
/// The schema has been checked; what it cannot say (`u64` against negative numbers, say) is still
/// refused in a way that the model can mend.
pub fn arguments<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, ErrorInfo> {
    serde_json::from_value(value)
        .map_err(|error| ErrorInfo::new(ErrorCode::ValidationError, format!("the arguments do not fit: {error}")))
}
