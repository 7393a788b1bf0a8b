//! Connection task of an MCP server's actor: connects, lists the tools, keeps the connection open,
//! and closes it.
//!
//! It waits until the connection of the previous incarnation is completely closed (ACT-3), and
//! reports to the actor. When it is cancelled, it closes its connection and ends.

use std::{sync::Arc, time::Duration};

use soong_protocol::{ErrorCode, ErrorInfo};
use soong_tool::RegisteredTool;
use tokio_util::sync::CancellationToken;

use super::{
    McpServers, Server,
    connection::{Connection, ConnectionError},
    message::McpServerMsg,
    tool,
    tool_list::ListedTool,
};
use crate::actor_base::Mailbox;

/// Minimum time between a change of the tools that a server announces and the next list.
const MIN_LIST_PAUSE: Duration = Duration::from_millis(500);
/// Maximum time between them, if the lists before were the same.
const MAX_LIST_PAUSE: Duration = Duration::from_secs(60);
/// Maximum time for all pages of a list.
const LIST_TIMEOUT: Duration = Duration::from_secs(120);

/// The task and its handles.
pub(super) struct ConnectionTask {
    pub(super) mcp: Arc<McpServers>,
    pub(super) server: Arc<Server>,
    pub(super) actor: Mailbox<McpServerMsg>,
    /// Cancelled when the actor has stopped or the runtime closes.
    pub(super) cancel: CancellationToken,
    /// Delay before connecting. A call that needs the server ends it immediately.
    pub(super) delay: Duration,
}

impl ConnectionTask {
    pub(super) async fn run(self) {
        if !self.delay.is_zero() {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return,
                () = self.server.reconnect_now.notified() => {}
                () = tokio::time::sleep(self.delay) => {}
            }
        }
        let connection_guard = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return,
            turn = Arc::clone(&self.server.connection_lock).lock_owned() => turn,
        };
        let opened = tokio::select! {
            biased;
            // Dropping the future that opens a connection cleans up completely.
            () = self.cancel.cancelled() => return,
            opened = Connection::open(&self.server, &self.mcp.config.tools, &self.mcp.environment) => opened,
        };
        let error = match opened {
            Ok(mut connection) => {
                let lost = self.serve(&mut connection).await;
                connection.close().await;
                lost
            }
            Err(lost) => Some(lost),
        };
        drop(connection_guard);
        if let Some(lost) = error {
            self.actor.send(McpServerMsg::Lost(Box::new(lost)));
        }
    }

    /// Keeps the connection open. Returns the reason when it is no longer usable, or `None` if the
    /// task is cancelled.
    async fn serve(&self, connection: &mut Connection) -> Option<ConnectionError> {
        let mut is_open = false;
        let mut listed = None;
        let mut pause = MIN_LIST_PAUSE;
        loop {
            let tools = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return None,
                tools = self.tools(connection, &mut listed) => tools,
            };
            // A server that announces changes without having any is asked less and less often.
            let is_unchanged = matches!(tools, Ok(None));
            pause = if is_unchanged {
                (pause * 2).min(MAX_LIST_PAUSE)
            } else {
                MIN_LIST_PAUSE
            };
            match tools {
                Ok(None) => {}
                Ok(Some(tools)) if is_open => drop(self.actor.send(McpServerMsg::Listed(tools))),
                Ok(Some(tools)) => {
                    is_open = true;
                    self.actor.send(McpServerMsg::Opened {
                        line: connection.client(),
                        tools,
                    });
                }
                // Keep the previously listed tools.
                Err(error) if is_open && error.code != ErrorCode::Interrupted => {
                    tracing::warn!(server = %self.server.name, %error, "an MCP server failed to list its changed tools");
                }
                Err(error) if error.code != ErrorCode::Interrupted => {
                    return Some(ConnectionError {
                        error,
                        is_retryable: true,
                    });
                }
                Err(_) => {}
            }
            let changed = connection.changes();
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return None,
                how = connection.ended() => {
                    return Some(ConnectionError { error: ErrorInfo::new(ErrorCode::ProviderError, how), is_retryable: true });
                }
                () = async {
                    changed.notified().await;
                    // Further changes in the meantime lead to the same list.
                    tokio::time::sleep(pause).await;
                } => {}
            }
        }
    }

    /// Lists the tools, and registers them. Returns `None` if they are the ones in `known` that
    /// were listed last.
    async fn tools(
        &self,
        connection: &mut Connection,
        known: &mut Option<Vec<ListedTool>>,
    ) -> Result<Option<Vec<Arc<RegisteredTool>>>, ErrorInfo> {
        let name = &self.server.name;
        let listing = connection.list(&self.server, |why| log_omitted(name, &why));
        let Ok(listed) = tokio::time::timeout(LIST_TIMEOUT, listing).await else {
            let message = format!(
                "its list of tools was not complete after {} s",
                LIST_TIMEOUT.as_secs()
            );
            return Err(ErrorInfo::new(ErrorCode::Timeout, message));
        };
        let listed = listed?;
        if known.as_ref() == Some(&listed) {
            return Ok(None);
        }
        *known = Some(listed.clone());
        let server = Arc::clone(&self.server);
        // Compiling the schemas is slow: they are untrusted and may be numerous.
        let check = move || {
            tool::register_all(&server, listed, |error| {
                log_omitted(&server.name, &error.to_string())
            })
        };
        tokio::task::spawn_blocking(check)
            .await
            .map(Some)
            .map_err(|_| {
                ErrorInfo::new(
                    ErrorCode::ProviderError,
                    "its tool schemas crash the schema compiler",
                )
            })
    }
}

fn log_omitted(server: &str, why: &str) {
    tracing::warn!(server, why, "a tool of an MCP server is not offered");
}
