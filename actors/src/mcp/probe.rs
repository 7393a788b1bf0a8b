//! Trying out a server once, without a runtime: `soong mcp test`.

use std::time::Instant;

use serde::Serialize;
use soong_protocol::{ErrorInfo, McpConfig, ToolsConfig};

use super::{Server, connection::Connection, listing::ListedTool, tool};
use crate::environment::Environment;

/// What a server was found to offer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probe {
    /// Its tools, as models would see them; without those that the configuration disables.
    pub tools: Vec<ListedTool>,
    /// Why others are left out.
    pub left_out: Vec<String>,
    /// How long it took until they were known, in milliseconds.
    pub took_ms: u64,
}

/// Connects to a server, asks for its tools, and leaves again; nothing of it runs on.
///
/// # Errors
/// `config_error` where the configuration, or a variable that it names, has to change; otherwise what the server, or
/// the way to it, did wrong.
pub async fn probe(
    name: &str,
    config: &McpConfig,
    tools: &ToolsConfig,
    environment: &Environment,
) -> Result<Probe, ErrorInfo> {
    let begun = Instant::now();
    let server = Server::new(name, config);
    let mut connection = Connection::open(&server, tools, environment).await.map_err(|lost| lost.error)?;
    let mut left_out = Vec::new();
    let listed = connection.list(&server, |why| left_out.push(why)).await;
    connection.close().await;
    let mut tools = listed?;
    let usable = tool::registered(&server, tools.clone(), |error| left_out.push(error.to_string()));
    tools.retain(|tool| usable.iter().any(|usable| usable.spec.name == tool.spec.name));
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Probe { tools, left_out, took_ms })
}
