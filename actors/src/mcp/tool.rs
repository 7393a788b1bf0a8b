//! A tool of an MCP server. All runs share the connection of the server.
//!
//! A call that is dropped or cancelled is cancelled at the server too.
//!
//! Elsewhere: the meaning of a response (`result.rs`), reconnecting to a server that does not
//! respond (`actor.rs`).

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use rmcp::{
    Peer, RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest,
        RequestId,
    },
    service::PeerRequestOptions,
};
use serde_json::Value;
use soong_protocol::{AccessRequest, ErrorCode, ErrorInfo, ToolSpec};
use soong_tool::{RegisterError, RegisteredTool, Tool, ToolContext, ToolResult};

use super::{
    Server,
    connection::{is_unsent, request_error},
    http::UNKNOWN_EFFECT,
    result,
    tool_list::ListedTool,
};

/// A tool of an MCP server.
struct McpTool {
    server: Arc<Server>,
    listed: ListedTool,
}

/// Validates the tools of a server. Calls `left_out` with the error for each tool whose schema
/// cannot be used.
pub(super) fn register_all(
    server: &Arc<Server>,
    listed: Vec<ListedTool>,
    mut on_omitted: impl FnMut(RegisterError),
) -> Vec<Arc<RegisteredTool>> {
    let mut tools = Vec::with_capacity(listed.len());
    for listed in listed {
        let spec = listed.spec.clone();
        match RegisteredTool::new(
            Some(Arc::new(McpTool {
                server: Arc::clone(server),
                listed,
            })),
            spec,
        ) {
            Ok(tool) => tools.push(Arc::new(tool)),
            Err(error) => on_omitted(error),
        }
    }
    tools
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.listed.spec
    }

    /// Every call requires permission, whatever the server declares: the server and its hints are
    /// untrusted (PERM-1).
    fn required_access(
        &self,
        _: &ToolContext,
        _: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        let access = AccessRequest::whole_tool(self.listed.spec.name.clone());
        // A pending approval is bound to it: if the program or URL has changed, the call is asked
        // about again.
        Ok(Some(AccessRequest {
            note: Some(self.server.identity()),
            ..access
        }))
    }

    fn call(&self, context: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult> {
        let server = Arc::clone(&self.server);
        let name = self.listed.remote_name.clone();
        let title = self.listed.spec.title.clone();
        async move {
            let mut params = CallToolRequestParams::new(name);
            params.arguments = match arguments {
                Value::Object(arguments) => Some(arguments),
                _ => None,
            };
            let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
            let with_server = |error| ErrorInfo { message: with_server_name(&server.name, &error), ..error };
            let failed = |error| with_server(request_error("tools/call", &error));
            let mut client = server.client().await?;
            let mut too_long = client.oversized_message("tools/call");
            let options = PeerRequestOptions::no_options;
            let pending = match client.peer.send_cancellable_request(request.clone(), options()).await {
                // No connection was established, so the server has not received the call. It may be
                // back by now.
                Err(error) if is_unsent(&error) => {
                    client = server.client().await?;
                    too_long = client.oversized_message("tools/call");
                    client.peer.send_cancellable_request(request, options()).await
                }
                sent => sent,
            };
            let pending = pending.map_err(failed)?;
            let mut guard = CancelOnDrop { peer: client.peer.clone(), id: Some(pending.id.clone()) };
            let listening = client.listeners.subscribe(pending.progress_token.clone(), context.progress.clone());
            let answer = tokio::select! {
                biased;
                () = context.cancel.cancelled() => return Err(ErrorInfo::new(ErrorCode::Cancelled, "cancelled")),
                answer = pending.await_response() => answer,
                error = too_long => return Err(with_server(error)),
                () = listening.silence(server.timeout()) => {
                    let limit_ms = server.timeout().as_millis();
                    let message = format!(
                        "it did not answer `tools/call` within {limit_ms} ms (mcp.{}.timeout_ms), and reported no progress: {}",
                        server.name,
                        UNKNOWN_EFFECT
                    );
                    return Err(with_server(ErrorInfo::new(ErrorCode::Timeout, message)));
                }
            };
            guard.id = None;
            result::convert(&server.name, &title, answer.map_err(failed)?)
        }
        .boxed()
    }
}

fn with_server_name(server: &str, error: &ErrorInfo) -> String {
    format!("MCP server {server:?}: {}", error.message)
}

/// A call without a response. If it is dropped before the response arrives, the server is notified
/// of the cancellation.
struct CancelOnDrop {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let reason = Some("the call was cancelled".to_owned());
            let _ = peer
                .notify_cancelled(CancelledNotificationParam::new(Some(id), reason))
                .await;
        });
    }
}
