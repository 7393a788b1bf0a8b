//! Updates of the supervision tree: over a WebSocket, or from the runtime of this process.
//!
//! Both return the same: a snapshot of the whole tree first, then changes.

use std::time::Duration;

use futures::StreamExt;
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

use crate::{
    Client, REQUEST_TIMEOUT, connection_lost, invalid_request,
    remote::transport::{Transport, TreeUpdates, root_cause},
    response_error, unresponsive,
};

/// Maximum time without a message. An owner sends a ping at least every [`KEEP_ALIVE_INTERVAL`].
const IDLE_TIMEOUT: Duration = Duration::from_secs(3 * KEEP_ALIVE_INTERVAL.as_secs());

/// A watcher of the tree; ends when dropped.
pub struct TreeWatcher(Updates);

enum Updates {
    /// Those of this process.
    InProcess(Box<dyn TreeUpdates>),
    /// Those of another process.
    Remote(Box<WebSocketStream<reqwest::Upgraded>>),
}

impl Client {
    /// Watches the supervision tree: a snapshot of the whole tree first, then changes.
    ///
    /// # Errors
    /// The owner cannot be reached or does not respond.
    pub async fn watch_tree(&self) -> Result<TreeWatcher, ErrorInfo> {
        if let Transport::InProcess(owner) = &self.transport {
            return Ok(TreeWatcher(Updates::InProcess(owner.watch_tree())));
        }
        let opened =
            tokio::time::timeout(REQUEST_TIMEOUT, self.open_websocket(WatchTree::PATH)).await;
        let connection = opened.unwrap_or_else(|_| Err(unresponsive()))?;
        // The whole tree is one message, which may have any size.
        let config = WebSocketConfig::default()
            .max_message_size(None)
            .max_frame_size(None);
        let stream = WebSocketStream::from_raw_socket(connection, Role::Client, Some(config)).await;
        Ok(TreeWatcher(Updates::Remote(Box::new(stream))))
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

impl TreeWatcher {
    /// Returns the next event. An error contains the reason why the watch has ended.
    pub async fn next(&mut self) -> Result<TreeEvent, ErrorInfo> {
        let stream = match &mut self.0 {
            Updates::InProcess(watch) => {
                return watch
                    .next()
                    .await
                    .ok_or_else(|| owner_left("the runtime was closed"));
            }
            Updates::Remote(stream) => stream,
        };
        loop {
            let received = tokio::time::timeout(IDLE_TIMEOUT, stream.next()).await;
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

fn owner_left(reason: &str) -> ErrorInfo {
    ErrorInfo::retryable(
        ErrorCode::Closing,
        format!("the owner process closed the connection: {reason}"),
    )
}
