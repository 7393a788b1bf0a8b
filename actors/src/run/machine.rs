//! The state machine of a run: computes the consequences of one input, without I/O.
//!
//! Its types are here so that the modules below can access their private fields. Elsewhere: how an event changes the
//! state (`machine/state.rs`), which input has which consequences (`machine/transition.rs`).

pub(super) mod answer;
pub(super) mod auxiliary_call;
pub(super) mod budget;
mod callbacks;
#[cfg(any(test, feature = "testing"))]
pub(super) mod comparison;
pub(super) mod effect;
pub(super) mod ending;
pub(super) mod errors;
pub(super) mod hooks;
pub(super) mod inline;
pub(super) mod input;
pub(super) mod jobs;
pub(super) mod lifecycle;
pub(super) mod lost_calls;
pub(super) mod outcome;
pub(super) mod output_schema;
pub(super) mod permission_mode;
pub(super) mod reflection;
pub(super) mod replay;
pub(super) mod rewind;
pub(super) mod spec;
pub(super) mod state;
pub(super) mod sub_agents;
pub(super) mod system_prompt;
pub(super) mod tool_calls;
pub(super) mod tools;
pub(super) mod transition;
pub(super) mod turn;
pub(super) mod view;
pub(super) mod waiting;

use std::sync::Arc;

use soong_protocol::{ArtifactRef, GoalTree, RunId, Timestamp, Write};

use crate::{
    budget::BudgetAccount,
    run::machine::{
        answer::AnswerState,
        effect::Effect,
        jobs::JobStates,
        lost_calls::OpenModelCalls,
        reflection::ReflectionState,
        spec::RunSpec,
        state::{
            children::SubAgents,
            conversation::Conversation,
            phase::{EndState, Phase, StartState},
            repetition::Repetition,
            usage::{Times, Usage},
        },
        tool_calls::resumption::RecordedOutcomes,
        turn::TurnState,
        waiting::Waiting,
    },
};

/// The complete state of a run.
pub(crate) struct RunState {
    spec: Arc<RunSpec>,
    phase: Phase,
    start: StartState,
    end: EndState,
    conversation: Conversation,
    jobs: JobStates,
    turn: TurnState,
    goals: GoalTree,
    sub_agents: SubAgents,
    usage: Usage,
    open_model_calls: OpenModelCalls,
    clock: Times,
    waiting: Waiting,
    answer: AnswerState,
    /// Artifacts that tool calls of the run have produced.
    artifacts: Vec<ArtifactRef>,
    recorded_outcomes: RecordedOutcomes,
    /// State of a reflecting run, from the first message of its side branch on.
    reflection: Option<ReflectionState>,
    repetition: Repetition,
}

/// Time, ids and budget for one transition.
pub(crate) struct StepContext<'a> {
    pub(crate) now: Timestamp,
    /// Active time by the run's clock, in milliseconds; 0 if no actor of this process executed the
    /// run.
    pub(crate) used_ms: u64,
    pub(crate) new_run_id: &'a mut dyn FnMut() -> RunId,
    /// The budget that the run draws on. `None` if nothing limits it, or if another process executed
    /// the run.
    pub(crate) budget: Option<&'a BudgetAccount>,
}

/// A transition in progress: the state, and the step so far.
pub(crate) struct Transition<'a, 'n> {
    state: &'a mut RunState,
    context: &'a mut StepContext<'n>,
    step: Step,
}

/// Result of a transition: records to append, and effects to perform once they are durable.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) writes: Vec<Write>,
    pub(crate) effects: Vec<Effect>,
}

impl RunState {
    /// Creates the state of a run on an empty trace.
    pub(crate) fn new(spec: Arc<RunSpec>) -> Self {
        Self {
            phase: Phase::New,
            start: StartState::default(),
            end: EndState::default(),
            conversation: Conversation {
                window: spec.model.context_window,
                ..Conversation::default()
            },
            jobs: JobStates::default(),
            turn: TurnState::default(),
            goals: GoalTree::new(spec.task.clone()),
            sub_agents: SubAgents::default(),
            usage: Usage::default(),
            open_model_calls: OpenModelCalls::default(),
            clock: Times::default(),
            waiting: Waiting::new(spec.settings.permissions.mode.unwrap_or_default()),
            answer: AnswerState::default(),
            artifacts: Vec::new(),
            recorded_outcomes: RecordedOutcomes::default(),
            reflection: None,
            repetition: Repetition::default(),
            spec,
        }
    }
}
