//! Client of a home: in this process, over the control socket of its owner, or over HTTP.
//!
//! [`Client::call`] executes an operation of the table in `soong_protocol::api::operation`, wherever
//! the home is ([`Home`]), so a program behaves the same wherever its runs are executed. Errors of
//! the home keep their code.

mod home;
mod lists;
mod remote;
pub mod socket;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

pub use home::{
    ContentRequest, Download, EventStream, Home, Items, TreeUpdates, Upload, UploadStream,
    UploadTarget,
};
use remote::RemoteHome;
pub use remote::transport::Remote;
use soong_protocol::{
    ErrorCode, ErrorInfo, EventRecord, TraceId,
    api::{
        Accepted, EventQuery, Ready, SessionQuery, StartBody, Stored,
        operation::{CheckReadiness, ListSessions, Operation, PutArtifact, ReadEvents, StartRun},
    },
};

/// Maximum time until an owner answers the readiness check.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of events of a page.
const PAGE_EVENTS: usize = 500;
/// Name of a client that was given no other by [`Client::named`].
const CLI_CLIENT: &str = "cli";

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

/// Client of a home: its operations with their types. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    home: Arc<dyn Home>,
    /// Name of this client, which is recorded with its decisions.
    name: &'static str,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name)
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client of a home.
    pub fn new(home: Arc<dyn Home>) -> Self {
        Self {
            home,
            name: CLI_CLIENT,
        }
    }

    /// Returns the same client with another name, which is recorded with its decisions.
    pub fn named(&self, name: &'static str) -> Self {
        Self {
            name,
            ..self.clone()
        }
    }

    /// Returns the server's address. `None` if the owner is on this machine.
    pub fn server(&self) -> Option<&str> {
        self.home.server()
    }

    /// Looks for the process that owns a home.
    pub async fn find(address: &Address) -> Discovery {
        let home = match address {
            Address::Home(home) => home,
            Address::Server(remote) => return Self::connect_server(remote).await,
        };
        let Ok(remote_home) = RemoteHome::on_this_machine(home) else {
            return Discovery::None;
        };
        let client = Self::new(Arc::new(remote_home));
        match tokio::time::timeout(DISCOVERY_TIMEOUT, client.call(CheckReadiness {})).await {
            Ok(Ok(ready)) => Discovery::Owner(client, ready),
            Ok(Err(error)) if let Some(ready) = Ready::of_failure(&error) => {
                Discovery::Owner(client, ready)
            }
            // The socket exists, but access is denied.
            Ok(Err(_)) if remote::transport::is_denied(home).await => Discovery::Unresponsive,
            Ok(Err(_)) => Discovery::None,
            Err(_) => Discovery::Unresponsive,
        }
    }

    async fn connect_server(remote: &Remote) -> Discovery {
        let client = Self::new(Arc::new(RemoteHome::of_server(remote.clone())));
        let ready = match client.call(CheckReadiness {}).await {
            Ok(ready) => ready,
            Err(error) => match Ready::of_failure(&error) {
                Some(ready) => ready,
                None => return Discovery::Unreachable(error),
            },
        };
        // The readiness check requires no token. This request detects a missing or invalid token
        // immediately.
        let first_session = ListSessions {
            query: SessionQuery {
                limit: Some(1),
                ..SessionQuery::default()
            },
        };
        match client.call(first_session).await {
            Ok(_) => Discovery::Owner(client, ready),
            Err(error) => Discovery::Unreachable(error),
        }
    }

    /// Executes an operation. A POST request whose connection is lost is repeated with the same
    /// idempotency key.
    ///
    /// # Errors
    /// The error of the home, or `closing` or `home_locked` if its owner cannot be reached.
    pub async fn call<O: Operation>(&self, operation: O) -> Result<O::Response, ErrorInfo> {
        let response = self.home.call(operation.into_any(), self.name).await?;
        O::response_of(response)
            .ok_or_else(|| invalid_request(&"the answer is that of another operation"))
    }

    /// Starts a run.
    pub async fn start(&self, request: &StartBody) -> Result<Accepted, ErrorInfo> {
        let body = request.clone();
        self.call(StartRun { body }).await
    }

    /// Starts a run, and streams the events of its session from that point on.
    pub async fn start_with_events(
        &self,
        request: &StartBody,
    ) -> Result<(Accepted, EventStream), ErrorInfo> {
        let body = request.clone();
        self.home.start_with_events(StartRun { body }).await
    }

    /// Streams the events of a trace after event number `since`.
    pub async fn trace_events(&self, id: &TraceId, since: u64) -> Result<EventStream, ErrorInfo> {
        let query = EventQuery {
            since_event_id: Some(since),
            ..EventQuery::default()
        };
        let request = ReadEvents {
            trace_id: id.clone(),
            query,
        };
        self.home.events(request).await
    }

    /// Streams the events of a trace's whole session after `since`, a number on the session's
    /// timeline.
    pub async fn session_events(
        &self,
        trace: &TraceId,
        since: u64,
    ) -> Result<EventStream, ErrorInfo> {
        self.home.events(session_events(trace, since)).await
    }

    /// Reads a page of the stored events of a trace's whole session after `since`, a number on the
    /// session's timeline.
    pub async fn session_event_page(
        &self,
        trace: &TraceId,
        since: u64,
    ) -> Result<Vec<EventRecord>, ErrorInfo> {
        let mut request = session_events(trace, since);
        request.query.limit = Some(PAGE_EVENTS);
        Ok(self.call(request).await?.events)
    }

    /// Opens the content of an artifact.
    pub async fn open_content(
        &self,
        request: impl Into<ContentRequest>,
    ) -> Result<Download, ErrorInfo> {
        self.home.open_content(request.into()).await
    }

    /// Stores content as the next version of an artifact.
    pub async fn put_artifact(
        &self,
        request: PutArtifact,
        upload: Upload,
    ) -> Result<Stored, ErrorInfo> {
        check_content_type(&upload.content_type)?;
        self.home.put_artifact(request, upload).await
    }

    /// Stores a file as a new artifact of a session, under its own name or a name derived from it.
    pub async fn upload_file(
        &self,
        mut request: UploadTarget,
        upload: Upload,
    ) -> Result<Stored, ErrorInfo> {
        check_content_type(&upload.content_type)?;
        // Names of artifacts cannot contain these characters.
        let is_invalid = |c: char| c.is_control() || c == '"' || c == '\\';
        request.filename = request.filename.replace(is_invalid, "_");
        self.home.upload_file(request, upload).await
    }

    /// Watches the supervision tree: a snapshot of the whole tree first, then changes.
    ///
    /// # Errors
    /// The owner cannot be reached or does not respond.
    pub async fn watch_tree(&self) -> Result<Box<dyn TreeUpdates>, ErrorInfo> {
        self.home.watch_tree().await
    }
}

/// Returns the request for the events of a trace's whole session after `since`, a number on the
/// session's timeline.
fn session_events(trace: &TraceId, since: u64) -> ReadEvents {
    ReadEvents {
        trace_id: trace.clone(),
        query: EventQuery {
            tree: true,
            since_session_seq: Some(since),
            ..EventQuery::default()
        },
    }
}

fn check_content_type(content_type: &str) -> Result<(), ErrorInfo> {
    if content_type.contains(|c: char| !(c.is_ascii_graphic() || c == ' ')) {
        return Err(ErrorInfo::new(
            ErrorCode::ValidationError,
            format!("{content_type:?} is not a valid content type"),
        ));
    }
    Ok(())
}

fn invalid_request(error: &dyn fmt::Display) -> ErrorInfo {
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
