//! Effects of a transition: work that the run's actor performs once the writes of the transition
//! are durable.

use std::sync::Arc;

use soong_protocol::{
    Collaborator, ErrorInfo, GoalId, Message, PermissionId, Run, RunId, Timestamp, ToolSpec,
    TraceId,
};

use crate::{
    hook::HookPoint,
    run::machine::{
        inline::InlineLimits,
        jobs::{JobKind, JobRequest},
    },
};

/// Work that the run's actor performs once the writes of its [`Step`](crate::run::machine::Step) are
/// durable.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Calls the model of the run.
    CallModel(ModelCall),
    Tool(ToolCallEffect),
    Child(ChildEffect),
    /// Notifies the hooks of `point` that the run starts. Does not wait for them.
    NotifyStartHooks {
        point: HookPoint,
        prompt: Option<String>,
    },
    /// Drops the cached copies of these documents, because a rewind replaced their content.
    InvalidateDocuments(Vec<String>),
    /// Starts a job. `turn`: that of the run.
    Job {
        turn: u32,
        request: JobRequest,
    },
    /// Lets a job continue after the end of the run.
    DetachJob(JobKind),
    /// Aborts all running tasks of the run.
    AbortTasks,
}

impl Effect {
    /// Returns whether a child needs its slot for this work (ACT-5).
    pub(crate) fn needs_slot(&self) -> bool {
        match self {
            Self::CallModel(_) | Self::Tool(ToolCallEffect::Run(_)) => true,
            Self::Job { request, .. } => request.calls_model(),
            _ => false,
        }
    }
}

/// Work for one tool call.
#[derive(Debug)]
pub(crate) enum ToolCallEffect {
    /// Runs a tool.
    Run(ToolCallRequest),
    /// Requests permission for a call.
    RequestPermission(PermissionId),
    /// Reads the settings of the last run of the sub-trace that the tool call `id` continues.
    ReadSettings { id: String, trace_id: TraceId },
    /// Stores the results of a call's child runs as an artifact, because they are too long for the
    /// conversation.
    StoreResults(OversizedResults),
    /// Confirms that another permission mode is recorded.
    ConfirmModeChange { ticket: u64 },
    /// Replies to the tool that asked a question.
    AnswerQuestion {
        ticket: u64,
        answer: Result<String, ErrorInfo>,
    },
}

/// A child that a program or tool requested.
#[derive(Debug)]
pub(crate) enum RequestedChild {
    New(Box<Run>),
    /// An interrupted attempt of the same tool call started it.
    Earlier {
        run_id: RunId,
        trace_id: TraceId,
    },
}

/// Work that concerns the child runs or the parent of the run.
#[derive(Debug)]
pub(crate) enum ChildEffect {
    /// Asks the supervisor of the session to admit these children.
    Start(Vec<Run>),
    /// Cancels these children.
    Cancel(Vec<RunId>),
    /// Replies to the program or tool that requested child runs.
    AnswerSpawn {
        ticket: u64,
        answer: Result<Vec<RequestedChild>, ErrorInfo>,
    },
    /// Reports the current status of the run to its parent.
    NotifyParent {
        parent: RunId,
        run_id: RunId,
        collaborator: Collaborator,
    },
}

/// A model call to make.
#[derive(Debug)]
pub(crate) struct ModelCall {
    pub(crate) turn: u32,
    pub(crate) system: Arc<str>,
    /// Goals and collaborators, if they are due.
    pub(crate) reminder: Option<String>,
    /// The rest of a budget, if it is small.
    pub(crate) budget_note: Option<String>,
    /// Section about the permission mode for the model.
    pub(crate) permission_note: Option<String>,
    /// Time of the call, if the model receives the date.
    pub(crate) dated: Option<Timestamp>,
    pub(crate) messages: Vec<Arc<Message>>,
    /// Number of prompt tokens, as counted by the runtime.
    pub(crate) tokens: u64,
    /// Index of the fallback that made the last call.
    pub(crate) fallback: Option<usize>,
    /// Whether the run has had calls of tools that the service has read.
    pub(crate) has_called_tools: bool,
    /// Whether the last answer did not match the schema, so that only its correction is requested.
    pub(crate) is_correction: bool,
}

/// A tool call to run. Its task checks the arguments.
#[derive(Debug)]
pub(crate) struct ToolCallRequest {
    pub(crate) id: String,
    /// Turn that contains the call.
    pub(crate) turn: u32,
    /// Sequence number of the message that contains the call.
    pub(crate) message_sequence: Option<u64>,
    pub(crate) spec: Arc<ToolSpec>,
    /// The arguments as the model wrote them.
    pub(crate) raw_arguments: String,
    /// Position of the call in its turn, from 0.
    pub(crate) index: usize,
    /// Limits of the output that the model reads in full.
    pub(crate) output_limits: InlineLimits,
    /// The permission that was granted for the call.
    pub(crate) permission_id: Option<PermissionId>,
    /// Whether the callbacks before the call were called already.
    pub(crate) has_passed_callbacks: bool,
    pub(crate) goal_id: Option<GoalId>,
}

/// Combined results of a tool call's child runs, if they are too long for the conversation.
#[derive(Debug)]
pub(crate) struct OversizedResults {
    pub(crate) id: String,
    pub(crate) message_sequence: Option<u64>,
    pub(crate) title: String,
    /// The full text.
    pub(crate) full_text: String,
    /// The text with shortened summaries, for the model.
    pub(crate) shortened_text: String,
}
