//! Client of a home: over the control socket of its owner, over HTTP, or within this process.
//!
//! All transports lead to the same handlers of `soong-server`, so a program behaves the same wherever
//! its runs are executed: [`Client::call`] executes an operation of the table in
//! `soong_protocol::api::operation`. Errors of the owner keep their code. A POST request whose
//! connection is lost is repeated with the same idempotency key; if no attempt gets an answer, and
//! for other requests, the error is `closing`.

mod lists;
mod remote;
pub mod socket;

use std::{ops::ControlFlow, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
pub use remote::{
    content::{Download, UploadStream},
    events::EventStream,
    transport::{Items, LocalOwner, Remote, Routes, TreeUpdates},
    tree::TreeWatcher,
};
use remote::{
    events::{self, Position},
    frames::SseFrame,
    transport::{self, Transport},
};
pub use reqwest::Body;
use serde::{Serialize, de::DeserializeOwned};
use soong_protocol::{
    ErrorCode, ErrorInfo, EventRecord, RunId, SessionId, TraceId,
    api::{
        self, Accepted, CLIENT_HEADER, ErrorBody, IDEMPOTENCY_KEY, Ready, SessionQuery, StartBody,
        operation::{
            CheckReadiness, Endpoint, ListSessions, Operation, ReadEvents, ReadSession, StartRun,
        },
    },
};

/// Characters that are escaped in a path segment.
const PATH_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'@');

const JSON: &str = "application/json";

/// Maximum time until an owner answers the readiness check.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time until an owner responds to a request or begins a stream.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Delays before a request whose connection was lost is repeated.
const RETRY_DELAYS: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// A request to the owner.
struct OwnerRequest<'a> {
    method: Method,
    path: &'a str,
    body: Body,
    content_type: &'a str,
    accept: &'a str,
    /// Value of [`IDEMPOTENCY_KEY`]; `None` if the request is never repeated.
    key: Option<&'a str>,
}

impl<'a> OwnerRequest<'a> {
    /// Creates a request without a body that accepts JSON.
    fn new(method: Method, path: &'a str) -> Self {
        Self {
            method,
            path,
            body: Body::default(),
            content_type: JSON,
            accept: JSON,
            key: None,
        }
    }
}

/// Repeats a request that has an effect if its connection is lost. All attempts have the same key.
struct KeyedRetry {
    /// Value of [`IDEMPOTENCY_KEY`].
    key: String,
    delays: std::array::IntoIter<Duration, 3>,
    /// Error of the first attempt that the owner may have executed.
    lost: Option<ErrorInfo>,
}

impl KeyedRetry {
    fn new() -> Self {
        Self {
            key: RunId::generate().to_string(),
            delays: RETRY_DELAYS.into_iter(),
            lost: None,
        }
    }

    /// Returns the result of the request, or waits for a while and returns `Continue` if it must be
    /// sent again.
    ///
    /// A retryable `closing` tells callers that nothing was executed, so they start again with a
    /// new key. That error, and errors that say nothing about this request (overload, token, lock),
    /// are only returned if no earlier attempt may have been executed.
    async fn next_step<T>(
        &mut self,
        answer: Result<T, ErrorInfo>,
    ) -> ControlFlow<Result<T, ErrorInfo>> {
        let error = match answer {
            Err(error) => error,
            Ok(answer) => return ControlFlow::Break(Ok(answer)),
        };
        let may_be_executed = error.code == ErrorCode::Closing && !error.retryable;
        let is_from_transport = matches!(
            error.code,
            ErrorCode::Closing
                | ErrorCode::Overloaded
                | ErrorCode::Unauthorized
                | ErrorCode::HomeLocked
        );
        if !may_be_executed && (self.lost.is_none() || !is_from_transport) {
            return ControlFlow::Break(Err(error));
        }
        let lost = self.lost.get_or_insert(error);
        let Some(delay) = self.delays.next() else {
            return ControlFlow::Break(Err(lost.clone()));
        };
        tokio::time::sleep(delay).await;
        ControlFlow::Continue(())
    }
}

/// Result of looking for the owner of a home.
pub enum Discovery {
    /// The owner answers.
    Owner(Client, Ready),
    /// The home has no owner.
    None,
    /// A process owns the home but does not answer: it is stopped, it hangs, or it belongs to
    /// another user.
    Unresponsive,
    /// The named server cannot be reached or rejects the client.
    Unreachable(ErrorInfo),
}

/// Location of a home whose owner is looked for.
#[derive(Debug, Clone)]
pub enum Address {
    /// A home on this machine.
    Home(PathBuf),
    /// A server.
    Server(Remote),
}

/// Client of a home's owner. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    transport: Transport,
    /// Name of this client, which the owner records with its decisions.
    name: &'static str,
    /// Whether a silent stream is polled instead. Only a connection to a server can have a proxy
    /// that holds back streams.
    may_poll: bool,
}

/// Name of a client that was given no other by [`Client::named`].
const CLI_CLIENT: &str = "cli";

/// Encodes a text as one path segment.
fn path_segment(text: impl AsRef<str>) -> String {
    match text.as_ref() {
        // These would be interpreted as relative path segments.
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        text => utf8_percent_encode(text, PATH_ESCAPED).to_string(),
    }
}

impl Client {
    /// Creates a client of a home whose operations are executed in this process.
    pub fn in_process(owner: Arc<dyn LocalOwner>) -> Self {
        Self {
            transport: Transport::InProcess(owner),
            name: CLI_CLIENT,
            may_poll: false,
        }
    }

    /// Creates a client of routes that a test answers.
    #[cfg(test)]
    fn of_routes(routes: Arc<dyn Routes>) -> Self {
        Self {
            transport: Transport::Routes(routes),
            name: CLI_CLIENT,
            may_poll: false,
        }
    }

    /// Returns the server's address. `None` if the owner is on this machine.
    pub fn server(&self) -> Option<&str> {
        match &self.transport {
            Transport::Server(remote) => Some(remote.url()),
            _ => None,
        }
    }

    /// Looks for the process that owns a home.
    pub async fn find(address: &Address) -> Discovery {
        let home = match address {
            Address::Home(home) => home,
            Address::Server(remote) => return Self::connect_server(remote).await,
        };
        let Ok(transport) = Transport::socket(home) else {
            return Discovery::None;
        };
        let client = Self {
            transport,
            name: CLI_CLIENT,
            may_poll: false,
        };
        match tokio::time::timeout(DISCOVERY_TIMEOUT, client.call(CheckReadiness {})).await {
            Ok(Ok(ready)) => Discovery::Owner(client, ready),
            Ok(Err(error)) if let Some(ready) = Ready::of_failure(&error) => {
                Discovery::Owner(client, ready)
            }
            // The socket exists, but access is denied.
            Ok(Err(_)) if transport::is_denied(home).await => Discovery::Unresponsive,
            Ok(Err(_)) => Discovery::None,
            Err(_) => Discovery::Unresponsive,
        }
    }

    async fn connect_server(remote: &Remote) -> Discovery {
        let client = Self {
            transport: Transport::Server(remote.clone()),
            name: CLI_CLIENT,
            may_poll: true,
        };
        let ready = match client.call(CheckReadiness {}).await {
            Ok(ready) => ready,
            Err(error) => match Ready::of_failure(&error) {
                Some(ready) => ready,
                None => return Discovery::Unreachable(error),
            },
        };
        // The readiness check requires no token. This request detects a missing or invalid token
        // immediately.
        match client
            .call(ListSessions {
                query: SessionQuery {
                    limit: Some(1),
                    ..SessionQuery::default()
                },
            })
            .await
        {
            Ok(_) => Discovery::Owner(client, ready),
            Err(error) => Discovery::Unreachable(error),
        }
    }

    /// Executes an operation. A POST request is repeated if its connection is lost.
    ///
    /// # Errors
    /// The error of the owner, or `closing` or `home_locked` if it cannot be reached.
    pub async fn call<O: Operation>(&self, operation: O) -> Result<O::Response, ErrorInfo> {
        if let Transport::InProcess(owner) = &self.transport {
            let response = within_limit(owner.call(operation.into_any(), self.name)).await?;
            return O::response_of(response)
                .ok_or_else(|| invalid_request(&"the answer is that of another operation"));
        }
        let path = request_path(&operation)?;
        let body = if O::HAS_JSON_BODY {
            json(operation.body())?
        } else {
            Bytes::new()
        };
        let mut retry = (O::METHOD == api::operation::Method::Post).then(KeyedRetry::new);
        loop {
            let request = OwnerRequest {
                body: body.clone().into(),
                ..OwnerRequest::new(method(O::METHOD), &path)
            };
            let Some(retry) = &mut retry else {
                return read_answer::<O>(&self.request(request).await?);
            };
            let answer = self
                .request(OwnerRequest {
                    key: Some(&retry.key),
                    ..request
                })
                .await;
            if let ControlFlow::Break(answer) = retry.next_step(answer).await {
                return read_answer::<O>(&answer?);
            }
        }
    }

    async fn request(&self, request: OwnerRequest<'_>) -> Result<Bytes, ErrorInfo> {
        within_limit(async { read_body(self.send(request).await?).await }).await
    }

    /// Starts a run.
    pub async fn start(&self, request: &StartBody) -> Result<Accepted, ErrorInfo> {
        self.call(StartRun {
            body: request.clone(),
        })
        .await
    }

    /// Starts a run and streams the events of its session from that point on.
    pub async fn start_and_watch(
        &self,
        request: &StartBody,
    ) -> Result<(Accepted, EventStream), ErrorInfo> {
        if let Transport::InProcess(owner) = &self.transport {
            let request = StartRun {
                body: request.clone(),
            };
            let (accepted, items) = within_limit(owner.start_and_watch(request)).await?;
            return Ok((accepted, EventStream::of_items(items)));
        }
        if self.may_poll {
            // The response to the start must arrive even if a proxy holds back streams.
            let since = match &request.session_id {
                Some(id) => match self
                    .call(ReadSession {
                        session_id: SessionId::new(id.as_str()),
                    })
                    .await
                {
                    Ok(found) => found.session.last_session_seq,
                    Err(error) if error.code == ErrorCode::SessionNotFound => 0,
                    Err(error) => return Err(error),
                },
                None => 0,
            };
            let accepted = self.start(request).await?;
            let watch = self.session_events(&accepted.trace_id, since).await?;
            return Ok((accepted, watch));
        }
        let body = json(request)?;
        let mut retry = KeyedRetry::new();
        loop {
            let answer = self.start_streaming(&body, &retry.key).await;
            if let ControlFlow::Break(answer) = retry.next_step(answer).await {
                return answer;
            }
        }
    }

    async fn start_streaming(
        &self,
        body: &Bytes,
        key: &str,
    ) -> Result<(Accepted, EventStream), ErrorInfo> {
        let request = OwnerRequest {
            body: body.clone().into(),
            ..OwnerRequest::new(Method::POST, StartRun::PATH)
        };
        let mut watch = self
            .stream(OwnerRequest {
                key: Some(key),
                ..request
            })
            .await?;
        match watch.frame().await {
            Some(Ok(SseFrame::Accepted(accepted))) => Ok((accepted, watch)),
            Some(Err(error)) => Err(error),
            Some(Ok(SseFrame::Item(_))) => Err(invalid_request(
                &"the event stream does not start with the accepted run",
            )),
            None => Err(connection_lost(
                &"the event stream ended before the run was accepted",
            )),
        }
    }

    /// Returns the same client with another name, which the owner records with its decisions.
    pub fn named(&self, name: &'static str) -> Self {
        Self {
            name,
            ..self.clone()
        }
    }

    /// Streams the events of a trace after event number `since`.
    pub async fn trace_events(&self, id: &TraceId, since: u64) -> Result<EventStream, ErrorInfo> {
        self.events(Position {
            trace: id.clone(),
            tree: false,
            since,
        })
        .await
    }

    /// Streams the events of a trace's whole session after `since`, a number on the session's
    /// timeline.
    pub async fn session_events(
        &self,
        trace: &TraceId,
        since: u64,
    ) -> Result<EventStream, ErrorInfo> {
        self.events(Position {
            trace: trace.clone(),
            tree: true,
            since,
        })
        .await
    }

    /// Reads a page of the stored events of a trace's whole session after `since`, a number on the
    /// session's timeline.
    pub async fn session_event_page(
        &self,
        trace: &TraceId,
        since: u64,
    ) -> Result<Vec<EventRecord>, ErrorInfo> {
        events::stored_page(
            self,
            &Position {
                trace: trace.clone(),
                tree: true,
                since,
            },
        )
        .await
    }

    async fn events(&self, position: Position) -> Result<EventStream, ErrorInfo> {
        if self.may_poll {
            return Ok(EventStream::opening(self.clone(), position));
        }
        if let Transport::InProcess(owner) = &self.transport {
            let items = within_limit(owner.events(position.request(None))).await?;
            return Ok(EventStream::of_items(items));
        }
        let path = request_path(&position.request(None))?;
        self.stream(OwnerRequest::new(Method::GET, &path)).await
    }

    /// Requests a stream of events. Waits for the head of the response without limit.
    async fn open_stream(&self, request: &ReadEvents) -> Result<reqwest::Response, ErrorInfo> {
        let path = request_path(request)?;
        self.send(OwnerRequest {
            accept: "text/event-stream",
            ..OwnerRequest::new(Method::GET, &path)
        })
        .await
    }

    async fn stream(&self, request: OwnerRequest<'_>) -> Result<EventStream, ErrorInfo> {
        let answer = self.send(OwnerRequest {
            accept: "text/event-stream",
            ..request
        });
        Ok(EventStream::of_response(within_limit(answer).await?))
    }

    async fn send(&self, request: OwnerRequest<'_>) -> Result<reqwest::Response, ErrorInfo> {
        let OwnerRequest {
            method,
            path,
            body,
            content_type,
            accept,
            key,
        } = request;
        // A URL drops such segments, even if they are escaped, and would name another resource.
        if path
            .split(['/', '?'])
            .any(|segment| matches!(segment, "%2E" | "%2E%2E"))
        {
            return Err(ErrorInfo::new(
                ErrorCode::ValidationError,
                "an id or name cannot be `.` or `..`",
            ));
        }
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(CLIENT_HEADER, self.name)
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, content_type);
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        let request = request
            .body(body)
            .map_err(|error| invalid_request(&error))?;
        let response = self.transport.send(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(response_error(response).await)
    }
}

/// Waits for an answer, at most for [`REQUEST_TIMEOUT`].
async fn within_limit<T>(
    answer: impl Future<Output = Result<T, ErrorInfo>>,
) -> Result<T, ErrorInfo> {
    tokio::time::timeout(REQUEST_TIMEOUT, answer)
        .await
        .unwrap_or_else(|_| Err(unresponsive()))
}

/// Returns the path of a request to an endpoint, with its query.
pub(crate) fn request_path<E: Endpoint>(endpoint: &E) -> Result<String, ErrorInfo> {
    let mut path = endpoint.path(|value| path_segment(value));
    let query =
        serde_urlencoded::to_string(endpoint.query()).map_err(|error| invalid_request(&error))?;
    if !query.is_empty() {
        path.push('?');
        path.push_str(&query);
    }
    Ok(path)
}

fn method(method: api::operation::Method) -> Method {
    match method {
        api::operation::Method::Get => Method::GET,
        api::operation::Method::Post => Method::POST,
        api::operation::Method::Put => Method::PUT,
        api::operation::Method::Patch => Method::PATCH,
        api::operation::Method::Delete => Method::DELETE,
    }
}

/// Reads the response of an operation.
fn read_answer<O: Operation>(bytes: &[u8]) -> Result<O::Response, ErrorInfo> {
    // A response without content is `()`.
    let is_empty = O::STATUS == StatusCode::NO_CONTENT.as_u16();
    read(if is_empty { b"null" } else { bytes })
}

/// Reads the error of a failed request.
async fn response_error(response: reqwest::Response) -> ErrorInfo {
    let status = response.status();
    let bytes = match read_body(response).await {
        Ok(bytes) => bytes,
        Err(error) => return error,
    };
    let parsed = serde_json::from_slice::<ErrorBody>(&bytes).map(|body| body.error.into());
    parsed.unwrap_or_else(|_| {
        let message = format!("the owner process responded with {status} and no error message");
        // A proxy answers so while it does not reach the server.
        let is_gateway = matches!(
            status,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
        );
        ErrorInfo::new(
            if is_gateway {
                ErrorCode::Closing
            } else {
                ErrorCode::InternalError
            },
            message,
        )
    })
}

async fn read_body(response: reqwest::Response) -> Result<Bytes, ErrorInfo> {
    response
        .bytes()
        .await
        .map_err(|error| connection_lost(&transport::root_cause(&error)))
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ErrorInfo> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message = format!(
            "unexpected response from the owner process; it may run another version: {error}"
        );
        ErrorInfo::new(ErrorCode::InternalError, message)
    })
}

fn json(body: &impl Serialize) -> Result<Bytes, ErrorInfo> {
    serde_json::to_vec(body)
        .map(Bytes::from)
        .map_err(|error| invalid_request(&error))
}

fn invalid_request(error: &dyn std::fmt::Display) -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::InternalError,
        format!("the request failed: {error}"),
    )
}

/// Returns the error of an owner that does not respond.
pub fn unresponsive() -> ErrorInfo {
    let message = "the owner process of the home does not respond; if it is suspended (Ctrl-Z), resume it with fg";
    ErrorInfo::new(ErrorCode::HomeLocked, message)
}

/// Error of a connection that ended during the request: it is unknown whether the request was
/// carried out.
fn connection_lost(error: &dyn std::fmt::Display) -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::Closing,
        format!("lost the connection to the owner process: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No request reaches this owner.
    struct NoOwner;

    impl Routes for NoOwner {
        fn send(
            &self,
            request: http::Request<Body>,
        ) -> futures::future::BoxFuture<'static, http::Response<Body>> {
            unreachable!("{}", request.uri())
        }
    }

    #[tokio::test]
    async fn dot_segments_are_rejected_before_a_request() {
        let client = Client::of_routes(Arc::new(NoOwner));
        for id in [".", ".."] {
            let error = client
                .call(ReadSession {
                    session_id: SessionId::new(id),
                })
                .await
                .unwrap_err();
            assert_eq!(error.code, ErrorCode::ValidationError, "{id}");
        }
    }

    /// Loses the connection of the first request, and then answers with these statuses.
    struct BrokenOwner(std::sync::Mutex<Vec<u16>>);

    impl Routes for BrokenOwner {
        fn send(
            &self,
            _: http::Request<Body>,
        ) -> futures::future::BoxFuture<'static, http::Response<Body>> {
            let status = self.0.lock().unwrap().pop();
            let body = match status {
                Some(202) => r#"{"trace_id":"s","run_id":"r","session_id":"s","status":"started"}"#
                    .to_owned()
                    .into(),
                Some(_) => serde_json::to_string(&ErrorBody::from(ErrorInfo::retryable(
                    ErrorCode::Closing,
                    "later",
                )))
                .unwrap()
                .into(),
                None => Body::wrap_stream(futures::stream::iter([Err::<Bytes, _>(
                    std::io::Error::other("lost"),
                )])),
            };
            let response = http::Response::builder()
                .status(status.unwrap_or(202))
                .body(body)
                .unwrap();
            Box::pin(async { response })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn request_with_a_lost_connection_is_never_reported_as_not_executed() {
        for (answers, outcome) in [
            (vec![503, 503, 202], Some(true)), // another owner takes over, and repeats the first answer
            (vec![503, 503, 503], None),
        ] {
            let owner = Arc::new(BrokenOwner(std::sync::Mutex::new(Vec::new())));
            let client = Client::of_routes(owner.clone());
            let starting = tokio::spawn(async move { client.start(&StartBody::default()).await });
            tokio::time::sleep(RETRY_DELAYS[0] / 2).await;
            *owner.0.lock().unwrap() = answers.into_iter().rev().collect();
            let answer = starting.await.unwrap();
            assert_eq!(
                answer
                    .as_ref()
                    .ok()
                    .map(|accepted| accepted.run_id.as_str() == "r"),
                outcome,
                "{answer:?}"
            );
            // A caller sends a request again if the error is retryable.
            assert!(
                answer.as_ref().err().is_none_or(|error| !error.retryable),
                "{answer:?}"
            );
        }
    }

    #[test]
    fn id_is_percent_encoded_as_one_path_segment() {
        for (text, want) in [
            ("s1@explore-001", "s1@explore-001"),
            ("../x", "..%2Fx"),
            ("..", "%2E%2E"),
            ("a b?c#d", "a%20b%3Fc%23d"),
            ("好", "%E5%A5%BD"),
        ] {
            assert_eq!(path_segment(text), want);
        }
    }
}
