//! MCP client: provides the tools of the configured MCP servers. A server is a program that this
//! process starts, or is reached by URL.
//!
//! Each server has one connection, which all runs of the runtime share. An actor per server
//! (`actor.rs`) owns the connection. The supervisor of these actors is `supervisor.rs`. The actor
//! starts a task (`connection_task.rs`) that connects (`connection.rs`, using `stdio.rs` or
//! `http.rs`), lists the tools (`tool_list.rs`), and keeps the connection open. Tool calls
//! (`tool.rs`) use the connection directly, without a message to the actor.
//!
//! Invariants:
//! - The failure of a server affects only its own tools.
//! - A run uses the tool registry that was current when it started.
//! - Without a configured server, no actor is started.
//!
//! Elsewhere: who may call which tool (PERM-1).

mod actor;
mod client;
mod connection;
mod connection_task;
mod http;
mod leniency;
mod message;
mod probe;
mod result;
mod schema;
mod stdio;
mod supervisor;
mod target;
mod task_tools;
mod tool;
mod tool_list;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use ractor::{Actor, ActorCell, ActorId, ActorRef};
use sha2::{Digest, Sha256};
use soong_protocol::{Config, ErrorCode, ErrorInfo, McpConfig};
use soong_text::Environment;
use soong_tool::{RegisteredTool, ToolRegistry};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    client::ServerClient,
    message::McpServerMsg,
    supervisor::{McpSupervisorActor, McpSupervisorMsg},
};
pub use self::{
    probe::{Probe, probe},
    tool_list::ListedTool,
};
use crate::{
    actor_base::{Mailbox, SINGLETON_ID, restart},
    actor_tree::{ActorKind, ActorStatus, ActorTree},
    permission::missing_mcp_tools,
};

/// State of a server.
#[derive(Clone)]
enum ServerState {
    /// The first connection attempt has not ended.
    Starting,
    /// Connected and ready for calls.
    Ready(ServerClient),
    /// Not available. `again`: whether the actor will try to connect again.
    Down { error: ErrorInfo, will_retry: bool },
}

/// Maximum length of the program of a server in a permission request, in characters.
const MAX_IDENTITY_CHARS: usize = 200;

/// A configured server. This value survives restarts of the server's actor.
pub(crate) struct Server {
    name: Arc<str>,
    config: McpConfig,
    state: watch::Sender<ServerState>,
    tools: Mutex<Vec<Arc<RegisteredTool>>>,
    /// Lock that a connection holds until it is completely closed. The next connection waits for it
    /// (ACT-3).
    connection_lock: Arc<AsyncMutex<()>>,
    actor: Mutex<Option<Mailbox<McpServerMsg>>>,
    /// Notified when a tool call needs an unavailable server, so that the next attempt to connect
    /// starts immediately.
    reconnect_now: Notify,
}

impl Server {
    fn new(name: &str, config: &McpConfig) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            config: config.clone(),
            state: watch::Sender::new(ServerState::Starting),
            tools: Mutex::default(),
            connection_lock: Arc::default(),
            actor: Mutex::default(),
            reconnect_now: Notify::new(),
        })
    }

    /// Describes for an approver what answers the calls: the program, or the origin of the URL.
    /// Arguments and paths may contain secrets; the number at the end differs for every other
    /// program, arguments or URL.
    fn identity(&self) -> String {
        let McpConfig {
            command, args, url, ..
        } = &self.config;
        let mut hash = Sha256::new();
        for part in command.iter().chain(url).chain(args) {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let number: String = hash
            .finalize()
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let what = match (
            command,
            url.as_deref().and_then(|url| reqwest::Url::parse(url).ok()),
        ) {
            (Some(command), _) => {
                let command = tool_list::sanitize(command, MAX_IDENTITY_CHARS);
                format!("runs {command} with {} arguments", args.len())
            }
            (None, Some(url)) => format!("is at {}", url.origin().ascii_serialization()),
            (None, None) => "has no valid URL".to_owned(),
        };
        format!("MCP server {:?} {what} ({number})", self.name)
    }

    /// Returns the timeout of a request.
    fn timeout(&self) -> Duration {
        Duration::from_millis(self.config.timeout_ms)
    }

    /// Returns how long a new run waits for the server to start, and how long a tool call waits for
    /// it to reconnect.
    fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.config.start_timeout_ms)
    }

    /// Returns the timeout of the request `initialize`. It is at least the start timeout, because a
    /// server program may download packages first.
    fn initialize_timeout(&self) -> Duration {
        self.timeout().max(self.start_timeout())
    }

    /// Returns the client of the server. If the server is starting or reconnecting, waits for it up
    /// to [`Self::start_timeout`].
    async fn client(&self) -> Result<ServerClient, ErrorInfo> {
        let mut state = self.state.subscribe();
        if matches!(&*state.borrow(), ServerState::Down { .. }) {
            self.reconnect_now.notify_one();
        }
        let settled = state.wait_for(|status| match status {
            ServerState::Ready(line) => !line.is_closed(),
            ServerState::Down { will_retry, .. } => !will_retry,
            ServerState::Starting => false,
        });
        let _ = tokio::time::timeout(self.start_timeout(), settled).await;
        let found = self.state.borrow().clone();
        match found {
            ServerState::Ready(line) if !line.is_closed() => Ok(line),
            found => Err(self.unavailable(&found)),
        }
    }

    /// Returns the error of a call to a server that is not available, with the reason.
    fn unavailable(&self, state: &ServerState) -> ErrorInfo {
        let name = &self.name;
        let why = match state {
            ServerState::Down { error, .. } => error.message.clone(),
            ServerState::Ready(_) => {
                "its connection ended, and it has not reconnected yet".to_owned()
            }
            ServerState::Starting => "it has not answered yet".to_owned(),
        };
        ErrorInfo::new(
            ErrorCode::ToolNotAvailable,
            format!("MCP server {name:?} is not available: {why}"),
        )
    }

    fn tools(&self) -> Vec<Arc<RegisteredTool>> {
        self.tools
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn actor(&self) -> Option<Mailbox<McpServerMsg>> {
        self.actor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_actor(&self, actor: Mailbox<McpServerMsg>) {
        *self.actor.lock().unwrap_or_else(PoisonError::into_inner) = Some(actor);
    }
}

/// All servers of a runtime, and the tool registry for new runs.
pub(crate) struct McpServers {
    built_in: Arc<ToolRegistry>,
    registry: RwLock<Arc<ToolRegistry>>,
    servers: BTreeMap<String, Arc<Server>>,
    environment: Environment,
    config: Config,
    opened_at: Instant,
    supervisor: Mutex<Option<ActorRef<McpSupervisorMsg>>>,
}

impl McpServers {
    pub(crate) fn new(built_in: ToolRegistry, config: &Config, environment: &Environment) -> Self {
        let built_in = Arc::new(built_in);
        let servers = config
            .mcp
            .iter()
            .map(|(name, config)| (name.clone(), Server::new(name, config)))
            .collect();
        Self {
            registry: RwLock::new(Arc::clone(&built_in)),
            built_in,
            servers,
            environment: environment.clone(),
            config: config.clone(),
            opened_at: Instant::now(),
            supervisor: Mutex::default(),
        }
    }

    /// Returns the current registry: the built-in tools and the published tools of the servers.
    pub(crate) fn registry(&self) -> Arc<ToolRegistry> {
        Arc::clone(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until each server is ready, has failed, or has exceeded its start timeout, which
    /// starts when the runtime is opened. Returns immediately if there are no servers.
    pub(crate) async fn wait_started(&self) {
        let each = self.servers.values().map(|server| async move {
            let mut state = server.state.subscribe();
            let settled = state.wait_for(|status| !matches!(status, ServerState::Starting));
            let _ = tokio::time::timeout_at(self.opened_at + server.start_timeout(), settled).await;
        });
        futures::future::join_all(each).await;
    }

    /// Returns the servers that are not available and have no published tools, each with the
    /// reason. A server that will reconnect keeps its published tools, so it is not included.
    pub(crate) fn unavailable_servers(&self) -> Vec<(String, ErrorInfo)> {
        let absent = |(name, server): (&String, &Arc<Server>)| {
            let has_tools = !server.tools().is_empty();
            let state = server.state.borrow();
            match &*state {
                ServerState::Ready(_) => None,
                _ if has_tools => None,
                status => Some((name.clone(), server.unavailable(status))),
            }
        };
        self.servers.iter().filter_map(absent).collect()
    }

    /// Makes an actor of this module crash, for tests. Returns whether the actor exists and
    /// received the message, or `None` if another module has the actors of this kind.
    pub(crate) fn inject_crash(&self, kind: &str, id: &str) -> Option<bool> {
        if kind == ActorKind::McpServer.as_str() {
            let actor = self.servers.get(id).and_then(|server| server.actor());
            Some(actor.is_some_and(|actor| actor.send(McpServerMsg::Crash)))
        } else if kind == ActorKind::McpSupervisor.as_str() {
            let supervisor = self
                .supervisor
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            Some(supervisor.is_some_and(|actor| actor.cast(McpSupervisorMsg::Crash).is_ok()))
        } else {
            None
        }
    }

    /// Marks a server as ready and publishes its tools.
    fn set_ready(&self, server: &Server, client: ServerClient, tools: Vec<Arc<RegisteredTool>>) {
        let names: Vec<String> = tools.iter().map(|tool| tool.spec.name.clone()).collect();
        for missing in missing_mcp_tools(&self.config, &server.name, &names) {
            tracing::warn!(server = %server.name, missing, "the configuration names a tool that the MCP server does not offer");
        }
        self.publish(server, tools);
        if let ServerState::Down { .. } = server.state.send_replace(ServerState::Ready(client)) {
            tracing::warn!(server = %server.name, "an MCP server is available again");
        }
    }

    /// Marks a server as not available. If `will_retry` is true, its tools stay published, and
    /// calls of them wait for the server up to the start timeout. Otherwise its tools are removed.
    ///
    /// A failure is not logged again while the same error repeats.
    fn set_unavailable(&self, server: &Server, error: ErrorInfo, will_retry: bool) {
        let is_known = match &*server.state.borrow() {
            ServerState::Down {
                error: earlier,
                will_retry: earlier_will_retry,
            } => earlier.message == error.message && *earlier_will_retry == will_retry,
            _ => false,
        };
        if !is_known {
            tracing::warn!(server = %server.name, %error, will_retry, "an MCP server is not available");
        }
        if !will_retry {
            self.publish(server, Vec::new());
        }
        server
            .state
            .send_replace(ServerState::Down { error, will_retry });
    }

    /// Replaces the tools of a server in the registry that new runs use.
    fn publish(&self, server: &Server, tools: Vec<Arc<RegisteredTool>>) {
        // The lock is held until the registry is replaced. Otherwise concurrent calls for two
        // servers could each build a registry without the other's tools.
        let mut registry = self
            .registry
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *server.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
        let mut next = ToolRegistry::clone(&self.built_in);
        for tool in self.servers.values().flat_map(|server| server.tools()) {
            if let Err(error) = next.register_entry(tool) {
                tracing::warn!(%error, "a tool of an MCP server is not offered");
            }
        }
        *registry = Arc::new(next);
    }
}

/// Starts the supervisor of the server actors as a child of `root`. Returns `None` if there are no
/// servers.
pub(crate) async fn start(
    mcp: &Arc<McpServers>,
    actor_tree: &Arc<ActorTree>,
    tasks: &TaskTracker,
    closing: &CancellationToken,
    root: ActorCell,
) -> Result<Option<ActorId>, ractor::SpawnErr> {
    if mcp.servers.is_empty() {
        return Ok(None);
    }
    let parent = ActorStatus::actor_id(ActorKind::RuntimeSupervisor, SINGLETON_ID);
    let status = actor_tree.register(
        ActorKind::McpSupervisor,
        SINGLETON_ID,
        Some(parent),
        restart::SUPERVISOR.label,
        None,
    );
    let actor = McpSupervisorActor {
        mcp: Arc::clone(mcp),
        actor_tree: Arc::clone(actor_tree),
        tasks: tasks.clone(),
        closing: closing.clone(),
        status,
    };
    let (actor, _) = Actor::spawn_linked(None, actor, (), root).await?;
    let id = actor.get_id();
    *mcp.supervisor
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some(actor);
    Ok(Some(id))
}

/// Marks all servers as not available after their supervisor has exceeded its restart limit. Runs
/// continue without their tools.
pub(crate) fn give_up(mcp: &McpServers, actor_tree: &ActorTree) {
    let error = ErrorInfo::new(
        ErrorCode::ActorCrashed,
        format!(
            "the MCP supervisor exceeded its restart limit ({}): restart the process",
            restart::SUPERVISOR.label
        ),
    );
    let show = |kind, id: &str| {
        let status = actor_tree.register(kind, id, None, restart::SUPERVISOR.label, None);
        status.set_state("failed", error.message.as_str());
    };
    show(ActorKind::McpSupervisor, SINGLETON_ID);
    for server in mcp.servers.values() {
        show(ActorKind::McpServer, &server.name);
        mcp.set_unavailable(server, error.clone(), false);
    }
}
