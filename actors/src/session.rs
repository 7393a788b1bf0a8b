//! Sessions: a FIFO queue with one active user run, and their supervisor (SES-1 … SES-3, ACT-7).

mod actor;
mod cleanup;
mod deletion;
mod idle;
mod message;
mod registry;
mod services;
mod supervisor;

use std::{path::Path, sync::Arc};

pub(crate) use actor::deleted_meanwhile;
pub use cleanup::{SessionCleanup, SessionCleanupFailure, SessionCleanupReport};
pub(crate) use deletion::SessionDeleter;
pub(crate) use message::{SessionMsg, SessionSupervisorMsg};
pub(crate) use registry::SessionRegistry;
pub(crate) use services::SessionServices;
use soong_protocol::{
    ConversationPoint, ErrorInfo, RequestKey, RequestSubject, Run, SessionId, Write,
};
pub(crate) use supervisor::SessionSupervisorActor;
use tokio::sync::oneshot;

use crate::run::RunEntry;

/// A request to start a user run in a session.
pub(crate) struct StartRequest {
    pub(crate) run: Run,
    /// Rows of the session and its root trace, used if the session is new.
    pub(crate) rows: Vec<Write>,
    /// State of the session in the store.
    pub(crate) history: SessionHistory,
    pub(crate) project_dir: Arc<Path>,
    /// Whether the run is rejected instead of queued if another run of the session is running or
    /// waiting.
    pub(crate) reject_if_busy: bool,
    /// The end of the conversation as the request was prepared for it, if the run has no message or
    /// continues after an earlier one. The request is rejected if the conversation has another run,
    /// or gets a message or head until the run is recorded.
    pub(crate) continues_from: Option<ConversationPoint>,
    /// The keyed request that starts the run. It is recorded together with the run.
    pub(crate) request_key: Option<RequestKey>,
    /// Receives the run once it is durable.
    pub(crate) reply: oneshot::Sender<Result<Arc<RunEntry>, ErrorInfo>>,
}

impl StartRequest {
    /// Returns the write that records the keyed request.
    fn claim(&self) -> Option<Write> {
        let request_key = self.request_key.clone()?;
        Some(request_key.claim(
            RequestSubject::Run(self.run.run_id.clone()),
            self.run.created_at,
        ))
    }
}

/// State of a session in the store when a run is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionHistory {
    /// The session is not stored.
    None,
    /// The session is stored.
    Stored,
    /// The session is stored, and an earlier process left unfinished runs in it.
    Interrupted,
}

/// A session to restore after a crash of its actor or of its supervisor.
#[derive(Clone)]
pub(crate) struct SessionKey {
    pub(crate) session_id: SessionId,
    pub(crate) project_dir: Arc<Path>,
}
