//! Requests to start a run. Every option has a default.

use std::{path::PathBuf, time::Duration};

use serde_json::{Map, Value};
use soong_protocol::{
    Budget, ContentPart, ErrorCode, ErrorInfo, GivenMessage, MessageContent, PermissionMode,
    Reflection, RequestKey, Role, RunMode, RunPermissions, RunSetting, Setting, SettingUpdates,
    TraceId, milliseconds,
};

use super::SessionSpec;

/// Request to start a run.
///
/// Each method sets one option; most programs need no field:
///
/// ```
/// use std::time::Duration;
/// use soong::RunRequest;
///
/// let request = RunRequest::new("Which crates are unused?")
///     .session("cleanup")
///     .model("small")
///     .tools(["read", "grep"])
///     .timeout(Duration::from_secs(120));
/// ```
///
/// In an existing session, each setting of [`SettingUpdates`] that is not set takes the value of the
/// session's last run. Settings named in [`RunRequest::reset`] take the configured value instead.
/// The preset is inherited only if the mode does not change. Setting a preset here drops the system
/// prompt, the tools and the model of the last run. The output schema and the time limit are
/// inherited only by a run without a message.
#[derive(Debug, Clone, Default)]
#[must_use = "has no effect until it is started"]
pub struct RunRequest {
    /// The message. `None`: resume where the trace stopped, see [`RunRequest::resume`]. A message
    /// without text, images and files is rejected.
    pub message: Option<MessageContent>,
    /// The session to continue or to create. If a session with this id exists, the run continues
    /// it; it must belong to `uid`, and the other fields have no effect. Otherwise the run creates
    /// the session.
    pub session: SessionSpec,
    /// The trace of a sub-agent to continue, instead of the conversation of the session. See
    /// [`RunRequest::trace`].
    pub sub_trace: Option<TraceId>,
    /// The settings: each is inherited from the session's last run, reset, or set.
    ///
    /// - `mode`: default for a new session: `normal`.
    /// - `preset`: default for a new session: `default`, or `orchestrator` in that mode.
    /// - `model`: default for a new session: the default profile.
    /// - `temperature`: default: the preset's, else the profile's.
    /// - `llm_params`: sent with the model calls of the run, not with those of its children.
    ///   Parameters that the model does not support are rejected by its service.
    /// - `auto_execute_tools`: with `false`, the run completes with the first answer that contains
    ///   tool calls, and its outcome lists them (RUN-3). Execute them, and resume with their results
    ///   in [`RunRequest::messages`].
    /// - `budget`: each limit is inherited individually. A limit that neither the request nor the
    ///   last run sets is taken from `[budget]` of the configuration.
    /// - `enable_memory`: default: `memory.enabled` (MEM-3).
    pub settings: SettingUpdates,
    /// Messages that precede the message; see [`RunRequest::messages`](Self::messages()).
    pub messages: Vec<GivenMessage>,
    /// JSON schema of the answer; see [`RunRequest::expect`].
    pub expected_output_schema: Option<Value>,
    /// Maximum active time, in milliseconds; waiting for a user does not count. Default: no limit.
    pub timeout_ms: Option<u64>,
    /// Permissions of the run and its descendants.
    pub permissions: RunPermissions,
    /// Continue after this message of the session's main path. Default: the end of the
    /// conversation. An earlier message rewinds the conversation, its goals and its documents first
    /// (MSG-2, MSG-4). Such a run is rejected, not queued, while another run of its session has not
    /// ended. If the run has no message, the model is called again from there.
    pub after_sequence: Option<u64>,
    /// Reject the run with `session_active`, instead of queuing it, while another run of the
    /// session is running or queued. A run without a message is always rejected then.
    pub reject_if_busy: bool,
    /// Whether a program drives the run instead of a model; see [`RunRequest::driven`].
    pub driven: bool,
    /// If set, the run only reflects on the finished conversation; see [`RunRequest::reflect`].
    pub reflection: Option<Reflection>,
    /// Summarize the conversation before the first model call, even if it is short; see
    /// [`RunRequest::compact`].
    pub compact: bool,
    /// The keyed request that starts the run. It is recorded together with the run; see
    /// [`Runtime::keyed_request`](super::Runtime::keyed_request).
    pub request_key: Option<RequestKey>,
}

impl RunRequest {
    /// Creates a request with this message and defaults for everything else.
    pub fn new(message: impl Into<MessageContent>) -> Self {
        Self {
            message: Some(message.into()),
            ..Self::default()
        }
    }

    /// Adds an image or file to the message, such as [`ContentPart::inline`] for bytes. The run is
    /// rejected with `unsupported_capability` if its model does not take it.
    pub fn attach(mut self, part: ContentPart) -> Self {
        self.message.get_or_insert_default().push(part);
        self
    }

    /// Creates a request for a run without a model: a parent run that a program drives (RT-4).
    ///
    /// The run spawns no children automatically, and ends by
    /// [`RunHandle::finish`](crate::RunHandle::finish) or cancellation. Keep a handle until it has
    /// ended: without any handle, the run ends as `interrupted` when its children have ended and it
    /// has made no progress for `runtime.stuck_after_s`.
    /// [`RuntimeInfo::resumed_driven_runs`](crate::RuntimeInfo::resumed_driven_runs) returns the
    /// driven runs of an earlier process.
    pub fn driven(message: impl Into<MessageContent>) -> Self {
        Self {
            driven: true,
            ..Self::new(message)
        }
    }

    /// Creates a request to resume a session where it stopped, without a new message: after a
    /// failure, or after its process ended (MSG-2). Rejected if the last run finished with an
    /// answer.
    ///
    /// Settings that are not set here are inherited from the last run. If the session has an
    /// interrupted run, that run is resumed unchanged, and the settings made here are ignored
    /// (DUR-3).
    pub fn resume(session: impl Into<String>) -> Self {
        Self::default().session(session)
    }

    /// Creates a request for a reflection on a session: it adds new experiences, and rates the
    /// experiences that the session had received (MEM-4).
    ///
    /// The reflection is stored on a side branch: the conversation, its head and its goals do not
    /// change. Rejected with `session_active` while a run of the session has not ended. The model
    /// is the one set here, else `context.utility_profile`, else that of the last run. Of the other
    /// settings, only the user, the budget and the time limit have an effect.
    pub fn reflect(session: impl Into<String>, focus: Option<String>) -> Self {
        Self {
            reflection: Some(Reflection { focus }),
            ..Self::default()
        }
        .session(session)
    }

    /// Creates a request for one model call without tools, in a session of its own (RT-5). The
    /// system prompt is the one that is set, else that of the preset that is set, else empty. An
    /// answer that does not match the output schema is corrected once.
    pub fn call(message: impl Into<MessageContent>) -> Self {
        Self::new(message).mode(RunMode::Call)
    }

    /// Sets the id of the session to continue. If no session has this id, the run creates it.
    pub fn session(mut self, id: impl Into<String>) -> Self {
        self.session.session_id = Some(id.into());
        self
    }

    /// Sets the trace to continue. It may be that of a sub-agent: then the run waits in the queue
    /// of the sub-agent's session, and has the preset, the model and the tools of the sub-agent's
    /// last run. Tools that are set can only narrow those. Its result is not delivered to the run
    /// that started the sub-agent; that sees the new status of the collaborator with its next
    /// message.
    pub fn trace(mut self, id: &TraceId) -> Self {
        match id.parent() {
            Some(_) => self.sub_trace = Some(id.clone()),
            None => self.session.session_id = Some(id.to_string()),
        }
        self
    }

    /// Sets the display name of a new session. Default: its first message, shortened.
    pub fn session_name(mut self, name: impl Into<String>) -> Self {
        self.session.name = Some(name.into());
        self
    }

    /// Sets the user that owns the run and its session. Default: `local`.
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.session.uid = Some(uid.into());
        self
    }

    /// Sets the project directory of a new session. Default: that of the runtime.
    pub fn project_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.session.project_dir = Some(folder.into());
        self
    }

    /// Allows a new session in the user's home folder or one of its parents, if the runtime rejects
    /// that by default.
    pub fn allow_home_project(mut self) -> Self {
        self.session.allow_home_project = true;
        self
    }

    /// Sets the message after which the run continues; see [`RunRequest::after_sequence`].
    pub fn after(mut self, sequence: u64) -> Self {
        self.after_sequence = Some(sequence);
        self
    }

    /// Rejects the run while its session is busy; see
    /// [`RunRequest::reject_if_busy`](field@RunRequest::reject_if_busy).
    pub fn reject_if_busy(mut self) -> Self {
        self.reject_if_busy = true;
        self
    }

    /// Summarizes the conversation before the first model call of the run, even if it is short. The
    /// last message stays.
    pub fn compact(mut self) -> Self {
        self.compact = true;
        self
    }

    /// Sets the mode.
    pub fn mode(mut self, mode: RunMode) -> Self {
        self.settings.mode = Setting::Set(mode);
        self
    }

    /// Sets the preset.
    pub fn preset(mut self, preset: impl Into<String>) -> Self {
        self.settings.preset = Setting::Set(preset.into());
        self
    }

    /// Sets the model: a profile, or a model name within the default profile.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.settings.model = Setting::Set(model.into());
        self
    }

    /// Makes the first of the given messages the system prompt if it has the role `system`.
    ///
    /// # Errors
    /// `validation_error` if a system prompt is set as well, if another message has that role, or
    /// if the message has images or files.
    pub(super) fn take_system_message(&mut self) -> Result<(), ErrorInfo> {
        let refused = |index: usize, why: &str| {
            Err(ErrorInfo::new(
                ErrorCode::ValidationError,
                format!("messages[{index}] has the role system, {why}: use `system_prompt`"),
            ))
        };
        let messages = &self.messages;
        let is_system = |message: &GivenMessage| message.role == Role::System;
        if let Some(index) = messages.iter().skip(1).position(is_system) {
            return refused(index + 1, "which only the first message may have");
        }
        let Some(first) = messages.first().filter(|first| is_system(first)) else {
            return Ok(());
        };
        if self.settings.system_prompt.is_set() {
            return refused(0, "and `system_prompt` is set too");
        }
        if !first.content.parts().is_empty() {
            return refused(0, "and contains more than text");
        }
        let message = self.messages.remove(0);
        let prompt = message.content.as_str().to_owned();
        self.settings.system_prompt = Setting::Set(prompt);
        Ok(())
    }

    /// Sets the system prompt, which replaces the preset's.
    pub fn system_prompt(mut self, prompt: impl Into<String>) -> Self {
        self.settings.system_prompt = Setting::Set(prompt.into());
        self
    }

    /// Sets the sampling temperature, from 0 to 2.
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.settings.temperature = Setting::Set(temperature);
        self
    }

    /// Sets additional sampling parameters; see [`SettingUpdates::llm_params`].
    pub fn llm_params(mut self, parameters: Map<String, Value>) -> Self {
        self.settings.llm_params = Setting::Set(parameters);
        self
    }

    /// Sets whether the run executes the tool calls of its model; see
    /// [`SettingUpdates::auto_execute_tools`].
    pub fn auto_execute_tools(mut self, executes: bool) -> Self {
        self.settings.auto_execute_tools = Setting::Set(executes);
        self
    }

    /// Sets whether a new conversation receives the experiences of earlier runs (MEM-3).
    pub fn enable_memory(mut self, enabled: bool) -> Self {
        self.settings.enable_memory = Setting::Set(enabled);
        self
    }

    /// Sets the maximum number of turns.
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.settings.max_turns = Setting::Set(turns);
        self
    }

    /// Sets the tools that the run and its descendants may use. Default for a new session: all
    /// configured tools.
    pub fn tools(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        self.settings.tools = Setting::Set(names);
        self
    }

    /// Sets the messages inserted before the message; the first one must be a user message. Without
    /// a message: the results of the tool calls that the last run returned unexecuted, see
    /// [`SettingUpdates::auto_execute_tools`]. A call without a result counts as interrupted.
    pub fn messages(mut self, messages: impl IntoIterator<Item = GivenMessage>) -> Self {
        self.messages = messages.into_iter().collect();
        self
    }

    /// Sets the skills in the system prompt. Default: the preset's.
    pub fn skills(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        self.settings.skills = Setting::Set(names);
        self
    }

    /// Sets the JSON schema of the answer. If the answer does not match, the model may correct it
    /// once; then the run fails with `result_schema_validation_failed`. See
    /// [`RunHandle::wait_as`](crate::RunHandle::wait_as).
    pub fn expect(mut self, schema: Value) -> Self {
        self.expected_output_schema = Some(schema);
        self
    }

    /// Sets the budget of the run and its descendants. Each run of a session has the full budget.
    /// A limit that is not set is inherited.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.settings.budget = Setting::Set(budget);
        self
    }

    /// Sets the maximum active time, rounded up to milliseconds; waiting for a user does not count.
    /// Default: no limit.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout_ms = Some(milliseconds(limit));
        self
    }

    /// Allows a tool, or a tool within a scope, without a permission request; see
    /// [`RunPermissions::allow`].
    pub fn allow(mut self, grant: impl Into<String>) -> Self {
        self.permissions.allow.push(grant.into());
        self
    }

    /// Sets the permission mode. Default: `permissions.mode` of the configuration.
    pub fn permission_mode(mut self, mode: PermissionMode) -> Self {
        self.permissions.mode = Some(mode);
        self
    }

    /// Denies a tool, a tool within a scope, or commands; see [`RunPermissions::deny`].
    pub fn deny(mut self, what: impl Into<String>) -> Self {
        self.permissions.deny.push(what.into());
        self
    }

    /// Declares that no approver is available: calls that require permission are denied
    /// immediately.
    pub fn unattended(mut self) -> Self {
        self.permissions.unattended = true;
        self
    }

    /// Resets a setting, unless it is set: the run takes the configured value instead of that of
    /// the session's last run.
    pub fn reset(mut self, setting: RunSetting) -> Self {
        self.settings.reset_unless_set(setting);
        self
    }
}

impl<T: Into<MessageContent>> From<T> for RunRequest {
    fn from(message: T) -> Self {
        Self::new(message)
    }
}
