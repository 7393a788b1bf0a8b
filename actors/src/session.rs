//! Sessions: FIFO queue, one active user run, and their supervisor (SES-1 … SES-3, ACT-7).

mod actor;
mod cleanup;
mod message;
mod registry;
mod removal;
mod services;
mod supervisor;

use std::{path::Path, sync::Arc};

pub(crate) use actor::deleted_meanwhile;
pub use cleanup::{SessionCleanup, SessionCleanupFailure, SessionCleanupReport};
pub(crate) use message::{SessionMsg, SessionSupervisorMsg};
pub(crate) use registry::SessionRegistry;
pub(crate) use removal::Deleter;
pub(crate) use services::SessionServices;
use soong_protocol::{ErrorInfo, Run, RunId, SessionId, Write};
pub(crate) use supervisor::SessionSupervisorActor;
use tokio::sync::oneshot;

use crate::run::RunEntry;

/// A user run on its way into its session.
pub(crate) struct StartRequest {
    pub(crate) run: Run,
    /// Rows of the session and its root trace, in case it is new.
    pub(crate) rows: Vec<Write>,
    /// What the store knows of the session.
    pub(crate) past: Past,
    pub(crate) project_dir: Arc<Path>,
    /// Whether it is refused instead of queued while another run of the session is at work or waits.
    pub(crate) reject_if_busy: bool,
    /// The session's last run as its caller saw it, where it goes on without a message: refused if
    /// another one came in between.
    pub(crate) follows: Option<RunId>,
    /// Takes the run once it is durable.
    pub(crate) reply: oneshot::Sender<Result<Arc<RunEntry>, ErrorInfo>>,
}

/// What the store knows of a session that a run is to be started in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// Nothing.
    None,
    /// It is there.
    Settled,
    /// It is there, and another process has left runs of it behind.
    LeftBehind,
}

/// A session to be brought back after a crash of its actor or of its supervisor.
#[derive(Clone)]
pub(crate) struct Lost {
    pub(crate) session_id: SessionId,
    pub(crate) project_dir: Arc<Path>,
}
