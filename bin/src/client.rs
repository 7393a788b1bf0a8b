//! Client of a home's owner: over its control socket, over HTTP, or within the owner's process.
//!
//! All transports lead to the same routes (`http.rs`), so a command behaves the same wherever the run is executed.
//! Not in this module: how commands use the responses.

mod artifacts;
mod events;
mod frames;
mod remote;
mod tree;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use artifacts::{Download, UploadStream, artifact_path};
use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderValue, Method, Request, Response, header},
};
pub(crate) use events::EventStream;
use events::{IDLE_TIMEOUT, Position};
use frames::SseFrame;
use http_body_util::BodyExt;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
pub(crate) use remote::Remote;
use serde::{Serialize, de::DeserializeOwned};
use soong::protocol::api::{
    Accepted, AnswerBody, CLIENT_HEADER, DecisionBody, ErrorBody, ForkBody, HeadBody, HeadView, PermissionQuery,
    Permissions, QuestionQuery, Questions, Ready, RunView, SessionPage, SessionView, StartBody, TraceView,
};
use soong::{
    ActorView, ErrorCode, ErrorInfo, Runtime,
    protocol::{Decision, Permission, PermissionId, Question, RunId, SessionId, TraceId},
};
use tower::ServiceExt;

use soong_server::socket;

/// Characters that are not escaped in a path.
const PATH_SAFE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'@');

const JSON: &str = "application/json";

/// Maximum time until an owner answers the readiness check.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time until an owner responds to a request or begins a stream.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Result of looking for the owner of a home.
pub(crate) enum Discovery {
    /// The owner answers.
    Owner(Client, Ready),
    /// The home has no owner.
    None,
    /// A process owns the home but does not answer: it is stopped, it hangs, or it belongs to another user.
    Unresponsive,
    /// The named server cannot be reached or rejects the client.
    Unreachable(ErrorInfo),
}

/// Location of a home whose owner is looked for.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    /// A home on this machine.
    Home(PathBuf),
    /// A server.
    Server(Remote),
}

/// Client of a home's owner. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    transport: Transport,
    /// Client name that decisions are recorded with.
    name: &'static str,
}

/// Client name used by commands.
const CLI_CLIENT: &str = "cli";

#[derive(Debug, Clone)]
enum Transport {
    /// The owner is this process.
    InProcess(Router, Runtime),
    /// The owner is another process on this machine; each request opens a new connection.
    Socket(PathBuf),
    /// The owner is a server.
    Server(Remote),
    /// A router that behaves like a server, for tests.
    #[cfg(test)]
    Router(Router),
}

/// Encodes a text as one path segment.
pub(crate) fn path_segment(text: impl AsRef<str>) -> String {
    match text.as_ref() {
        // These would be interpreted as relative path segments.
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        text => utf8_percent_encode(text, PATH_SAFE).to_string(),
    }
}

impl Client {
    /// Creates a client that calls the router of this process, which serves `runtime`.
    pub(crate) fn in_process(router: Router, runtime: Runtime) -> Self {
        Self { transport: Transport::InProcess(router, runtime), name: CLI_CLIENT }
    }

    /// Creates a client that treats a router as a server.
    #[cfg(test)]
    fn of_router(router: Router) -> Self {
        Self { transport: Transport::Router(router), name: CLI_CLIENT }
    }

    /// Returns the server's address. `None` if the owner is on this machine.
    pub(crate) fn server(&self) -> Option<&str> {
        match &self.transport {
            Transport::Server(remote) => Some(remote.url()),
            Transport::InProcess(..) | Transport::Socket(_) => None,
            #[cfg(test)]
            Transport::Router(_) => None,
        }
    }

    /// Looks for the process that owns a home.
    pub(crate) async fn find(address: &Address) -> Discovery {
        let home = match address {
            Address::Home(home) => home,
            Address::Server(remote) => return Self::connect_server(remote).await,
        };
        let client = Self { transport: Transport::Socket(home.clone()), name: CLI_CLIENT };
        let is_closed = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        match tokio::time::timeout(DISCOVERY_TIMEOUT, client.get("/health/ready")).await {
            Ok(Ok(ready)) => Discovery::Owner(client, ready),
            Ok(Err(error)) if let Some(ready) = Ready::of_failure(&error) => Discovery::Owner(client, ready),
            // The socket exists, but access is denied.
            Ok(Err(_)) if socket::connect(home).await.is_err_and(is_closed) => Discovery::Unresponsive,
            Ok(Err(_)) => Discovery::None,
            Err(_) => Discovery::Unresponsive,
        }
    }

    async fn connect_server(remote: &Remote) -> Discovery {
        let client = Self { transport: Transport::Server(remote.clone()), name: CLI_CLIENT };
        let ready = match client.get("/health/ready").await {
            Ok(ready) => ready,
            Err(error) => match Ready::of_failure(&error) {
                Some(ready) => ready,
                None => return Discovery::Unreachable(error),
            },
        };
        // The readiness check requires no token. This request detects a missing or invalid token immediately.
        match client.get::<SessionPage>("/api/sessions?limit=1").await {
            Ok(_) => Discovery::Owner(client, ready),
            Err(error) => Discovery::Unreachable(error),
        }
    }

    /// Fetches a record.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ErrorInfo> {
        read(&self.request(Method::GET, path, Body::empty()).await?)
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ErrorInfo> {
        read(&self.request(Method::POST, path, json(body)?).await?)
    }

    async fn request(&self, method: Method, path: &str, body: Body) -> Result<Bytes, ErrorInfo> {
        let answer = async { read_body(self.send(method, path, body, JSON, JSON).await?).await };
        tokio::time::timeout(REQUEST_TIMEOUT, answer).await.unwrap_or_else(|_| Err(unresponsive()))
    }

    /// Starts a run.
    pub(crate) async fn start(&self, request: &StartBody) -> Result<Accepted, ErrorInfo> {
        self.post("/api/traces", request).await
    }

    /// Starts a run and streams the events of its session from that point on.
    pub(crate) async fn start_and_watch(&self, request: &StartBody) -> Result<(Accepted, EventStream), ErrorInfo> {
        if self.may_poll() {
            // The response to the start must arrive even if a proxy holds back streams.
            let since = match &request.session_id {
                Some(id) => match self.session(id).await {
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
        let mut watch = self.stream(Method::POST, "/api/traces", json(request)?).await?;
        match watch.frame().await {
            Some(Ok(SseFrame::Accepted(accepted))) => Ok((accepted, watch)),
            Some(Err(error)) => Err(error),
            Some(Ok(SseFrame::Item(_))) | None => {
                Err(invalid_request(&"the event stream does not start with the accepted run"))
            }
        }
    }

    /// Cancels the active run of a trace.
    pub(crate) async fn stop(&self, trace: &str) -> Result<Accepted, ErrorInfo> {
        self.post(&format!("/api/traces/{}/stop", path_segment(trace)), &()).await
    }

    /// Cancels a run.
    pub(crate) async fn cancel(&self, run: &RunId) -> Result<Accepted, ErrorInfo> {
        self.post(&format!("/api/runs/{}/cancel", path_segment(run)), &()).await
    }

    /// Reads a run, with its outcome once it has ended.
    pub(crate) async fn run(&self, run: &RunId) -> Result<RunView, ErrorInfo> {
        self.get(&format!("/api/runs/{}", path_segment(run))).await
    }

    /// Lists questions.
    pub(crate) async fn questions(&self, request: &QuestionQuery) -> Result<Questions, ErrorInfo> {
        let status = request.status.map(|status| status.as_str());
        self.get(&list_path("/api/questions", status, request.session_id.as_ref())).await
    }

    /// Lists permissions.
    pub(crate) async fn permissions(&self, request: &PermissionQuery) -> Result<Permissions, ErrorInfo> {
        let status = request.status.map(|status| status.as_str());
        self.get(&list_path("/api/permissions", status, request.session_id.as_ref())).await
    }

    /// Returns the same client with another name: `terminal` or `monitor`.
    pub(crate) fn named(&self, name: &'static str) -> Self {
        Self { name, ..self.clone() }
    }

    /// Grants or denies permission for a tool call.
    pub(crate) async fn decide(
        &self,
        permission: &PermissionId,
        decision: Decision,
        reason: Option<String>,
    ) -> Result<Permission, ErrorInfo> {
        self.post(&format!("/api/permissions/{}", path_segment(permission)), &DecisionBody { decision, reason }).await
    }

    /// Answers a question.
    pub(crate) async fn answer(&self, question: impl AsRef<str>, answer: &str) -> Result<Question, ErrorInfo> {
        let body = AnswerBody { answer: answer.to_owned() };
        self.post(&format!("/api/questions/{}", path_segment(question)), &body).await
    }

    /// Reads a session.
    pub(crate) async fn session(&self, id: &str) -> Result<SessionView, ErrorInfo> {
        self.get(&format!("/api/sessions/{}", path_segment(id))).await
    }

    /// Deletes a session; returns once it is deleted.
    pub(crate) async fn delete_session(&self, id: &SessionId) -> Result<(), ErrorInfo> {
        self.request(Method::DELETE, &format!("/api/sessions/{}", path_segment(id)), Body::empty()).await.map(drop)
    }

    /// Creates a session as a copy of another one.
    pub(crate) async fn fork_session(&self, id: &str, request: &ForkBody) -> Result<SessionView, ErrorInfo> {
        self.post(&format!("/api/sessions/{}/fork", path_segment(id)), request).await
    }

    /// Moves the head of a session's conversation to another message.
    pub(crate) async fn switch_head(&self, id: &str, sequence: u64) -> Result<HeadView, ErrorInfo> {
        self.post(&format!("/api/sessions/{}/head", path_segment(id)), &HeadBody { sequence }).await
    }

    /// Reads a trace.
    pub(crate) async fn trace(&self, id: &str) -> Result<TraceView, ErrorInfo> {
        self.get(&format!("/api/traces/{}", path_segment(id))).await
    }

    /// Reads the supervision tree.
    pub(crate) async fn tree(&self) -> Result<ActorView, ErrorInfo> {
        self.get("/api/tree").await
    }

    /// Makes an actor crash, for testing.
    pub(crate) async fn crash_actor(&self, actor_id: &str) -> Result<(), ErrorInfo> {
        self.post::<serde::de::IgnoredAny>(&format!("/api/tree/{}/kill", path_segment(actor_id)), &()).await.map(drop)
    }

    /// Streams the events of a trace after event number `since`.
    pub(crate) async fn trace_events(&self, id: &TraceId, since: u64) -> Result<EventStream, ErrorInfo> {
        self.events(Position { trace: id.clone(), tree: false, since }).await
    }

    /// Streams the events of a trace's whole session after `since`, a number on the session's timeline.
    pub(crate) async fn session_events(&self, trace: &TraceId, since: u64) -> Result<EventStream, ErrorInfo> {
        self.events(Position { trace: trace.clone(), tree: true, since }).await
    }

    async fn events(&self, position: Position) -> Result<EventStream, ErrorInfo> {
        if !self.may_poll() {
            return self.stream(Method::GET, &position.path(), Body::empty()).await;
        }
        let path = position.path();
        let answer = self.send(Method::GET, &path, Body::empty(), JSON, "text/event-stream");
        Ok(match tokio::time::timeout(IDLE_TIMEOUT, answer).await {
            Ok(response) => EventStream::streamed(response?.into_body(), Some((self.clone(), position))),
            Err(_) => EventStream::polled(self.clone(), position),
        })
    }

    /// Returns whether a silent stream is polled instead. Only a connection to a server can have a proxy that holds
    /// back streams.
    fn may_poll(&self) -> bool {
        match self.transport {
            Transport::Server(_) => true,
            Transport::InProcess(..) | Transport::Socket(_) => false,
            #[cfg(test)]
            Transport::Router(_) => true,
        }
    }

    async fn stream(&self, method: Method, path: &str, body: Body) -> Result<EventStream, ErrorInfo> {
        let answer = self.send(method, path, body, JSON, "text/event-stream");
        let response = tokio::time::timeout(REQUEST_TIMEOUT, answer).await.unwrap_or_else(|_| Err(unresponsive()))?;
        Ok(EventStream::streamed(response.into_body(), None))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Body,
        content_type: &str,
        accept: &str,
    ) -> Result<Response<Body>, ErrorInfo> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CLIENT_HEADER, self.name)
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, content_type)
            .body(body)
            .map_err(|error| invalid_request(&error))?;
        let response = match &self.transport {
            Transport::InProcess(router, _) => {
                let answered = router.clone().oneshot(request).await;
                answered.unwrap_or_else(|never| match never {})
            }
            Transport::Socket(home) => over_socket(home, request).await?,
            Transport::Server(remote) => remote.send(request).await?,
            #[cfg(test)]
            Transport::Router(router) => router.clone().oneshot(request).await.unwrap_or_else(|never| match never {}),
        };
        if response.status().is_success() {
            return Ok(response);
        }
        Err(response_error(response).await)
    }
}

/// Returns the path that lists the requests with a status or of a session.
fn list_path(path: &str, status: Option<&str>, session: Option<&SessionId>) -> String {
    let status = status.map(|status| format!("status={status}"));
    let session = session.map(|id| format!("session_id={}", path_segment(id)));
    let query: Vec<String> = status.into_iter().chain(session).collect();
    format!("{path}?{}", query.join("&"))
}

/// Reads the error of a failed request.
async fn response_error(response: Response<Body>) -> ErrorInfo {
    let status = response.status();
    let bytes = match read_body(response).await {
        Ok(bytes) => bytes,
        Err(error) => return error,
    };
    let parsed = serde_json::from_slice::<ErrorBody>(&bytes).map(|body| body.error.into());
    parsed.unwrap_or_else(|_| {
        let message = format!("the owner process responded with {status} and no error message");
        ErrorInfo::new(ErrorCode::InternalError, message)
    })
}

/// Opens a connection to the socket of a home.
async fn socket_connection(home: &Path) -> Result<SendRequest<Body>, ErrorInfo> {
    let not_there = |error: &dyn std::fmt::Display| {
        ErrorInfo::retryable(ErrorCode::Closing, format!("cannot connect to the owner process of the home: {error}"))
    };
    let stream = socket::connect(home).await.map_err(|error| not_there(&error))?;
    let (sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| not_there(&error))?;
    tokio::spawn(connection.with_upgrades());
    Ok(sender)
}

async fn over_socket(home: &Path, mut request: Request<Body>) -> Result<Response<Body>, ErrorInfo> {
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("soong"));
    let mut sender = socket_connection(home).await?;
    let response = sender.send_request(request).await.map_err(|error| connection_lost(&error))?;
    Ok(response.map(Body::new))
}

async fn read_body(response: Response<Body>) -> Result<Bytes, ErrorInfo> {
    let body = response.into_body().collect().await.map_err(|error| connection_lost(&error))?;
    Ok(body.to_bytes())
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ErrorInfo> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("unexpected response from the owner process; it may run another version: {error}");
        ErrorInfo::new(ErrorCode::InternalError, message)
    })
}

fn json(body: &impl Serialize) -> Result<Body, ErrorInfo> {
    serde_json::to_vec(body).map(Body::from).map_err(|error| invalid_request(&error))
}

fn invalid_request(error: &dyn std::fmt::Display) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::InternalError, format!("the request failed: {error}"))
}

pub(crate) fn unresponsive() -> ErrorInfo {
    let message = "the owner process of the home does not respond; if it is suspended (Ctrl-Z), resume it with fg";
    ErrorInfo::new(ErrorCode::HomeLocked, message)
}

/// Error of a connection that ended during the request: it is unknown whether the request was carried out.
fn connection_lost(error: &dyn std::fmt::Display) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::Closing, format!("lost the connection to the owner process: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
