//! Updates of the supervision tree: over a WebSocket, or from the runtime of this process.
//!
//! Both return the same: a snapshot of the whole tree first, then changes.

use std::{path::Path, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, Method, Request, Response, StatusCode, header},
};
use futures::StreamExt;
use hyper_util::rt::TokioIo;
use soong::{ErrorCode, ErrorInfo, TreeEvent, TreeWatch};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::client::generate_key,
        protocol::{Role, WebSocketConfig},
    },
};

use super::{
    Client, REQUEST_TIMEOUT, Remote, Transport, connection_lost, invalid_request, response_error, socket_connection,
    unresponsive,
};

/// Maximum time without a message: an owner sends a ping at least every 15 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// A byte stream below a WebSocket.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// A watcher of the tree; ends when dropped.
pub(crate) enum TreeWatcher {
    /// The tree of this process.
    InProcess(Box<TreeWatch>),
    /// The tree of another process.
    Remote(Box<WebSocketStream<Box<dyn ByteStream>>>),
}

impl Client {
    /// Watches the supervision tree.
    pub(crate) async fn watch_tree(&self) -> Result<TreeWatcher, ErrorInfo> {
        let stream = match &self.transport {
            Transport::InProcess(_, runtime) => return Ok(TreeWatcher::InProcess(Box::new(runtime.tree().watch()))),
            Transport::Socket(home) => tokio::time::timeout(REQUEST_TIMEOUT, over_socket(home)).await,
            Transport::Server(remote) => tokio::time::timeout(REQUEST_TIMEOUT, over_http(remote)).await,
            #[cfg(test)]
            Transport::Router(_) => return Err(unresponsive()),
        };
        let line = stream.unwrap_or_else(|_| Err(unresponsive()))?;
        // The whole tree is one message, which may have any size.
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        Ok(TreeWatcher::Remote(Box::new(WebSocketStream::from_raw_socket(line, Role::Client, Some(config)).await)))
    }
}

/// Builds the WebSocket request.
fn request() -> Result<Request<Body>, ErrorInfo> {
    let request = Request::builder()
        .method(Method::GET)
        .uri("/api/tree/watch")
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, generate_key());
    request.body(Body::empty()).map_err(|error| invalid_request(&error))
}

async fn over_socket(home: &Path) -> Result<Box<dyn ByteStream>, ErrorInfo> {
    let mut request = request()?;
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("soong"));
    let mut sender = socket_connection(home).await?;
    let response = sender.send_request(request).await.map_err(|error| connection_lost(&error))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(response_error(response.map(Body::new)).await);
    }
    Ok(Box::new(TokioIo::new(hyper::upgrade::on(response).await.map_err(|error| connection_lost(&error))?)))
}

async fn over_http(remote: &Remote) -> Result<Box<dyn ByteStream>, ErrorInfo> {
    let response = remote.send_request(request()?).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(response_error(Response::<reqwest::Body>::from(response).map(Body::new)).await);
    }
    Ok(Box::new(response.upgrade().await.map_err(|error| connection_lost(&error))?))
}

impl TreeWatcher {
    /// Returns the next event. An error contains the reason why the watch has ended.
    pub(crate) async fn next(&mut self) -> Result<TreeEvent, ErrorInfo> {
        let stream = match self {
            Self::InProcess(watch) => return watch.next().await.ok_or_else(|| owner_left("the runtime was closed")),
            Self::Remote(line) => line,
        };
        loop {
            let received = tokio::time::timeout(IDLE_TIMEOUT, stream.next()).await;
            let heard = received.map_err(|_| connection_lost(&format!("no data for {} s", IDLE_TIMEOUT.as_secs())))?;
            match heard {
                Some(Ok(Message::Text(text))) => {
                    return serde_json::from_str(&text).map_err(|error| {
                        let message =
                            format!("unexpected tree event; the owner process may run another version: {error}");
                        ErrorInfo::new(ErrorCode::InternalError, message)
                    });
                }
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.as_ref().map_or("no reason given", |frame| frame.reason.as_str());
                    let is_refused = frame.as_ref().is_some_and(|frame| u16::from(frame.code) == 4401);
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
    ErrorInfo::retryable(ErrorCode::Closing, format!("the owner process closed the connection: {reason}"))
}
