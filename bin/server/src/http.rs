//! HTTP interface of the owner of a home: routes over the runtime, JSON in and out.
//!
//! It is served on the home's control socket and, by `soong serve`, on a network address. The
//! command that owns the home calls the same handlers within its process, without HTTP
//! (`local.rs`). Handlers keep no state and make no decisions. They reject requests with the
//! library's error and its code.
//!
//! Elsewhere: the table of the operations (`soong::protocol::api::operation`), sockets
//! (`control.rs`, `socket.rs`, `server.rs`), and connection permissions, which are the socket
//! file's mode or a token.

mod accepted;
mod artifact;
mod call;
mod caller;
mod cleanup;
#[cfg(all(test, feature = "openapi"))]
mod document;
mod drain;
mod error;
mod etag;
mod event_cache;
mod health;
mod keyed;
mod local;
mod memory;
mod metrics;
mod operations;
mod page;
mod permission;
mod preset;
mod question;
mod request;
mod run;
mod session;
mod settings;
mod stream;
mod task;
mod trace;
pub mod traffic;
mod tree;
mod upload;
mod usage;
mod watch;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use artifact::{DOCX, artifact_view, docx};
use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::{HeaderName, Method, StatusCode, Uri, header::CONTENT_TYPE},
    middleware::{from_fn, from_fn_with_state},
    routing::{get, post, put},
};
pub use caller::{Caller, LOCAL, TokenWatch};
pub use cleanup::artifact_cleanup;
pub use drain::finish_body;
pub use error::{ApiError, validation_error};
use event_cache::EventCache;
pub(crate) use keyed::IDEMPOTENCY_REPLAYED;
use keyed::RequestsInProgress;
pub use local::LocalHome;
pub use memory::skill_view;
pub use preset::preset_view;
use soong::{
    ErrorCode, ErrorInfo, Runtime,
    protocol::{
        ServerConfig,
        api::operation::{
            CallModel, CleanUpTasks, Endpoint, ExportArtifact, PutArtifact, ReadContent,
            ReadMetrics, WatchTrace, WatchTree,
        },
    },
};
use tokio_util::task::TaskTracker;
pub use trace::trace_filter;
pub use watch::BEARER_PROTOCOL;

/// The OpenAPI document.
const OPENAPI: &str = include_str!("../openapi.json");
/// Interval of checks for requests in progress.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// State shared by all handlers.
#[derive(Clone)]
pub struct Api {
    /// Runtime behind the routes.
    pub runtime: Runtime,
    /// Gate that accepts or rejects starts and changes.
    pub gate: ShutdownGate,
    /// Maximum sizes of bodies.
    pub limits: BodyLimits,
    /// Cache of encoded responses.
    pub event_cache: Arc<EventCache>,
    /// Open WebSockets.
    pub websockets: TaskTracker,
    /// Requests with an `Idempotency-Key` that are being executed.
    pub requests_in_progress: Arc<RequestsInProgress>,
}

/// Size limits of request bodies.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Maximum length of a body without files, in bytes.
    pub body_bytes: usize,
    /// Maximum length of a body with files, in bytes.
    pub upload_bytes: usize,
}

impl BodyLimits {
    /// Limits for the owner's own clients: a prompt may contain a whole log, and the library limits
    /// the size of files.
    const OWNER: Self = Self {
        body_bytes: 64 * 1_048_576,
        upload_bytes: usize::MAX,
    };

    /// Returns the limits for clients of a server.
    pub fn of(config: &ServerConfig) -> Self {
        Self {
            body_bytes: config.max_body_bytes,
            upload_bytes: config.max_upload_bytes,
        }
    }
}

impl Api {
    /// Creates the state with the limits for the owner's own clients.
    pub fn new(runtime: Runtime, gate: ShutdownGate) -> Self {
        Self {
            runtime,
            gate,
            limits: BodyLimits::OWNER,
            event_cache: Arc::default(),
            websockets: TaskTracker::new(),
            requests_in_progress: Arc::default(),
        }
    }

    /// Begins a request that changes something. The owner does not exit before the returned guard
    /// is dropped.
    fn begin_change(&self) -> Result<GateGuard, ApiError> {
        // Without a writer nothing can be changed. The failure explains more than an error about a
        // closed store.
        if let Some(failure) = self
            .runtime
            .info()
            .failure()
            .filter(|_| !self.runtime.info().can_write())
        {
            return Err(failure.into());
        }
        self.gate.pass().ok_or_else(|| {
            ErrorInfo::retryable(
                ErrorCode::Closing,
                "the owner process of the home is shutting down",
            )
            .into()
        })
    }
}

/// Counts the starts and changes in progress, and whether new ones are accepted. A start counts
/// until its run is accepted, a change until it is done. So the owner cannot exit between its last
/// check for active runs and its shutdown.
#[derive(Clone)]
pub struct ShutdownGate(Arc<Mutex<GateState>>);

struct GateState {
    open: bool,
    /// Whether the owner is shutting down, so that clients must look for another one.
    is_shutting_down: bool,
    /// Number of starts and changes in progress.
    in_progress: usize,
}

impl ShutdownGate {
    /// Creates an open gate.
    pub fn open() -> Self {
        Self(Arc::new(Mutex::new(GateState {
            open: true,
            is_shutting_down: false,
            in_progress: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a start or a change; `None` if the gate is shut.
    fn pass(&self) -> Option<GateGuard> {
        let mut state = self.state();
        state.in_progress += usize::from(state.open);
        state.open.then(|| GateGuard(self.clone()))
    }

    /// Shuts the gate if nothing is in progress and `is_idle` returns true. Returns whether the
    /// gate is shut.
    pub fn close_if(&self, is_idle: impl FnOnce() -> bool) -> bool {
        let mut state = self.state();
        state.open = state.open && (state.in_progress > 0 || !is_idle());
        !state.open
    }

    /// Shuts the gate.
    pub fn close(&self) {
        self.state().open = false;
    }

    /// Shuts the gate permanently because the owner is shutting down.
    pub fn begin_shutdown(&self) {
        let mut state = self.state();
        state.open = false;
        state.is_shutting_down = true;
    }

    /// Waits until no start or change is in progress.
    pub async fn wait_until_empty(&self) {
        while self.state().in_progress > 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn is_stopping(&self) -> bool {
        self.state().is_shutting_down
    }
}

/// Guard of a start or a change in progress.
struct GateGuard(ShutdownGate);

impl Drop for GateGuard {
    fn drop(&mut self) {
        self.0.state().in_progress -= 1;
    }
}

/// Returns all routes. The server adds a [`Caller`] to each request.
pub fn router(api: Api) -> Router {
    operations::routes()
        .route(CallModel::PATH, post(call::call))
        .route(WatchTrace::PATH, get(watch::trace))
        .route(PutArtifact::PATH, put(artifact::put).post(artifact::upload))
        .route(ReadContent::PATH, get(artifact::content))
        .route(ExportArtifact::PATH, get(artifact::export))
        .route(CleanUpTasks::PATH, post(task::clean_up))
        .route(WatchTree::PATH, get(watch::tree))
        .route(ReadMetrics::PATH, get(metrics::show))
        .route("/openapi.json", get(openapi))
        .route("/", get(page::show))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        // Each kind of body has its own limit.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(api.clone(), keyed::execute_once))
        .layer(from_fn(upload::reject_encoded_body))
        .with_state(api)
}

/// Describes the routes. The test in `document.rs` generates the document.
async fn openapi() -> ([(HeaderName, &'static str); 1], &'static str) {
    ([(CONTENT_TYPE, "application/json")], OPENAPI)
}

async fn no_route(method: Method, uri: Uri) -> ApiError {
    let message = format!("no route {method} {}: see /openapi.json", uri.path());
    ErrorInfo::new(ErrorCode::RouteNotFound, message).into()
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!(
        "{} does not support {method}: see the Allow header, or /openapi.json",
        uri.path()
    );
    validation_error(message).with_status(StatusCode::METHOD_NOT_ALLOWED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_closes_only_without_requests_and_then_admits_none() {
        let gate = ShutdownGate::open();
        let passing = gate.pass();
        assert!(
            passing.is_some() && !gate.close_if(|| true),
            "a request is in progress"
        );
        drop(passing);
        assert!(!gate.close_if(|| false));
        assert!(gate.close_if(|| true));
        assert!(
            gate.pass().is_none() && gate.close_if(|| false),
            "it stays shut"
        );
    }
}
