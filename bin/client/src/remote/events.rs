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
    ErrorCode, ErrorInfo, StreamItem, TraceStatus,
    api::{
        KEEP_ALIVE_INTERVAL,
        operation::{ReadEvents, ReadTrace},
    },
};
use tokio::{sync::mpsc, task::AbortHandle, time::Instant};

use super::{
    RemoteHome,
    frames::{Frames, SseFrame, frames},
};
use crate::{CLI_CLIENT, PAGE_EVENTS, home::PollableEvents};

/// Maximum time without bytes on a server's stream: two pings, and some time for their delivery.
pub(crate) const IDLE_TIMEOUT: Duration =
    Duration::from_secs(2 * KEEP_ALIVE_INTERVAL.as_secs() + 3);
/// Interval of polling a server.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Moves a request for events behind an item that was received.
fn advance(request: &mut ReadEvents, item: &StreamItem) {
    let StreamItem::Event(record) = item else {
        return;
    };
    if request.query.tree {
        request.query.since_session_seq = Some(record.session_seq);
    } else {
        request.query.since_event_id = Some(record.event_id);
    }
}

/// Events of another process.
pub(crate) struct RemoteEvents {
    source: RemoteSource,
    /// The home, and the request for the next events, for polling if the stream stays silent;
    /// `None`: the stream may stay silent without limit.
    fallback: Option<(RemoteHome, ReadEvents)>,
}

enum RemoteSource {
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

impl RemoteEvents {
    /// Creates a stream that may stay silent without limit.
    pub(crate) fn of_response(response: reqwest::Response) -> Self {
        Self {
            source: RemoteSource::of_response(response),
            fallback: None,
        }
    }

    /// Creates a stream that is opened when it is first read, and polled if it stays silent.
    pub(super) fn opening(home: RemoteHome, request: ReadEvents) -> Self {
        let opening_home = home.clone();
        let first_request = request.clone();
        let response = async move { opening_home.open_stream(&first_request).await }.boxed();
        let source = RemoteSource::Opening {
            response,
            deadline: None,
        };
        Self {
            source,
            fallback: Some((home, request)),
        }
    }

    pub(super) async fn frame(&mut self) -> Option<Result<SseFrame, ErrorInfo>> {
        loop {
            let (frames, last_bytes) = match &mut self.source {
                RemoteSource::Opening { response, deadline } => {
                    let deadline = *deadline.get_or_insert_with(|| Instant::now() + IDLE_TIMEOUT);
                    match tokio::time::timeout_at(deadline, response).await {
                        Ok(Ok(response)) => self.source = RemoteSource::of_response(response),
                        Ok(Err(error)) => {
                            self.source = RemoteSource::Refused;
                            return Some(Err(error));
                        }
                        Err(_) => self.poll(),
                    }
                    continue;
                }
                RemoteSource::Stream { frames, last_bytes } => (frames, last_bytes),
                RemoteSource::Polled(polled) => {
                    return polled
                        .items
                        .recv()
                        .await
                        .map(|item| item.map(SseFrame::Item));
                }
                RemoteSource::Refused => return None,
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

impl PollableEvents for RemoteEvents {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<StreamItem, ErrorInfo>>> {
        async move {
            loop {
                match self.frame().await? {
                    Ok(SseFrame::Item(item)) => {
                        if let Some((_, request)) = &mut self.fallback {
                            advance(request, &item);
                        }
                        return Some(Ok(item));
                    }
                    Ok(SseFrame::Accepted(_)) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
        }
        .boxed()
    }

    fn poll(&mut self) {
        if let Some((home, request)) = &self.fallback
            && !self.is_polled()
        {
            self.source = RemoteSource::Polled(Polled::start(home.clone(), request.clone()));
        }
    }

    fn is_polled(&self) -> bool {
        matches!(self.source, RemoteSource::Polled(_))
    }
}

impl RemoteSource {
    fn of_response(response: reqwest::Response) -> Self {
        let last_bytes = LastBytes(Arc::new(Mutex::new(Instant::now())));
        let received = last_bytes.clone();
        let frames = frames(response.bytes_stream().inspect(move |_| received.update()));
        Self::Stream { frames, last_bytes }
    }
}

impl Polled {
    fn start(home: RemoteHome, mut request: ReadEvents) -> Self {
        let (sender, items) = mpsc::channel(PAGE_EVENTS);
        let task = tokio::spawn(async move {
            let mut reached = Instant::now();
            loop {
                let error = match page(&home, &request).await {
                    Ok(Page::Events(found)) => {
                        reached = Instant::now();
                        let is_empty = found.is_empty();
                        for item in found {
                            advance(&mut request, &item);
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
async fn page(home: &RemoteHome, request: &ReadEvents) -> Result<Page, ErrorInfo> {
    // The status is read first: if the run ends in between, the page contains its last event.
    let trace = ReadTrace {
        trace_id: request.trace_id.clone(),
    };
    let status = home.execute(trace, CLI_CLIENT).await?.trace.status;
    let mut request = request.clone();
    request.query.limit = Some(PAGE_EVENTS);
    let events = home.execute(request, CLI_CLIENT).await?.events;
    if events.is_empty() && status == TraceStatus::Interrupted {
        return Ok(Page::Interrupted);
    }
    let items = events.into_iter().map(Arc::new).map(StreamItem::Event);
    Ok(Page::Events(items.collect()))
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
    use crate::{Client, remote::transport::Routes};
    use soong_protocol::TraceId;

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
        Client::new(Arc::new(RemoteHome {
            may_poll: true,
            ..RemoteHome::of_routes(Arc::new(Server(router)))
        }))
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
