//! A server at an address: streamable HTTP.
//!
//! Invariants: when a connection is given up, so are its requests, also one that is never answered. A connection is
//! given up as soon as nobody can be connected to at its address, or its stream of answers cannot be taken up again. A
//! server that does not know its session (404, 400) is initialised once more, by the SDK. Redirects are not
//! followed: headers with secrets would travel along. The address is the user's own word, so it may be one of a private
//! network. Not here: how long a request may take (its caller's).

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use reqwest::{
    Client, Url,
    header::{HeaderName, HeaderValue},
    redirect::Policy,
};
use rmcp::{
    model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId},
    transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
        StreamableHttpError, StreamableHttpPostResponse,
    },
};
use serde::Deserialize;
use serde_json::json;
use soong_protocol::{ErrorCode, ErrorInfo};
use sse_stream::Sse;
use tokio_util::sync::CancellationToken;

use super::{process::MAX_LINE_BYTES, task_tools::TaskTools};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(3);
/// Most calls of one server at the same time; more wait.
const MAX_CONCURRENT_CALLS: usize = 256;

/// Longest event of a stream, in bytes.
const MAX_EVENT_BYTES: usize = MAX_LINE_BYTES;

/// Makes the way to an address; does not connect. Everything ends when `given_up` is tripped.
pub(super) fn transport(
    url: &Url,
    headers: HashMap<HeaderName, HeaderValue>,
    timeout: Duration,
    given_up: CancellationToken,
    task_tools: &TaskTools,
) -> Result<StreamableHttpClientTransport<Caller>, ErrorInfo> {
    let mut builder = Client::builder()
        .user_agent(concat!("soong/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        .tcp_nodelay(true)
        // A machine that is gone is noticed within 10 s.
        .tcp_keepalive(KEEPALIVE)
        .tcp_keepalive_interval(KEEPALIVE)
        .tcp_keepalive_retries(2)
        .redirect(Policy::none());
    if is_loopback(url) {
        builder = builder.no_proxy(); // this machine is not reachable from a proxy
    }
    let client = builder
        .build()
        .map_err(|error| ErrorInfo::new(ErrorCode::InternalError, format!("could not set up HTTP: {error}")))?;
    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .custom_headers(headers)
        .max_sse_event_size(MAX_EVENT_BYTES)
        .max_concurrent_requests(MAX_CONCURRENT_CALLS);
    Ok(StreamableHttpClientTransport::with_client(Caller { client, given_up, task_tools: task_tools.clone() }, config))
}

/// An HTTP client whose requests end when the connection is given up: the SDK would wait for the first answer.
#[derive(Clone)]
pub(super) struct Caller {
    client: Client,
    given_up: CancellationToken,
    task_tools: TaskTools,
}

pub(super) type Failed = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;
type Headers = HashMap<HeaderName, HeaderValue>;

impl Caller {
    async fn unless_given_up<T>(&self, request: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
        let answer = tokio::select! {
            biased;
            () = self.given_up.cancelled() => Err(StreamableHttpError::TransportChannelClosed),
            answer = request => answer,
        };
        if matches!(&answer, Err(StreamableHttpError::Client(error)) if error.is_connect() || error.is_request()) {
            self.given_up.cancel();
        }
        answer
    }

    fn cut(&self, stream: Events) -> Events {
        stream.take_until(self.given_up.clone().cancelled_owned()).boxed()
    }
}

impl StreamableHttpClient for Caller {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        self.post_message_with_max_sse_event_size(uri, message, session, auth, headers, MAX_EVENT_BYTES).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let client = &self.client;
        let id = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let has_session = session.is_some();
        let request = client.post_message_with_max_sse_event_size(uri, message, session, auth, headers, max_bytes);
        Ok(match self.unless_given_up(request).await {
            Ok(StreamableHttpPostResponse::Sse(stream, session)) => {
                let task_tools = self.task_tools.clone();
                let stream = self.cut(stream).inspect(move |event| {
                    if let Ok(Sse { data: Some(data), .. }) = event {
                        task_tools.look(data.as_bytes());
                    }
                });
                let stream = answered(stream.boxed(), id);
                StreamableHttpPostResponse::Sse(stream, session)
            }
            // An error that answers no request of ours: the SDK would wait for the answer.
            Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _))
                if has_session && id.is_some() && error.id != id =>
            {
                return Err(StreamableHttpError::SessionExpired);
            }
            Err(StreamableHttpError::UnexpectedServerResponse(said)) if has_session && said.starts_with("HTTP 400") => {
                return Err(StreamableHttpError::SessionExpired);
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
    ) -> Result<(), Failed> {
        self.unless_given_up(self.client.delete_session(uri, session, auth, headers)).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failed> {
        self.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, MAX_EVENT_BYTES).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<Events, Failed> {
        let (client, takes_up) = (&self.client, last_event.is_some());
        let request = client.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max_bytes);
        let stream = self.unless_given_up(request).await;
        if takes_up && stream.is_err() {
            self.given_up.cancel();
        }
        Ok(self.cut(stream?))
    }
}

/// Adds an answer where the stream of a request ends without one and cannot be taken up again, or where an event is too
/// large: the SDK would wait for the answer, or end the connection for all requests.
fn answered(stream: Events, id: Option<RequestId>) -> Events {
    let Some(id) = id else { return stream };
    let state = Some((stream, false));
    let next = move |state: Option<(Events, bool)>| {
        let id = id.clone();
        async move {
            let (mut stream, is_over) = state?;
            let event = stream.next().await;
            match event {
                None if is_over => None,
                None => Some((Ok(answer(&id, "its connection ended before the answer")), None)),
                Some(Err(SseError::Body(error))) if error.to_string().contains("exceeded the maximum size") => {
                    let message = format!("the answer is longer than {MAX_EVENT_BYTES} bytes");
                    Some((Ok(answer(&id, &message)), Some((stream, true))))
                }
                Some(Ok(event)) => {
                    // With an id the stream can be taken up behind it.
                    let is_over = is_over || event.id.is_some() || answers(&event, &id);
                    Some((Ok(event), Some((stream, is_over))))
                }
                Some(Err(_)) if !is_over => Some((Ok(answer(&id, "its connection broke before the answer")), None)),
                Some(Err(error)) => Some((Err(error), Some((stream, is_over)))),
            }
        }
    };
    futures::stream::unfold(state, next).boxed()
}

/// Returns whether an event is the answer to a request.
fn answers(event: &Sse, id: &RequestId) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        id: Option<RequestId>,
        method: Option<String>,
    }
    let data = event.data.as_deref().unwrap_or_default();
    serde_json::from_str(data)
        .is_ok_and(|Answer { id: answered, method }| method.is_none() && answered.as_ref() == Some(id))
}

/// Makes an answer that says why there is none.
fn answer(id: &RequestId, message: &str) -> Sse {
    let answer = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32_000, "message": message}});
    Sse::default().data(answer.to_string())
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or("").trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
