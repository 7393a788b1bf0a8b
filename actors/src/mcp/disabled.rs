//! Replacement for `mcp.rs` in a build without the feature `mcp`: no server is available, and a
//! warning is logged.

use std::sync::Arc;

use ractor::{ActorCell, ActorId, SpawnErr};
use soong_protocol::{Config, ErrorCode, ErrorInfo};
use soong_text::Environment;
use soong_tool::ToolRegistry;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::actor_tree::ActorTree;

/// The built-in tools, and the names of the configured servers, none of which is available.
pub(crate) struct McpServers {
    registry: Arc<ToolRegistry>,
    servers: Vec<String>,
}

impl McpServers {
    pub(crate) fn new(built_in: ToolRegistry, config: &Config, _: &Environment) -> Self {
        let servers: Vec<String> = config.mcp.keys().cloned().collect();
        if !servers.is_empty() {
            tracing::warn!(
                ?servers,
                "MCP servers are configured, but this build has no MCP client (feature `mcp`)"
            );
        }
        Self {
            registry: Arc::new(built_in),
            servers,
        }
    }

    pub(crate) fn registry(&self) -> Arc<ToolRegistry> {
        Arc::clone(&self.registry)
    }

    pub(crate) async fn wait_started(&self) {}

    pub(crate) fn unavailable_servers(&self) -> Vec<(String, ErrorInfo)> {
        let absent = |name: &String| {
            let message = format!(
                "MCP server {name:?} is not available: this build has no MCP client (feature `mcp`)"
            );
            (
                name.clone(),
                ErrorInfo::new(ErrorCode::ToolNotAvailable, message),
            )
        };
        self.servers.iter().map(absent).collect()
    }

    pub(crate) fn inject_crash(&self, _: &str, _: &str) -> Option<bool> {
        None
    }
}

pub(crate) async fn start(
    _: &Arc<McpServers>,
    _: &Arc<ActorTree>,
    _: &TaskTracker,
    _: &CancellationToken,
    _: ActorCell,
) -> Result<Option<ActorId>, SpawnErr> {
    Ok(None)
}

pub(crate) fn give_up(_: &McpServers, _: &ActorTree) {}
