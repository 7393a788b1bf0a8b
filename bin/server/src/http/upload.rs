//! Content that is stored while it arrives: the bytes of a PUT, the files of a multipart body, and
//! what a command of this process reads.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream, Bytes},
    extract::{
        FromRequest, Multipart, Request,
        multipart::{Field, MultipartError},
    },
    http::{HeaderMap, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::{
    FutureExt, SinkExt, Stream, StreamExt,
    channel::{mpsc, oneshot},
    future::ready,
    stream::{BoxStream, once},
};
use http_body_util::Limited;
use soong::{
    ErrorCode, ErrorInfo,
    artifact::{ArtifactOwner, Content},
    protocol::api::{Stored, Uploaded},
};

use super::{
    caller::Access,
    error::{ApiError, validation_error},
    request::is_too_long,
};

/// Maximum time to keep reading a rejected body, so that the client reads the error response.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Reason for a body that ends early.
const CLIENT_DISCONNECTED: &str = "the client disconnected";
/// Maximum number of buffered pieces of a file.
const MAX_BUFFERED_PIECES: usize = 4;

/// A body that is being received. A rejected body is read for up to ten more seconds: a client that
/// is cut off while it sends would never see the response.
struct DrainedBody(Option<BodyDataStream>);

impl Stream for DrainedBody {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(body) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let next = std::task::ready!(body.poll_next_unpin(cx));
        if !matches!(next, Some(Ok(_))) {
            self.0 = None;
        }
        Poll::Ready(next)
    }
}

impl Drop for DrainedBody {
    fn drop(&mut self) {
        if let (Some(mut rest), Ok(threads)) =
            (self.0.take(), tokio::runtime::Handle::try_current())
        {
            threads.spawn(async move {
                let reading = async { while let Some(Ok(_)) = rest.next().await {} };
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, reading).await;
            });
        }
    }
}

/// Returns the bytes of a body, of which at most `limit` are accepted.
pub(super) fn limited_body(
    body: Body,
    limit: usize,
) -> impl Stream<Item = Result<Bytes, ErrorInfo>> + Send + Unpin + 'static {
    let body = Body::new(Limited::new(body, limit)).into_data_stream();
    DrainedBody(Some(body)).map(move |piece| {
        piece.map_err(|error| {
            if is_too_long(&error) {
                too_long(limit)
            } else {
                incomplete_body(&error)
            }
        })
    })
}

/// Converts the bytes of a request into the content of an artifact. The content fails when the
/// returned guard is dropped: storing continues after its request has ended, and must not wait for
/// bytes that are no longer sent.
pub(super) fn upload_content(
    pieces: impl Stream<Item = Result<Bytes, ErrorInfo>> + Send + Unpin + 'static,
) -> (Content, UploadGuard) {
    let (waiting, left) = oneshot::channel::<Infallible>();
    let error = Arc::new(OnceLock::new());
    let first_error = Arc::clone(&error);
    let pieces = pieces.inspect(move |piece| {
        if let Err(error) = piece {
            let _ = first_error.set(error.clone());
        }
    });
    let left = left
        .map(|_| Err(incomplete_body(&CLIENT_DISCONNECTED)))
        .into_stream();
    let pieces = futures::stream::select(pieces.map(Some).chain(once(ready(None))), left.map(Some));
    let content = Content::Stream(until_end_marker(pieces));
    let guard = UploadGuard {
        _open: waiting,
        error,
    };
    (content, guard)
}

/// Guard of a request that waits for its content to be stored.
pub(super) struct UploadGuard {
    _open: oneshot::Sender<Infallible>,
    /// The error that ended the bytes early.
    error: Arc<OnceLock<ErrorInfo>>,
}

impl UploadGuard {
    /// Replaces the error of storing the content by the reason why its bytes ended early, if they
    /// did.
    pub(super) fn map_error(&self, error: ApiError) -> ApiError {
        self.error.get().cloned().map_or(error, ApiError::from)
    }
}

/// Returns the pieces up to the end marker. Without that marker, the body was cut off.
fn until_end_marker(
    pieces: impl Stream<Item = Option<Result<Bytes, ErrorInfo>>> + Send + Unpin + 'static,
) -> BoxStream<'static, Result<Bytes, ErrorInfo>> {
    let step = |pieces: Option<_>| async move {
        let mut pieces = pieces?;
        match StreamExt::next(&mut pieces).await {
            Some(Some(Ok(piece))) => Some((Ok(piece), Some(pieces))),
            Some(Some(Err(error))) => Some((Err(error), None)),
            Some(None) => None,
            None => Some((Err(incomplete_body(&CLIENT_DISCONNECTED)), None)),
        }
    };
    futures::stream::unfold(Some(pieces), step).boxed()
}

fn too_long(limit: usize) -> ErrorInfo {
    let message = format!("the body is larger than {limit} bytes, the limit of this server");
    ErrorInfo::new(ErrorCode::PayloadTooLarge, message)
}

fn incomplete_body(error: &dyn std::fmt::Display) -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::ValidationError,
        format!("the body is incomplete: {error}"),
    )
}

/// Stores the files of a multipart body one after the other. If one is rejected, the earlier ones
/// remain stored.
pub(super) async fn store_multipart(
    access: &Access,
    owner: Result<ArtifactOwner, ErrorInfo>,
    request: Request,
) -> Result<Uploaded, ApiError> {
    let limit = access.api().limits.upload_bytes;
    let request = request.map(|body| {
        let body = Body::from_stream(DrainedBody(Some(body.into_data_stream())));
        Body::new(Limited::new(body, limit))
    });
    let owner = owner?;
    let mut parts = Multipart::from_request(request, &())
        .await
        .map_err(|error| validation_error(error.body_text()))?;
    let mut artifacts = Vec::new();
    while let Some(part) = parts
        .next_field()
        .await
        .map_err(|error| multipart_error(&error, limit))?
    {
        if part.name() == Some("file") {
            artifacts.push(store(access, &owner, part).await?);
        }
    }
    let nothing = "the form has no field `file` with a file";
    let first = artifacts
        .first()
        .cloned()
        .ok_or_else(|| validation_error(nothing))?;
    Ok(Uploaded { first, artifacts })
}

/// Converts an error of a multipart body.
fn multipart_error(error: &MultipartError, limit: usize) -> ErrorInfo {
    if is_too_long(error) {
        too_long(limit)
    } else {
        ErrorInfo::new(ErrorCode::ValidationError, error.body_text())
    }
}

/// Rejects requests whose body is compressed: it would be stored as it was sent, or misread.
pub(super) async fn reject_encoded_body(request: Request, next: Next) -> Response {
    match encoding(request.headers()) {
        Some(encoding) => encoded(&encoding).into_response(),
        None => next.run(request).await,
    }
}

/// Returns the encoding of a body; `None` if it is sent as it is.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_ENCODING)?;
    let name = String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
    Some(name).filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"))
}

fn encoded(encoding: &str) -> ApiError {
    let message = format!(
        "Content-Encoding: bodies with the encoding {encoding:?} are not decoded: send it without"
    );
    ErrorInfo::new(ErrorCode::UnsupportedMedia, message).into()
}

async fn store(
    access: &Access,
    owner: &ArtifactOwner,
    mut part: Field<'_>,
) -> Result<Stored, ApiError> {
    if let Some(encoding) = encoding(part.headers()) {
        return Err(encoded(&encoding));
    }
    let Some(filename) = part.file_name().map(str::to_owned) else {
        return Err(validation_error("the field `file` has no file name"));
    };
    let content_type = part
        .content_type()
        .unwrap_or("application/octet-stream")
        .to_owned();
    let limit = access.api().limits.upload_bytes;
    let (mut pieces, stream) = mpsc::channel(MAX_BUFFERED_PIECES);
    // A part borrows from the request, but storing outlives the request, so the pieces pass through
    // a channel.
    let passing = async move {
        loop {
            let piece = part
                .chunk()
                .await
                .map_err(|error| multipart_error(&error, limit))
                .transpose();
            let failed = piece
                .as_ref()
                .and_then(|piece| piece.as_ref().err())
                .cloned();
            let is_last = !matches!(piece, Some(Ok(_)));
            if pieces.send(piece).await.is_err() || is_last {
                return failed;
            }
        }
    };
    let content = Content::Stream(until_end_marker(stream));
    let stored = access
        .runtime()
        .artifacts()
        .upload(owner, &filename, &content_type, content);
    let (failed, stored) = futures::join!(passing, stored);
    // If the body was too large, that is the reason to report.
    let stored = stored.map_err(|error| {
        failed
            .filter(|why| why.code == ErrorCode::PayloadTooLarge)
            .unwrap_or(error)
    });
    Ok(stored?.into())
}
