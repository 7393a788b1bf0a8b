//! The effects of a transition: work for the run's actor once the writes are durable.

use std::sync::Arc;

use serde_json::Value;
use soong_protocol::{Collaborator, ErrorInfo, GoalId, Message, PermissionId, Run, RunId, ToolSpec, TraceId, Write};

use crate::{hook::HookPoint, memory::Changes};

/// Work for the actor of the run, performed once the writes of the step are durable.
#[derive(Debug)]
pub(crate) enum Effect {
    Model(ModelEffect),
    Memory(MemoryEffect),
    Tool(ToolEffect),
    Child(ChildEffect),
    Hook(HookEffect),
    Store(StoreEffect),
    /// Aborts all work of the run that is in flight.
    AbortTasks,
}

/// A request to a model.
#[derive(Debug)]
pub(crate) enum ModelEffect {
    /// Calls the model of the run.
    Call(ModelCall),
    /// Requests a summary of the older part of the conversation.
    Summarize(SummaryCall),
}

/// A request to the memory of earlier runs.
#[derive(Debug)]
pub(crate) enum MemoryEffect {
    /// Searches the experiences of earlier runs.
    Recall,
    /// Stores new experiences.
    Learn(Box<Changes>),
}

/// Work for one tool call.
#[derive(Debug)]
pub(crate) enum ToolEffect {
    /// Runs a tool.
    Run(ToolCallTask),
    /// Requests permission for a call.
    RequestPermission(PermissionId),
    /// Reads the settings of the last run of a sub-trace, for the call that continues it.
    ReadSettings { id: String, trace_id: TraceId },
    /// Stores the results of a call's children, which are too long to be passed on in full.
    StoreResults(OversizedResults),
}

/// Work that concerns the children or the parent of the run.
#[derive(Debug)]
pub(crate) enum ChildEffect {
    /// Asks the supervisor of the session to admit these children.
    Start(Vec<Run>),
    /// Cancels these children.
    Cancel(Vec<RunId>),
    /// Answers the program that requested children.
    AnswerSpawn { ticket: u64, answer: Result<Vec<Run>, ErrorInfo> },
    /// Reports to the parent what the run does now.
    NotifyParent { parent: RunId, collaborator: Collaborator },
}

/// A call of hooks.
#[derive(Debug)]
pub(crate) enum HookEffect {
    /// Notifies hooks that the run starts.
    NotifyStart { point: HookPoint, prompt: Option<String> },
    /// Asks stop hooks whether the run may end with this answer.
    AskToStop(String),
}

/// Work for the artifact store.
#[derive(Debug)]
pub(crate) enum StoreEffect {
    /// Stores the answer, which is too long for a result.
    Answer(String),
    /// Stores the edits of the run as versions.
    Flush,
    /// Drops cached copies of these documents: their content was replaced.
    Invalidate(Vec<String>),
}

/// A model call to make.
#[derive(Debug)]
pub(crate) struct ModelCall {
    pub(crate) turn: u32,
    pub(crate) system: Arc<str>,
    /// Added after the system prompt, in this turn only.
    pub(crate) reminder: Option<String>,
    pub(crate) messages: Vec<Arc<Message>>,
    /// Number of prompt tokens, as counted by the runtime.
    pub(crate) tokens: u64,
}

/// A summary to request.
#[derive(Debug, Clone)]
pub(crate) struct SummaryCall {
    pub(crate) system: String,
    pub(crate) user: String,
}

/// A tool call to run.
#[derive(Debug)]
pub(crate) struct ToolCallTask {
    pub(crate) id: String,
    /// The turn and the sequence of the message that contain the call.
    pub(crate) turn: u32,
    pub(crate) message_sequence: Option<u64>,
    pub(crate) spec: Arc<ToolSpec>,
    pub(crate) arguments: Value,
    /// The arguments as the model wrote them.
    pub(crate) raw_arguments: String,
    /// Position of the call in its turn, from 0.
    pub(crate) index: usize,
    /// The permission that was granted for the call.
    pub(crate) permission_id: Option<PermissionId>,
    pub(crate) goal_id: Option<GoalId>,
}

/// The results of a call's children that are too long for the conversation.
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

/// The result of a transition.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) writes: Vec<Write>,
    pub(crate) effects: Vec<Effect>,
}
