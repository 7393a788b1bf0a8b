//! Who is being served: an owner that leaves lets its clients read what they came for.

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

/// How long after its last answer a client may come with its next question.
const PAUSE: Duration = Duration::from_millis(150);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(10);

/// Counts requests from their beginning to the end of their answers.
#[derive(Clone, Default)]
pub struct Traffic(Arc<Mutex<Served>>);

#[derive(Default)]
struct Served {
    open: usize,
    last_end: Option<Instant>,
}

impl Traffic {
    fn served(&self) -> MutexGuard<'_, Served> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_quiet(&self) -> bool {
        let served = self.served();
        served.open == 0 && served.last_end.is_none_or(|end| end.elapsed() >= PAUSE)
    }

    /// Waits until nobody is being served, nor was a moment ago.
    pub async fn quiet(&self) {
        while !self.is_quiet() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// A request that is being served.
struct Visit(Traffic);

impl Drop for Visit {
    fn drop(&mut self) {
        let mut served = self.0.served();
        served.open -= 1;
        served.last_end = Some(Instant::now());
    }
}

/// Counts a request, a stream for as long as somebody reads it.
pub async fn count(State(traffic): State<Traffic>, request: Request, next: Next) -> Response {
    traffic.served().open += 1;
    let visit = Visit(traffic);
    next.run(request).await.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _ = &visit;
            frame
        }))
    })
}
