//! The mailboxes of sessions and of their supervisor.

use ractor::ActorId;
use soong_protocol::{ErrorInfo, Run, RunId, SessionId};
use soong_storage::store::StoreError;
use tokio::sync::oneshot;

use super::{Lost, StartRequest};
use crate::run::Used;

/// Mailbox of a session.
pub(crate) enum SessionMsg {
    /// From the supervisor: a user run wants in.
    Start(Box<StartRequest>),
    /// From the first run of a new session: whether it, and with it the session, came to be.
    Born(bool),
    /// From the writer: whether a run's row is durable.
    Recorded { run_id: RunId, outcome: Result<u64, StoreError> },
    /// From a deletion: whether nothing waits or is at work here; answered once that is known.
    IsFree(oneshot::Sender<bool>),
    /// From a run: it has ended, or never began.
    RunEnded(RunId),
    /// From a handle: a queued run is to be cancelled.
    Cancel(RunId),
    /// From its own loading task: whether the store knows the session, and its runs that have not ended.
    Restored { known: bool, runs: Vec<Run>, used: Used },
    /// From the same: the store cannot tell, and never will.
    Unreadable(ErrorInfo),
    /// From its own timer: still idle?
    Idle { generation: u64 },
    /// For drills, and when only the store can tell how things stand: die here, and start over.
    Crash,
}

/// Mailbox of the session supervisor.
pub(crate) enum SessionSupervisorMsg {
    /// From the runtime: a user run wants in.
    Start(Box<StartRequest>),
    /// From a session's actor: nothing to do for a while; so many starts have been taken.
    Idle { session: SessionId, actor: ActorId, starts: u64 },
    /// From the runtime: runs that another process left behind in this session go on.
    Recover(Lost),
    /// From the runtime, or at the opening of a home: a session is to be deleted.
    Delete { session: SessionId, reply: oneshot::Sender<Result<(), ErrorInfo>> },
    /// From a run: a part that the session needs is lost for good, so that this process does not continue it.
    Interrupt { session: SessionId, failure: ErrorInfo },
    /// From a deletion: the session is there for nobody any more, and needs no actors.
    Leaves(SessionId),
    /// For drills: die here.
    Crash,
}
