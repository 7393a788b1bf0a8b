//! Counts requests in progress, so that an owner that shuts down lets its clients read their
//! responses.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http_body_util::BodyExt;

/// Time after a response within which a client may send its next request.
const QUIET_PERIOD: Duration = Duration::from_millis(150);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Counts requests from their start to the end of their responses.
#[derive(Clone, Default)]
pub struct Traffic(Arc<Mutex<TrafficState>>);

#[derive(Default)]
struct TrafficState {
    open: usize,
    last_end: Option<Instant>,
}

impl Traffic {
    fn served(&self) -> MutexGuard<'_, TrafficState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_quiet(&self) -> bool {
        let served = self.served();
        served.open == 0
            && served
                .last_end
                .is_none_or(|end| end.elapsed() >= QUIET_PERIOD)
    }

    /// Waits until no request is in progress and none has ended recently.
    pub async fn wait_until_quiet(&self) {
        while !self.is_quiet() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Guard of a request in progress.
struct RequestGuard(Traffic);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut served = self.0.served();
        served.open -= 1;
        served.last_end = Some(Instant::now());
    }
}

/// Middleware: counts a request, and a stream as long as it is read.
pub async fn count(State(traffic): State<Traffic>, request: Request, next: Next) -> Response {
    traffic.served().open += 1;
    let visit = RequestGuard(traffic);
    next.run(request).await.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _ = &visit;
            frame
        }))
    })
}
