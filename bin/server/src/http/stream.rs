//! HTTP endpoint for events: pages of stored events, or a stream (SSE) that sends the stored events
//! and then the live ones without a gap.
//!
//! Elsewhere: streams over a WebSocket (`watch.rs`).

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    http::{HeaderMap, HeaderValue},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, StreamExt};
use soong::{
    ErrorCode, ErrorInfo, EventStream, StreamItem, UnrecordedRun,
    protocol::{
        Trace, TraceId,
        api::{
            Accepted, ERROR_FRAME, ErrorBody, EventPage, EventQuery, KEEP_ALIVE_INTERVAL,
            operation::ReadEvents,
        },
    },
};

use super::{
    Api,
    caller::{Access, TokenWatch},
    error::{ApiError, validation_error},
    event_cache::EventCache,
    request::{Path, Query, quality},
    session::{PageSize, limit},
};

/// Delay before a failed read from the store is repeated.
pub(super) const READ_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Number of consecutive failures at which a stream ends. The client can then resume it with its
/// cursor.
pub(super) const MAX_READ_FAILURES: u32 = 50;

/// Number of events on a page.
const PAGE_EVENTS: PageSize = PageSize {
    usual: 100,
    most: 1_000,
};

/// Rejects a cursor that this store did not issue. `seen` is the cursor from `Last-Event-ID`, which
/// takes precedence over the cursor in the query.
pub(super) async fn check_cursor(
    query: &EventQuery,
    access: &Access,
    trace: &Trace,
    seen: Option<u64>,
) -> Result<(), ErrorInfo> {
    let cursor = seen.unwrap_or(query.cursor());
    if cursor == 0 {
        return Ok(());
    }
    let (first, last) = if query.tree {
        let session = access.session(&trace.session_id).await?;
        (session.first_session_seq, session.last_session_seq)
    } else {
        (trace.first_event_id, trace.last_event_id)
    };
    access
        .runtime()
        .info()
        .check_cursor(cursor, first, last, query.store_id.as_deref())
        .await
}

/// Response header of a stream, with the id of the store.
const STORE_HEADER: &str = "soong-store-id";

/// Answers [`ReadEvents`]: with a page of stored events, or with a stream.
pub(super) async fn page_or_stream(
    access: Access,
    token_watch: TokenWatch,
    Path(id): Path<TraceId>,
    Query(query): Query<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let seen =
        match headers.get("last-event-id") {
            None => None,
            // Clients that have seen no event may send an empty header.
            Some(id) if id.is_empty() => None,
            Some(id) => {
                let number = id.to_str().ok().and_then(|id| id.parse().ok());
                Some(number.ok_or_else(|| {
                    validation_error("Last-Event-ID must be the number of an event")
                })?)
            }
        };
    if wants_stream(&headers) {
        let is_tree = query.tree;
        let stream = follow(&access, &id, &query, seen).await?;
        let store_id = access.runtime().info().store_id().await?;
        let frames = frames(access.api(), token_watch, stream, is_tree);
        return Ok(([(STORE_HEADER, store_id)], event_stream(frames)).into_response());
    }
    let page = read_page(&access, &id, &query, seen).await?;
    Ok(Json(page).into_response())
}

/// Streams the events of a trace, or of its session. `seen` takes precedence over the cursor in the
/// query.
pub(super) async fn follow(
    access: &Access,
    id: &TraceId,
    query: &EventQuery,
    seen: Option<u64>,
) -> Result<EventStream, ApiError> {
    let trace = access.trace(id).await?;
    check_cursor(query, access, &trace, seen).await?;
    let since = seen.unwrap_or(query.cursor());
    let stream = if query.tree {
        access.runtime().sessions().events(&trace.session_id, since)
    } else {
        access.runtime().traces().follow(id, since)
    };
    // If the session was deleted before the stream was opened, its id may belong to another user by
    // now. If it is deleted later, the stream ends.
    access.trace(id).await?;
    Ok(stream)
}

/// Reads a page of stored events of a trace, or of its session.
pub(super) async fn page(access: &Access, request: ReadEvents) -> Result<EventPage, ApiError> {
    read_page(access, &request.trace_id, &request.query, None).await
}

async fn read_page(
    access: &Access,
    id: &TraceId,
    query: &EventQuery,
    seen: Option<u64>,
) -> Result<EventPage, ApiError> {
    let trace = access.trace(id).await?;
    check_cursor(query, access, &trace, seen).await?;
    let since = seen.unwrap_or(query.cursor());
    let runtime = access.runtime();
    let store_id = runtime.info().store_id().await?;
    let limit = limit(query.limit, PAGE_EVENTS)?;
    let events = if query.tree {
        runtime
            .sessions()
            .replay(&trace.session_id, since, limit)
            .await?
    } else {
        runtime.traces().replay(id, since, limit).await?
    };
    // The session may have been deleted meanwhile, and its id belong to another user.
    access.trace(id).await?;
    Ok(EventPage { events, store_id })
}

/// Returns whether the `Accept` header of a request names `text/event-stream`, and does not refuse
/// it with `q=0`.
pub(super) fn wants_stream(headers: &HeaderMap) -> bool {
    quality(headers, "text/event-stream") > 0
}

/// Responds with the stream of a session. Its first frame, named `accepted`, contains the accepted
/// run.
pub(super) fn stream_after_start(
    access: &Access,
    token_watch: TokenWatch,
    stream: EventStream,
    accepted: &Accepted,
) -> Response {
    let first = Event::default().event("accepted").json_data(accepted);
    let stream = futures::stream::once(async { first }).chain(frames(
        access.api(),
        token_watch,
        stream,
        true,
    ));
    event_stream(stream)
}

/// Responds with a stream of frames. The response headers forbid nginx to buffer the stream, and
/// other proxies to compress it, because both would delay frames.
fn event_stream(
    frames: impl Stream<Item = Result<Event, axum::Error>> + Send + 'static,
) -> Response {
    let headers = [
        ("x-accel-buffering", "no"),
        ("cache-control", "no-cache, no-transform"),
    ];
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL).text("ping");
    let mut response = Sse::new(frames).keep_alive(keep_alive).into_response();
    for (name, value) in headers {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Converts a stream into SSE frames. The frame of an event has the event's number as id; the frame
/// of a delta has no id. The frames end when the token of the client is revoked.
fn frames(
    api: &Api,
    token_watch: TokenWatch,
    stream: EventStream,
    tree: bool,
) -> impl Stream<Item = Result<Event, axum::Error>> + use<> {
    let encoded = Arc::clone(&api.event_cache);
    items(token_watch, stream).map(move |item| match item {
        Ok(item) => frame(&item, tree, &encoded),
        Err(error) => Event::default()
            .event(ERROR_FRAME)
            .json_data(ErrorBody::from(error)),
    })
}

/// Returns the items of a stream, and reads again if the store cannot be read. An error is the last
/// item: the stream has ended for a reason that its reader must know. The items end when the token
/// of the client is revoked, or when the store cannot be read for too long.
pub(super) fn items(
    token_watch: TokenWatch,
    stream: EventStream,
) -> impl Stream<Item = Result<StreamItem, ErrorInfo>> + use<> {
    futures::stream::unfold(
        (stream, token_watch),
        move |(mut stream, mut token_watch)| async move {
            let mut failures = 0;
            loop {
                let item = tokio::select! {
                    item = stream.next() => item?,
                    () = token_watch.revoked() => return None,
                };
                let is_final = item.as_ref().is_err_and(|error| {
                    matches!(
                        error.code,
                        ErrorCode::RuntimeFailed
                            | ErrorCode::CursorUnknown
                            | ErrorCode::TraceNotFound
                    )
                });
                let error = match item {
                    Err(error) if !is_final => error,
                    item => return Some((item, (stream, token_watch))),
                };
                failures += 1;
                if failures == MAX_READ_FAILURES {
                    tracing::warn!(%error, "closing an event stream because its events cannot be read");
                    return None;
                }
                tokio::time::sleep(READ_RETRY_DELAY).await;
            }
        },
    )
}

fn frame(item: &StreamItem, tree: bool, encoded: &EventCache) -> Result<Event, axum::Error> {
    match item {
        StreamItem::Event(record) => {
            let id = if tree {
                record.session_seq
            } else {
                record.event_id
            };
            let json = encoded.json(record).map_err(axum::Error::new)?;
            Ok(Event::default().id(id.to_string()).data(json.as_str()))
        }
        StreamItem::Delta(delta) => Event::default().json_data(&**delta),
        StreamItem::Lost(lost) => Event::default()
            .event(UnrecordedRun::KIND)
            .json_data(&**lost),
    }
}
