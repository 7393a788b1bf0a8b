//! Tools: the [`Tool`] trait, the types that are passed to and returned from a tool, the registry
//! (TOOL-1), the interface to artifacts, and the tools for the files and commands of a project.
//!
//! Independent of the actors: a tool states which access a call requires, receives a context and
//! arguments that fit its schema, and returns a result. Elsewhere (in `soong`): which calls run in
//! parallel (TOOL-3), and whether a call may run (PERM-1).

pub mod artifact;
mod bash;
mod child_spec;
mod coercion;
pub mod command;
mod diff;
mod edit;
mod file_change;
mod function;
mod glob;
mod grep;
mod guarded;
mod json_schema;
pub mod kernel_files;
mod list_files;
mod path_pattern;
mod path_policy;
mod pattern_variants;
mod project_path;
mod project_tools;
mod read;
mod redaction;
mod registry;
mod repository;
mod run_control;
mod safe_fs;
mod schema;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod walk;
mod write;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use bash::command_shell;
pub use child_spec::ChildSpec;
pub use coercion::with_note;
pub use diff::unified_diff;
pub use file_change::sha256;
pub use function::{FunctionTool, StatedEffect, ToolError, UnstatedEffect, function};
use futures::future::BoxFuture;
pub use json_schema::JsonSchema;
pub use path_policy::PathPolicy;
pub use project_path::{OutputPage, blocking};
pub use redaction::redacted;
pub use registry::{CheckedArguments, RegisterError, RegisteredTool, ToolRegistry};
pub use repository::repository_root;
pub use run_control::{RunControl, SpawnedChild};
pub use safe_fs::{
    create_new, has_content, list_dir_names, read_text, remove_drafts_beside, remove_drafts_in,
    remove_if, replace_if, replace_locked_if,
};
pub use schema::schema_of;
use serde_json::Value;
use soong_protocol::{
    AccessRequest, ArtifactRef, ArtifactSnapshot, Collaborator, ContentPart, ErrorCode, ErrorInfo,
    FileChange, GoalId, InputKind, PermissionsConfig, Provenance, RunId, SessionId, ToolSpec,
    ToolsConfig, TraceId,
};
use soong_text::Environment;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::artifact::{ArtifactOwner, ArtifactService, NamedArtifacts};

/// Parts of a runtime's configuration that its tools use.
#[derive(Debug, Clone, Default)]
pub struct ToolEnvironment {
    /// Limits of tools.
    pub tools: ToolsConfig,
    /// How many bytes of earlier contents of project files a session keeps. `/undo` restores them.
    pub max_undo_bytes: u64,
    /// Permission configuration.
    pub permissions: PermissionsConfig,
    /// Source of the environment variables that commands and services receive.
    pub environment: Environment,
    /// Home directory of the runtime. No tool can access its files, even if the home is inside a
    /// project.
    pub home: Option<PathBuf>,
}

/// Reports what a running call is doing. Reports are shown live and are not stored.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(String) + Send + Sync>>);

impl Progress {
    /// Makes a reporter that passes each text to the given function.
    pub fn new(on_progress: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(on_progress)))
    }

    /// Reports a text. A report also counts as a sign of life (RUN-7).
    pub fn report(&self, text: impl Into<String>) {
        if let Some(on_progress) = &self.0 {
            on_progress(text.into());
        }
    }
}

/// Limits of an output that a model reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputLimit {
    /// Kinds of content that the model can read. In place of another file, it reads a description.
    pub kinds: Arc<[InputKind]>,
    /// Maximum size, in bytes.
    pub bytes: usize,
    /// Maximum size, in estimated tokens.
    pub tokens: u64,
}

/// Context of a tool call: everything that the tool can read and use during the call.
#[derive(Clone)]
pub struct ToolContext {
    /// The session.
    pub session_id: SessionId,
    /// How often the id of the session has been used: ids of deleted sessions may be used again.
    pub session_incarnation: u64,
    /// The trace.
    pub trace_id: TraceId,
    /// The run.
    pub run_id: RunId,
    /// User that owns the run.
    pub uid: Arc<str>,
    /// Turn that requested the call, from 1. Run, turn and call together identify the effect
    /// (DUR-4).
    pub turn: u32,
    /// Sequence number of the message that requested the call.
    pub message_sequence: Option<u64>,
    /// The call.
    pub tool_call_id: String,
    /// The focused goal.
    pub goal_id: Option<GoalId>,
    /// The session's project directory; absolute, symlinks resolved.
    pub project_dir: Arc<Path>,
    /// Maximum output that a model reads in full. A larger output is stored as an artifact, unless
    /// the tool pages its output.
    pub output_limit: OutputLimit,
    /// Triggered when the run is cancelled. The future of the tool is dropped as well, so only
    /// blocking code needs to check it.
    pub cancel: CancellationToken,
    /// Access that was granted to the call; `None` if it required no permission.
    pub granted_access: Option<AccessRequest>,
    /// Reports what the call is doing.
    pub progress: Progress,
    /// Tasks that continue if the future of the call is dropped, for example one that kills the
    /// processes of the call. The outcome of the call is reported after they have finished.
    pub cleanup_tasks: TaskTracker,
    /// Services of the runtime.
    pub services: ToolServices,
}

/// Services of the runtime that a tool can use.
#[derive(Clone, Default)]
pub struct ToolServices {
    /// Saves and loads artifacts; `None` if no service is configured. See
    /// [`ToolContext::artifacts`].
    pub artifacts: Option<Arc<dyn ArtifactService>>,
    /// The run that made the call; `None` if none did, as in a test of the tool. See
    /// [`ToolContext::spawn_all`].
    pub run: Option<Arc<dyn RunControl>>,
}

impl ToolContext {
    /// Returns the service that saves and loads artifacts, or `config_error` if none is configured.
    pub fn artifacts(&self) -> Result<&Arc<dyn ArtifactService>, ErrorInfo> {
        self.services.artifacts.as_ref().ok_or_else(|| {
            let message =
                "no artifact service is configured: this tool cannot save or load artifacts";
            ErrorInfo::new(ErrorCode::ConfigError, message)
        })
    }

    /// Returns the artifacts by name: those of the session, and with the prefix `user:` those of
    /// the user.
    pub fn named_artifacts(&self) -> Result<NamedArtifacts, ErrorInfo> {
        Ok(NamedArtifacts {
            service: Arc::clone(self.artifacts()?),
            owner: ArtifactOwner {
                session_id: self.session_id.clone(),
                uid: self.uid.to_string(),
            },
            provenance: Provenance {
                run_id: Some(self.run_id.clone()),
                trace_id: Some(self.trace_id.clone()),
                message_sequence: self.message_sequence,
                tool_call_id: Some(self.tool_call_id.clone()),
            },
        })
    }

    /// Starts a child of the run; see [`RunControl::spawn`].
    pub async fn spawn(&self, child: impl Into<ChildSpec>) -> Result<SpawnedChild, ErrorInfo> {
        let mut children = self.spawn_all([child.into()]).await?;
        // One child per specification, so there is exactly one.
        children
            .pop()
            .ok_or_else(|| ErrorInfo::new(ErrorCode::InternalError, "no child was started"))
    }

    /// Starts children of the run; see [`RunControl::spawn`].
    pub async fn spawn_all(
        &self,
        children: impl IntoIterator<Item = impl Into<ChildSpec>>,
    ) -> Result<Vec<SpawnedChild>, ErrorInfo> {
        self.control()?
            .spawn(children.into_iter().map(Into::into).collect())
            .await
    }

    /// Adds or replaces a person or another system among the collaborators; see
    /// [`RunControl::set_collaborator`].
    pub fn set_collaborator(&self, collaborator: Collaborator) -> Result<(), ErrorInfo> {
        self.control()?.set_collaborator(collaborator);
        Ok(())
    }

    /// Reads the collaborators; see [`RunControl::collaborators`].
    pub async fn collaborators(&self) -> Result<Vec<Collaborator>, ErrorInfo> {
        self.control()?.collaborators().await
    }

    /// Asks a person, and waits for the answer; see [`RunControl::ask`].
    pub async fn ask(
        &self,
        question: impl Into<String>,
        to: Option<&str>,
    ) -> Result<String, ErrorInfo> {
        self.control()?
            .ask(question.into(), to.map(str::to_owned))
            .await
    }

    fn control(&self) -> Result<&Arc<dyn RunControl>, ErrorInfo> {
        self.services.run.as_ref().ok_or_else(|| {
            ErrorInfo::new(
                ErrorCode::NothingRunning,
                "no run made this call: it has no children and no collaborators",
            )
        })
    }
}

/// Successful result of a tool call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// Short title for users.
    pub title: String,
    /// Output for the model.
    pub output: String,
    /// Images and files that the model reads after `output`. The runtime stores their bytes as
    /// artifacts.
    pub files: Vec<ContentPart>,
    /// Text that replaces the output later if [`Self::include_output_only_once`] is set; stored in
    /// addition to the output.
    pub long_term_memory: Option<String>,
    /// Whether the model reads `output` only once (ART-9). Later prompts contain
    /// `long_term_memory` in its place, or the title if that is `None`. If the run can read
    /// artifacts, an output of more than 512 bytes is also stored as an artifact.
    pub include_output_only_once: bool,
    /// Whether `output` is stored as an artifact even if it is short. The model then reads its
    /// first and last part (ART-9).
    pub store_output: bool,
    /// Artifact that the call stored.
    pub artifact_ref: Option<ArtifactRef>,
    /// Content of the artifact after the call has written it (ART-10).
    pub artifact_snapshot: Option<ArtifactSnapshot>,
    /// Names of the artifacts that the call wrote, with their versions.
    pub artifact_delta: BTreeMap<String, u64>,
    /// Change that the call made to a file of the project.
    pub file_change: Option<Box<FileChange>>,
}

impl ToolOutput {
    /// Makes an output that consists of text only.
    pub fn text(title: impl Into<String>, output: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            output: output.into(),
            ..Self::default()
        }
    }

    /// Makes `memory` replace the output when the prompt is rebuilt, if the output has more than
    /// `bytes` bytes; see [`Self::include_output_only_once`].
    pub fn once_if_longer_than(self, bytes: usize, memory: String) -> Self {
        if self.output.len() <= bytes {
            return self;
        }
        Self {
            long_term_memory: Some(memory),
            include_output_only_once: true,
            ..self
        }
    }
}

impl From<String> for ToolOutput {
    fn from(output: String) -> Self {
        Self {
            output,
            ..Self::default()
        }
    }
}

impl From<&str> for ToolOutput {
    fn from(output: &str) -> Self {
        output.to_owned().into()
    }
}

impl From<Value> for ToolOutput {
    fn from(output: Value) -> Self {
        output.to_string().into()
    }
}

/// Result of a tool call. The model reads the error and can correct its call.
pub type ToolResult = Result<ToolOutput, ErrorInfo>;

/// A capability that a model can call.
pub trait Tool: Send + Sync + 'static {
    /// Returns the description of the tool. It never changes.
    fn spec(&self) -> &ToolSpec;

    /// Returns what the tool lacks in order to work, such as a setting. A tool that lacks something
    /// is not offered to models. The result never changes.
    fn missing_requirement(&self) -> Option<String> {
        None
    }

    /// Returns the access for which a call requires permission (PERM-1); `None` if it requires
    /// none. The run calls this method before the tool runs, and again after permission was granted.
    /// If the two results differ, the tool does not run.
    ///
    /// By default, a tool that changes something or uses the network requires permission, with a
    /// scope of all its calls. An error becomes the outcome of the call. An implementation may
    /// access the file system, but must not wait for anything else.
    fn required_access(
        &self,
        context: &ToolContext,
        arguments: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        let _ = (context, arguments);
        let spec = self.spec();
        Ok(spec
            .requires_permission()
            .then(|| AccessRequest::whole_tool(spec.title.clone())))
    }

    /// Returns the file or folder that a call would open, as an absolute path with symlinks
    /// resolved; `None` if the call opens none or would fail. Deny rules and the path
    /// prefixes of hooks are matched against it.
    fn resolved_path(&self, context: &ToolContext, arguments: &Value) -> Option<PathBuf> {
        let _ = (context, arguments);
        None
    }

    /// Returns the change that a call would make, as a unified diff, for the approver; `None` if it
    /// changes no text or would fail. May read files and block.
    fn preview(&self, context: &ToolContext, arguments: &Value) -> Option<String> {
        let _ = (context, arguments);
        None
    }

    /// Runs one call. `arguments` fit the schema. The future may be dropped at any await point.
    fn call(&self, context: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult>;
}

impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn spec(&self) -> &ToolSpec {
        (**self).spec()
    }

    fn missing_requirement(&self) -> Option<String> {
        (**self).missing_requirement()
    }

    fn required_access(
        &self,
        context: &ToolContext,
        arguments: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        (**self).required_access(context, arguments)
    }

    fn resolved_path(&self, context: &ToolContext, arguments: &Value) -> Option<PathBuf> {
        (**self).resolved_path(context, arguments)
    }

    fn preview(&self, context: &ToolContext, arguments: &Value) -> Option<String> {
        (**self).preview(context, arguments)
    }

    fn call(&self, context: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult> {
        (**self).call(context, arguments)
    }
}

/// Deserializes arguments into the type of a tool.
///
/// The arguments have already been checked against the schema. A mismatch that the schema cannot
/// express, such as a negative number for a `u64`, is rejected with a `validation_error`, so that
/// the model can correct it.
pub fn arguments<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, ErrorInfo> {
    serde_json::from_value(value).map_err(|error| {
        ErrorInfo::new(
            ErrorCode::ValidationError,
            format!("the arguments do not fit: {error}"),
        )
    })
}
