//! The effects of a decision: work for the run's actor, once the writes are durable.

use std::sync::Arc;

use serde_json::Value;
use soong_protocol::{Collaborator, ErrorInfo, GoalId, Message, PermissionId, Run, RunId, ToolSpec, TraceId, Write};

use crate::{hook::HookPoint, memory::Changes};

/// Work for the run's actor, once the writes are durable.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Call the model.
    CallModel(ModelCall),
    /// Look for what earlier runs have learned.
    Recall,
    /// Write down what was learned.
    Learn(Box<Changes>),
    /// Have the older part of the conversation summed up.
    SumUp(SummaryCall),
    /// Run a tool.
    RunTool(ToolJob),
    /// Have it decided whether a call may run.
    AskLeave(PermissionId),
    /// Tell hooks that the run begins.
    TellHooks { point: HookPoint, prompt: Option<String> },
    /// Ask hooks whether the run may end with this answer.
    AskToStop(String),
    /// Store the results of a call's children, which are too long to be read whole.
    StoreResults(LongResults),
    /// Store the answer, which is too long for a result.
    StoreAnswer(String),
    /// Tell the run's parent what it does now.
    TellParent { parent: RunId, collaborator: Collaborator },
    /// Read the settings of the last run of a sub-trace, for the call that continues it.
    ReadSettings { id: String, trace_id: TraceId },
    /// Let the session's supervisor admit these children.
    StartChildren(Vec<Run>),
    /// Cancel these children.
    CancelChildren(Vec<RunId>),
    /// Cut off what is in flight.
    Abort,
    /// Store what the run edited as versions.
    Flush,
    /// Forget what is at hand of these documents: they have moved.
    DocumentsMoved(Vec<String>),
    /// Answer the program that asked for a child.
    AnswerSpawn { ticket: u64, answer: Result<Vec<Run>, ErrorInfo> },
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
