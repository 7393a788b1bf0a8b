//! Checks of the MCP servers: each is started, asked for its tools and stopped.

use std::time::Duration;

use futures::future::join_all;
use soong::{
    Config, ErrorCode, ErrorInfo,
    mcp::{self, Probe},
};
use soong_tui::{format, text};

use super::Check;
use crate::{
    command::{block_on_multi_thread, mcp::advice},
    context::Context,
    exit::{Exit, Failure},
    interrupt::Interrupt,
    secret,
};

/// Name of the checks.
const NAME: &str = "mcp";
/// Maximum width of the list of tools in columns.
const COLUMNS: usize = 160;

/// Checks all configured servers concurrently. Fails only on Ctrl-C.
pub(super) fn checks(context: &Context<'_>, config: &Config) -> Result<Vec<Check>, Failure> {
    if config.mcp.is_empty() {
        return Ok(Vec::new());
    }
    block_on_multi_thread(async {
        let interrupt = Interrupt::listen();
        let each = config.mcp.iter().map(|(name, server)| async move {
            let limit = Duration::from_millis(server.start_timeout_ms);
            let probed = mcp::probe(name, server, &config.tools, &context.environment);
            check(
                name,
                tokio::time::timeout(limit, probed)
                    .await
                    .unwrap_or_else(|_| Err(too_slow(name, limit))),
            )
        });
        tokio::select! {
            checks = join_all(each) => Ok(checks),
            () = interrupt.first() => Err(Failure::new(Exit::Interrupted, "the MCP servers were not checked", "")),
        }
    })
}

fn too_slow(name: &str, limit: Duration) -> ErrorInfo {
    let message = format!(
        "no response within {} ms (mcp.{name}.start_timeout_ms)",
        limit.as_millis()
    );
    ErrorInfo::new(ErrorCode::Timeout, message)
}

/// Returns the result for a server. A failing server is only a warning, since runs continue without
/// it.
fn check(name: &str, probed: Result<Probe, ErrorInfo>) -> Check {
    match probed {
        Ok(Probe {
            tools, left_out, ..
        }) => {
            let names: Vec<&str> = tools.iter().map(|tool| tool.remote_name.as_str()).collect();
            let names = text::cut(
                &text::safe_line(&secret::redacted(&names.join(", "))),
                COLUMNS,
                "...",
            );
            let finding = format!(
                "{name}: {}: {names}",
                format::plural(tools.len(), "tool", "tools")
            );
            if left_out.is_empty() {
                Check::ok(NAME, finding)
            } else {
                Check::partly(
                    NAME,
                    finding,
                    secret::redacted(&left_out.join("\n")).into_owned(),
                )
            }
        }
        Err(error) => {
            let finding = format!("{name}: failed: {}", secret::redacted(&error.message));
            Check::warning(NAME, finding, advice(error.code))
        }
    }
}
