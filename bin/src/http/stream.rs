//! Events: as pages, or as a stream (SSE) that follows stored ones with live ones without a gap.

use std::time::Duration;

use axum::{
    Json,
    extract::{Path, Query, State, rejection::QueryRejection},
    http::{HeaderMap, header},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use soong::{
    EventStream, LostRun, StreamItem,
    protocol::{EventRecord, TraceId},
};

use super::{
    Api,
    error::{ApiError, refuse},
    run::Accepted,
};

/// How often a stream without events says that it is there.
const PING: Duration = Duration::from_secs(15);
/// How long to wait before the store is read again that could not be read; and how often that is
/// tried before the stream ends, to be taken up again by its cursor.
const REREAD: (Duration, u32) = (Duration::from_millis(200), 50);
/// Events of a page unless the client says otherwise, and at most.
const PAGE_EVENTS: (usize, usize) = (100, 1_000);

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// Cursor on the trace's own timeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since_event_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
    /// Whether the stream merges the events of the whole session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) tree: bool,
    /// Cursor on the session's timeline, for `tree`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since_session_seq: Option<u64>,
}

/// A page of events, in order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EventPage {
    pub(crate) events: Vec<EventRecord>,
}

/// GET `/api/traces/{id}/events`
pub(super) async fn events(
    State(api): State<Api>,
    Path(id): Path<TraceId>,
    query: Result<Query<EventQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Query(query) = query?;
    let trace = api.runtime.trace(&id).await?;
    if !wants_stream(&headers) {
        if query.tree {
            return Err(refuse("tree: only a stream merges a session; ask for `text/event-stream`"));
        }
        let limit = query.limit.unwrap_or(PAGE_EVENTS.0).min(PAGE_EVENTS.1);
        let events = api.runtime.replay(&id, query.since_event_id.unwrap_or(0), limit).await?;
        return Ok(Json(EventPage { events }).into_response());
    }
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
    let stream = if query.tree {
        api.runtime.session_events(&trace.session_id, seen.or(query.since_session_seq).unwrap_or(0))
    } else {
        api.runtime.trace_events(&id, seen.or(query.since_event_id).unwrap_or(0))
    };
    Ok(Sse::new(frames(stream, query.tree)).keep_alive(keep_alive()).into_response())
}

/// Returns whether a client wants a stream rather than one answer.
pub(super) fn wants_stream(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accepts.is_some_and(|accepts| accepts.contains("text/event-stream"))
}

/// Answers with a session's stream behind the run that was accepted.
pub(super) fn followed(stream: EventStream, accepted: &Accepted) -> Response {
    let first = Event::default().event("accepted").json_data(accepted);
    let stream = futures::stream::once(async { first }).chain(frames(stream, true));
    Sse::new(stream).keep_alive(keep_alive()).into_response()
}

fn keep_alive() -> KeepAlive {
    KeepAlive::new().interval(PING).text("ping")
}

/// Turns a stream into frames: an event has its cursor as id, a delta has none.
fn frames(stream: EventStream, tree: bool) -> impl Stream<Item = Result<Event, axum::Error>> {
    futures::stream::unfold(stream, move |mut stream| async move {
        let mut failures = 0;
        loop {
            let frame = match stream.next().await? {
                Ok(StreamItem::Event(record)) => {
                    let id = if tree { record.session_seq } else { record.event_id };
                    Event::default().id(id.to_string()).json_data(&*record)
                }
                Ok(StreamItem::Delta(delta)) => Event::default().json_data(&*delta),
                Ok(StreamItem::Lost(lost)) => Event::default().event(LostRun::KIND).json_data(&*lost),
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
            return Some((frame, stream));
        }
    })
}
