//! Transport to an MCP server at a URL: streamable HTTP.
//!
//! Invariants:
//! - When a connection is given up, its requests end too, including those that are never answered.
//! - A connection is given up as soon as a request cannot be sent to the URL, or an event stream
//!   cannot be resumed.
//! - If the server does not know the MCP session (404, 400), the SDK initializes it again.
//! - Only redirects to the same origin that keep the method (307, 308) are followed, because
//!   headers with secrets would be sent to the target. The error of another redirect names the
//!   target.
//! - A request that is rejected with `Retry-After` (429, 503) is sent again after that time, if it
//!   is short.
//!
//! The URL comes from the configuration of the user, so private addresses are allowed.
//!
//! Elsewhere: timeouts of requests, which the callers set.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use reqwest::{
    Client, Url,
    header::{HeaderName, HeaderValue},
    redirect::Policy,
};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId},
    transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpClientTransport,
        StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
    },
};
use serde::Deserialize;
use serde_json::json;
use soong_protocol::{ErrorCode, ErrorInfo};
use sse_stream::Sse;
use tokio_util::sync::CancellationToken;

use super::{
    leniency::{messages_of_batch, with_required_fields},
    stdio::MAX_LINE_BYTES,
    task_tools::TaskTools,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Text about a request that the server may have received.
pub(super) const UNKNOWN_EFFECT: &str = "it is unknown whether the request took effect";
/// Maximum number of redirects of a request.
const MAX_REDIRECTS: usize = 5;
/// Maximum number of times that a request is sent again because of `Retry-After`.
const MAX_RETRIES: usize = 2;
/// Maximum time that `Retry-After` may ask for. A request that must wait longer fails.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
const KEEPALIVE: Duration = Duration::from_secs(3);
/// Maximum number of concurrent calls of a server; further calls wait.
const MAX_CONCURRENT_CALLS: usize = 256;

/// Maximum size of an event of a stream, in bytes.
const MAX_EVENT_BYTES: usize = MAX_LINE_BYTES;

/// Creates the transport without connecting. All its requests end when `given_up` is cancelled.
pub(super) fn transport(
    url: &Url,
    headers: HashMap<HeaderName, HeaderValue>,
    timeout: Duration,
    given_up: CancellationToken,
    task_tools: &TaskTools,
) -> Result<StreamableHttpClientTransport<CancellableHttpClient>, ErrorInfo> {
    let builder = soong_http::client_builder_for(url.host_str().unwrap_or_default())
        .user_agent(concat!("soong/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        .tcp_nodelay(true)
        // A host that disappears is detected within 10 s.
        .tcp_keepalive(KEEPALIVE)
        .tcp_keepalive_interval(KEEPALIVE)
        .tcp_keepalive_retries(2)
        .redirect(same_origin_only());
    let client = builder.build().map_err(|error| {
        ErrorInfo::new(
            ErrorCode::InternalError,
            format!("could not set up HTTP: {error}"),
        )
    })?;
    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .custom_headers(headers)
        .max_sse_event_size(MAX_EVENT_BYTES)
        .max_concurrent_requests(MAX_CONCURRENT_CALLS);
    Ok(StreamableHttpClientTransport::with_client(
        CancellableHttpClient {
            client,
            cancel: given_up,
            task_tools: task_tools.clone(),
        },
        config,
    ))
}

/// Returns the policy for redirects.
fn same_origin_only() -> Policy {
    Policy::custom(|attempt| {
        let is_same_origin = attempt
            .previous()
            .first()
            .is_some_and(|first| first.origin() == attempt.url().origin());
        let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
        if is_same_origin && keeps_method && attempt.previous().len() <= MAX_REDIRECTS {
            return attempt.follow();
        }
        let target = attempt.url().clone();
        let status = attempt.status().as_u16();
        attempt.error(format!(
            "HTTP {status}: it redirects to {target}; set the URL of the server to that, if you trust it"
        ))
    })
}

/// HTTP client whose requests end when the connection is given up. The SDK alone would wait for the
/// first response.
#[derive(Clone)]
pub(super) struct CancellableHttpClient {
    client: Client,
    cancel: CancellationToken,
    task_tools: TaskTools,
}

pub(super) type TransportError = StreamableHttpError<reqwest::Error>;
type EventStream = BoxStream<'static, Result<Sse, SseError>>;
type Headers = HashMap<HeaderName, HeaderValue>;

impl CancellableHttpClient {
    async fn or_cancelled<T>(
        &self,
        request: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        let answer = tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(StreamableHttpError::TransportChannelClosed),
            answer = request => answer,
        };
        // The error of the SDK has no source, which names the target.
        if let Err(StreamableHttpError::Client(error)) = &answer
            && error.is_redirect()
        {
            let why = std::error::Error::source(error)
                .map(ToString::to_string)
                .unwrap_or_default();
            return Err(StreamableHttpError::UnexpectedServerResponse(why.into()));
        }
        if matches!(&answer, Err(StreamableHttpError::Client(error)) if error.is_connect() || error.is_request())
        {
            self.cancel.cancel();
        }
        answer
    }

    fn until_cancelled(&self, stream: EventStream) -> EventStream {
        stream
            .take_until(self.cancel.clone().cancelled_owned())
            .boxed()
    }
}

impl StreamableHttpClient for CancellableHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session,
            auth,
            headers,
            MAX_EVENT_BYTES,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        let id = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let has_session = session.is_some();
        let mut retries = 0;
        let answer = loop {
            let request = self.client.post_message_with_max_sse_event_size(
                Arc::clone(&uri),
                message.clone(),
                session.clone(),
                auth.clone(),
                headers.clone(),
                max_bytes,
            );
            let answer = self.or_cancelled(request).await;
            let Some(delay) = retry_delay(&answer).filter(|_| retries < MAX_RETRIES) else {
                break answer;
            };
            retries += 1;
            let wait = async {
                tokio::time::sleep(delay).await;
                Ok(())
            };
            self.or_cancelled(wait).await?;
        };
        Ok(match answer {
            Ok(StreamableHttpPostResponse::Sse(stream, session)) => {
                let task_tools = self.task_tools.clone();
                let stream = self.until_cancelled(stream).inspect(move |event| {
                    if let Ok(Sse {
                        data: Some(data), ..
                    }) = event
                    {
                        task_tools.inspect(data.as_bytes());
                    }
                });
                let is_initialize = is_initialize(&message);
                let stream = stream.flat_map(move |event| {
                    futures::stream::iter(readable_events(event, is_initialize))
                });
                let stream = with_missing_response(stream.boxed(), id);
                StreamableHttpPostResponse::Sse(stream, session)
            }
            // A server may answer a notification with anything.
            Err(StreamableHttpError::UnexpectedContentType(_)) if id.is_none() => {
                StreamableHttpPostResponse::Accepted
            }
            Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _))
                if has_session && is_about_session(error.error.code.0, &error.error.message) =>
            {
                return Err(StreamableHttpError::SessionExpired);
            }
            // An error that answers no request of this client: the SDK would wait for the answer
            // forever.
            Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _))
                if has_session && id.is_some() && error.id != id =>
            {
                return Err(StreamableHttpError::SessionExpired);
            }
            Err(StreamableHttpError::UnexpectedServerResponse(message))
                if has_session && message.starts_with("HTTP 400") =>
            {
                return Err(StreamableHttpError::SessionExpired);
            }
            Ok(StreamableHttpPostResponse::Json(message, session)) => {
                StreamableHttpPostResponse::Json(with_required_fields(message), session)
            }
            whole => whole?,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<(), TransportError> {
        self.or_cancelled(self.client.delete_session(uri, session, auth, headers))
            .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<EventStream, TransportError> {
        self.get_stream_with_max_sse_event_size(
            uri,
            session,
            last_event,
            auth,
            headers,
            MAX_EVENT_BYTES,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<EventStream, TransportError> {
        let client = &self.client;
        let is_resuming = last_event.is_some();
        let request = client
            .get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max_bytes);
        let stream = self.or_cancelled(request).await;
        if is_resuming && stream.is_err() {
            self.cancel.cancel();
        }
        let stream = self.until_cancelled(stream?);
        Ok(stream
            .flat_map(|event| futures::stream::iter(readable_events(event, false)))
            .boxed())
    }
}

fn is_initialize(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::InitializeRequest(_)))
}

/// Returns an event of a stream as events that the SDK can read.
fn readable_events(
    event: Result<Sse, SseError>,
    is_initialize: bool,
) -> Vec<Result<Sse, SseError>> {
    let Ok(event) = event else { return vec![event] };
    let data = event.data.as_deref().unwrap_or_default();
    let mut texts =
        messages_of_batch(data.trim_start().as_bytes()).unwrap_or_else(|| vec![data.to_owned()]);
    if texts.is_empty() {
        // The stream can be resumed after it.
        return vec![Ok(Sse {
            data: None,
            ..event
        })];
    }
    if is_initialize {
        for text in &mut texts {
            // The SDK reports a message that cannot be parsed.
            if let Ok(message) = serde_json::from_str(text) {
                *text = serde_json::to_string(&with_required_fields(message)).unwrap_or_default();
            }
        }
    } else if texts.len() == 1 && texts[0] == data {
        return vec![Ok(event)];
    }
    let mut events: Vec<Result<Sse, SseError>> = Vec::new();
    let count = texts.len();
    for (index, text) in texts.into_iter().enumerate() {
        // A stream can be resumed after the last of them.
        let id = event.id.clone().filter(|_| index + 1 == count);
        events.push(Ok(Sse {
            id,
            data: Some(text),
            ..event.clone()
        }));
    }
    events
}

/// Returns the delay after which a rejected request may be sent again.
fn retry_delay(answer: &Result<StreamableHttpPostResponse, TransportError>) -> Option<Duration> {
    let Err(StreamableHttpError::HttpStatus(error)) = answer else {
        return None;
    };
    let seconds: u64 = error.retry_after.as_deref()?.trim().parse().ok()?;
    let delay = Duration::from_secs(seconds);
    (matches!(error.status, 429 | 503) && delay <= MAX_RETRY_DELAY).then_some(delay)
}

/// Returns whether an error says that the server does not know the MCP session. Tools have sessions
/// of their own, whose errors have other codes.
fn is_about_session(code: i32, message: &str) -> bool {
    if !matches!(code, -32_000 | -32_001 | -32_600) {
        return false;
    }
    let message = message.to_ascii_lowercase();
    let is_unknown = [
        "not found",
        "unknown",
        "invalid",
        "expired",
        "no valid",
        "does not exist",
        "missing",
    ];
    message.contains("session") && is_unknown.iter().any(|word| message.contains(word))
}

/// Inserts an error response if the stream of a request ends without a response and cannot be
/// resumed, or if an event is too large. Otherwise the SDK would wait for the response, or end the
/// connection for all requests.
fn with_missing_response(stream: EventStream, id: Option<RequestId>) -> EventStream {
    let Some(id) = id else { return stream };
    let state = Some((stream, false));
    let next = move |state: Option<(EventStream, bool)>| {
        let id = id.clone();
        async move {
            let (mut stream, is_over) = state?;
            let event = stream.next().await;
            match event {
                None if is_over => None,
                None => Some((
                    Ok(error_response(
                        &id,
                        &format!("its connection ended before the response: {UNKNOWN_EFFECT}"),
                    )),
                    None,
                )),
                Some(Err(SseError::Body(error)))
                    if error.to_string().contains("exceeded the maximum size") =>
                {
                    let message = format!("the response is longer than {MAX_EVENT_BYTES} bytes");
                    Some((Ok(error_response(&id, &message)), Some((stream, true))))
                }
                Some(Ok(event)) => {
                    // A stream whose events have ids can be resumed after this event.
                    let is_answered = is_over || event.id.is_some() || is_response_to(&event, &id);
                    Some((Ok(event), Some((stream, is_answered))))
                }
                Some(Err(_)) if !is_over => Some((
                    Ok(error_response(
                        &id,
                        &format!("its connection failed before the response: {UNKNOWN_EFFECT}"),
                    )),
                    None,
                )),
                Some(Err(error)) => Some((Err(error), Some((stream, is_over)))),
            }
        }
    };
    futures::stream::unfold(state, next).boxed()
}

/// Returns whether an event is the response to a request.
fn is_response_to(event: &Sse, id: &RequestId) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        id: Option<RequestId>,
        method: Option<String>,
    }
    let data = event.data.as_deref().unwrap_or_default();
    serde_json::from_str(data).is_ok_and(
        |Answer {
             id: answered,
             method,
         }| method.is_none() && answered.as_ref() == Some(id),
    )
}

/// Returns an error response to a request.
fn error_response(id: &RequestId, message: &str) -> Sse {
    let answer =
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32_000, "message": message}});
    Sse::default().data(answer.to_string())
}
