//! The home of another process: requests over its control socket or over HTTP.
//!
//! A POST request with a JSON body whose connection is lost is repeated with the same idempotency
//! key. If no attempt gets an answer, and for other requests, the error is `closing`.

mod content;
pub(crate) mod events;
mod frames;
pub(crate) mod transport;
pub(crate) mod tree;

use std::{ops::ControlFlow, path::Path, time::Duration};

use bytes::Bytes;
use events::RemoteEvents;
use frames::SseFrame;
use futures::{FutureExt, future::BoxFuture};
use http::{Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Body;
use serde::{Serialize, de::DeserializeOwned};
use soong_protocol::{
    ErrorCode, ErrorInfo, RunId, SessionId,
    api::{
        self, Accepted, CLIENT_HEADER, ErrorBody, IDEMPOTENCY_KEY, Stored,
        operation::{
            AnyRequest, AnyResponse, Endpoint, Operation, PutArtifact, ReadEvents, ReadSession,
            StartRun,
        },
    },
    for_each_operation,
};
use transport::{Remote, Transport};

use crate::{
    CLI_CLIENT, ContentRequest, Download, EventStream, Home, TreeUpdates, Upload, UploadTarget,
    invalid_request, session_events, unresponsive,
};

/// Characters that are escaped in a path segment.
const PATH_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'@');

const JSON: &str = "application/json";

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
    /// Name of the client, which the owner records with a decision.
    client: &'a str,
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
            client: CLI_CLIENT,
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

/// The home of another process. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RemoteHome {
    transport: Transport,
    /// Whether a silent stream is polled instead. Only a connection to a server can have a proxy
    /// that holds back streams.
    may_poll: bool,
}

/// Encodes a text as one path segment.
fn path_segment(text: impl AsRef<str>) -> String {
    match text.as_ref() {
        // These would be interpreted as relative path segments.
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        text => utf8_percent_encode(text, PATH_ESCAPED).to_string(),
    }
}

impl RemoteHome {
    /// Creates the home on this machine, reached over its control socket.
    pub(crate) fn on_this_machine(home: &Path) -> Result<Self, ErrorInfo> {
        Ok(Self {
            transport: Transport::socket(home)?,
            may_poll: false,
        })
    }

    /// Creates the home of a server.
    pub(crate) fn of_server(remote: Remote) -> Self {
        Self {
            transport: Transport::Server(remote),
            may_poll: true,
        }
    }

    /// Creates the home of routes that a test answers.
    #[cfg(test)]
    fn of_routes(routes: std::sync::Arc<dyn transport::Routes>) -> Self {
        Self {
            transport: Transport::Routes(routes),
            may_poll: false,
        }
    }

    /// Executes an operation. A POST request is repeated if its connection is lost.
    async fn execute<O: Operation>(
        &self,
        operation: O,
        client: &str,
    ) -> Result<O::Response, ErrorInfo> {
        let path = request_path(&operation)?;
        let body = if O::HAS_JSON_BODY {
            json(operation.body())?
        } else {
            Bytes::new()
        };
        let mut retry = (O::METHOD == api::operation::Method::Post).then(KeyedRetry::new);
        loop {
            let request = OwnerRequest {
                client,
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

    async fn open_events(&self, request: ReadEvents) -> Result<EventStream, ErrorInfo> {
        if self.may_poll {
            return Ok(EventStream::pollable(Box::new(RemoteEvents::opening(
                self.clone(),
                request,
            ))));
        }
        let path = request_path(&request)?;
        let events = self.stream(OwnerRequest::new(Method::GET, &path)).await?;
        Ok(EventStream::pollable(Box::new(events)))
    }

    async fn start(&self, request: StartRun) -> Result<(Accepted, EventStream), ErrorInfo> {
        if self.may_poll {
            return self.start_then_stream(request).await;
        }
        let body = json(&request.body)?;
        let mut retry = KeyedRetry::new();
        loop {
            let answer = self.start_streaming(&body, &retry.key).await;
            if let ControlFlow::Break(answer) = retry.next_step(answer).await {
                return answer;
            }
        }
    }

    /// Starts a run, and then opens the stream: the response to the start must arrive even if a
    /// proxy holds back streams.
    async fn start_then_stream(
        &self,
        request: StartRun,
    ) -> Result<(Accepted, EventStream), ErrorInfo> {
        let mut since = 0;
        if let Some(id) = &request.body.session_id {
            let session = ReadSession {
                session_id: SessionId::new(id.as_str()),
            };
            match self.execute(session, CLI_CLIENT).await {
                Ok(found) => since = found.session.last_session_seq,
                Err(error) if error.code == ErrorCode::SessionNotFound => {}
                Err(error) => return Err(error),
            }
        }
        let accepted = self.execute(request, CLI_CLIENT).await?;
        let events = self
            .open_events(session_events(&accepted.trace_id, since))
            .await?;
        Ok((accepted, events))
    }

    /// Starts a run with a request that is answered by the stream of its events.
    async fn start_streaming(
        &self,
        body: &Bytes,
        key: &str,
    ) -> Result<(Accepted, EventStream), ErrorInfo> {
        let request = OwnerRequest {
            body: body.clone().into(),
            ..OwnerRequest::new(Method::POST, StartRun::PATH)
        };
        let mut events = self
            .stream(OwnerRequest {
                key: Some(key),
                ..request
            })
            .await?;
        match events.frame().await {
            Some(Ok(SseFrame::Accepted(accepted))) => {
                Ok((accepted, EventStream::pollable(Box::new(events))))
            }
            Some(Err(error)) => Err(error),
            Some(Ok(SseFrame::Item(_))) => Err(invalid_request(
                &"the event stream does not start with the accepted run",
            )),
            None => Err(connection_lost(
                &"the event stream ended before the run was accepted",
            )),
        }
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

    async fn stream(&self, request: OwnerRequest<'_>) -> Result<RemoteEvents, ErrorInfo> {
        let answer = self.send(OwnerRequest {
            accept: "text/event-stream",
            ..request
        });
        Ok(RemoteEvents::of_response(within_limit(answer).await?))
    }

    async fn send(&self, request: OwnerRequest<'_>) -> Result<reqwest::Response, ErrorInfo> {
        let OwnerRequest {
            method,
            path,
            body,
            content_type,
            accept,
            key,
            client,
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
            .header(CLIENT_HEADER, client)
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

/// Executes an operation of any type.
async fn execute_any(
    home: &RemoteHome,
    request: AnyRequest,
    client: &str,
) -> Result<AnyResponse, ErrorInfo> {
    macro_rules! dispatch {
        ($home:expr; $([$operation:ident $response:ty])*) => {
            match request {
                $(AnyRequest::$operation(request) => {
                    let response = $home.execute(request, client).await?;
                    Ok(AnyResponse::$operation(response))
                })*
            }
        };
    }
    for_each_operation!(dispatch; home)
}

impl Home for RemoteHome {
    fn call(
        &self,
        request: AnyRequest,
        client: &'static str,
    ) -> BoxFuture<'_, Result<AnyResponse, ErrorInfo>> {
        execute_any(self, request, client).boxed()
    }

    fn events(&self, request: ReadEvents) -> BoxFuture<'_, Result<EventStream, ErrorInfo>> {
        self.open_events(request).boxed()
    }

    fn start_with_events(
        &self,
        request: StartRun,
    ) -> BoxFuture<'_, Result<(Accepted, EventStream), ErrorInfo>> {
        self.start(request).boxed()
    }

    fn open_content(&self, request: ContentRequest) -> BoxFuture<'_, Result<Download, ErrorInfo>> {
        async move {
            match request {
                ContentRequest::Read(request) => self.download(&request).await,
                ContentRequest::Export(request) => self.download(&request).await,
            }
        }
        .boxed()
    }

    fn put_artifact(
        &self,
        request: PutArtifact,
        upload: Upload,
    ) -> BoxFuture<'_, Result<Stored, ErrorInfo>> {
        self.put(request, upload).boxed()
    }

    fn upload_file(
        &self,
        request: UploadTarget,
        upload: Upload,
    ) -> BoxFuture<'_, Result<Stored, ErrorInfo>> {
        self.upload(request, upload).boxed()
    }

    fn watch_tree(&self) -> BoxFuture<'_, Result<Box<dyn TreeUpdates>, ErrorInfo>> {
        async move {
            let tree: Box<dyn TreeUpdates> = Box::new(self.open_tree().await?);
            Ok(tree)
        }
        .boxed()
    }

    fn server(&self) -> Option<&str> {
        match &self.transport {
            Transport::Server(remote) => Some(remote.url()),
            _ => None,
        }
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
    use std::sync::Arc;

    use soong_protocol::api::StartBody;

    use super::*;
    use crate::Client;

    fn home_of(routes: Arc<dyn transport::Routes>) -> Client {
        Client::new(Arc::new(RemoteHome::of_routes(routes)))
    }

    /// No request reaches this owner.
    struct NoOwner;

    impl transport::Routes for NoOwner {
        fn send(
            &self,
            request: http::Request<Body>,
        ) -> futures::future::BoxFuture<'static, http::Response<Body>> {
            unreachable!("{}", request.uri())
        }
    }

    #[tokio::test]
    async fn dot_segments_are_rejected_before_a_request() {
        let client = home_of(Arc::new(NoOwner));
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

    impl transport::Routes for BrokenOwner {
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
            let client = home_of(owner.clone());
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
