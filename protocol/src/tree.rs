//! The supervision tree in the shape that clients see: the status of each actor, and updates for
//! watchers.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{BudgetDimension, ErrorInfo, RunId, RunMode, RunStatus, Timestamp, TraceId, Usd};

/// Kind of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// Root of the tree.
    RuntimeSupervisor,
    /// Owner of the writer thread.
    Journal,
    /// Gateway to the model of one profile.
    ModelGateway,
    /// Supervisor of the connections to MCP servers.
    McpSupervisor,
    /// Connection to one MCP server.
    McpServer,
    /// Supervisor of the working sets.
    ArtifactStoreSupervisor,
    /// Documents that the runs of one session edit.
    WorkingSet,
    /// Supervisor of the sessions.
    SessionSupervisor,
    /// One session.
    Session,
    /// Supervisor of a session's user runs.
    RunSupervisor,
    /// Supervisor of a session's child runs.
    SubAgentSupervisor,
    /// One run.
    Run,
}

impl ActorKind {
    /// All kinds, in the order of their declaration.
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

    /// Returns the name of the kind, as used by clients.
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

/// Additional status of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActorRun {
    /// Trace of the run.
    pub trace_id: TraceId,
    /// Parent of a child run.
    pub parent_run_id: Option<RunId>,
    /// Mode of the run.
    pub mode: RunMode,
    /// Preset of the run.
    pub agent_type: String,
    /// Task of the run, shortened.
    pub task: String,
    /// Number of turns started.
    pub turn: u32,
    /// Focused goal, with its number.
    pub goal: Option<String>,
    /// Tokens used by the run itself.
    pub tokens: u64,
    /// Cost of these tokens. `None` if the price is unknown.
    pub cost: Option<Usd>,
    /// Whether some token counts are estimates.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// Number of the last recorded event of the run. A run that was resumed after a process restart
    /// shows 0 until it records an event in this process.
    #[serde(default)]
    pub events: u64,
    /// Number of pending questions and permission requests of the run.
    #[serde(default)]
    pub asks: u32,
    /// Time of the last progress (RUN-7).
    #[serde(default)]
    pub last_progress: Option<Timestamp>,
    /// Limits of the run, and how much of them the run and its descendants have used (BUD-1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budget: Vec<BudgetShare>,
    /// Whether the run has made no progress for longer than allowed (RUN-7).
    #[serde(default)]
    pub stuck: bool,
    /// Whether the run is passivated: it waits without an actor until it is needed again (ACT-7).
    #[serde(default)]
    pub passive: bool,
}

/// Usage of one budget limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BudgetShare {
    /// Dimension that is limited.
    pub dimension: BudgetDimension,
    /// Amount used; money as a decimal number.
    pub used: String,
    /// The limit.
    pub limit: String,
}

/// Additional status of a model gateway (MOD-3).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ActorGateway))]
pub struct GatewayView {
    /// Calls in flight.
    pub in_flight: u64,
    /// Maximum number of calls in flight.
    pub max_concurrency: u64,
    /// Calls waiting for admission.
    pub waiting: u64,
    /// Reason why the first waiting call waits: `concurrency`, `requests_per_minute`,
    /// `tokens_per_minute`, `retry_after` or `provider_down`.
    pub waits_for: Option<String>,
    /// Earliest time at which the first waiting call can begin, if known.
    pub waits_until: Option<Timestamp>,
    /// Requests sent since the gateway was created, including retries.
    pub sent: u64,
    /// Requests that count towards the limit per minute. 0 if there is no limit.
    pub requests: u64,
    /// The limit of requests per minute. `None` if there is none.
    pub requests_per_minute: Option<u64>,
    /// Tokens that count towards the limit per minute. 0 if there is no limit.
    pub tokens: u64,
    /// The limit of tokens per minute. `None` if there is none.
    pub tokens_per_minute: Option<u64>,
    /// End of the pause that the service requested. `None` if there is none.
    pub retry_after: Option<Timestamp>,
    /// Whether the provider counts as down.
    pub is_down: bool,
}

/// Recorded end of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The run.
    pub run_id: RunId,
    /// Final status.
    pub status: RunStatus,
    /// Why the run failed.
    pub error: Option<ErrorInfo>,
    /// Time of the end.
    pub completed_at: Timestamp,
    /// Number of turns started.
    pub turn: u32,
    /// Tokens used by the run itself.
    pub tokens: u64,
    /// Cost of these tokens. `None` if the price is unknown.
    pub cost: Option<Usd>,
    /// Whether some token counts are estimates.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// One actor in a snapshot of the supervision tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActorView {
    /// Id that is unique across all kinds: `kind:id`.
    pub actor_id: String,
    /// Kind of the actor.
    pub kind: ActorKind,
    /// Id within the kind.
    pub id: String,
    /// Display name: the preset of a run, otherwise the kind.
    pub name: String,
    /// `actor_id` of the supervisor.
    pub parent: Option<String>,
    /// State of the actor.
    pub state: Cow<'static, str>,
    /// Current activity.
    pub activity: String,
    /// Start of the current activity.
    pub since: Timestamp,
    /// Start of the first incarnation.
    pub started_at: Timestamp,
    /// Number of restarts.
    pub restarts: u32,
    /// Limit of restarts: `restarts/window`.
    pub restart_limit: Cow<'static, str>,
    /// Messages in the mailbox.
    pub mailbox: usize,
    /// Messages handled.
    pub handled: u64,
    /// Error of the last crash. For a run, also the last failure of a model call, tool call or
    /// child run.
    pub last_error: Option<String>,
    /// Additional status of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<ActorRun>,
    /// Additional status of a model gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayView>,
    /// Actors supervised by this one.
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub children: Vec<ActorView>,
}

/// Update for a watcher of the tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", content = "data")]
pub enum TreeEvent {
    /// Snapshot of the whole tree. Replaces everything sent before.
    #[serde(rename = "tree_snapshot")]
    Snapshot {
        /// The root with all its descendants.
        tree: Box<ActorView>,
        /// Number of changes that this watcher has missed so far.
        dropped: u64,
    },
    /// Changes since the previous update.
    #[serde(rename = "tree_changed")]
    Changed {
        /// New or changed actors, without their children.
        changed: Arc<[ActorView]>,
        /// Removed actors, by `actor_id`. An actor that is in `changed` as well was removed and
        /// started again.
        gone: Arc<[String]>,
        /// Ends of the removed runs. A removed run without an entry has not ended: its runtime
        /// stopped executing it. The ends of runs that ended while changes were missed must be read
        /// from their records.
        #[serde(default)]
        ended: Arc<[RunEnd]>,
        /// Number of changes that this watcher has missed so far.
        dropped: u64,
    },
}
