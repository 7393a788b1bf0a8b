//! The status of an actor in the shape that clients see.
//!
//! Data only. Not here: where it comes from (`observatory.rs`).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use soong_protocol::{BudgetDimension, ErrorInfo, RunId, RunMode, RunStatus, Timestamp, TraceId, Usd};

use crate::redaction::Redactor;

/// What kind of actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// The root.
    RuntimeSupervisor,
    /// Owner of the writer thread.
    Journal,
    /// Door to the model of one profile.
    ModelGateway,
    /// Keeper of the connections to servers of tools.
    McpSupervisor,
    /// Connection to one server of tools.
    McpServer,
    /// Keeper of working sets.
    ArtifactStoreSupervisor,
    /// The documents that one session's runs edit.
    WorkingSet,
    /// Keeper of sessions.
    SessionSupervisor,
    /// One session.
    Session,
    /// Keeper of a session's user runs.
    RunSupervisor,
    /// Keeper of a session's child runs.
    SubAgentSupervisor,
    /// One run.
    Run,
}

impl ActorKind {
    /// Every kind, in the order of their declaration.
    pub const ALL: [Self; 12] = [
        Self::RuntimeSupervisor,
        Self::Journal,
        Self::ModelGateway,
        Self::McpSupervisor,
        Self::McpServer,
        Self::ArtifactStoreSupervisor,
        Self::WorkingSet,
        Self::SessionSupervisor,
        Self::Session,
        Self::RunSupervisor,
        Self::SubAgentSupervisor,
        Self::Run,
    ];

    /// Returns the kind as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RuntimeSupervisor => "runtime_supervisor",
            Self::Journal => "journal",
            Self::ModelGateway => "model_gateway",
            Self::McpSupervisor => "mcp_supervisor",
            Self::McpServer => "mcp_server",
            Self::ArtifactStoreSupervisor => "artifact_store_supervisor",
            Self::WorkingSet => "working_set",
            Self::SessionSupervisor => "session_supervisor",
            Self::Session => "session",
            Self::RunSupervisor => "run_supervisor",
            Self::SubAgentSupervisor => "sub_agent_supervisor",
            Self::Run => "run",
        }
    }
}

/// What a run shows beyond other actors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ActorRun))]
pub struct RunView {
    /// Its trace.
    pub trace_id: TraceId,
    /// Who it works for.
    pub parent_run_id: Option<RunId>,
    /// What kind of agent leads it.
    pub mode: RunMode,
    /// Its preset.
    pub agent_type: String,
    /// What it was asked to do, shortened.
    pub task: String,
    /// Turns begun.
    pub turn: u32,
    /// The focused goal, numbered.
    pub goal: Option<String>,
    /// Tokens used, its own.
    pub tokens: u64,
    /// What that cost; `None` where the price is unknown.
    pub cost: Option<Usd>,
    /// Events of it that are recorded: the number of its last one. A run that an earlier process left behind shows 0
    /// until it has recorded one here.
    #[serde(default)]
    pub events: u64,
    /// Questions and permissions that it waits for people with.
    #[serde(default)]
    pub asks: u32,
    /// When something last came of it (RUN-7).
    #[serde(default)]
    pub last_progress: Option<Timestamp>,
    /// The limits that it was given, and what it and all below it have used of them (BUD-1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budget: Vec<BudgetShare>,
    /// Whether nothing has come of it for longer than it should (RUN-7).
    #[serde(default)]
    pub stuck: bool,
    /// Whether its actor has left while it waits, and comes back when it is needed (ACT-7).
    #[serde(default)]
    pub passive: bool,
}

/// How much of a limit is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BudgetShare {
    /// What is limited.
    pub dimension: BudgetDimension,
    /// What is used; money as a decimal.
    pub used: String,
    /// What may be.
    pub limit: String,
}

/// What the gateway to a model shows beyond other actors (MOD-3).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ActorGateway))]
pub struct GatewayView {
    /// Calls on their way.
    pub in_flight: u64,
    /// How many may be.
    pub max_concurrency: u64,
    /// Calls that wait to be let in.
    pub waiting: u64,
    /// What the first of them waits for: `concurrency`, `requests_per_minute`, `tokens_per_minute`, `retry_after`,
    /// `provider_down`.
    pub waits_for: Option<String>,
    /// Until when at least, where that is known.
    pub waits_until: Option<Timestamp>,
    /// Calls sent since it was made, tries included.
    pub sent: u64,
    /// How many of them count for the limit by the minute; 0 without one.
    pub requests: u64,
    /// That limit; `None` = there is none.
    pub requests_per_minute: Option<u64>,
    /// Tokens that count for the limit by the minute; 0 without one.
    pub tokens: u64,
    /// That limit; `None` = there is none.
    pub tokens_per_minute: Option<u64>,
    /// When the pause ends that the service asked for; `None` = there is none.
    pub retry_after: Option<Timestamp>,
    /// Whether the provider is taken to be down.
    pub is_down: bool,
}

/// How a run ended, as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The run.
    pub run_id: RunId,
    /// How it ended; terminal.
    pub status: RunStatus,
    /// Why it failed.
    pub error: Option<ErrorInfo>,
    /// When.
    pub completed_at: Timestamp,
    /// Turns begun.
    pub turn: u32,
    /// Tokens used, its own.
    pub tokens: u64,
    /// What that cost; `None` where the price is unknown.
    pub cost: Option<Usd>,
}

/// One actor in a snapshot of the supervision tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActorView {
    /// Its name over all kinds: `kind:id`.
    pub actor_id: String,
    /// What kind of actor.
    pub kind: ActorKind,
    /// Its id within its kind.
    pub id: String,
    /// What people call it: a run's preset, otherwise its kind.
    pub name: String,
    /// Its supervisor.
    pub parent: Option<String>,
    /// What state it is in.
    pub state: Cow<'static, str>,
    /// What it does now.
    pub activity: String,
    /// Since when.
    pub since: Timestamp,
    /// When its first incarnation started.
    pub started_at: Timestamp,
    /// How often it was restarted.
    pub restarts: u32,
    /// How often it may be: `restarts/window`.
    pub restart_limit: Cow<'static, str>,
    /// Messages that wait for it.
    pub mailbox: usize,
    /// Messages that it has handled.
    pub handled: u64,
    /// What it last died of; of a run also what became of its last model call, tool call or child that failed.
    pub last_error: Option<String>,
    /// What a run shows beyond that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunView>,
    /// What a model gateway shows beyond that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayView>,
    /// Those that it supervises.
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub children: Vec<ActorView>,
}

impl ActorView {
    /// Takes the secrets out of the view and of those below it.
    pub(crate) fn redact(&mut self, redactor: &Redactor) {
        redactor.redact(&mut self.activity);
        redactor.redact_some(&mut self.last_error);
        self.children.iter_mut().for_each(|child| child.redact(redactor));
    }
}
