//! Tools: the trait, what passes through it, and the registry (TOOL-1).
//!
//! Free of actors: a tool says what a call needs leave for, gets a context and arguments that fit its schema, and
//! answers. When it runs beside which others is the run's business (TOOL-3), whether it may run is decided by
//! others as well (PERM-1).

pub mod bash;
mod beneath;
mod coercion;
mod difference;
pub mod edit;
mod function;
pub mod glob;
pub mod grep;
mod guarded;
pub(crate) mod kernel_files;
pub mod list_files;
pub(crate) mod machine;
pub(crate) mod project;
pub mod read;
mod redaction;
mod registry;
mod roots;
mod schema;
mod walk;
#[cfg(feature = "web-tools")]
mod web;
#[cfg(feature = "web-tools")]
pub mod web_search;
#[cfg(feature = "web-tools")]
pub mod webfetch;
pub mod write;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) use beneath::{names_in, read_text};
pub(crate) use coercion::with_note;
pub use function::{Function, function};
use futures::future::BoxFuture;
pub(crate) use redaction::redacted;
pub(crate) use registry::violations;
pub use registry::{RegisterError, Registered, ToolRegistry};
pub(crate) use roots::Roots;
pub use schema::schema_of;
use serde_json::Value;
use soong_protocol::{
    ArtifactRef, ArtifactSnapshot, Demand, ErrorCode, ErrorInfo, GoalId, PermissionsConfig, RunId, SessionId, ToolSpec,
    ToolsConfig, TraceId,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

#[cfg(test)]
pub(crate) use project::tests as project_for_tests;

use crate::{artifact::ArtifactService, environment::Environment, memory::Memories, skill::Skills};

/// What the built-in tools take from the runtime that they serve.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Limits on tools.
    pub tools: ToolsConfig,
    /// Who may do what.
    pub permissions: PermissionsConfig,
    /// Where variables are looked up that commands and services are given.
    pub environment: Environment,
    /// The runtime's home: what lies in it is out of reach of every tool, also where it lies in a project.
    pub home: Option<PathBuf>,
    /// The skills that the tool `skill` loads.
    pub skills: Arc<Skills>,
    /// What the tool `get_experience` looks into; `None` = nothing is known.
    pub memory: Option<Arc<Memories>>,
}

/// Says while a call is at work what it is about; live only, nothing of it is stored.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(String) + Send + Sync>>);

impl Progress {
    /// Makes one that hands each text on.
    pub fn new(told: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    /// Says something. It also counts as a sign of life (RUN-7).
    pub fn say(&self, text: impl Into<String>) {
        if let Some(told) = &self.0 {
            told(text.into());
        }
    }
}

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
    /// The turn that asks for the call, from 1; with run and call it says which effect this is (DUR-4).
    pub turn: u32,
    /// The message that asks for the call.
    pub message_sequence: Option<u64>,
    /// The call.
    pub tool_call_id: String,
    /// The focused goal.
    pub goal_id: Option<GoalId>,
    /// The session's project directory; absolute, symlinks resolved.
    pub project_dir: Arc<Path>,
    /// Largest output that a model reads whole, in bytes; a larger one is stored as an artifact, unless the
    /// tool pages.
    pub output_limit_bytes: usize,
    /// The same in tokens, as they are estimated.
    pub output_limit_tokens: u64,
    /// Tripped when the run is cancelled. The tool's future is dropped as well; a blocking part must look.
    pub cancel: CancellationToken,
    /// What it has leave for; `None` = it needed none.
    pub leave: Option<Demand>,
    /// Says what the call is about while it is at work.
    pub progress: Progress,
    /// What the call leaves at work where its future is dropped, such as the killing of its processes. Its outcome
    /// is told when that has ended.
    pub tasks: TaskTracker,
    /// Where artifacts are saved and loaded; `None` = nowhere. See [`Self::artifacts`].
    pub artifact_service: Option<Arc<dyn ArtifactService>>,
}

impl ToolContext {
    /// Returns where artifacts are saved and loaded; `config_error` where the tool was given no such place.
    pub fn artifacts(&self) -> Result<&Arc<dyn ArtifactService>, ErrorInfo> {
        self.artifact_service.as_ref().ok_or_else(|| {
            let message = "no artifact service is configured: this tool cannot save or load artifacts";
            ErrorInfo::new(ErrorCode::ConfigError, message)
        })
    }
}

/// What a call brought.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// A short title for people.
    pub title: String,
    /// What the model gets to read.
    pub output: String,
    /// What is to be remembered of it; stored beside the output.
    pub long_term_memory: Option<String>,
    /// Whether the model reads `output` once only, in the turn that follows, and `long_term_memory` (or the
    /// title) from then on (ART-9).
    pub include_output_only_once: bool,
    /// Whether `output` is stored as an artifact however short it is; the model reads its ends (ART-9).
    pub store_output: bool,
    /// What the call stored.
    pub artifact_ref: Option<ArtifactRef>,
    /// What the artifact that it wrote holds now (ART-10).
    pub artifact_snapshot: Option<ArtifactSnapshot>,
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

    /// Says what is missing for it to work at all, such as a setting; such a tool is not offered. Always the same.
    fn lacks(&self) -> Option<String> {
        None
    }

    /// Says what a call needs leave for (PERM-1); `None` = nothing. Asked before the call, and again when leave is
    /// given: where the answer has changed, the call does not run.
    ///
    /// Without more, a call that changes something, or uses the network, needs leave for every call of the tool.
    /// An error is the call's outcome. May look at files, and does not wait for anything else.
    fn demand(&self, context: &ToolContext, arguments: &Value) -> Result<Option<Demand>, ErrorInfo> {
        let _ = (context, arguments);
        let spec = self.spec();
        Ok(spec.needs_leave().then(|| Demand::tool(spec.title.clone())))
    }

    /// Returns the file or folder that a call would open, absolute and with symlinks resolved; `None` if it opens none,
    /// or would fail. Hooks match it.
    fn resolved_path(&self, context: &ToolContext, arguments: &Value) -> Option<PathBuf> {
        let _ = (context, arguments);
        None
    }

    /// Returns what a call would change, as a unified diff, for the person who is asked whether it may run; `None` if it
    /// changes no text, or would fail. May read files, and block.
    fn preview(&self, context: &ToolContext, arguments: &Value) -> Option<String> {
        let _ = (context, arguments);
        None
    }

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
