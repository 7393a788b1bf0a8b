//! The mailboxes of a run actor, and of the two supervisors that keep run actors.

use soong_protocol::{ChildResult, ErrorInfo, Run, RunId, Write};
use soong_storage::store::{Ack, Append, StoreError};
use tokio::sync::oneshot;

use crate::{
    budget::Reservation,
    run::machine::{
        input::{Again, ChildOrder, News},
        replay::Stored,
    },
};

/// Mailbox of a run actor.
pub(crate) enum RunMsg {
    /// From effects, children, the caller: something happened.
    News(Box<News>),
    /// From a task that called the model: its outcome, and the budget reservation to settle once that is recorded.
    Called { news: Box<News>, held: Option<Reservation> },
    /// From a program: wants children.
    Spawn { orders: Vec<ChildOrder>, reply: SpawnReply },
    /// From the writer: what became of the append.
    Appended(Box<Result<Ack, (StoreError, Append)>>),
    /// From its own loading task: what is stored, and the epoch.
    Loaded(Box<Loaded>),
    /// From the same: what is stored cannot be read, and never will be.
    Unreadable(Box<ErrorInfo>),
    /// From its own timer: try the refused append again.
    TryAgain,
    /// From the sub-agent supervisor: there is a slot again.
    SlotGranted,
    /// From the runtime: the run has waited for long; leave, if nothing speaks against it.
    Passivate,
    /// From itself: all messages sent before it began to passivate are handled. The number identifies the attempt.
    Leave(u32),
    /// For fault-injection tests: makes the actor fail.
    Crash,
}

/// Takes the rows of the children that a program asked for. It is called before any of them can end.
pub(crate) struct SpawnReply(Box<dyn FnOnce(Result<Vec<Run>, ErrorInfo>) + Send>);

impl SpawnReply {
    pub(crate) fn new(reply: impl FnOnce(Result<Vec<Run>, ErrorInfo>) + Send + 'static) -> Self {
        Self(Box::new(reply))
    }

    pub(crate) fn send(self, answer: Result<Vec<Run>, ErrorInfo>) {
        (self.0)(answer);
    }
}

/// What a loading task found.
pub(crate) struct Loaded {
    pub(crate) epoch: u64,
    pub(crate) stored: Stored,
    /// Rows of its children that have not ended.
    pub(crate) children: Vec<Run>,
}

/// How a run's actor begins.
pub(crate) enum Start {
    /// With nothing stored, or only its rows: `rows` go into its first append.
    Fresh {
        rows: Vec<Write>,
        /// Told when the first append is durable, or why it is not; then there is no run.
        accepted: Option<oneshot::Sender<Result<(), ErrorInfo>>>,
    },
    /// From what is stored.
    Load {
        /// Why it starts anew; `None` = it has not begun.
        restarted: Option<Again>,
    },
}

/// From a supervisor to itself: the actor of a run could not be started, and the supervisor still lives.
pub(crate) struct StartFailed {
    pub(crate) run_id: RunId,
    pub(crate) error: ErrorInfo,
}

impl From<StartFailed> for RunSupervisorMsg {
    fn from(failed: StartFailed) -> Self {
        Self::StartFailed(failed)
    }
}

impl From<StartFailed> for SubAgentMsg {
    fn from(failed: StartFailed) -> Self {
        Self::StartFailed(failed)
    }
}

/// Mailbox of a run supervisor.
pub(crate) enum RunSupervisorMsg {
    /// From the session: this run's turn has come.
    Start {
        run: Box<Run>,
        start: Start,
    },
    /// From the registry: a message has arrived for a passivated run; start its actor (ACT-7).
    Activate(RunId),
    StartFailed(StartFailed),
    /// For fault-injection tests: makes the actor fail.
    Crash,
}

/// Mailbox of a sub-agent supervisor.
pub(crate) enum SubAgentMsg {
    /// From a run: these children are recorded; start them when there is room.
    Admit(Vec<Run>),
    /// From the session or the parent, after a crash or in a new process: these children have not ended.
    Restore {
        runs: Vec<Run>,
        again: Again,
    },
    /// From a child: it has ended, and that is recorded.
    Ended {
        run_id: RunId,
        parent: Option<RunId>,
        result: Option<Box<ChildResult>>,
    },
    /// From a handle or a parent: a child that has not begun is to be cancelled.
    Cancel(RunId),
    /// From a child: it waits only for children of its own, and releases its slot.
    Yield(RunId),
    /// From a child: it requests a slot, to continue.
    Reclaim(RunId),
    /// From the registry: a message has arrived for a passivated child; start its actor (ACT-7).
    Activate(RunId),
    StartFailed(StartFailed),
    /// For fault-injection tests: makes the actor fail.
    Crash,
}
