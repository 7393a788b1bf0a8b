//! The HTTP interface of whoever owns a home: routes over the runtime, JSON in and out.
//!
//! It is served on the home's control socket, and called within the process by the command that
//! owns the home. Handlers hold no state of their own and decide nothing; what they refuse, they
//! refuse with the library's error and its code.
//! Not here: sockets (`owner.rs`), and who may connect: that is the socket file's mode.

mod artifact;
mod error;
mod permission;
mod question;
mod run;
mod session;
mod stream;
mod task;
mod trace;
pub(crate) mod traffic;
mod tree;
mod upload;
mod usage;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use artifact::{ArtifactView, Artifacts, EditBody, EditView, LOCAL, Stored, Versions};
use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::{Method, Uri},
    routing::{get, post, put},
};
pub(crate) use error::ErrorBody;
use error::{ApiError, refuse};
pub(crate) use permission::{DecisionBody, PermissionQuery, Permissions};
pub(crate) use question::{AnswerBody, QuestionQuery, Questions};
pub(crate) use run::{Accepted, RunView, StartBody};
pub(crate) use session::{ForkBody, HeadBody, HeadView, NewSessionBody, SessionPage, SessionView};
use soong::{ErrorCode, ErrorInfo, Runtime};
pub(crate) use stream::EventPage;
pub(crate) use trace::{Messages, TracePage, TraceView};
pub(crate) use tree::Ready;
pub(crate) use upload::Uploaded;

/// Longest body of a request, in bytes: a prompt may hold a whole log.
const MAX_BODY_BYTES: usize = 64 * 1_048_576;

/// What handlers work with.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) runtime: Runtime,
    pub(crate) gate: Gate,
}

impl Api {
    /// Begins a request that changes something: until it is done, the owner does not leave.
    fn enter(&self) -> Result<Passing, ApiError> {
        self.gate.pass().ok_or_else(|| {
            ErrorInfo::retryable(ErrorCode::Closing, "the owner of the home is about to leave it").into()
        })
    }
}

/// Whether runs and changes are still taken in. Whoever starts a run is counted until it is accepted,
/// whoever changes something until it is changed, so that the owner does not leave between its last look
/// at what is at work and its closing.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Mutex<GateState>>);

struct GateState {
    open: bool,
    /// Whether the owner is on its way out: whoever comes now is to look elsewhere.
    leaving: bool,
    /// How many runs are being started, and changes made.
    passing: usize,
}

impl Gate {
    pub(crate) fn open() -> Self {
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
    pub(crate) fn shut_if(&self, is_idle: impl FnOnce() -> bool) -> bool {
        let mut state = self.state();
        state.open = state.open && (state.passing > 0 || !is_idle());
        !state.open
    }

    /// Shuts the gate.
    pub(crate) fn shut(&self) {
        self.state().open = false;
    }

    /// Shuts the gate for good: the owner leaves.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        (state.open, state.leaving) = (false, true);
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

/// Returns all routes.
pub(crate) fn router(api: Api) -> Router {
    Router::new()
        .route("/api/traces", get(trace::list).post(run::start))
        .route("/api/traces/{id}", get(trace::show))
        .route("/api/traces/{id}/messages", get(trace::messages))
        .route("/api/traces/{id}/events", get(stream::events))
        .route("/api/traces/{id}/run", post(run::go_on))
        .route("/api/traces/{id}/stop", post(run::stop))
        .route("/api/traces/{id}/reflect", post(run::reflect))
        .route("/api/runs/{id}", get(run::show))
        .route("/api/runs/{id}/cancel", post(run::cancel))
        .route("/api/permissions", get(permission::list))
        .route("/api/permissions/{id}", post(permission::decide))
        .route("/api/questions", get(question::list))
        .route("/api/questions/{id}", post(question::answer))
        .route("/api/sessions", get(session::list).post(session::create))
        .route("/api/sessions/{id}", get(session::show).delete(session::delete))
        .route("/api/sessions/{id}/fork", post(session::fork))
        .route("/api/sessions/{id}/head", post(session::head))
        .route("/api/sessions/{id}/artifacts", get(artifact::list))
        .route(
            "/api/sessions/{id}/artifacts/{name}",
            get(artifact::show).patch(artifact::edit).delete(artifact::delete),
        )
        .route(
            "/api/sessions/{id}/artifacts/{name}",
            // The library says how much is too much.
            put(artifact::put).post(artifact::post).layer(DefaultBodyLimit::disable()),
        )
        .route("/api/sessions/{id}/artifacts/{name}/content", get(artifact::content))
        .route("/api/sessions/{id}/artifacts/{name}/versions", get(artifact::versions))
        .route("/api/sessions/{id}/artifacts/{name}/versions/{n}", get(artifact::version))
        .route("/api/sessions/{id}/artifacts/{name}/export", get(artifact::export))
        .route("/api/cleanup/artifacts", post(artifact::clean_up))
        .route("/api/cleanup/tasks", post(task::clean_up))
        .route("/api/usage", get(usage::show))
        .route("/api/tree", get(tree::show))
        .route("/health/live", get(tree::live))
        .route("/health/ready", get(tree::ready))
        .fallback(no_route)
        .method_not_allowed_fallback(no_route)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(api)
}

async fn no_route(method: Method, uri: Uri) -> ApiError {
    refuse(format!("there is no route {method} {}", uri.path())).not_found()
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
