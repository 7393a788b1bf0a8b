//! The inputs of the run state machine.

use soong_model::Completion;
use soong_protocol::{
    AnswerCheck, ChildMode, ChildResult, Collaborator, ErrorCode, ErrorInfo, Event, FlushReport,
    ModelEvent, OpenModelCall, Permission, PermissionDecision, PermissionMode, QuestionId, RunId,
    RunSettings, Timestamp,
};
use soong_tool::ChildSpec;

use crate::{
    budget::LimitStatus,
    callback::Reports,
    run::machine::{auxiliary_call::Used, ending::Ending, jobs::JobOutcome},
};

/// An input of the state machine: one thing that happened to the run.
#[derive(Debug)]
pub(crate) enum RunInput {
    /// Starts the run; sent once, to a run without events of its own.
    Start,
    /// Continues the run after an earlier incarnation: owed effects are due again.
    Resume(ResumeReason),
    /// From a model call of a turn.
    Model(ModelInput),
    /// From a job.
    Job(JobOutcome),
    /// Reports the usage of a model call in progress.
    CallProgress(OpenModelCall),
    /// Concerns one tool call.
    Tool(ToolInput),
    /// Concerns the children of the run.
    Child(ChildInput),
    /// Changes the permission mode. `ticket`: the request that waits for an answer.
    PermissionMode {
        mode: PermissionMode,
        ticket: Option<u64>,
    },
    /// An event of a hook or callback is to be recorded.
    Report(Box<Event>),
    /// Ends the run, or reports that it makes no progress.
    End(EndInput),
}

/// An input from a model call of a turn.
#[derive(Debug)]
pub(crate) enum ModelInput {
    /// The model answered. `fallback`: index of the fallback that did, if it was one.
    /// `context_update`: what the request added to the conversation. `short_of`: the budget that
    /// made the answer shorter than it could have been. `answer_check`: whether an answer without
    /// tool calls matches the output schema, if there is one.
    Answered {
        completion: Box<Completion>,
        fallback: Option<usize>,
        context_update: Option<String>,
        duration_ms: u64,
        waited_ms: u64,
        short_of: Option<LimitStatus>,
        answer_check: Option<AnswerCheck>,
        /// How the calls are written, if they were found in the text.
        text_call_form: Option<&'static str>,
    },
    /// The model call failed for good or was aborted; `partial` is the text that had arrived,
    /// `used` what is charged.
    Failed {
        error: ErrorInfo,
        partial: String,
        used: Option<Used>,
        waited_ms: u64,
    },
    /// The gateway reports on the call.
    Note(ModelEvent),
}

/// An input that concerns one tool call.
#[derive(Debug)]
pub(crate) enum ToolInput {
    /// The call ended. `coercion_note`: note for the model about the shape of its arguments.
    Ended {
        id: String,
        result: Box<soong_tool::ToolResult>,
        reports: Reports,
        duration_ms: u64,
        coercion_note: Option<String>,
    },
    /// Hooks allow a call that the run answers itself.
    HooksPassed { id: String },
    /// Callbacks have changed the arguments of a call.
    Changed { id: String, reports: Reports },
    /// The settings of the sub-trace that the call continues were read.
    SettingsRead {
        id: String,
        settings: Result<Box<RunSettings>, ErrorInfo>,
    },
    /// The call requires permission.
    PermissionRequired(Box<Permission>),
    /// A decision about the call is recorded.
    PermissionDecided(Box<PermissionDecision>),
    /// The answer to a question is recorded.
    QuestionAnswered { id: QuestionId, answer: String },
    /// A tool asks a person.
    Ask {
        request: QuestionRequest,
        ticket: u64,
    },
}

/// An input that concerns the children of the run.
#[derive(Debug)]
pub(crate) enum ChildInput {
    /// A child ended; its result is recorded.
    Ended(Box<ChildResult>),
    /// The activity of a child changed, or the child waits; that is recorded.
    Changed {
        run_id: RunId,
        collaborator: Box<Collaborator>,
    },
    /// A program or tool requests children.
    Spawn { request: SpawnRequest, ticket: u64 },
    /// A tool or callback adds or replaces a collaborator that is no sub-agent.
    Named(Box<Collaborator>),
}

/// An input that ends the run, or reports that it makes no progress.
#[derive(Debug)]
pub(crate) enum EndInput {
    /// The run has made no progress for longer than it should.
    Stuck { since: Timestamp },
    /// No program drives the run: it has no handle and makes no progress.
    Undriven,
    /// A callback fails the run.
    CallbackFailed { error: ErrorInfo, reports: Reports },
    /// The program that drives the run has finished it.
    Finish { summary: String },
    /// A caller cancels the run.
    Cancel,
    /// The cancellation takes longer than its limit.
    CancelTimeout { after_ms: u64 },
    /// The run took longer than its timeout, or than its budget of time.
    TimedOut { limit_ms: u64, is_budget: bool },
    /// End the run now: nothing is in flight, and its edits are stored as far as possible.
    Abandon {
        ending: Ending,
        flushed: FlushReport,
    },
}

impl RunInput {
    /// Returns whether the input reports work that was aborted by a cancellation.
    pub(in crate::run) fn is_cancellation(&self) -> bool {
        match self {
            Self::Job(outcome) => outcome.is_cancelled(),
            Self::Model(ModelInput::Failed { error, .. }) => error.code == ErrorCode::Cancelled,
            Self::Tool(ToolInput::Ended { result, .. }) => result
                .as_ref()
                .as_ref()
                .is_err_and(|error| error.code == ErrorCode::Cancelled),
            _ => false,
        }
    }
}

/// Why the actor of a run is restarted.
#[derive(Debug, Clone)]
pub(crate) enum ResumeReason {
    /// The actor, or one above it, crashed. `count`: number of crashes within the window. No event
    /// is recorded if `error` is empty.
    Crashed { count: u32, error: String },
    /// The process that executed the run has ended (DUR-3).
    ProcessRestart,
    /// The actor was passivated while the run waited, and is needed again (ACT-7). No event is
    /// recorded.
    Reactivated,
}

/// A request of a program or tool to start children.
#[derive(Debug, Clone)]
pub(crate) struct SpawnRequest {
    pub(crate) orders: Vec<ChildRequest>,
    /// Whether the run is known to be queued: its children start with it.
    pub(crate) is_queued: bool,
    /// The tool call that requests them; `None` if a program or a callback does.
    pub(crate) call: Option<String>,
}

/// A question of a tool to a person.
#[derive(Debug)]
pub(crate) struct QuestionRequest {
    pub(crate) call: String,
    pub(crate) question: String,
    /// Name of the person; `None`: the user of the run.
    pub(crate) to: Option<String>,
}

/// A request to start a child.
#[derive(Debug, Clone)]
pub(crate) struct ChildRequest {
    pub(crate) spec: ChildSpec,
    /// Settings of the last run of the sub-trace that the child continues.
    pub(crate) previous_settings: Option<Box<RunSettings>>,
    /// Position among the children of the same request, from 1.
    pub(crate) index: usize,
}

impl ChildRequest {
    /// Returns the mode of the child. A child that continues an explorer's trace runs alone, as a
    /// delegate.
    pub(in crate::run) fn mode(&self) -> ChildMode {
        match self.spec.mode {
            ChildMode::Explore if self.spec.continue_from.is_some() => ChildMode::Delegate,
            mode => mode,
        }
    }
}
