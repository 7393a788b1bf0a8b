//! One-time test of a server without a runtime: `soong mcp test`.

use std::time::Instant;

use futures::future::BoxFuture;
use serde::Serialize;
use soong_protocol::{ErrorInfo, McpConfig, ToolsConfig};
use soong_text::Environment;

use super::{Server, connection::Connection, tool, tool_list::ListedTool};

/// Result of testing a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probe {
    /// Tools as models would see them, except those that the configuration disables.
    pub tools: Vec<ListedTool>,
    /// Reasons why other tools are omitted.
    pub left_out: Vec<String>,
    /// Time until the tools were listed, in milliseconds.
    pub took_ms: u64,
}

/// Connects to a server, lists its tools, and disconnects. Nothing is left running.
///
/// # Errors
/// `config_error` if the configuration, or an environment variable that it names, must be changed;
/// otherwise the error of the server or of the connection.
pub fn probe<'a>(
    name: &'a str,
    config: &'a McpConfig,
    tools: &'a ToolsConfig,
    environment: &'a Environment,
) -> BoxFuture<'a, Result<Probe, ErrorInfo>> {
    // Boxed, so that the MCP client is compiled with this crate, and not again with each that
    // awaits it.
    Box::pin(connect_and_list(name, config, tools, environment))
}

async fn connect_and_list(
    name: &str,
    config: &McpConfig,
    tools: &ToolsConfig,
    environment: &Environment,
) -> Result<Probe, ErrorInfo> {
    let begun = Instant::now();
    let server = Server::new(name, config);
    let mut connection = Connection::open(&server, tools, environment)
        .await
        .map_err(|lost| lost.error)?;
    let mut left_out = Vec::new();
    let listed = connection.list(&server, |why| left_out.push(why)).await;
    connection.close().await;
    let mut tools = listed?;
    let usable = tool::register_all(&server, tools.clone(), |error| {
        left_out.push(error.to_string())
    });
    tools.retain(|tool| {
        usable
            .iter()
            .any(|usable| usable.spec.name == tool.spec.name)
    });
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Probe {
        tools,
        left_out,
        took_ms,
    })
}
