//! What a caller says of a run that is to be started; everything has a default.

use std::path::PathBuf;

use serde_json::{Map, Value};
use soong_protocol::{Budget, GivenMessage, Reflection, RunMode};

/// A run to be started.
///
/// A further run of a session takes each setting of [`RunSetting`] that is left at `None` from the session's last run.
/// [`Start::reset`] names those that take the value of the configuration instead. The preset is taken only if the mode
/// stays the same. A preset that is given here drops the system prompt, the tools and the model of the last run. The
/// output schema and the time limit are taken only by a run without a message.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// What is asked of the run; `None` = go on where the trace stopped, see [`Start::go_on`]. An empty
    /// or blank one is refused.
    pub message: Option<String>,
    /// The session; `None` = a new one. An id that is not known makes a session of that id.
    pub session_id: Option<String>,
    /// Mode of the run; `normal` for a new session.
    pub mode: Option<RunMode>,
    /// Preset; `None` = `default`, or `orchestrator` in that mode.
    pub agent_type: Option<String>,
    /// Profile, or a model name of the default profile; `None` = the default profile.
    pub model: Option<String>,
    /// Most turns.
    pub max_iterations: Option<u32>,
    /// What the run and all below it may ever use; `None` = everything configured.
    pub tools: Option<Vec<String>>,
    /// System prompt in place of the preset's.
    pub system_prompt: Option<String>,
    /// What stands in the conversation before the message; begins with a user's. Without a message: the results of the
    /// tool calls that the last run handed out, see [`Start::auto_execute_tools`]; a call without one counts as
    /// interrupted.
    pub messages: Vec<GivenMessage>,
    /// Sampling temperature, 0 to 2; `None` = the preset's, else the profile's.
    pub temperature: Option<f64>,
    /// Further sampling parameters (`top_p`, `seed`, `stop`, …): sent with the run's model calls as they are, not with
    /// those of its children. What a model refuses, its service says.
    pub llm_params: Option<Map<String, Value>>,
    /// Whether the run does the tool calls of its model; `None` = yes. With `Some(false)` it completes with the first
    /// answer that has calls, and its outcome holds them (RUN-3): run them, and go on with their results as
    /// [`Start::messages`].
    pub auto_execute_tools: Option<bool>,
    /// The skills that go into the system prompt; `None` = the preset's.
    pub skills: Option<Vec<String>>,
    /// Whether a new conversation is told what earlier runs have learned; `None` = as `memory.enabled` says, `false` =
    /// not (MEM-3).
    pub enable_memory: Option<bool>,
    /// Where it is to look back only: how. See [`Start::reflect`].
    pub reflects: Option<Reflection>,
    /// The JSON schema that the answer has to fit: the model may mend it once, then the run fails with
    /// `result_schema_validation_failed`. See [`RunHandle::wait_as`](crate::RunHandle::wait_as).
    pub expected_output_schema: Option<Value>,
    /// Limits for the run and everything below it. Each run of a session has all of its budget. A limit that is left
    /// open is that of the last run, else that of `[budget]` in the configuration.
    pub budget: Budget,
    /// Settings that take the value of the configuration instead of the last run's.
    pub reset: Vec<RunSetting>,
    /// Most run time, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// What people call a new session.
    pub name: Option<String>,
    /// Whose run it is; `None` = `local`.
    pub uid: Option<String>,
    /// Project directory of a new session; `None` = the runtime's.
    pub project_dir: Option<PathBuf>,
    /// The message of its session's main path behind which it goes on; absent, or the last one = where the
    /// conversation stands. An earlier one takes the conversation, its goals and its documents back to there first
    /// (MSG-2, MSG-4); such a run is refused, not queued, while another one of its session has not ended. Without a
    /// message of its own the model is asked again from there.
    pub after_sequence: Option<u64>,
    /// Whether it is refused as `session_active` instead of queued while another run of the session is at
    /// work or waits. A run without a message always is.
    pub reject_if_busy: bool,
    /// Whether a program drives the run instead of a model: see [`Start::driven`].
    pub driven: bool,
    /// What the run and all below it may do without asking: `TOOL` or `TOOL:SCOPE`, such as `write:src`, `bash:cargo`,
    /// `webfetch:example.org` (PERM-1). Never taken over from an earlier run.
    pub allow: Vec<String>,
    /// Denies calls to the run, to all below it and to all further runs of its session, whatever else allows them: `TOOL`,
    /// `TOOL:SCOPE`, or `bash(PATTERN)` with the words of a command, such as `bash(git push *)`.
    pub deny: Vec<String>,
    /// Allows a new session in the user's home folder or above it, if the runtime refuses that.
    pub allow_home_project: bool,
    /// Whether nobody can be asked what the run needs leave for: it is refused at once.
    pub unattended: bool,
}

/// A setting that a further run of a session takes from the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunSetting {
    /// [`Start::system_prompt`].
    SystemPrompt,
    /// [`Start::tools`].
    Tools,
    /// [`Start::agent_type`].
    Preset,
    /// [`Start::model`].
    Model,
    /// [`Start::mode`].
    Mode,
    /// [`Start::llm_params`].
    LlmParams,
    /// [`Start::temperature`].
    Temperature,
    /// [`Start::max_iterations`].
    MaxIterations,
    /// [`Start::skills`].
    Skills,
    /// [`Start::enable_memory`].
    EnableMemory,
    /// [`Start::auto_execute_tools`].
    AutoExecuteTools,
    /// [`Start::budget`].
    Budget,
}

impl Start {
    /// Asks for a run with this message, everything else at its default.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..Self::default() }
    }

    /// Asks for a run without a model, as a parent that only the program drives (RT-4).
    ///
    /// It spawns no child by itself and ends by [`RunHandle::finish`](crate::RunHandle::finish) or cancel. Keep a handle
    /// until it has ended: without any handle, it ends as `interrupted` when its children have ended and it has made no
    /// progress for `runtime.stuck_after_s`. [`Runtime::undriven`](crate::Runtime::undriven) returns those of an earlier
    /// process.
    pub fn driven(message: impl Into<String>) -> Self {
        Self { driven: true, ..Self::new(message) }
    }

    /// Asks a session to go on where it stopped, without a new message: after a failure, or when a
    /// process had ended under it (MSG-2). Refused where the last run finished with an answer.
    ///
    /// The run is given what the last one was given, but for what is set here. Where a process left a run behind in
    /// the session, that one goes on as it is, whatever is set here (DUR-3).
    pub fn go_on(session: impl Into<String>) -> Self {
        Self::default().session(session)
    }

    /// Asks for a look back on a session: what was learned is added to the experiences, and those that it was told are
    /// counted for or against (MEM-4).
    ///
    /// It happens on a side branch: the conversation, its head and its goals stay as they are. Refused as
    /// `session_active` while a run of the session has not ended. The model is that of `context.utility_profile`, else
    /// that of the last run, unless one is set here.
    pub fn reflect(session: impl Into<String>, focus: Option<String>) -> Self {
        Self { reflects: Some(Reflection { focus }), ..Self::default() }.session(session)
    }

    /// Sets the mode.
    #[must_use]
    pub fn mode(mut self, mode: RunMode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets the message behind which it goes on.
    #[must_use]
    pub fn after(mut self, sequence: u64) -> Self {
        self.after_sequence = Some(sequence);
        self
    }

    /// Sets the JSON schema that the answer has to fit.
    #[must_use]
    pub fn expect(mut self, schema: Value) -> Self {
        self.expected_output_schema = Some(schema);
        self
    }

    /// Denies a tool, a tool within a scope, or commands; see [`Start::deny`](field@Start::deny).
    #[must_use]
    pub fn deny(mut self, what: impl Into<String>) -> Self {
        self.deny.push(what.into());
        self
    }

    /// Allows a tool, or a tool within a scope, without asking.
    #[must_use]
    pub fn allow(mut self, grant: impl Into<String>) -> Self {
        self.allow.push(grant.into());
        self
    }

    /// Resets a setting to the configuration; see [`Start::reset`](field@Start::reset).
    #[must_use]
    pub fn reset(mut self, setting: RunSetting) -> Self {
        self.reset.push(setting);
        self
    }

    /// Sets what the run and everything below it may use.
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

impl<T: Into<String>> From<T> for Start {
    fn from(message: T) -> Self {
        Self::new(message)
    }
}
