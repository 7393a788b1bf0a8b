//! Updates of the supervision tree of another process, over a WebSocket.

use std::time::Duration;

use futures::{FutureExt, StreamExt, future::BoxFuture};
use http::{Method, StatusCode, header};
use reqwest::Body;
use soong_protocol::{
    ErrorCode, ErrorInfo,
    api::{
        KEEP_ALIVE_INTERVAL,
        operation::{Endpoint, WatchTree},
    },
    tree::TreeEvent,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::client::generate_key,
        protocol::{Role, WebSocketConfig},
    },
};

use super::{REQUEST_TIMEOUT, RemoteHome, connection_lost, response_error, transport::root_cause};
use crate::{TreeUpdates, invalid_request, unresponsive};

/// Maximum time without a message. An owner sends a ping at least every [`KEEP_ALIVE_INTERVAL`].
const IDLE_TIMEOUT: Duration = Duration::from_secs(3 * KEEP_ALIVE_INTERVAL.as_secs());

/// The connection of a watcher.
pub(crate) struct RemoteTree(WebSocketStream<reqwest::Upgraded>);

impl RemoteHome {
    /// Opens a watch of the supervision tree.
    pub(super) async fn open_tree(&self) -> Result<RemoteTree, ErrorInfo> {
        let opened =
            tokio::time::timeout(REQUEST_TIMEOUT, self.open_websocket(WatchTree::PATH)).await;
        let connection = opened.unwrap_or_else(|_| Err(unresponsive()))?;
        // The whole tree is one message, which may have any size.
        let config = WebSocketConfig::default()
            .max_message_size(None)
            .max_frame_size(None);
        let stream = WebSocketStream::from_raw_socket(connection, Role::Client, Some(config)).await;
        Ok(RemoteTree(stream))
    }

    /// Opens a connection for a WebSocket.
    async fn open_websocket(&self, path: &str) -> Result<reqwest::Upgraded, ErrorInfo> {
        let request = http::Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, generate_key())
            .body(Body::default())
            .map_err(|error| invalid_request(&error))?;
        let response = self.transport.send(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(response_error(response).await);
        }
        response
            .upgrade()
            .await
            .map_err(|error| connection_lost(&root_cause(&error)))
    }
}

impl TreeUpdates for RemoteTree {
    fn next(&mut self) -> BoxFuture<'_, Result<TreeEvent, ErrorInfo>> {
        self.receive().boxed()
    }
}

impl RemoteTree {
    async fn receive(&mut self) -> Result<TreeEvent, ErrorInfo> {
        loop {
            let received = tokio::time::timeout(IDLE_TIMEOUT, self.0.next()).await;
            let message_result = received.map_err(|_| {
                connection_lost(&format!("no data for {} s", IDLE_TIMEOUT.as_secs()))
            })?;
            match message_result {
                Some(Ok(Message::Text(text))) => {
                    return serde_json::from_str(&text).map_err(|error| {
                        let message =
                            format!("unexpected tree event; the owner process may run another version: {error}");
                        ErrorInfo::new(ErrorCode::InternalError, message)
                    });
                }
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame
                        .as_ref()
                        .map_or("no reason given", |frame| frame.reason.as_str());
                    let is_refused = frame
                        .as_ref()
                        .is_some_and(|frame| u16::from(frame.code) == 4401);
                    return Err(if is_refused {
                        ErrorInfo::new(ErrorCode::Unauthorized, "the token was revoked")
                    } else {
                        owner_left(reason)
                    });
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(connection_lost(&error)),
                None => return Err(owner_left("no reason given")),
            }
        }
    }
}

/// Returns the error of an owner that has ended the watch.
fn owner_left(reason: &str) -> ErrorInfo {
    ErrorInfo::retryable(
        ErrorCode::Closing,
        format!("the owner process closed the connection: {reason}"),
    )
}
