//! The start of a run, and a run with its outcome.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    ArtifactRef, Budget, ChildMode, GivenMessage, PermissionMode, Reflection, Run, RunId, RunMode,
    RunSetting, SessionId, Setting, SettingUpdates, StatsPair, ToolCall, TraceId,
    run::setting::with_run_settings,
};

with_run_settings! {
    /// Options of a new run. All are optional.
    ///
    /// The last fields, from `mode` to `enable_memory`, are settings. A further run of a session
    /// takes those that are omitted from the session's last run, of `budget` each limit. `null`
    /// resets a setting to the server's configuration. An `agent_type` drops the last run's
    /// `system_prompt`, `tools` and `model`; a change of `mode` drops its `agent_type`.
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(deny_unknown_fields)]
    pub struct StartBody {
        /// The prompt. Without it, the last message of `messages` is the prompt, if that has the
        /// role `user`. Without both, the conversation resumes where it stopped.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub prompt: Option<String>,
        /// Messages before the prompt, with the roles `user` and `assistant`; or, with the role
        /// `tool`, the results of the tool calls that the last run left to its caller. A first
        /// message with the role `system` is the system prompt, if `system_prompt` is not set.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub messages: Vec<GivenMessage>,
        /// Continue after this message of the main path, given by its sequence number. Default: the
        /// end of the conversation. An earlier message rewinds the conversation, its goals and its
        /// documents first.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub after_sequence: Option<u64>,
        /// The session. An unknown id creates a session with that id. Default: a new session with a
        /// generated id.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub session_id: Option<String>,
        /// Trace of a sub-agent to continue, instead of the conversation of the session. Its
        /// session may be omitted.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub trace_id: Option<TraceId>,
        /// Permission mode of the run. Default: `permissions.mode`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub permission_mode: Option<PermissionMode>,
        /// JSON schema that the answer must match.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub expected_output_schema: Option<Value>,
        /// Maximum run time, in milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub timeout_ms: Option<u64>,
        /// Name of a new session.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// User that owns the run. Only the caller's own id is accepted. Default: the caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub uid: Option<String>,
        /// Project folder of a new session, on the server's machine.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub project_dir: Option<PathBuf>,
        /// Allows the home folder of the server's user, or a folder above it, as the project of a
        /// new session.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub allow_home_project: bool,
        /// Permissions granted in advance to the run and all runs below it: `TOOL` or `TOOL:SCOPE`
        /// (PERM-1).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub allow: Vec<String>,
        /// Tool calls denied to the run, to all runs below it and to later runs of its session.
        /// Overrides every other permission. Forms: `TOOL`, `TOOL:SCOPE` or `bash(PATTERN)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub deny: Vec<String>,
        /// No approver is available: calls that require permission are denied immediately.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub unattended: bool,
        /// Whether the run summarizes the conversation before its first model call, even if it is
        /// short.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub compact: bool,
        /// If set, the run only reflects on the session, with these options.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reflects: Option<Reflection>,
        /// Behavior if another run of the session is active. Default: `queue`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub if_busy: Option<IfBusy>,
    }
}

/// How a run is started if its session is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum IfBusy {
    /// The run waits in the session's queue.
    Queue,
    /// The run is rejected with `session_active`.
    Reject,
}

/// A run, with its outcome once it has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunWithOutcome {
    /// The stored run.
    #[serde(flatten)]
    pub run: Run,
    /// The answer. Absent until the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Tool calls that the run leaves to its caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Artifacts that the run stored. Absent until the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Vec<ArtifactRef>>,
    /// Usage of the run. Absent until the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<StatsPair>,
}

/// An accepted run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Accepted {
    /// Trace of the run.
    pub trace_id: TraceId,
    /// Id of the run.
    pub run_id: RunId,
    /// Session of the run.
    pub session_id: SessionId,
    /// `started`, `queued`, or `cancelling` after a request to cancel.
    pub status: String,
}

/// Options of a reflection.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReflectBody {
    /// Topic to focus on.
    #[serde(default)]
    pub focus: Option<String>,
}

/// Parameters of a call.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct CallQuery {
    /// Wait for the answer, at most for this number of seconds, up to 120. Default: do not wait.
    #[cfg_attr(feature = "openapi", param(minimum = 0, maximum = 120))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<u64>,
}

/// Children to add to a run: one `task`, or several `tasks`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChildrenBody {
    /// The task of one child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Tasks of several children. Either all or none of them are added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<String>>,
    /// Mode of the children. Default: `delegate` with `task`, `explore` with `tasks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ChildMode>,
    /// Preset of the children. Default: the one that belongs to the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// Model profile, or a model name of the default profile. Default: the model of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Context that the children need in addition to their task: a text or an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
    /// Messages before the task in each child's conversation.
    #[serde(default)]
    pub messages: Vec<GivenMessage>,
    /// Skills that the children load first. Default: those of their preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// JSON schema that each answer must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_output_schema: Option<Value>,
    /// Budget of each child, limited by the remaining budget of the run.
    #[serde(default)]
    pub budget: Budget,
    /// Maximum run time of each child, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Maximum number of turns of each child.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 4294967295u64))]
    #[serde(rename = "max_iterations", skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Tools of the children, within the tools that the run may pass on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Whether to add the children's results to the run's conversation before its next turn.
    #[serde(default)]
    pub deliver: bool,
}

/// The added children, in the order of their tasks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChildrenView {
    /// The children.
    pub children: Vec<Accepted>,
}
