//! The effects of a decision: work for the run's actor, once the writes are durable.

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
    Abort,
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
    Run(ToolJob),
    /// Requests permission for a call.
    RequestPermission(PermissionId),
    /// Reads the settings of the last run of a sub-trace, for the call that continues it.
    ReadSettings { id: String, trace_id: TraceId },
    /// Stores the results of a call's children, which are too long to be passed on in full.
    StoreResults(LongResults),
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

/// A model call to be made.
#[derive(Debug)]
pub(crate) struct ModelCall {
    pub(crate) turn: u32,
    pub(crate) system: Arc<str>,
    /// Shown behind the system prompt, this turn only.
    pub(crate) reminder: Option<String>,
    pub(crate) messages: Vec<Arc<Message>>,
    /// Of all of it, by our count.
    pub(crate) tokens: u64,
}

/// A summary that is to be made.
#[derive(Debug, Clone)]
pub(crate) struct SummaryCall {
    pub(crate) system: String,
    pub(crate) user: String,
}

/// A tool call for the shell to run.
#[derive(Debug)]
pub(crate) struct ToolJob {
    pub(crate) id: String,
    /// The turn, and the message that asks for the call.
    pub(crate) turn: u32,
    pub(crate) asked_in: Option<u64>,
    pub(crate) spec: Arc<ToolSpec>,
    pub(crate) arguments: Value,
    /// The same as the model wrote them.
    pub(crate) raw: String,
    /// Which call of the turn it is, from 0.
    pub(crate) place: usize,
    /// The leave that was given for it.
    pub(crate) leave: Option<PermissionId>,
    pub(crate) goal_id: Option<GoalId>,
}

/// The results of the children of a call, if they are too long to be read whole.
#[derive(Debug)]
pub(crate) struct LongResults {
    pub(crate) id: String,
    pub(crate) asked_in: Option<u64>,
    pub(crate) title: String,
    /// All of it.
    pub(crate) whole: String,
    /// The same with shorter summaries: what the model reads.
    pub(crate) short: String,
}

/// The outcome of a decision.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) writes: Vec<Write>,
    pub(crate) effects: Vec<Effect>,
}
