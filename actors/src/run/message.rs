//! The mailboxes of run actors and of the two supervisors of run actors.

use soong_protocol::{ChildResult, ErrorInfo, PermissionMode, Run, RunId, Write};
use soong_storage::store::{Ack, Append, StoreError};
use tokio::sync::oneshot;

use crate::{
    budget::Reservation,
    run::machine::{
        effect::RequestedChild,
        input::{QuestionRequest, ResumeReason, RunInput, SpawnRequest},
        replay::StoredRun,
    },
};

/// Mailbox of a run actor.
pub(crate) enum RunMsg {
    /// From effects, children or the caller: an input of the state machine.
    Input(Box<RunInput>),
    /// From a task that called the model: its outcome, and the budget reservation to settle once
    /// that is recorded.
    ModelCallEnded {
        input: Box<RunInput>,
        reservation: Option<Reservation>,
    },
    /// From a program or tool: requests children.
    Spawn {
        request: SpawnRequest,
        reply: SpawnReply,
    },
    /// From a tool: asks a person.
    Ask {
        request: QuestionRequest,
        reply: oneshot::Sender<Result<String, ErrorInfo>>,
    },
    /// From the runtime: changes the permission mode.
    SetPermissionMode {
        mode: PermissionMode,
        reply: oneshot::Sender<()>,
    },
    /// From the writer: the outcome of an append.
    Appended(Box<Result<Ack, (StoreError, Append)>>),
    /// From its own loading task: the stored state, and the epoch.
    Loaded(Box<LoadedRun>),
    /// From its own loading task: the stored state cannot be read, and no retry can fix that.
    LoadFailed(Box<ErrorInfo>),
    /// From its own timer: retry the refused append.
    RetryAppend,
    /// From the sub-agent supervisor: the run has a slot again.
    SlotGranted,
    /// From the runtime: the run has waited for a long time; passivate the actor if possible.
    Passivate,
    /// From itself: all messages sent before the passivation began have been handled. The number
    /// identifies the attempt.
    FinishPassivation(u32),
    /// For fault-injection tests: makes the actor fail.
    Crash,
}

/// Receives the children that a program or tool requested. It is called before any of them can end.
pub(crate) struct SpawnReply(Box<dyn FnOnce(Result<Vec<RequestedChild>, ErrorInfo>) + Send>);

impl SpawnReply {
    pub(crate) fn new(
        reply: impl FnOnce(Result<Vec<RequestedChild>, ErrorInfo>) + Send + 'static,
    ) -> Self {
        Self(Box::new(reply))
    }

    pub(crate) fn send(self, answer: Result<Vec<RequestedChild>, ErrorInfo>) {
        (self.0)(answer);
    }
}

/// The result of a loading task.
pub(crate) struct LoadedRun {
    pub(crate) epoch: u64,
    pub(crate) stored: StoredRun,
    /// Rows of the run's children that have not ended.
    pub(crate) children: Vec<Run>,
}

/// How the actor of a run starts.
pub(crate) enum RunStart {
    /// Nothing is stored, or only the run's rows. `rows` are written with its first append.
    New {
        rows: Vec<Write>,
        /// Receives `Ok` once the first append is durable, or the reason why it is not. In the
        /// second case there is no run.
        accepted: Option<oneshot::Sender<Result<(), ErrorInfo>>>,
    },
    /// From the stored state.
    Load {
        /// Why the actor is restarted; `None` if the run has not started yet.
        restarted: Option<ResumeReason>,
    },
}

/// From a supervisor to itself: the actor of a run could not be started, and the supervisor is
/// still alive.
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
    /// From the session: it is this run's turn.
    Start {
        run: Box<Run>,
        start: RunStart,
    },
    /// From the registry: a message has arrived for a passivated run; start its actor (ACT-7).
    Activate(RunId),
    StartFailed(StartFailed),
    /// For fault-injection tests: makes the actor fail.
    Crash,
}

/// Mailbox of a sub-agent supervisor.
pub(crate) enum SubAgentMsg {
    /// From a run: these children are recorded; start them when slots are free.
    Admit(Vec<Run>),
    /// From the session or the parent, after a crash or in a new process: these children have not
    /// ended.
    Restore {
        runs: Vec<Run>,
        reason: ResumeReason,
    },
    /// From a child: it has ended, and that is recorded.
    Ended {
        run_id: RunId,
        parent: Option<RunId>,
        result: Option<Box<ChildResult>>,
    },
    /// From a handle or a parent: cancel a child that has not started.
    Cancel(RunId),
    /// From a child: it waits only for children of its own, and releases its slot.
    ReturnSlot(RunId),
    /// From a child: it requests a slot, to continue.
    RequestSlot(RunId),
    /// From the registry: a message has arrived for a passivated child; start its actor (ACT-7).
    Activate(RunId),
    StartFailed(StartFailed),
    /// For fault-injection tests: makes the actor fail.
    Crash,
}
