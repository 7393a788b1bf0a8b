//! Requests to start a run. Every option has a default.

use std::path::PathBuf;

use serde_json::{Map, Value};
use soong_protocol::{Budget, GivenMessage, Reflection, RunMode};

/// Request to start a run.
///
/// In an existing session, each setting of [`RunSetting`] that is `None` takes the value of the session's last run.
/// Settings named in [`RunRequest::reset`] take the configured value instead. The preset is inherited only if the mode
/// does not change. Setting a preset here drops the system prompt, the tools and the model of the last run. The
/// output schema and the time limit are inherited only by a run without a message.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// The message. `None`: resume where the trace stopped, see [`RunRequest::resume`]. An empty or blank message is
    /// rejected.
    pub message: Option<String>,
    /// The session. `None`: a new session. An unknown id creates a session with that id.
    pub session_id: Option<String>,
    /// Mode of the run. Default for a new session: `normal`.
    pub mode: Option<RunMode>,
    /// Preset. Default for a new session: `default`, or `orchestrator` in that mode.
    pub agent_type: Option<String>,
    /// Model profile, or a model name within the default profile. Default for a new session: the default profile.
    pub model: Option<String>,
    /// Maximum number of turns.
    pub max_iterations: Option<u32>,
    /// Tools that the run and its descendants may use. Default for a new session: all that the configuration allows.
    pub tools: Option<Vec<String>>,
    /// System prompt that replaces the preset's.
    pub system_prompt: Option<String>,
    /// Messages inserted before the message; the first one must be a user message. Without a message: the results of
    /// the tool calls that the last run returned unexecuted, see [`RunRequest::auto_execute_tools`]. A call without a
    /// result counts as interrupted.
    pub messages: Vec<GivenMessage>,
    /// Sampling temperature, from 0 to 2. Default: the preset's, else the profile's.
    pub temperature: Option<f64>,
    /// Additional sampling parameters (`top_p`, `seed`, `stop`, …). They are sent unchanged with the model calls of
    /// the run, not with those of its children. Parameters that the model does not support are rejected by its
    /// service.
    pub llm_params: Option<Map<String, Value>>,
    /// Whether the run executes the tool calls of its model. Default: yes. With `Some(false)`, the run completes with
    /// the first answer that contains tool calls, and its outcome lists them (RUN-3). Execute them, and resume with
    /// their results in [`RunRequest::messages`].
    pub auto_execute_tools: Option<bool>,
    /// Skills included in the system prompt. Default: the preset's.
    pub skills: Option<Vec<String>>,
    /// Whether a new conversation receives the experiences of earlier runs (MEM-3). Default: `memory.enabled`.
    pub enable_memory: Option<bool>,
    /// If set, the run only reflects on the finished conversation; see [`RunRequest::reflect`].
    pub reflection: Option<Reflection>,
    /// JSON schema of the answer. If the answer does not match, the model may correct it once; then the run fails
    /// with `result_schema_validation_failed`. See [`RunHandle::wait_as`](crate::RunHandle::wait_as).
    pub expected_output_schema: Option<Value>,
    /// Limits for the run and its descendants. Each run of a session has the full budget. A limit that is not set
    /// here is inherited from the last run, else taken from `[budget]` of the configuration.
    pub budget: Budget,
    /// Settings that take the configured value instead of that of the last run.
    pub reset_settings: Vec<RunSetting>,
    /// Maximum run time, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Display name of a new session. Default: its first message, shortened.
    pub name: Option<String>,
    /// User that owns the run. Default: `local`.
    pub uid: Option<String>,
    /// Project directory of a new session. Default: that of the runtime.
    pub project_dir: Option<PathBuf>,
    /// Continue after this message of the session's main path. Default: the end of the conversation. An earlier
    /// message rewinds the conversation, its goals and its documents first (MSG-2, MSG-4). Such a run is rejected,
    /// not queued, while another run of its session has not ended. If the run has no message, the model is called
    /// again from there.
    pub after_sequence: Option<u64>,
    /// Reject the run with `session_active`, instead of queuing it, while another run of the session is running or
    /// queued. A run without a message is always rejected then.
    pub reject_if_busy: bool,
    /// Whether a program drives the run instead of a model; see [`RunRequest::driven`].
    pub driven: bool,
    /// Permissions of the run and its descendants: `TOOL` or `TOOL:SCOPE`, such as `write:src`, `bash:cargo` or
    /// `webfetch:example.org` (PERM-1). Never inherited from an earlier run.
    pub allow: Vec<String>,
    /// Calls denied to the run, its descendants and all later runs of the session, even if another rule allows them:
    /// `TOOL`, `TOOL:SCOPE`, or `bash(PATTERN)` with the words of a command, such as `bash(git push *)`.
    pub deny: Vec<String>,
    /// Allows a new session in the user's home folder or one of its parents, if the runtime rejects that by default.
    pub allow_home_project: bool,
    /// No approver is available: calls that require permission are denied immediately.
    pub unattended: bool,
}

/// Setting that a new run inherits from the last run of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunSetting {
    /// [`RunRequest::system_prompt`].
    SystemPrompt,
    /// [`RunRequest::tools`].
    Tools,
    /// [`RunRequest::agent_type`].
    Preset,
    /// [`RunRequest::model`].
    Model,
    /// [`RunRequest::mode`].
    Mode,
    /// [`RunRequest::llm_params`].
    LlmParams,
    /// [`RunRequest::temperature`].
    Temperature,
    /// [`RunRequest::max_iterations`].
    MaxIterations,
    /// [`RunRequest::skills`].
    Skills,
    /// [`RunRequest::enable_memory`].
    EnableMemory,
    /// [`RunRequest::auto_execute_tools`].
    AutoExecuteTools,
    /// [`RunRequest::budget`].
    Budget,
}

impl RunRequest {
    /// Creates a request with this message and defaults for everything else.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..Self::default() }
    }

    /// Creates a request for a run without a model: a parent run that a program drives (RT-4).
    ///
    /// The run spawns no children automatically, and ends by [`RunHandle::finish`](crate::RunHandle::finish) or
    /// cancellation. Keep a handle until it has ended: without any handle, the run ends as `interrupted` when its
    /// children have ended and it has made no progress for `runtime.stuck_after_s`.
    /// [`RuntimeInfo::resumed_driven_runs`](crate::RuntimeInfo::resumed_driven_runs) returns the driven runs of an
    /// earlier process.
    pub fn driven(message: impl Into<String>) -> Self {
        Self { driven: true, ..Self::new(message) }
    }

    /// Creates a request to resume a session where it stopped, without a new message: after a failure, or after its
    /// process ended (MSG-2). Rejected if the last run finished with an answer.
    ///
    /// Settings that are not set here are inherited from the last run. If the session has an interrupted run, that
    /// run is resumed unchanged, and the settings made here are ignored (DUR-3).
    pub fn resume(session: impl Into<String>) -> Self {
        Self::default().session(session)
    }

    /// Creates a request for a reflection on a session: it adds new experiences, and rates the experiences that the
    /// session had received (MEM-4).
    ///
    /// The reflection is stored on a side branch: the conversation, its head and its goals do not change. Rejected
    /// with `session_active` while a run of the session has not ended. The model is the one set here, else
    /// `context.utility_profile`, else that of the last run.
    pub fn reflect(session: impl Into<String>, focus: Option<String>) -> Self {
        Self { reflection: Some(Reflection { focus }), ..Self::default() }.session(session)
    }

    /// Sets the mode.
    #[must_use]
    pub fn mode(mut self, mode: RunMode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets the message after which the run continues.
    #[must_use]
    pub fn after(mut self, sequence: u64) -> Self {
        self.after_sequence = Some(sequence);
        self
    }

    /// Sets the JSON schema of the answer.
    #[must_use]
    pub fn expect(mut self, schema: Value) -> Self {
        self.expected_output_schema = Some(schema);
        self
    }

    /// Denies a tool, a tool within a scope, or commands; see [`RunRequest::deny`](field@RunRequest::deny).
    #[must_use]
    pub fn deny(mut self, what: impl Into<String>) -> Self {
        self.deny.push(what.into());
        self
    }

    /// Allows a tool, or a tool within a scope, without asking for permission.
    #[must_use]
    pub fn allow(mut self, grant: impl Into<String>) -> Self {
        self.allow.push(grant.into());
        self
    }

    /// Resets a setting to its configured value; see [`RunRequest::reset_settings`](field@RunRequest::reset_settings).
    #[must_use]
    pub fn reset(mut self, setting: RunSetting) -> Self {
        self.reset_settings.push(setting);
        self
    }

    /// Sets the budget of the run and its descendants.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the session.
    #[must_use]
    pub fn session(mut self, id: impl Into<String>) -> Self {
        self.session_id = Some(id.into());
        self
    }
}

impl<T: Into<String>> From<T> for RunRequest {
    fn from(message: T) -> Self {
        Self::new(message)
    }
}
