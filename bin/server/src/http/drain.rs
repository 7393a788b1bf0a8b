//! Responses that are sent before the request body was read, such as 401 and 413.
//!
//! The next request on a connection begins after the previous body. Therefore a response that
//! leaves part of the body unread either reads the rest as far as it has arrived, or announces
//! `Connection: close`.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::Request,
    http::{HeaderValue, header},
    middleware::Next,
    response::Response,
};
use futures::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

/// Maximum number of body bytes that are read and discarded to keep the connection usable.
const MAX_DRAINED_BYTES: usize = 256 * 1_024;

/// Request body that stores its unread rest in `unread` when it is dropped.
struct TrackedBody {
    /// `Some` until it is dropped.
    body: Option<Body>,
    unread: Arc<Mutex<Option<Body>>>,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.body
            .as_mut()
            .map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
    }
}

/// Middleware: reads the rest of the request body, or sets `Connection: close`.
pub async fn finish_body(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    // Reading on would request the whole body from a client that waits for `100 Continue`.
    let waits = request.headers().contains_key(header::EXPECT);
    let unread = Arc::new(Mutex::new(None));
    let request = request.map(|body| {
        Body::new(TrackedBody {
            body: Some(body),
            unread: Arc::clone(&unread),
        })
    });
    let mut response = next.run(request).await;
    let rest = unread.lock().unwrap_or_else(PoisonError::into_inner).take();
    // `None`: the handler still reads the body.
    let is_read = match rest {
        Some(rest) => rest.is_end_stream() || (!waits && drain_available(rest)),
        None => false,
    };
    if !is_read {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Reads the bytes that have arrived; returns whether the body is complete.
fn drain_available(mut body: Body) -> bool {
    let mut drained = 0;
    while drained <= MAX_DRAINED_BYTES {
        match body.frame().now_or_never() {
            Some(None) => return true,
            Some(Some(Ok(frame))) => drained += frame.data_ref().map_or(0, Bytes::len),
            Some(Some(Err(_))) | None => return false,
        }
    }
    false
}
