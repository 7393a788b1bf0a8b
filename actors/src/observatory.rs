//! The observatory: what every actor shows of itself (HOUSE-6).
//!
//! Each actor has a [`Gauge`] that it and its senders update with atomics and short locks; the
//! observatory holds the gauges. Reading the whole tree asks no actor anything.
//! Not here: drawing; telling what changes (`observatory/watch.rs`).

mod watch;

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use dashmap::DashMap;
use serde::{Deserialize, Serialize};
use soong_protocol::{RunId, RunMode, Timestamp, TraceId, Usd};
pub(crate) use watch::Watched;
pub use watch::{TreeEvent, TreeWatch};

/// Returns the time now.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

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
    /// Whether nothing has come of it for longer than it should (RUN-7).
    #[serde(default)]
    pub stuck: bool,
    /// Whether its actor has left while it waits, and comes back when it is needed (HOUSE-7).
    #[serde(default)]
    pub passive: bool,
}

/// What changes while an actor lives.
#[derive(Debug, Clone)]
struct Look {
    state: &'static str,
    activity: String,
    since: Timestamp,
    /// What the activity waits for at the moment.
    pause: Option<String>,
    last_error: Option<String>,
    run: Option<RunView>,
}

/// One actor's observable state. It outlives a crash: the next incarnation goes on with it.
#[derive(Debug)]
pub(crate) struct Gauge {
    kind: ActorKind,
    id: String,
    parent: Option<String>,
    started_at: Timestamp,
    restart_limit: &'static str,
    restarts: AtomicU32,
    /// Those of all actors by kind, also of those that are gone.
    all_restarts: Arc<Restarts>,
    mailbox: AtomicUsize,
    handled: AtomicU64,
    /// How often what it shows has changed, but for its mailbox.
    looks: AtomicU64,
    look: Mutex<Look>,
}

impl Gauge {
    /// Names an actor over all kinds.
    pub(crate) fn actor_id(kind: ActorKind, id: &str) -> String {
        format!("{}:{id}", kind.as_str())
    }

    pub(crate) fn sent(&self) {
        self.mailbox.fetch_add(1, Relaxed);
    }

    pub(crate) fn took(&self) {
        let _ = self.mailbox.fetch_update(Relaxed, Relaxed, |depth| depth.checked_sub(1));
        self.handled.fetch_add(1, Relaxed);
    }

    /// Returns how many messages were taken.
    pub(crate) fn handled(&self) -> u64 {
        self.handled.load(Relaxed)
    }

    /// A new incarnation has an empty mailbox.
    pub(crate) fn restarted(&self, error: &str) {
        self.restarts.fetch_add(1, Relaxed);
        self.all_restarts.0[self.kind as usize].fetch_add(1, Relaxed);
        self.mailbox.store(0, Relaxed);
        self.with(|look| look.last_error = Some(error.to_owned()));
        self.show("restarting", "");
    }

    pub(crate) fn show(&self, state: &'static str, activity: impl Into<String>) {
        let activity = activity.into();
        self.with(|look| {
            if look.state != state || look.activity != activity {
                look.since = now();
                look.state = state;
                look.activity = activity;
                look.pause = None;
            }
        });
    }

    /// Shows what the activity waits for; `None` = it goes on. Another activity ends the wait.
    pub(crate) fn pause(&self, reason: Option<String>) {
        self.with(|look| look.pause = reason);
    }

    pub(crate) fn show_run(&self, change: impl FnOnce(&mut RunView)) {
        self.with(|look| {
            if let Some(run) = &mut look.run {
                change(run);
            }
        });
    }

    /// Returns a number that is another one after each change of what it shows, but for one that comes and goes.
    fn stamp(&self) -> u64 {
        let mailbox = u64::try_from(self.mailbox.load(Relaxed)).unwrap_or_default();
        // Each in bits of its own, as far as they go.
        self.looks.load(Relaxed).rotate_left(40) ^ self.handled.load(Relaxed).rotate_left(16) ^ mailbox
    }

    fn with<T>(&self, change: impl FnOnce(&mut Look) -> T) -> T {
        let mut look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut look);
        // Whoever sees the new stamp finds the new look.
        self.looks.fetch_add(1, Relaxed);
        changed
    }
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
    /// What it last died of.
    pub last_error: Option<String>,
    /// What a run shows beyond that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunView>,
    /// Those that it supervises.
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub children: Vec<ActorView>,
}

/// All gauges of one runtime.
#[derive(Debug, Default)]
pub(crate) struct Observatory {
    gauges: DashMap<String, Arc<Gauge>>,
    watched: Watched,
    restarts: Arc<Restarts>,
}

/// How often actors were restarted, by kind.
#[derive(Debug, Default)]
struct Restarts([AtomicU64; ActorKind::ALL.len()]);

impl Observatory {
    /// Gives an actor its gauge; the one that it had before a crash, if any.
    pub(crate) fn enter(
        &self,
        kind: ActorKind,
        id: &str,
        parent: Option<String>,
        restart_limit: &'static str,
        run: Option<RunView>,
    ) -> Arc<Gauge> {
        let fresh = || {
            let at = now();
            Arc::new(Gauge {
                kind,
                id: id.to_owned(),
                parent,
                started_at: at,
                restart_limit,
                restarts: AtomicU32::new(0),
                all_restarts: Arc::clone(&self.restarts),
                mailbox: AtomicUsize::new(0),
                handled: AtomicU64::new(0),
                looks: AtomicU64::new(0),
                look: Mutex::new(Look {
                    state: "starting",
                    activity: String::new(),
                    since: at,
                    pause: None,
                    last_error: None,
                    run,
                }),
            })
        };
        Arc::clone(self.gauges.entry(Gauge::actor_id(kind, id)).or_insert_with(fresh).value())
    }

    /// Forgets an actor that is gone for good.
    pub(crate) fn leave(&self, kind: ActorKind, id: &str) {
        self.gauges.remove(&Gauge::actor_id(kind, id));
    }

    /// Forgets everybody: the tree is gone.
    pub(crate) fn clear(&self) {
        self.gauges.clear();
    }

    /// Returns how often actors of a kind were restarted.
    pub(crate) fn restarts(&self, kind: ActorKind) -> u64 {
        self.restarts.0[kind as usize].load(Relaxed)
    }

    /// Returns how many actors are alive.
    pub(crate) fn len(&self) -> usize {
        self.gauges.len()
    }

    /// Copies the whole tree; `None` before the runtime has started.
    pub(crate) fn tree(&self) -> Option<ActorView> {
        let mut by_parent: std::collections::HashMap<Option<String>, Vec<ActorView>> = std::collections::HashMap::new();
        for entry in &self.gauges {
            let view = view(entry.value());
            by_parent.entry(view.parent.clone()).or_default().push(view);
        }
        let mut roots = by_parent.remove(&None)?;
        let mut root = roots.pop()?;
        attach(&mut root, &mut by_parent);
        Some(root)
    }
}

fn view(gauge: &Gauge) -> ActorView {
    let look = gauge.look.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ActorView {
        actor_id: Gauge::actor_id(gauge.kind, &gauge.id),
        kind: gauge.kind,
        id: gauge.id.clone(),
        name: look.run.as_ref().map_or_else(|| gauge.kind.as_str().to_owned(), |run| run.agent_type.clone()),
        parent: gauge.parent.clone(),
        state: look.state.into(),
        activity: look.pause.unwrap_or(look.activity),
        since: look.since,
        started_at: gauge.started_at,
        restarts: gauge.restarts.load(Relaxed),
        restart_limit: gauge.restart_limit.into(),
        mailbox: gauge.mailbox.load(Relaxed),
        handled: gauge.handled.load(Relaxed),
        last_error: look.last_error,
        run: look.run,
        children: Vec::new(),
    }
}

/// Hangs every view under its supervisor; the tree is never deeper than the house.
fn attach(view: &mut ActorView, by_parent: &mut std::collections::HashMap<Option<String>, Vec<ActorView>>) {
    view.children = by_parent.remove(&Some(view.actor_id.clone())).unwrap_or_default();
    view.children.sort_by(|a, b| (a.kind.as_str(), a.started_at, &a.id).cmp(&(b.kind.as_str(), b.started_at, &b.id)));
    for child in &mut view.children {
        attach(child, by_parent);
    }
}
