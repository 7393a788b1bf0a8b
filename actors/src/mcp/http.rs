//! A server at an address: streamable HTTP.
//!
//! Invariant: when a connection is given up, so are its requests, also one that is never answered. Redirects are not
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
    model::{ClientJsonRpcMessage, RequestId},
    transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
        StreamableHttpError, StreamableHttpPostResponse,
    },
};
use serde_json::json;
use soong_protocol::{ErrorCode, ErrorInfo};
use sse_stream::Sse;
use tokio_util::sync::CancellationToken;

use super::process::MAX_LINE_BYTES;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
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
) -> Result<StreamableHttpClientTransport<Caller>, ErrorInfo> {
    let mut builder = Client::builder()
        .user_agent(concat!("soong/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        .tcp_nodelay(true)
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
    Ok(StreamableHttpClientTransport::with_client(Caller { client, given_up }, config))
}

/// An HTTP client whose requests end when the connection is given up: the SDK would wait for the first answer.
#[derive(Clone)]
pub(super) struct Caller {
    client: Client,
    given_up: CancellationToken,
}

type Failed = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;
type Headers = HashMap<HeaderName, HeaderValue>;

impl Caller {
    async fn unless_given_up<T>(&self, request: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
        tokio::select! {
            biased;
            () = self.given_up.cancelled() => Err(StreamableHttpError::TransportChannelClosed),
            answer = request => answer,
        }
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
        let request = client.post_message_with_max_sse_event_size(uri, message, session, auth, headers, max_bytes);
        Ok(match self.unless_given_up(request).await? {
            StreamableHttpPostResponse::Sse(stream, session) => {
                let stream = self.cut(stream).map(move |event| answer_for_too_large(event, id.as_ref()));
                StreamableHttpPostResponse::Sse(stream.boxed(), session)
            }
            whole => whole,
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
        let client = &self.client;
        let request = client.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max_bytes);
        Ok(self.cut(self.unless_given_up(request).await?))
    }
}

/// Puts an answer in the place of an event that is too large: the SDK would end the connection, for all requests.
fn answer_for_too_large(event: Result<Sse, SseError>, id: Option<&RequestId>) -> Result<Sse, SseError> {
    match (event, id) {
        (Err(SseError::Body(error)), Some(id)) if error.to_string().contains("exceeded the maximum size") => {
            let message = format!("the answer is longer than {MAX_EVENT_BYTES} bytes");
            let answer = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32_000, "message": message}});
            Ok(Sse::default().data(answer.to_string()))
        }
        (event, _) => event,
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or("").trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
