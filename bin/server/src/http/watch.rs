//! WebSockets: the events of a trace or of a whole session, and the supervision tree.
//!
//! Each connection reads its stream at its own pace, as an SSE connection does. Events that it has
//! not read yet stay in the store, so a slow client delays no other reader. A client that reads
//! nothing for too long is disconnected, and can reconnect with its cursor. The close codes are
//! defined only in this module.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::ws::{
        CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade,
        rejection::WebSocketUpgradeRejection,
    },
    http::{HeaderMap, header},
    response::Response,
};
use futures::{FutureExt, SinkExt};
use serde::Serialize;
use serde_json::json;
use soong::{
    ErrorCode, ErrorInfo, EventStream, StreamItem,
    protocol::{
        GoalTree, Trace, TraceId,
        api::{ErrorBody, EventQuery, KEEP_ALIVE_INTERVAL, TraceView},
    },
};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::{
    caller::{Access, TokenWatch},
    error::{ApiError, validation_error},
    request::{Path, Query},
    stream::{MAX_READ_FAILURES, READ_RETRY_DELAY, check_cursor},
    trace::read_trace,
    tree::TreeFilter,
};

/// Time after which a client that reads nothing is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time that the client then has to read the reason.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a client's message, in bytes. Clients have nothing to send.
const MAX_INCOMING_BYTES: usize = 16 * 1_024;
/// Size of the read buffer of each connection, in bytes.
const READ_BUFFER_BYTES: usize = 1_024;
/// Size of the write buffer of each connection, in bytes.
const WRITE_BUFFER_BYTES: usize = 16 * 1_024;
/// Maximum number of available messages that are written together.
const MAX_BATCH_MESSAGES: usize = 64;
/// Subprotocol that a client may offer in addition to its token.
const PROTOCOL: &str = "soong";
/// Prefix of a token that is offered as a subprotocol.
pub const BEARER_PROTOCOL: &str = "soong.bearer.";

/// Why the server closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseReason {
    /// The stream has ended because the session was deleted.
    Deleted,
    /// The owner of the home is shutting down.
    ShuttingDown,
    /// The token was revoked.
    Revoked,
    /// The trace does not exist.
    Unknown,
    /// The client read too slowly.
    TooSlow,
    /// The data cannot be read.
    Failed,
    /// The runtime has failed, so nothing that is watched continues.
    Interrupted,
    /// The cursor does not exist in this store.
    CursorUnknown,
}

impl CloseReason {
    fn frame(self) -> CloseFrame {
        let (code, reason) = match self {
            Self::Deleted => (1000, "deleted"),
            Self::ShuttingDown => (1001, "closing"),
            Self::Revoked => (4401, "unauthorized"),
            Self::Unknown => (4404, "trace_not_found"),
            Self::TooSlow => (
                4409,
                "client too slow: reconnect with the last received event",
            ),
            Self::Failed => (1011, "storage_error"),
            Self::Interrupted => (1011, "runtime_failed"),
            Self::CursorUnknown => (4410, "cursor_unknown"),
        };
        CloseFrame {
            code,
            reason: Utf8Bytes::from_static(reason),
        }
    }
}

/// First message of a trace's WebSocket; it has no event number.
#[derive(Serialize)]
struct Connected<'a> {
    current_event_id: u64,
    store_id: String,
    trace: &'a Trace,
    goal_tree: &'a GoalTree,
    sub_traces: &'a [Trace],
}

/// Watches a trace over a WebSocket: first `connected`, then each event after the cursor, once and
/// in order.
///
/// With `tree=true` the stream holds the events of the whole session, and the cursor is
/// `since_session_seq`. Close codes:
/// - 1000: the session was deleted.
/// - 1001: the server is shutting down.
/// - 1011: the events cannot be read, or the runtime has failed and nothing follows (an `error`
///   message gives the reason).
/// - 4401: the token was revoked.
/// - 4404: the trace does not exist.
/// - 4409: the client was too slow.
/// - 4410: the cursor does not belong to this store (an `error` message, `cursor_unknown`, tells
///   where to restart).
///
/// `connected` contains the id of the store (`store_id`), which the client sends back with a
/// cursor. A client that cannot set headers offers the subprotocol `soong.bearer.TOKEN`.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/traces/{trace_id}/watch", tag = "traces",
    params(("trace_id" = String, Path), EventQuery),
    responses((status = SWITCHING_PROTOCOLS), (status = UPGRADE_REQUIRED, body = soong::protocol::api::ErrorBody))))]
pub(super) async fn trace(
    access: Access,
    token_watch: TokenWatch,
    Path(id): Path<TraceId>,
    Query(query): Query<EventQuery>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    if query.limit.is_some() {
        return Err(validation_error("limit: not supported for a WebSocket"));
    }
    let upgrade = configure_upgrade(upgrade, &headers)?;
    let watching = access.api().websockets.clone();
    Ok(upgrade.on_upgrade(move |socket| {
        watching.track_future(watch_trace(
            WatchSocket::new(socket, token_watch),
            access,
            id,
            query,
        ))
    }))
}

/// Watches the supervision tree over a WebSocket: first `tree_snapshot`, then `tree_changed` with
/// the `changed` actors, the ids of those that are `gone`, and how the runs among them `ended`.
/// Both report how many changes were `dropped` because the client was slow; after dropped changes,
/// a new snapshot follows.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/tree/watch", tag = "tree",
    responses((status = SWITCHING_PROTOCOLS), (status = UPGRADE_REQUIRED, body = soong::protocol::api::ErrorBody))))]
pub(super) async fn tree(
    access: Access,
    token_watch: TokenWatch,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = configure_upgrade(upgrade, &headers)?;
    let watching = access.api().websockets.clone();
    Ok(upgrade.on_upgrade(move |socket| {
        watching.track_future(watch_tree(WatchSocket::new(socket, token_watch), access))
    }))
}

fn configure_upgrade(
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    headers: &HeaderMap,
) -> Result<WebSocketUpgrade, ApiError> {
    let upgrade = upgrade.map_err(|rejection| {
        let status = rejection.status();
        validation_error(format!(
            "a WebSocket request is required: {}",
            rejection.body_text()
        ))
        .with_status(status)
    })?;
    let upgrade = upgrade
        .max_message_size(MAX_INCOMING_BYTES)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES);
    // A browser accepts the connection only if the server selects one of the offered subprotocols.
    let offered = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offered
        .flat_map(|list| list.split(',').map(str::trim))
        .collect();
    let own = offered.iter().find(|name| **name == PROTOCOL);
    let chosen = own.or_else(|| {
        offered
            .iter()
            .find(|name| name.starts_with(BEARER_PROTOCOL))
    });
    Ok(match chosen {
        Some(chosen) => upgrade.protocols([(*chosen).to_owned()]),
        None => upgrade,
    })
}

/// A WebSocket connection, with its token check and its ping timer.
struct WatchSocket {
    socket: WebSocket,
    token_watch: TokenWatch,
    pings: tokio::time::Interval,
}

/// Events other than stream items.
enum ConnectionEvent {
    Close(CloseReason),
    /// The client has disconnected.
    Disconnected,
    Ping,
}

impl WatchSocket {
    fn new(socket: WebSocket, token_watch: TokenWatch) -> Self {
        let mut pings = interval_at(Instant::now() + KEEP_ALIVE_INTERVAL, KEEP_ALIVE_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            socket,
            token_watch,
            pings,
        }
    }

    /// Waits for an event of the connection itself: a disconnect, a revoked token or a due ping.
    /// Cancel-safe.
    async fn connection_event(&mut self) -> ConnectionEvent {
        loop {
            tokio::select! {
                incoming = self.socket.recv() => match incoming {
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return ConnectionEvent::Disconnected,
                    // Messages of the client are ignored; the library answers pings.
                    Some(Ok(_)) => {}
                },
                () = self.token_watch.revoked() => return ConnectionEvent::Close(CloseReason::Revoked),
                _ = self.pings.tick() => return ConnectionEvent::Ping,
            }
        }
    }

    /// Writes messages. Returns the close reason on error, or `None` if the client has
    /// disconnected.
    async fn write(
        &mut self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<(), Option<CloseReason>> {
        let writing = async {
            for message in messages {
                self.socket.feed(message).await?;
            }
            self.socket.flush().await
        };
        match timeout(WRITE_TIMEOUT, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(None),
            Err(_) => Err(Some(CloseReason::TooSlow)),
        }
    }

    async fn send_event(
        &mut self,
        event: &str,
        data: impl Serialize,
    ) -> Result<(), Option<CloseReason>> {
        let text = serde_json::to_string(&json!({ "event": event, "data": data }))
            .map_err(|_| Some(CloseReason::Failed))?;
        self.write([Message::Text(text.into())]).await
    }

    /// Sends the close reason, and waits briefly for the client to confirm it.
    async fn close(mut self, close: CloseReason) {
        let closing = async {
            let _ = self.socket.send(Message::Close(Some(close.frame()))).await;
            // The client answers a close frame with its own.
            while let Some(Ok(_)) = self.socket.recv().await {}
        };
        let _ = timeout(CLOSE_TIMEOUT, closing).await;
    }
}

async fn watch_trace(mut socket: WatchSocket, access: Access, id: TraceId, query: EventQuery) {
    if let Err(Some(close)) = follow_trace(&mut socket, &access, &id, &query).await {
        socket.close(close).await;
    }
}

async fn follow_trace(
    socket: &mut WatchSocket,
    access: &Access,
    id: &TraceId,
    query: &EventQuery,
) -> Result<(), Option<CloseReason>> {
    let view = match read_trace(access, id).await {
        Ok(view) => view,
        Err(error) => {
            let info = error.into_info();
            let close = if info.code == ErrorCode::TraceNotFound {
                CloseReason::Unknown
            } else {
                CloseReason::Failed
            };
            socket.send_event("error", ErrorBody::from(info)).await?;
            return Err(Some(close));
        }
    };
    let TraceView {
        trace,
        goal_tree,
        sub_traces,
    } = &view;
    if let Err(error) = check_cursor(query, access, trace, None).await {
        let close = if error.code == ErrorCode::CursorUnknown {
            CloseReason::CursorUnknown
        } else {
            CloseReason::Failed
        };
        socket.send_event("error", ErrorBody::from(error)).await?;
        return Err(Some(close));
    }
    let Ok(store_id) = access.runtime().info().store_id().await else {
        return Err(Some(CloseReason::Failed));
    };
    // Subscribed before `connected` is sent, so that the client receives everything live from then
    // on, including items that are not stored.
    let mut stream = if query.tree {
        access
            .runtime()
            .sessions()
            .events(&trace.session_id, query.since_session_seq.unwrap_or(0))
    } else {
        access
            .runtime()
            .traces()
            .follow(id, query.since_event_id.unwrap_or(0))
    };
    // If the session was deleted before the stream was opened, its id may belong to another user by
    // now. If it is deleted later, the stream ends.
    if let Err(error) = access.trace(id).await {
        let close = if error.code == ErrorCode::TraceNotFound {
            CloseReason::Unknown
        } else {
            CloseReason::Failed
        };
        socket.send_event("error", ErrorBody::from(error)).await?;
        return Err(Some(close));
    }
    let current_event_id = trace.last_event_id;
    socket
        .send_event(
            "connected",
            Connected {
                current_event_id,
                store_id,
                trace,
                goal_tree,
                sub_traces,
            },
        )
        .await?;
    drop(view);
    let mut failures = 0;
    loop {
        let item = tokio::select! {
            item = stream.next() => item,
            other = socket.connection_event() => match other {
                ConnectionEvent::Ping => {
                    socket.write([Message::Ping(Default::default())]).await?;
                    continue;
                }
                ConnectionEvent::Disconnected => return Err(None),
                ConnectionEvent::Close(close) => return Err(Some(close)),
            },
        };
        match item {
            Some(Ok(item)) => {
                failures = 0;
                let (messages, error) = collect_ready(item, &mut stream, access)?;
                socket.write(messages).await?;
                if let Some(error) = error {
                    end_or_retry(socket, &mut failures, error).await?;
                }
            }
            Some(Err(error)) => end_or_retry(socket, &mut failures, error).await?,
            None => return Err(Some(end_reason(access))),
        }
    }
}

/// Ends the watch if the error is final; otherwise waits before the stream is read again.
async fn end_or_retry(
    socket: &mut WatchSocket,
    failures: &mut u32,
    error: ErrorInfo,
) -> Result<(), Option<CloseReason>> {
    let close = match error.code {
        ErrorCode::RuntimeFailed => CloseReason::Interrupted,
        ErrorCode::CursorUnknown => CloseReason::CursorUnknown,
        _ => return retry_read(failures, &error).await,
    };
    socket.send_event("error", ErrorBody::from(error)).await?;
    Err(Some(close))
}

/// Messages to write, and the error that followed them.
type Batch = (Vec<Message>, Option<ErrorInfo>);

/// Collects the items that are already available after the first one, so that they are written
/// together.
fn collect_ready(
    first: StreamItem,
    stream: &mut EventStream,
    access: &Access,
) -> Result<Batch, Option<CloseReason>> {
    let encoded = Arc::clone(&access.api().event_cache);
    let text = |item: StreamItem| -> Result<Utf8Bytes, serde_json::Error> {
        match item {
            StreamItem::Event(record) => encoded.json(&record),
            live => serde_json::to_string(&live).map(Into::into),
        }
    };
    let mut messages = Vec::new();
    let mut next = Some(first);
    while let Some(item) = next.take() {
        messages.push(Message::Text(
            text(item).map_err(|_| Some(CloseReason::Failed))?,
        ));
        if messages.len() < MAX_BATCH_MESSAGES {
            match stream.next().now_or_never().flatten() {
                Some(Ok(item)) => next = Some(item),
                Some(Err(error)) => return Ok((messages, Some(error))),
                None => {}
            }
        }
    }
    Ok((messages, None))
}

async fn retry_read(failures: &mut u32, error: &ErrorInfo) -> Result<(), Option<CloseReason>> {
    *failures += 1;
    if *failures == MAX_READ_FAILURES {
        tracing::warn!(%error, "closing a WebSocket because its events cannot be read");
        return Err(Some(CloseReason::Failed));
    }
    tokio::time::sleep(READ_RETRY_DELAY).await;
    Ok(())
}

/// Returns why an endless stream has ended.
fn end_reason(access: &Access) -> CloseReason {
    if access.runtime().info().is_closing() {
        CloseReason::ShuttingDown
    } else {
        CloseReason::Deleted
    }
}

async fn watch_tree(mut socket: WatchSocket, access: Access) {
    if let Err(Some(close)) = follow_tree(&mut socket, &access).await {
        socket.close(close).await;
    }
}

async fn follow_tree(socket: &mut WatchSocket, access: &Access) -> Result<(), Option<CloseReason>> {
    let mut watch = access.runtime().tree().watch();
    let mut seen = TreeFilter::default();
    loop {
        let event = tokio::select! {
            event = watch.next() => event,
            other = socket.connection_event() => match other {
                ConnectionEvent::Ping => {
                    socket.write([Message::Ping(Default::default())]).await?;
                    continue;
                }
                ConnectionEvent::Disconnected => return Err(None),
                ConnectionEvent::Close(close) => return Err(Some(close)),
            },
        };
        let Some(event) = event else {
            return Err(Some(end_reason(access)));
        };
        let filtered = seen
            .filter_event(access, event)
            .await
            .map_err(|_| Some(CloseReason::Failed))?;
        if let Some(event) = filtered {
            let text = serde_json::to_string(&event).map_err(|_| Some(CloseReason::Failed))?;
            socket.write([Message::Text(text.into())]).await?;
        }
    }
}
