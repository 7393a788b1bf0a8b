//! The HTTP interface of whoever owns a home: routes over the runtime, JSON in and out.
//!
//! It is served on the home's control socket, and called within the process by the command that
//! owns the home. Handlers hold no state of their own and decide nothing; what they refuse, they
//! refuse with the library's error and its code.
//! Not here: sockets (`owner.rs`), and who may connect: that is the socket file's mode.

mod error;
mod run;
mod session;
mod stream;
mod trace;
mod tree;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::{Method, Uri},
    routing::{get, post},
};
pub(crate) use error::ErrorBody;
use error::{ApiError, refuse};
pub(crate) use run::{Accepted, RunView, StartBody};
pub(crate) use session::{Artifacts, SessionPage, SessionView};
use soong::Runtime;
pub(crate) use stream::EventPage;
use tokio::sync::RwLock;
pub(crate) use trace::{Messages, TracePage, TraceView};
pub(crate) use tree::Ready;

/// Longest body of a request, in bytes.
const MAX_BODY_BYTES: usize = 1_048_576;

/// What handlers work with.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) runtime: Runtime,
    pub(crate) gate: Gate,
}

/// Whether runs are still taken in. Held open by each request that starts one, so that the owner
/// does not leave between its last look at what is at work and its closing.
#[derive(Clone)]
pub(crate) struct Gate(Arc<RwLock<bool>>);

impl Gate {
    pub(crate) fn open() -> Self {
        Self(Arc::new(RwLock::new(true)))
    }

    /// Shuts the gate if `is_idle` says so while nothing is being started; returns whether it is shut.
    pub(crate) async fn shut_if(&self, is_idle: impl FnOnce() -> bool) -> bool {
        let mut open = self.0.write().await;
        *open = *open && !is_idle();
        !*open
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
        .route("/api/runs/{id}", get(run::show))
        .route("/api/runs/{id}/cancel", post(run::cancel))
        .route("/api/sessions", get(session::list))
        .route("/api/sessions/{id}", get(session::show))
        .route("/api/sessions/{id}/artifacts", get(session::artifacts))
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
