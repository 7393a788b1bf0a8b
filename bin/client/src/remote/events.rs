//! Events of a trace or of its whole session: streamed, or polled if a server's stream stays
//! silent.
//!
//! A server sends a comment every [`KEEP_ALIVE_INTERVAL`] if there is nothing else to send. If no
//! bytes arrive for longer than two such intervals, something between client and server holds the
//! stream back, such as a proxy that buffers responses.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture};
use soong_protocol::{
    ErrorCode, ErrorInfo, EventRecord, StreamItem, TraceId, TraceStatus,
    api::{
        EventQuery, KEEP_ALIVE_INTERVAL,
        operation::{ReadEvents, ReadTrace},
    },
};
use tokio::{sync::mpsc, task::AbortHandle, time::Instant};

use crate::{
    Client, Items,
    remote::frames::{Frames, SseFrame, frames},
};

/// Maximum time without bytes on a server's stream: two pings, and some time for their delivery.
pub(crate) const IDLE_TIMEOUT: Duration =
    Duration::from_secs(2 * KEEP_ALIVE_INTERVAL.as_secs() + 3);
/// Interval of polling a server.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of events per polled page.
const PAGE_EVENTS: usize = 500;

/// Position in the events of a trace or of its whole session.
#[derive(Debug, Clone)]
pub(crate) struct Position {
    pub(crate) trace: TraceId,
    /// Whether the events are those of the whole session, whose timeline `since` then refers to.
    pub(crate) tree: bool,
    /// Number of the last known event.
    pub(crate) since: u64,
}

impl Position {
    /// Returns the request that continues at this position.
    pub(crate) fn request(&self, limit: Option<usize>) -> ReadEvents {
        let mut query = EventQuery {
            limit,
            tree: self.tree,
            ..EventQuery::default()
        };
        if self.tree {
            query.since_session_seq = Some(self.since);
        } else {
            query.since_event_id = Some(self.since);
        }
        ReadEvents {
            trace_id: self.trace.clone(),
            query,
        }
    }

    fn advance(&mut self, item: &StreamItem) {
        if let StreamItem::Event(record) = item {
            self.since = if self.tree {
                record.session_seq
            } else {
                record.event_id
            };
        }
    }
}

/// Stream of events.
pub struct EventStream {
    source: EventSource,
    /// Client and position for polling if the stream stays silent; `None`: the stream may stay
    /// silent without limit.
    fallback: Option<(Client, Position)>,
}

enum EventSource {
    /// The head of the response has not arrived. If it does not until `deadline`, events are
    /// polled.
    Opening {
        response: BoxFuture<'static, Result<reqwest::Response, ErrorInfo>>,
        /// Set when the stream is first read.
        deadline: Option<Instant>,
    },
    Stream {
        frames: Frames,
        /// Time of the last bytes, keep-alive comments included.
        last_bytes: LastBytes,
    },
    Polled(Polled),
    /// Items of a home in this process.
    Items(Items),
    /// The owner has refused the request.
    Refused,
}

/// Time of the last bytes of a stream.
#[derive(Clone)]
struct LastBytes(Arc<Mutex<Instant>>);

impl LastBytes {
    fn update(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn deadline(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) + IDLE_TIMEOUT
    }
}

/// Events polled by a task, which ends when this is dropped.
struct Polled {
    items: mpsc::Receiver<Result<StreamItem, ErrorInfo>>,
    task: AbortHandle,
}

impl Drop for Polled {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EventStream {
    /// Creates a stream that may stay silent without limit.
    pub(crate) fn of_response(response: reqwest::Response) -> Self {
        Self {
            source: EventSource::of_response(response),
            fallback: None,
        }
    }

    /// Creates a stream of a home in this process.
    pub(crate) fn of_items(items: Items) -> Self {
        Self {
            source: EventSource::Items(items),
            fallback: None,
        }
    }

    /// Creates a stream that is opened when it is first read, and polled if it stays silent.
    pub(crate) fn opening(client: Client, position: Position) -> Self {
        let opening_client = client.clone();
        let request = position.request(None);
        let response = async move { opening_client.open_stream(&request).await }.boxed();
        let source = EventSource::Opening {
            response,
            deadline: None,
        };
        Self {
            source,
            fallback: Some((client, position)),
        }
    }

    /// Polls from now on, if the stream can be held back by something between client and server.
    /// For a caller that does not want to wait until a silent stream counts as held back.
    pub fn poll(&mut self) {
        if let Some((client, position)) = &self.fallback
            && !self.is_polled()
        {
            self.source = EventSource::Polled(Polled::start(client.clone(), position.clone()));
        }
    }

    /// Returns whether the stream stayed silent, so that events are polled.
    pub fn is_polled(&self) -> bool {
        matches!(self.source, EventSource::Polled(_))
    }

    /// Returns the next item. `None` if the owner has closed the stream; an error if the connection
    /// is lost or an item is invalid.
    ///
    /// Cancel-safe: a dropped call loses no item.
    pub async fn next(&mut self) -> Option<Result<StreamItem, ErrorInfo>> {
        loop {
            match self.frame().await? {
                Ok(SseFrame::Item(item)) => {
                    if let Some((_, position)) = &mut self.fallback {
                        position.advance(&item);
                    }
                    return Some(Ok(item));
                }
                Ok(SseFrame::Accepted(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    pub(crate) async fn frame(&mut self) -> Option<Result<SseFrame, ErrorInfo>> {
        loop {
            let (frames, last_bytes) = match &mut self.source {
                EventSource::Opening { response, deadline } => {
                    let deadline = *deadline.get_or_insert_with(|| Instant::now() + IDLE_TIMEOUT);
                    match tokio::time::timeout_at(deadline, response).await {
                        Ok(Ok(response)) => self.source = EventSource::of_response(response),
                        Ok(Err(error)) => {
                            self.source = EventSource::Refused;
                            return Some(Err(error));
                        }
                        Err(_) => self.poll(),
                    }
                    continue;
                }
                EventSource::Stream { frames, last_bytes } => (frames, last_bytes),
                EventSource::Polled(polled) => {
                    return polled
                        .items
                        .recv()
                        .await
                        .map(|item| item.map(SseFrame::Item));
                }
                EventSource::Items(items) => {
                    return items.next().await.map(|item| item.map(SseFrame::Item));
                }
                EventSource::Refused => return None,
            };
            if self.fallback.is_none() {
                return frames.next().await;
            }
            match tokio::time::timeout_at(last_bytes.deadline(), frames.next()).await {
                Ok(frame) => return frame,
                // A comment has arrived meanwhile.
                Err(_) if last_bytes.deadline() > Instant::now() => {}
                Err(_) => self.poll(),
            }
        }
    }
}

impl EventSource {
    fn of_response(response: reqwest::Response) -> Self {
        let last_bytes = LastBytes(Arc::new(Mutex::new(Instant::now())));
        let received = last_bytes.clone();
        let frames = frames(response.bytes_stream().inspect(move |_| received.update()));
        Self::Stream { frames, last_bytes }
    }
}

impl Polled {
    fn start(client: Client, mut position: Position) -> Self {
        let (sender, items) = mpsc::channel(PAGE_EVENTS);
        let task = tokio::spawn(async move {
            let mut reached = Instant::now();
            loop {
                let error = match page(&client, &position).await {
                    Ok(Page::Events(found)) => {
                        reached = Instant::now();
                        let is_empty = found.is_empty();
                        for item in found {
                            position.advance(&item);
                            if sender.send(Ok(item)).await.is_err() {
                                return;
                            }
                        }
                        if is_empty {
                            tokio::time::sleep(POLL_INTERVAL).await;
                        }
                        continue;
                    }
                    Ok(Page::Interrupted) => ErrorInfo::new(
                        ErrorCode::Closing,
                        "the run is interrupted: no process executes it",
                    ),
                    // The server may be restarting, or the network may be down for a moment.
                    Err(error)
                        if matches!(error.code, ErrorCode::Closing | ErrorCode::HomeLocked)
                            && reached.elapsed() < IDLE_TIMEOUT =>
                    {
                        tokio::time::sleep(POLL_INTERVAL).await;
                        continue;
                    }
                    Err(error) => error,
                };
                let _ = sender.send(Err(error)).await;
                return;
            }
        });
        Self {
            items,
            task: task.abort_handle(),
        }
    }
}

/// Result of a poll.
enum Page {
    /// The next events, possibly none.
    Events(Vec<StreamItem>),
    /// No events, and none will follow: no process executes the run.
    Interrupted,
}

/// Reads the next events.
async fn page(client: &Client, position: &Position) -> Result<Page, ErrorInfo> {
    // The status is read first: if the run ends in between, the page contains its last event.
    let status = client
        .call(ReadTrace {
            trace_id: position.trace.clone(),
        })
        .await?
        .trace
        .status;
    let events = stored_page(client, position).await?;
    if events.is_empty() && status == TraceStatus::Interrupted {
        return Ok(Page::Interrupted);
    }
    Ok(Page::Events(
        events
            .into_iter()
            .map(|record| StreamItem::Event(Arc::new(record)))
            .collect(),
    ))
}

/// Reads up to [`PAGE_EVENTS`] stored events after a position.
pub(crate) async fn stored_page(
    client: &Client,
    position: &Position,
) -> Result<Vec<EventRecord>, ErrorInfo> {
    let request = position.request(Some(PAGE_EVENTS));
    let page = client.call(request).await?;
    Ok(page.events)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::{
        Json, Router,
        body::{Body, Bytes},
        extract::RawQuery,
        http::StatusCode,
        response::IntoResponse,
        routing::get,
    };
    use serde_json::{Value, json};
    use tower::ServiceExt;

    use super::*;
    use crate::Routes;

    /// Answers as a server does.
    struct Server(Router);

    impl Routes for Server {
        fn send(
            &self,
            request: http::Request<reqwest::Body>,
        ) -> BoxFuture<'static, http::Response<reqwest::Body>> {
            let answer = self.0.clone().oneshot(request);
            async move {
                let response = answer.await.unwrap_or_else(|never| match never {});
                response.map(|body| reqwest::Body::wrap_stream(body.into_data_stream()))
            }
            .boxed()
        }
    }

    fn event(number: u64) -> Value {
        json!({
            "event_id": number, "event": "cancel_requested", "trace_id": "s", "session_id": "s", "run_id": "r",
            "run_seq": number, "session_seq": 10 * number, "ts": "1970-01-01T00:00:00.000Z", "level": "info",
            "data": {}
        })
    }

    /// A server whose stream sends one event and is then held back. Polling fails `failures` times,
    /// then returns three events and an interrupted trace.
    fn client(failures: usize) -> Client {
        let failures = Arc::new(AtomicUsize::new(failures));
        let events = async move |headers: axum::http::HeaderMap, RawQuery(query): RawQuery| {
            let query = query.unwrap_or_default();
            if headers["accept"] == "text/event-stream" {
                let first = Bytes::from(format!("id: 10\ndata: {}\n\n: ping\n\n", event(1)));
                let open_stream = futures::stream::iter([Ok::<_, std::io::Error>(first)])
                    .chain(futures::stream::pending());
                return Body::from_stream(open_stream).into_response();
            }
            let decrement = |left: usize| left.checked_sub(1);
            if failures
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, decrement)
                .is_ok()
            {
                return StatusCode::BAD_GATEWAY.into_response();
            }
            let since = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("since_session_seq=")?.parse::<u64>().ok())
                .unwrap();
            let events: Vec<Value> = (1..=3)
                .filter(|number| 10 * number > since)
                .take(1)
                .map(event)
                .collect();
            Json(json!({"events": events, "store_id": ""})).into_response()
        };
        let trace = json!({
            "trace_id": "s", "session_id": "s", "mode": "agent", "run_mode": "normal", "task": "", "name": "",
            "agent_type": "default", "status": "interrupted", "total_messages": 0, "total_tokens": 0,
            "total_prompt_tokens": 0, "total_completion_tokens": 0, "total_cost": null, "total_duration_ms": 0,
            "last_sequence": 0, "head_sequence": 0, "last_event_id": 3, "uid": "", "model": "m",
            "context": {"collaborators": []}, "created_at": "1970-01-01T00:00:00.000Z"
        });
        let view =
            json!({"trace": trace, "goal_tree": {"mission": "", "goals": []}, "sub_traces": []});
        let trace = async move || Json(view);
        let router = Router::new()
            .route("/api/traces/s/events", get(events))
            .route("/api/traces/s", get(trace));
        Client {
            may_poll: true,
            ..Client::of_routes(Arc::new(Server(router)))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_stream_is_polled_from_its_last_event() {
        let mut watch = client(0)
            .session_events(&TraceId::new("s"), 0)
            .await
            .unwrap();
        let begun = Instant::now();
        let mut seen = Vec::new();
        loop {
            // Uses a timeout, as readers do that draw in between.
            match tokio::time::timeout(Duration::from_millis(100), watch.next()).await {
                Err(_) => {}
                Ok(Some(Ok(StreamItem::Event(record)))) => {
                    seen.push(record.event_id);
                    assert_eq!(watch.is_polled(), record.event_id > 1);
                }
                Ok(Some(Err(error))) => {
                    assert_eq!(error.code, ErrorCode::Closing, "{error}");
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, [1, 2, 3]);
        assert_eq!(begun.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn polling_survives_a_short_failure_only() {
        for (failures, expected) in [(0, 3), (5, 3), (1_000, 1)] {
            let mut watch = client(failures)
                .session_events(&TraceId::new("s"), 0)
                .await
                .unwrap();
            let mut seen = 0;
            while let Some(Ok(_)) = watch.next().await {
                seen += 1;
            }
            assert_eq!(seen, expected, "{failures} failures");
        }
    }
}
