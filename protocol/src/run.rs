//! A run: one execution of the agent loop on a trace, from start to one terminal state (RUN-1).

use serde::{Deserialize, Serialize};

use serde_json::{Map, Value};

use crate::{Budget, ErrorInfo, GoalId, Role, RunId, SessionId, Stats, Timestamp, TraceId, Usd};

/// What kind of agent leads a run (RT-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunMode {
    /// The main agent works by itself, and may delegate.
    #[default]
    Normal,
    /// The orchestrator plans goals and lets sub-agents do the work.
    Orchestrator,
}

impl RunMode {
    /// Returns the mode as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Orchestrator => "orchestrator",
        }
    }
}

/// Where a run stands. `completed`, `failed` and `cancelled` are never left (RUN-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Accepted; waits for its turn.
    Queued,
    /// At work.
    Running,
    /// Waits for a person; holds no thread.
    Waiting,
    /// Not ended, and no process executes it. It resumes when the home is opened or its session is used again. Never
    /// stored: readers compute it for a queued, running or waiting run.
    Interrupted,
    /// Finished with an answer.
    Completed,
    /// Ended without one.
    Failed,
    /// Ended on request.
    Cancelled,
}

impl RunStatus {
    /// Returns whether the status is never left.
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

/// Why a run ended; a closed set (RUN-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model answered without further tool calls.
    Completed,
    /// The iteration limit was reached.
    MaxTurns,
    /// A budget was used up.
    BudgetExceeded,
    /// The run took longer than it may.
    TimedOut,
    /// Cancelled while queued, waiting or between calls.
    Cancelled,
    /// Cancelled, or the provider failed, while text streamed.
    AbortedStreaming,
    /// Cancelled while tools ran.
    AbortedTools,
    /// The prompt does not fit the model's window.
    PromptTooLong,
    /// The answer was cut at its token limit.
    MaxOutputTokens,
    /// The process ended under it, and it was not resumed.
    Interrupted,
    /// Its actor crashed more often than the restart limit allows.
    ActorCrashed,
    /// Anything else; the error says what.
    Failed,
}

/// A message that a conversation is given: what stands before a task (SUB-1), or the result of a tool call that a run
/// has handed out (RUN-3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GivenMessage {
    /// Who said it: `user` or `assistant`; `tool` = a result.
    pub role: Role,
    /// What was said.
    pub content: String,
    /// Of a result: the call that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// What a caller may set for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunSettings {
    /// Preset of the agent.
    pub agent_type: String,
    /// Profile, or a model name of the default profile.
    pub model: String,
    /// Most turns; `None` = the preset's, else `runtime.max_turns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// The ceiling: what the run and all below it may ever use; `None` = everything configured (SUB-6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// System prompt in place of the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Sampling temperature, 0 to 2, in place of the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Further sampling parameters, sent with its model calls as they are.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub llm_params: Map<String, Value>,
    /// Whether it runs the tool calls of its model; `false` = it ends with the first ones, and hands them to its
    /// caller (RUN-3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_execute_tools: Option<bool>,
    /// What a parent passes along, shown under `## Context` (SUB-1a).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// What stands in the conversation before the task (SUB-1); where it goes on, the results of calls that were handed
    /// out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<GivenMessage>,
    /// The skills that go into the system prompt; `None` = the preset's, else all built in (MEM-1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// The JSON schema that the answer has to fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_output_schema: Option<Value>,
    /// What it and everything below it may use, within what is left to the one above it (BUD-1).
    #[serde(default, skip_serializing_if = "Budget::is_open")]
    pub budget: Budget,
    /// The part of `budget` that a caller set, for this run or an earlier one of its session; the rest is from the
    /// configuration. Absent if that is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_budget: Option<Budget>,
    /// Most run time in milliseconds; `None` = no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether a program drives the run instead of a model: it only spawns children (RT-4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub driven: bool,
    /// Whether it goes on with the trace of an earlier child (SUB-1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// The message of its trace's main path that it goes on from; `None` = the head when its turn comes (MSG-2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_sequence: Option<u64>,
    /// Whether it goes on where its trace stopped, without a message of its own (MSG-2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goes_on: bool,
    /// What it and all below it may do without asking: `TOOL` or `TOOL:SCOPE` (PERM-1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// What it and all below it, and further runs of its session, may not do, whatever else allows it (PERM-1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Whether nobody can be asked: what needs leave is refused at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// Where it only looks back on its trace (MEM-4): how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reflects: Option<Reflection>,
    /// Whether a new conversation is told what earlier runs have learned; absent = as configured, `false` = not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_memory: Option<bool>,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            agent_type: "default".to_owned(),
            model: "default".to_owned(),
            max_iterations: None,
            tools: None,
            system_prompt: None,
            temperature: None,
            llm_params: Map::new(),
            auto_execute_tools: None,
            context: None,
            messages: Vec::new(),
            skills: None,
            expected_output_schema: None,
            budget: Budget::default(),
            given_budget: None,
            timeout_ms: None,
            driven: false,
            continues: false,
            after_sequence: None,
            goes_on: false,
            allow: Vec::new(),
            deny: Vec::new(),
            unattended: false,
            reflects: None,
            enable_memory: None,
        }
    }
}

impl RunSettings {
    /// Returns whether tool calls are the caller's to run.
    pub fn hands_out_calls(&self) -> bool {
        self.auto_execute_tools == Some(false)
    }
}

/// How a run looks back on its trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reflection {
    /// What it is to look at above all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
}

/// A run as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Run {
    /// Its id.
    pub run_id: RunId,
    /// The trace it works on.
    pub trace_id: TraceId,
    /// The session it belongs to.
    pub session_id: SessionId,
    /// The run that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// The parent's goal it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_goal_id: Option<GoalId>,
    /// 0 for a user's run, one more per level below.
    pub depth: u32,
    /// What kind of agent leads it.
    pub mode: RunMode,
    /// What was asked of it.
    pub task: String,
    /// What its caller set; clients see it among the run's own fields.
    #[serde(flatten)]
    pub settings: RunSettings,
    /// Whose it is.
    pub uid: String,
    /// Where it stands.
    pub status: RunStatus,
    /// Whether its end was asked for, and has not come yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_requested: bool,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
    /// Turns begun.
    pub turn: u32,
    /// What it used itself.
    pub usage: Stats,
    /// What it cost itself; `None` where a price is unknown.
    pub cost: Option<Usd>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it left the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}

impl Run {
    /// Makes a run of a user's, under a new id, that waits for its turn and has used nothing yet.
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
        }
    }
}
