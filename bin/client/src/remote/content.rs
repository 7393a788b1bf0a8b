//! Content of artifacts, streamed over HTTP in both directions.
//!
//! Sending content has no time limit. Once the last byte was sent, the response must begin within
//! [`REQUEST_TIMEOUT`].

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{Method, header};
use reqwest::Body;
use soong_protocol::{
    ErrorCode, ErrorInfo, SessionId,
    api::{
        Stored, UPLOAD_NAME, Uploaded,
        operation::{Endpoint, PutArtifact, UploadArtifacts},
    },
};
use tokio::sync::oneshot;

use super::{
    OwnerRequest, REQUEST_TIMEOUT, RemoteHome, connection_lost, method, read, read_body,
    request_path, transport::root_cause, within_limit,
};
use crate::{Download, Upload, UploadStream, UploadTarget, unresponsive};

impl RemoteHome {
    /// Opens a response body as a stream.
    pub(super) async fn download(&self, endpoint: &impl Endpoint) -> Result<Download, ErrorInfo> {
        let path = request_path(endpoint)?;
        let answer = self.send(OwnerRequest {
            accept: "*/*",
            ..OwnerRequest::new(Method::GET, &path)
        });
        let response = within_limit(answer).await?;
        let content_type = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let content_type = content_type
            .unwrap_or("application/octet-stream")
            .to_owned();
        let body = response.bytes_stream();
        let body = body
            .map(|piece| piece.map_err(|error| connection_lost(&root_cause(&error))))
            .boxed();
        Ok(Download { content_type, body })
    }

    /// Stores content as the next version of an artifact.
    pub(super) async fn put(
        &self,
        request: PutArtifact,
        upload: Upload,
    ) -> Result<Stored, ErrorInfo> {
        let answer = self.send_content(&request, upload).await?;
        read(&read_body(answer).await?)
    }

    /// Stores a file as a new artifact, in a multipart form.
    pub(super) async fn upload(
        &self,
        request: UploadTarget,
        upload: Upload,
    ) -> Result<Stored, ErrorInfo> {
        let UploadTarget {
            session_id,
            filename,
        } = request;
        let Upload {
            content_type,
            bytes,
        } = upload;
        let boundary = format!("soong-{}", SessionId::generate());
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{filename}\"\r\n\
             Content-Type: {content_type}\r\n\r\n"
        );
        let tail = format!("\r\n--{boundary}--\r\n");
        let text = |text: String| stream::iter([Ok(Bytes::from(text))]);
        let form = Upload {
            content_type: format!("multipart/form-data; boundary={boundary}"),
            bytes: text(head).chain(bytes).chain(text(tail)).boxed(),
        };
        let endpoint = UploadArtifacts {
            session_id,
            name: UPLOAD_NAME.to_owned(),
        };
        let answer = self.send_content(&endpoint, form).await?;
        let uploaded: Uploaded = read(&read_body(answer).await?)?;
        Ok(uploaded.first)
    }

    /// Sends content without a time limit, then waits for the response.
    async fn send_content<E: Endpoint>(
        &self,
        endpoint: &E,
        upload: Upload,
    ) -> Result<reqwest::Response, ErrorInfo> {
        let path = request_path(endpoint)?;
        let (all, sent) = oneshot::channel();
        let (tell, mut failed) = oneshot::channel();
        let body = Body::wrap_stream(UploadBody {
            bytes: upload.bytes,
            error_sender: Some(tell),
            _all: all,
        });
        let mut answer = std::pin::pin!(self.send(OwnerRequest {
            body,
            content_type: &upload.content_type,
            ..OwnerRequest::new(method(E::METHOD), &path)
        }));
        let answer = tokio::select! {
            answer = &mut answer => answer,
            _ = sent => tokio::time::timeout(REQUEST_TIMEOUT, answer).await.unwrap_or_else(|_| Err(unresponsive())),
        };
        // If the content could not be read, that is the reason to report.
        match failed.try_recv() {
            Ok(error) => {
                let message = format!("the content cannot be read: {error}");
                Err(ErrorInfo::new(ErrorCode::ValidationError, message))
            }
            Err(_) => answer,
        }
    }
}

/// A request body that is being sent. The HTTP client drops it once its last byte was sent.
struct UploadBody {
    bytes: UploadStream,
    /// Reports the error that ended the content early.
    error_sender: Option<oneshot::Sender<std::io::Error>>,
    /// Dropped together with the body, which tells the sender of the request that all bytes were
    /// sent.
    _all: oneshot::Sender<()>,
}

impl Stream for UploadBody {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match std::task::ready!(self.bytes.poll_next_unpin(cx)) {
            Some(Err(error)) => {
                let copied_error = std::io::Error::new(error.kind(), error.to_string());
                if let Some(tell) = self.error_sender.take() {
                    let _ = tell.send(error);
                }
                Poll::Ready(Some(Err(copied_error)))
            }
            other => Poll::Ready(other),
        }
    }
}
