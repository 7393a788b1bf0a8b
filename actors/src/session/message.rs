//! The mailboxes of session actors and of their supervisor.

use ractor::ActorId;
use soong_protocol::{ErrorInfo, Run, RunId, SessionId};
use soong_storage::store::StoreError;
use tokio::sync::oneshot;

use super::{SessionKey, StartRequest};
use crate::run::BudgetUsage;

/// Mailbox of a session.
pub(crate) enum SessionMsg {
    /// From the supervisor: start a user run.
    Start(Box<StartRequest>),
    /// From the first run of a new session: whether the run and its session were recorded.
    Created(bool),
    /// From the writer: whether the row of a run is durable. On success: the id of its first event,
    /// or 0.
    Recorded {
        run_id: RunId,
        outcome: Result<u64, StoreError>,
    },
    /// From a deletion: asks whether no run is running or waiting here. Answered once that is
    /// known.
    QueryIdle(oneshot::Sender<bool>),
    /// From a run: it has ended, or was never started.
    RunEnded(RunId),
    /// From its own task: all runs that the session has waited for have reported their end.
    EndsReported,
    /// From a handle: cancel a queued run.
    CancelQueued(RunId),
    /// From its own loading task: whether the session is stored, and its runs that have not ended.
    Restored {
        known: bool,
        runs: Vec<Run>,
        used: BudgetUsage,
    },
    /// From its own loading task: the session cannot be read, and no retry can fix that.
    LoadFailed(ErrorInfo),
    /// From its own timer: the session has been idle for the configured time.
    Idle { generation: u64 },
    /// For fault-injection tests, and if only the store knows the state of the session: makes the
    /// actor fail and restart.
    Crash,
}

/// Mailbox of the session supervisor.
pub(crate) enum SessionSupervisorMsg {
    /// From the runtime: start a user run.
    Start(Box<StartRequest>),
    /// From a session actor: it has become idle, after this number of start requests.
    BecameIdle {
        session: SessionId,
        actor: ActorId,
        starts: u64,
    },
    /// From a session actor: it has been idle for the configured time, and has received this number
    /// of start requests.
    Idle {
        session: SessionId,
        actor: ActorId,
        starts: u64,
    },
    /// From the runtime: resume the runs that an earlier process left unfinished in this session.
    Recover(SessionKey),
    /// From the runtime, or when a home is opened: delete a session.
    Delete {
        session: SessionId,
        reply: oneshot::Sender<Result<(), ErrorInfo>>,
    },
    /// From a run: a part that the session needs is permanently lost, so this process does not
    /// continue the session.
    Interrupt {
        session: SessionId,
        failure: ErrorInfo,
    },
    /// From a deletion: the session is marked as deleted and needs no actors.
    Deleted(SessionId),
    /// For fault-injection tests: makes the actor fail.
    Crash,
}
