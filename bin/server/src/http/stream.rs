//! Events: as pages, or as a stream (SSE) that follows stored ones with live ones without a gap.
//!
//! Not here: the same over a WebSocket (`watch.rs`).

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    http::{HeaderMap, HeaderValue, header},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use soong::{
    ErrorCode, ErrorInfo, EventStream, LostRun, StreamItem,
    protocol::{EventRecord, Trace, TraceId},
};
use utoipa::{IntoParams, ToSchema};

use super::{
    Api,
    accepted::Accepted,
    caller::{Access, Leave},
    encoded::Encoded,
    error::{ApiError, ErrorBody, refuse},
    request::{Path, Query},
    session::limit,
};

/// How often a stream without events says that it is there.
pub const PING: Duration = Duration::from_secs(15);
/// How long to wait before the store is read again that could not be read; and how often that is
/// tried before the stream ends, to be taken up again by its cursor.
pub(super) const REREAD: (Duration, u32) = (Duration::from_millis(200), 50);
/// The name of the frame that says why a stream ends.
pub const ERROR_FRAME: &str = "error";
/// Events of a page unless the client says otherwise, and at most.
const PAGE_EVENTS: (usize, usize) = (100, 1_000);

#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventQuery {
    /// The last event that is known, on the trace's own timeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_event_id: Option<u64>,
    /// Most events of a page; 100 unless it is said, at most 1000.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The store that the last known event is of, as `store_id` said; absent = it is not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_id: Option<String>,
    /// Whether it is the events of the whole session, merged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tree: bool,
    /// The last event that is known, on the session's timeline; for `tree`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_session_seq: Option<u64>,
}

/// A page of events, in order.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// The events, oldest first.
    pub events: Vec<EventRecord>,
    /// Tells this store from others: a cursor of another one says nothing here.
    #[serde(default)]
    pub store_id: String,
}

impl EventQuery {
    /// Refuses a place that is none of this store.
    pub(super) async fn check(&self, access: &Access, trace: &Trace, seen: Option<u64>) -> Result<(), ErrorInfo> {
        let given = if self.tree { self.since_session_seq } else { self.since_event_id };
        let Some(cursor @ 1..) = seen.or(given) else { return Ok(()) };
        let last = match self.tree {
            true => access.session(&trace.session_id).await?.last_session_seq,
            false => trace.last_event_id,
        };
        access.runtime().check_cursor(cursor, last, self.store_id.as_deref()).await
    }
}

/// The header that says of which store a stream's events are.
const STORE_HEADER: &str = "soong-store-id";

/// Reads the events of a trace: a page of stored ones, or a stream for whoever accepts `text/event-stream`.
///
/// The stream has each event once, in order, with its number as `id`; after a break it goes on behind
/// `Last-Event-ID`. Streamed text has no `id`, and is lost to whoever is not there. With `tree` the numbers are those of
/// the session. Where the runtime fails, a frame named `error` says why, and the stream ends. A cursor that is none of
/// this store, because a backup was restored, is refused as `cursor_unknown` (410), with where to start again.
#[utoipa::path(get, path = "/api/traces/{trace_id}/events", tag = "traces",
    params(("trace_id" = String, Path), EventQuery, ("last-event-id" = Option<String>, Header, pattern = "^[0-9]{1,18}$")),
    responses((status = OK, content((EventPage = "application/json"), (String = "text/event-stream")))))]
pub(super) async fn events(
    access: Access,
    leave: Leave,
    Path(id): Path<TraceId>,
    Query(query): Query<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let trace = access.trace(&id).await?;
    let seen = match headers.get("last-event-id") {
        None => None,
        Some(id) => {
            let number = id.to_str().ok().and_then(|id| id.parse().ok());
            Some(number.ok_or_else(|| refuse("Last-Event-ID has to be the number of an event"))?)
        }
    };
    query.check(&access, &trace, seen).await?;
    let store_id = access.runtime().store_id().await?;
    if !wants_stream(&headers) {
        let limit = limit(query.limit, PAGE_EVENTS)?;
        let runtime = access.runtime();
        let events = match query.tree {
            true => runtime.replay_session(&trace.session_id, query.since_session_seq.unwrap_or(0), limit).await?,
            false => runtime.replay(&id, query.since_event_id.unwrap_or(0), limit).await?,
        };
        return Ok(Json(EventPage { events, store_id }).into_response());
    }
    let stream = match query.tree {
        true => access.runtime().session_events(&trace.session_id, seen.or(query.since_session_seq).unwrap_or(0)),
        false => access.runtime().follow_trace(&id, seen.or(query.since_event_id).unwrap_or(0)),
    };
    let frames = frames(access.api(), leave, stream, query.tree);
    Ok(([(STORE_HEADER, store_id)], event_stream(frames)).into_response())
}

/// Returns whether a client wants a stream rather than one answer.
pub(super) fn wants_stream(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accepts.is_some_and(|accepts| accepts.contains("text/event-stream"))
}

/// Answers with a session's stream behind the run that was accepted.
pub(super) fn followed(access: &Access, leave: Leave, stream: EventStream, accepted: &Accepted) -> Response {
    let first = Event::default().event("accepted").json_data(accepted);
    let stream = futures::stream::once(async { first }).chain(frames(access.api(), leave, stream, true));
    event_stream(stream)
}

/// Answers with frames as they come. Proxies are told not to hold them back: nginx buffers answers unless a header forbids
/// it, and others compress them.
fn event_stream(frames: impl Stream<Item = Result<Event, axum::Error>> + Send + 'static) -> Response {
    let headers = [("x-accel-buffering", "no"), ("cache-control", "no-cache, no-transform")];
    let keep_alive = KeepAlive::new().interval(PING).text("ping");
    let mut response = Sse::new(frames).keep_alive(keep_alive).into_response();
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Turns a stream into frames: an event has its cursor as id, a delta has none. It ends where its reader's leave does.
fn frames(
    api: &Api,
    leave: Leave,
    stream: EventStream,
    tree: bool,
) -> impl Stream<Item = Result<Event, axum::Error>> + use<> {
    let encoded = Arc::clone(&api.encoded);
    futures::stream::unfold((stream, leave, encoded), move |(mut stream, mut leave, encoded)| async move {
        let mut failures = 0;
        loop {
            let item = tokio::select! {
                item = stream.next() => item?,
                () = leave.ends() => return None,
            };
            let frame = match item {
                Ok(item) => frame(&item, tree, &encoded),
                // The stream has ended: this frame is its last.
                Err(error) if matches!(error.code, ErrorCode::RuntimeFailed | ErrorCode::CursorUnknown) => {
                    Event::default().event(ERROR_FRAME).json_data(ErrorBody::from(error))
                }
                Err(error) => {
                    failures += 1;
                    if failures == REREAD.1 {
                        tracing::warn!(%error, "a stream ends: its events cannot be read");
                        return None;
                    }
                    tokio::time::sleep(REREAD.0).await;
                    continue;
                }
            };
            return Some((frame, (stream, leave, encoded)));
        }
    })
}

fn frame(item: &StreamItem, tree: bool, encoded: &Encoded) -> Result<Event, axum::Error> {
    match item {
        StreamItem::Event(record) => {
            let id = if tree { record.session_seq } else { record.event_id };
            let json = encoded.json(record).map_err(axum::Error::new)?;
            Ok(Event::default().id(id.to_string()).data(json.as_str()))
        }
        StreamItem::Delta(delta) => Event::default().json_data(&**delta),
        StreamItem::Lost(lost) => Event::default().event(LostRun::KIND).json_data(&**lost),
    }
}
