//! A run: one execution of the agent loop on a trace, from its start to one terminal state (RUN-1).

mod options;
pub(crate) mod setting;

use serde::{Deserialize, Serialize};

use serde_json::{Map, Value};

pub use options::{RunOptions, RunPermissions, milliseconds};
pub use setting::{RunSetting, Setting, SettingUpdates};

use crate::{
    Budget, ErrorInfo, GoalId, MessageContent, Role, RunId, SessionId, Stats, Timestamp, TraceId,
    Usd,
};

/// Mode of a run (RT-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunMode {
    /// The agent does the work itself and may delegate.
    #[default]
    Normal,
    /// The orchestrator plans goals and lets sub-agents do the work.
    Orchestrator,
    /// One model call without tools, in a session of its own (RT-5).
    Call,
}

impl RunMode {
    /// Returns the mode as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Orchestrator => "orchestrator",
            Self::Call => "call",
        }
    }
}

/// Status of a run. `completed`, `failed` and `cancelled` are final (RUN-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Accepted and waiting in the queue.
    Queued,
    /// Executing.
    Running,
    /// Waiting for a user's answer or approval. Occupies no thread.
    Waiting,
    /// Not ended, and no process executes it. The run resumes when the home is opened or its
    /// session is used again. This status is never stored: readers derive it for a queued, running
    /// or waiting run.
    Interrupted,
    /// Ended with an answer.
    Completed,
    /// Ended without an answer.
    Failed,
    /// Ended by a cancel request.
    Cancelled,
}

impl RunStatus {
    /// Returns whether the status is final.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Returns the status as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Interrupted => "interrupted",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a run ended. A closed set (RUN-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model answered without further tool calls.
    Completed,
    /// The maximum number of turns was reached.
    MaxTurns,
    /// A budget was used up.
    BudgetExceeded,
    /// The run exceeded its time limit.
    TimedOut,
    /// The run was cancelled while it was queued, waiting or between calls.
    Cancelled,
    /// The run was cancelled, or the provider failed, while an answer was streamed.
    AbortedStreaming,
    /// The run was cancelled while tools were running.
    AbortedTools,
    /// The prompt does not fit the model's context window.
    PromptTooLong,
    /// The answer was truncated at the token limit.
    MaxOutputTokens,
    /// The model or its provider refused to answer.
    ContentRefused,
    /// The process ended during the run, and the run was not resumed.
    Interrupted,
    /// The actor of the run crashed more often than the restart limit allows.
    ActorCrashed,
    /// Any other failure. See the error of the run.
    Failed,
}

/// A message that the caller adds to the conversation: history before the task (SUB-1), or the
/// result of a tool call that the run returned to its caller (RUN-3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GivenMessage {
    /// `user` or `assistant` for history, `tool` for a tool result, `system` for the system prompt.
    pub role: Role,
    /// Content of the message. Its images and files are artifacts of the session.
    pub content: MessageContent,
    /// For a tool result, the id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// Settings of a run that its caller may choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunSettings {
    /// Preset of the agent.
    pub agent_type: String,
    /// Model profile, or a model name of the default profile.
    pub model: String,
    /// Options that every run has. Serialized flat, without a key of their own.
    #[serde(flatten)]
    pub options: RunOptions,
    /// System prompt. Default: the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Sampling temperature, 0 to 2. Default: the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Additional sampling parameters. They are sent unchanged with each model call.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub llm_params: Map<String, Value>,
    /// Whether the run executes tool calls. If false, the run ends at the first tool calls and
    /// returns them to its caller (RUN-3). Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_execute_tools: Option<bool>,
    /// The task, if it has images or files.
    #[serde(default, skip_serializing_if = "MessageContent::is_blank")]
    pub task_content: MessageContent,
    /// Context from the parent run, a text or an object, in a message before the task, under `##
    /// Context` (SUB-1a).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
    /// Name of the run among the collaborators of the run that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collaborator: Option<String>,
    /// The part of `budget` that a caller set, for this run or an earlier one of its session. The
    /// rest comes from the configuration. Absent if the configuration adds nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_budget: Option<Budget>,
    /// Whether a program drives the run instead of a model. Such a run only starts children (RT-4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub driven: bool,
    /// Whether the run continues the trace of an earlier child (SUB-1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// Message of the main path after which the run continues (MSG-2). Default: the head when the
    /// run leaves the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_sequence: Option<u64>,
    /// Whether the run resumes its trace without a new message (MSG-2).
    #[serde(
        rename = "goes_on",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub resumes: bool,
    /// Whether the run summarizes the conversation before its first model call, even if it is
    /// short.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compacts: bool,
    /// Permissions of the run. Serialized flat, without a key of their own.
    #[serde(flatten)]
    pub permissions: RunPermissions,
    /// Options of a reflection. If set, the run only reviews its trace (MEM-4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reflects: Option<Reflection>,
    /// Whether a new conversation starts with matching experiences of earlier runs. Default: true.
    /// Has no effect if `memory.enabled` is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_memory: Option<bool>,
    /// Name that the trace got from its task, and that a model may replace. Absent if it was named
    /// otherwise, or if `context.utility_profile` is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisional_name: Option<String>,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            agent_type: "default".to_owned(),
            model: "default".to_owned(),
            options: RunOptions::default(),
            system_prompt: None,
            temperature: None,
            llm_params: Map::new(),
            auto_execute_tools: None,
            task_content: MessageContent::default(),
            context: None,
            collaborator: None,
            given_budget: None,
            driven: false,
            continues: false,
            after_sequence: None,
            resumes: false,
            compacts: false,
            permissions: RunPermissions::default(),
            reflects: None,
            enable_memory: None,
            provisional_name: None,
        }
    }
}

impl RunSettings {
    /// Returns whether the run returns tool calls to its caller instead of executing them.
    pub fn returns_tool_calls(&self) -> bool {
        self.auto_execute_tools == Some(false)
    }
}

/// Options of a run that reviews its trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reflection {
    /// Aspect to concentrate on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
}

/// A run as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Run {
    /// Unique id.
    pub run_id: RunId,
    /// Trace of the run.
    pub trace_id: TraceId,
    /// Session of the run.
    pub session_id: SessionId,
    /// Incarnation of the session: how often its id has been used. Absent for 1.
    #[serde(
        default = "crate::session::first",
        skip_serializing_if = "crate::session::is_first"
    )]
    pub session_incarnation: u64,
    /// Parent run. Absent for a user's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// Goal of the parent run that this run works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_goal_id: Option<GoalId>,
    /// Depth in the tree of runs. 0 for a user's run.
    pub depth: u32,
    /// Mode of the run.
    pub mode: RunMode,
    /// Task of the run.
    pub task: String,
    /// Settings that the caller chose. They are serialized among the fields of the run.
    #[serde(flatten)]
    pub settings: RunSettings,
    /// Name of the model with which the run started. Absent until then. `model` is the profile that
    /// was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// User that owns the run.
    pub uid: String,
    /// Status of the run.
    pub status: RunStatus,
    /// Whether a cancel request is stored and the run has not ended yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_requested: bool,
    /// Why the run ended. Absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
    /// Number of turns that have started.
    pub turn: u32,
    /// Statistics of the run without its children.
    pub usage: Stats,
    /// Cost of the run without its children. `None` (JSON `null`) if a price is unknown.
    pub cost: Option<Usd>,
    /// Why the run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Time at which the run was accepted.
    pub created_at: Timestamp,
    /// Time at which the run left the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Time at which the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}

impl Run {
    /// Creates a queued user run with a new id and no usage, in the first incarnation of its
    /// session.
    pub fn queued(
        session_id: SessionId,
        trace_id: TraceId,
        task: String,
        settings: RunSettings,
        uid: String,
        created_at: Timestamp,
    ) -> Self {
        Self {
            run_id: RunId::generate(),
            trace_id,
            session_id,
            session_incarnation: 1,
            parent_run_id: None,
            parent_goal_id: None,
            depth: 0,
            mode: RunMode::Normal,
            task,
            settings,
            uid,
            status: RunStatus::Queued,
            cancel_requested: false,
            end_reason: None,
            turn: 0,
            usage: Stats::zero(),
            cost: Some(Usd::default()),
            error: None,
            created_at,
            started_at: None,
            completed_at: None,
            model_name: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_of_a_stored_run_are_one_flat_object() {
        let stored = json!({
            "agent_type": "explore", "model": "small", "max_iterations": 7, "tools": ["read"],
            "system_prompt": "Be brief.", "temperature": 0.5, "llm_params": {"seed": 7}, "auto_execute_tools": false,
            "context": "c", "messages": [{"role": "user", "content": "x"}], "skills": ["planning"],
            "expected_output_schema": {"type": "object", "maximum": 18446744073709551615u64, "minimum": -1.5},
            "budget": {"tokens": 100, "usd": "1.50"}, "given_budget": {"tokens": 100}, "timeout_ms": 9, "driven": true,
            "continues": true, "after_sequence": 3, "goes_on": true, "allow": ["write"], "deny": ["bash"],
            "unattended": true, "reflects": {"focus": "f"}, "enable_memory": false,
        });
        let settings: RunSettings = serde_json::from_str(&stored.to_string()).unwrap();
        assert_eq!(
            (settings.options.max_turns, settings.options.timeout_ms),
            (Some(7), Some(9))
        );
        assert_eq!(
            (
                settings.permissions.allow.len(),
                settings.permissions.unattended
            ),
            (1, true)
        );
        assert_eq!(serde_json::to_value(&settings).unwrap(), stored);
    }

    #[test]
    fn unset_options_are_not_stored() {
        let settings = serde_json::to_string(&RunSettings::default()).unwrap();
        assert_eq!(settings, r#"{"agent_type":"default","model":"default"}"#);
        assert_eq!(
            serde_json::from_str::<RunSettings>(&settings).unwrap(),
            RunSettings::default()
        );
    }
}
