//! The HTTP interface of whoever owns a home: routes over the runtime, JSON in and out.
//!
//! It is served on the home's control socket, by `soong serve` on an address, and called within the process by the
//! command that owns the home. Handlers hold no state of their own and decide nothing; what they refuse, they
//! refuse with the library's error and its code.
//! Not here: sockets (`owner.rs`, `server.rs`), and who may connect: that is the socket file's mode, or a token.

mod accepted;
mod artifact;
mod caller;
mod cleanup;
mod document;
mod encoded;
mod error;
mod health;
mod memory;
mod metrics;
mod page;
mod permission;
mod preset;
mod question;
mod request;
mod run;
mod session;
mod stream;
mod task;
mod trace;
pub mod traffic;
mod tree;
mod unread;
mod upload;
mod usage;
mod watch;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use accepted::Accepted;
pub use artifact::{ArtifactView, Artifacts, EditBody, EditView, Versions};
use axum::{
    Json, Router,
    extract::DefaultBodyLimit,
    http::{Method, StatusCode, Uri},
    routing::get,
};
pub use caller::{Caller, LOCAL, Leave};
use encoded::Encoded;
pub use error::{ApiError, ErrorBody, refuse};
pub use health::Ready;
pub use memory::SkillView;
pub use permission::{CLIENT_HEADER, DecisionBody, PermissionQuery, Permissions};
pub use preset::PresetView;
pub use question::{AnswerBody, QuestionQuery, Questions};
pub use run::{Given, RunView, StartBody};
pub use session::{ForkBody, HeadBody, HeadView, NewSessionBody, SessionPage, SessionView};
use soong::{ErrorCode, ErrorInfo, Runtime, protocol::ServerConfig};
pub use stream::{ERROR_FRAME, EventPage, PING};
use tokio_util::task::TaskTracker;
pub use trace::{Messages, TracePage, TraceView};
pub use unread::finish_body;
pub use upload::{Stored, Uploaded};
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};
pub use watch::BEARER_PROTOCOL;

/// How often is looked whether something is still on its way.
const LOOK: Duration = Duration::from_millis(5);

/// What handlers work with.
#[derive(Clone)]
pub struct Api {
    /// The runtime that the routes work on.
    pub runtime: Runtime,
    /// Whether runs and changes are accepted.
    pub gate: Gate,
    /// Maximum sizes of bodies.
    pub limits: Limits,
    /// Compressed answers that do not change.
    pub encoded: Arc<Encoded>,
    /// WebSockets that are open.
    pub watching: TaskTracker,
}

/// How much a request may bring.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest body that is no file, in bytes.
    pub body_bytes: usize,
    /// Longest body that brings files, in bytes.
    pub upload_bytes: usize,
}

impl Limits {
    /// Of whoever owns the home: a prompt may hold a whole log, and the library says how large a file may be.
    const OWNER: Self = Self { body_bytes: 64 * 1_048_576, upload_bytes: usize::MAX };

    /// Of those who come from elsewhere.
    pub fn of(config: &ServerConfig) -> Self {
        Self { body_bytes: config.max_body_bytes, upload_bytes: config.max_upload_bytes }
    }
}

impl Api {
    /// Makes the state of the routes, with the limits of the owner of the home.
    pub fn new(runtime: Runtime, gate: Gate) -> Self {
        Self { runtime, gate, limits: Limits::OWNER, encoded: Arc::default(), watching: TaskTracker::new() }
    }

    /// Begins a request that changes something: until it is done, the owner does not leave.
    fn enter(&self) -> Result<Passing, ApiError> {
        // Without the writer nothing can be changed; the reason says more than that the store is closed.
        if let Some(failure) = self.runtime.failure().filter(|_| !self.runtime.can_write()) {
            return Err(failure.into());
        }
        self.gate.pass().ok_or_else(|| {
            ErrorInfo::retryable(ErrorCode::Closing, "the owner of the home is about to leave it").into()
        })
    }
}

/// Whether runs and changes are still taken in. Whoever starts a run is counted until it is accepted,
/// whoever changes something until it is changed, so that the owner does not leave between its last look
/// at what is at work and its closing.
#[derive(Clone)]
pub struct Gate(Arc<Mutex<GateState>>);

struct GateState {
    open: bool,
    /// Whether the owner is on its way out: whoever comes now is to look elsewhere.
    leaving: bool,
    /// How many runs are being started, and changes made.
    passing: usize,
}

impl Gate {
    /// Makes a gate that is open.
    pub fn open() -> Self {
        Self(Arc::new(Mutex::new(GateState { open: true, leaving: false, passing: 0 })))
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a start through; `None` = the owner is leaving.
    fn pass(&self) -> Option<Passing> {
        let mut state = self.state();
        state.passing += usize::from(state.open);
        state.open.then(|| Passing(self.clone()))
    }

    /// Shuts the gate if nothing is on its way through and `is_idle`; returns whether it is shut.
    pub fn shut_if(&self, is_idle: impl FnOnce() -> bool) -> bool {
        let mut state = self.state();
        state.open = state.open && (state.passing > 0 || !is_idle());
        !state.open
    }

    /// Shuts the gate.
    pub fn shut(&self) {
        self.state().open = false;
    }

    /// Shuts the gate for good: the owner leaves.
    pub fn leave(&self) {
        let mut state = self.state();
        (state.open, state.leaving) = (false, true);
    }

    /// Waits until nothing is on its way through.
    pub async fn passed(&self) {
        while self.state().passing > 0 {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn is_leaving(&self) -> bool {
        self.state().leaving
    }
}

/// A start or a change on its way through the gate.
struct Passing(Gate);

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.state().passing -= 1;
    }
}

/// Returns all routes. Whoever serves them says of each request who asks, by a [`Caller`].
pub fn router(api: Api) -> Router {
    let (router, mut document) = OpenApiRouter::with_openapi(document::Base::openapi())
        .routes(routes!(run::start, trace::list))
        .routes(routes!(trace::running))
        .routes(routes!(trace::show))
        .routes(routes!(trace::messages))
        .routes(routes!(stream::events))
        .routes(routes!(watch::trace))
        .routes(routes!(run::go_on))
        .routes(routes!(run::stop))
        .routes(routes!(run::reflect))
        .routes(routes!(run::show))
        .routes(routes!(run::cancel))
        .routes(routes!(run::spawn))
        .routes(routes!(session::list, session::create))
        .routes(routes!(session::show, session::delete))
        .routes(routes!(session::fork))
        .routes(routes!(session::head))
        .routes(routes!(artifact::list))
        .routes(routes!(artifact::show, artifact::put, artifact::upload, artifact::edit, artifact::delete))
        .routes(routes!(artifact::content))
        .routes(routes!(artifact::versions))
        .routes(routes!(artifact::version))
        .routes(routes!(artifact::export))
        .routes(routes!(artifact::clean_up))
        .routes(routes!(task::clean_up))
        .routes(routes!(permission::list))
        .routes(routes!(permission::decide))
        .routes(routes!(question::list))
        .routes(routes!(question::answer))
        .routes(routes!(memory::experiences))
        .routes(routes!(memory::skills))
        .routes(routes!(preset::list))
        .routes(routes!(usage::show))
        .routes(routes!(tree::show))
        .routes(routes!(watch::tree))
        .routes(routes!(tree::kill))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::show))
        .split_for_parts();
    document::complete(&mut document);
    let document = Arc::new(document::written(&document));
    router
        .route("/openapi.json", get(async move || Json(document)))
        .route("/", get(page::show))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        // Each kind of body has a limit of its own.
        .layer(DefaultBodyLimit::disable())
        .with_state(api)
}

async fn no_route(method: Method, uri: Uri) -> ApiError {
    let message = format!("there is no route {method} {}: see /openapi.json", uri.path());
    ErrorInfo::new(ErrorCode::RouteNotFound, message).into()
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} takes no {method}: see the header Allow, or /openapi.json", uri.path());
    refuse(message).with_status(StatusCode::METHOD_NOT_ALLOWED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_shut_only_while_nothing_passes_and_nothing_passes_a_shut_one() {
        let gate = Gate::open();
        let passing = gate.pass();
        assert!(passing.is_some() && !gate.shut_if(|| true), "somebody is on the way");
        drop(passing);
        assert!(!gate.shut_if(|| false));
        assert!(gate.shut_if(|| true));
        assert!(gate.pass().is_none() && gate.shut_if(|| false), "it stays shut");
    }
}
