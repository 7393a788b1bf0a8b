//! The inputs of the state machine: things that happened to a run.

use soong_protocol::{
    ArtifactRef, ChildMode, ChildResult, Collaborator, ErrorCode, ErrorInfo, Event, ExperienceId, Flushed, ModelEvent,
    Permission, PermissionDecision, QuestionId, RunSettings, Tags, Timestamp, Usage,
};

use crate::{
    budget::Mark,
    hook::Heard,
    memory::Changes,
    model::Completion,
    run::machine::{child_spec::ChildSpec, ending::Ending},
};

/// What a run is told.
#[derive(Debug)]
pub(crate) enum News {
    /// Begin; comes once, to a run without events of its own.
    Begin,
    /// Go on after an incarnation that is gone: owed effects are due again.
    Resume(Again),
    /// The model answered. `short_of` = the answer was shorter than it could have been, for that budget.
    Answered { completion: Box<Completion>, duration_ms: u64, waited_ms: u64, short_of: Option<Mark> },
    /// The model call failed for good or was cut off; `partial` is what had streamed.
    ModelFailed { error: ErrorInfo, partial: String, was_sent: bool, waited_ms: u64 },
    /// What earlier runs have learned, as far as it was found.
    Recalled(Box<Recalled>),
    /// What was learned is written down, or could not be: the id of each that is new, and whether it was added.
    Learned { changes: Box<Changes>, outcome: Result<Vec<(ExperienceId, bool)>, ErrorInfo> },
    /// There is a summary of the older part of the conversation.
    SummedUp(Box<Completion>),
    /// There is none.
    NoSummary { error: ErrorInfo, was_sent: bool },
    /// The gateway has something to say about the call.
    ModelNote(ModelEvent),
    /// A tool call ended.
    ToolEnded { id: String, result: Box<crate::tool::ToolResult>, duration_ms: u64 },
    /// A child ended; its result is recorded.
    ChildEnded(Box<ChildResult>),
    /// A child does something else, or waits; that is recorded.
    CollaboratorChanged(Box<Collaborator>),
    /// A program wants children.
    Spawn { orders: Vec<ChildOrder>, ticket: u64 },
    /// Somebody has answered a question; that is recorded.
    QuestionAnswered { id: QuestionId, answer: String },
    /// Hooks have something to say of what is recorded.
    HookNote(Event),
    /// Hooks have nothing against a call that the run answers itself.
    HooksPassed { id: String },
    /// The settings of the sub-trace that a call continues were read.
    SettingsRead { id: String, settings: Result<Box<RunSettings>, ErrorInfo> },
    /// What hooks say about the end of the run.
    StopHeard(Heard),
    /// A call needs leave.
    LeaveNeeded(Box<Permission>),
    /// Somebody has decided whether a call may run; that is recorded.
    PermissionDecided(Box<PermissionDecision>),
    /// Nothing has come of the run for too long.
    Stuck { since: Timestamp },
    /// No program drives the run: it has no handle and makes no progress.
    Undriven,
    /// Its answer is stored as an artifact, or could not be.
    AnswerStored(Result<ArtifactRef, ErrorInfo>),
    /// The program is done with a run that it drives.
    Finish { summary: String },
    /// Somebody wants the end of the run.
    Cancel,
    /// Cancelling takes longer than it may.
    CancelTimeout { after_ms: u64 },
    /// The run took longer than it may, or than its budget allows.
    TimedOut { limit_ms: u64, is_budget: bool },
    /// What the run edited is stored as versions, or could not be.
    Flushed(Flushed),
    /// End it now; nothing is in flight any more, and what it edited is stored as far as it can be.
    Abandon { ending: Ending, flushed: Flushed },
}

impl News {
    pub(in crate::run) fn says_cancelled(&self) -> bool {
        match self {
            Self::Recalled(recalled) => recalled.says_cancelled(),
            Self::ModelFailed { error, .. } | Self::NoSummary { error, .. } => error.code == ErrorCode::Cancelled,
            Self::ToolEnded { result, .. } => result.as_ref().as_ref().is_err_and(|e| e.code == ErrorCode::Cancelled),
            _ => false,
        }
    }
}

/// Why a run's actor starts anew.
#[derive(Debug, Clone)]
pub(crate) enum Again {
    /// The actor, or one above it, crashed: how often within the window, and of what. Nothing is told of a crash
    /// without an error.
    Crashed { count: u32, error: String },
    /// The process that had the run at work is gone (DUR-3).
    Reopened,
    /// The actor left while the run waited, and is needed again (ACT-7): nothing is told of that.
    Activated,
}

/// A child to be started.
#[derive(Debug, Clone)]
pub(crate) struct ChildOrder {
    pub(crate) spec: ChildSpec,
    /// Settings of the last run of the sub-trace that it continues.
    pub(crate) before: Option<Box<RunSettings>>,
    /// Place among those that are asked for together, from 1.
    pub(crate) index: usize,
}

impl ChildOrder {
    /// Returns why the child is started; one that continues a trace is no explorer, since it is alone.
    pub(in crate::run) fn mode(&self) -> ChildMode {
        match self.spec.mode {
            ChildMode::Explore if self.spec.continue_from.is_some() => ChildMode::Delegate,
            mode => mode,
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Recalled {
    pub(in crate::run) tags: Tags,
    pub(in crate::run) ids: Vec<ExperienceId>,
    /// What the first message is given along.
    pub(in crate::run) told: Option<String>,
    pub(in crate::run) model_calls: u64,
    pub(in crate::run) usage: Option<Usage>,
    /// Whether a call is on its way of which nothing came back, and what it was asked with.
    pub(in crate::run) was_sent: bool,
    pub(in crate::run) asked_tokens: u64,
    /// Why nothing was found out.
    pub(in crate::run) error: Option<ErrorInfo>,
}

impl Recalled {
    pub(in crate::run) fn says_cancelled(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.code == ErrorCode::Cancelled)
    }

    /// Adds what a call used that was answered.
    pub(in crate::run) fn book(&mut self, completion: &Completion) {
        self.model_calls += 1;
        let answer = || Usage {
            prompt_tokens: self.asked_tokens,
            completion_tokens: crate::context::count_estimate(&completion.text),
            estimated: true,
            ..Usage::default()
        };
        let used = completion.usage.unwrap_or_else(answer);
        self.add(used);
        self.asked_tokens = 0;
    }

    pub(in crate::run) fn add(&mut self, used: Usage) {
        let sum = self.usage.get_or_insert_default();
        sum.prompt_tokens += used.prompt_tokens;
        sum.completion_tokens += used.completion_tokens;
        sum.cached_tokens += used.cached_tokens;
        sum.reasoning_tokens += used.reasoning_tokens;
        sum.estimated |= used.estimated;
    }
}
