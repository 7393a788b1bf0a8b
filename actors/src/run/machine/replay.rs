//! Rebuilds the state of a run from its stored rows, after a crash or in another process (ACT-3).
//!
//! Pure; part of the run state machine.
//!
//! Invariant: the same events lead to the same state, live and on rebuild, because both use
//! [`RunState::apply`].
//!
//! Elsewhere: reading the rows (`tasks/load.rs`), resuming the run (`machine/lifecycle/resume.rs`).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use soong_protocol::{
    ChildResult, Collaborator, ErrorInfo, Event, GoalTree, Message, MessageEvent, OpenModelCall,
    PermissionDecision, QuestionId, RunId, Stats, SubAgentEvent, Timestamp, TraceId,
};
use soong_tool::ToolOutput;

use crate::run::machine::{
    RunState,
    rewind::RewindPlan,
    spec::RunSpec,
    state::{phase::Phase, repetition::Repetition},
    tool_calls::resumption::RecordedOutcomes,
};

/// The stored rows from which a run is rebuilt.
#[derive(Default)]
pub(crate) struct StoredRun {
    pub(crate) messages: Vec<Message>,
    pub(crate) last_sequence: u64,
    pub(crate) goals: Option<GoalTree>,
    pub(crate) collaborators: Vec<Collaborator>,
    /// Events of this run in order, with their timestamps.
    pub(crate) events: Vec<(Timestamp, Event)>,
    /// Model calls that have no outcome yet.
    pub(crate) open_model_calls: Vec<OpenModelCall>,
    pub(crate) results: Vec<ChildResult>,
    /// Sub-traces of the trace, including those of this run's children.
    pub(crate) sub_traces: Vec<TraceId>,
    pub(crate) started_at: Option<Timestamp>,
    /// Active time of the run, in milliseconds; 0 if it is not stored.
    pub(crate) used_ms: u64,
    /// Outcomes of calls of the last turn that were recorded with their effects.
    pub(crate) recorded_outcomes: HashMap<String, ToolOutput>,
    /// How the conversation is rewound before the run starts; `Err` if it cannot be rewound.
    pub(crate) rewind: Option<Result<Box<RewindPlan>, ErrorInfo>>,
    /// Whether documents edited by this run or an earlier one must be stored as versions.
    pub(crate) has_unflushed_documents: bool,
    /// Results of the sub-agents of calls at the end of the conversation that have no tool message,
    /// by tool call id.
    pub(crate) missing_child_results: HashMap<String, Vec<ChildResult>>,
    /// Answers to the run's questions, in the order they were given.
    pub(crate) answers: Vec<(QuestionId, String)>,
    /// Decisions about the run's calls, in the order they were made.
    pub(crate) decisions: Vec<PermissionDecision>,
}

impl RunState {
    /// Creates the state of a run of which only the row is readable, so that the run can be ended.
    pub(crate) fn without_history(
        spec: Arc<RunSpec>,
        started_at: Option<Timestamp>,
        usage: Stats,
    ) -> Self {
        let mut state = Self::rebuild(
            spec,
            StoredRun {
                started_at,
                ..StoredRun::default()
            },
        );
        state.usage.own = usage;
        state.clock.used_ms = usage.duration_ms;
        state
    }

    /// Rebuilds the state from the stored rows.
    ///
    /// Messages of earlier runs on the trace are added first. Then the events of the run are
    /// applied in order.
    pub(crate) fn rebuild(spec: Arc<RunSpec>, stored: StoredRun) -> Self {
        let mut state = Self::new(spec);
        let own: HashSet<u64> = added_sequences(&stored.events).collect();
        state.start.has_spoken = !own.is_empty();
        let mut own_messages = HashMap::new();
        for message in stored.messages {
            let message = Arc::new(message);
            if own.contains(&message.sequence) {
                own_messages.insert(message.sequence, message);
            } else {
                state.apply_message(&message);
            }
        }
        // From earlier runs, only the conversation is kept, not their usage and answer.
        state.phase = Phase::New;
        state.usage.own = Stats::zero();
        state.repetition = Repetition::default();
        state.answer.text.clear();
        state.turn.kept_partial = false;
        for collaborator in stored.collaborators {
            state.set_collaborator(collaborator);
        }
        let mut results: HashMap<RunId, ChildResult> = stored
            .results
            .into_iter()
            .map(|result| (result.run_id.clone(), result))
            .collect();
        for (at, event) in &stored.events {
            match event {
                Event::Message(MessageEvent::Added { .. }) => {
                    if let Some(message) =
                        added_sequence(event).and_then(|sequence| own_messages.get(&sequence))
                    {
                        state.apply_message(message);
                    }
                }
                Event::SubAgent(SubAgentEvent::Completed { run_id, .. }) => {
                    if let Some(result) = results.remove(run_id) {
                        state.child_ended(result);
                    }
                }
                event => state.apply(event, *at),
            }
        }
        if let Some(goals) = stored.goals {
            state.goals = goals;
        }
        let own_children: HashSet<&TraceId> = state
            .sub_agents
            .children
            .iter()
            .map(|child| &child.trace_id)
            .collect();
        state.sub_agents.earlier = stored
            .sub_traces
            .into_iter()
            .filter(|id| !own_children.contains(id))
            .collect();
        state.conversation.last_sequence =
            state.conversation.last_sequence.max(stored.last_sequence);
        state.clock.started_at = stored.started_at;
        if !state.is_ended() {
            state.clock.used_ms = if stored.used_ms > 0 {
                stored.used_ms
            } else {
                state.used_ms_by_events()
            };
        }
        state.open_model_calls.restore(stored.open_model_calls);
        state.recorded_outcomes = RecordedOutcomes::new(stored.recorded_outcomes);
        state.start.rewind = stored.rewind;
        state.sub_agents.missing_results = stored.missing_child_results;
        state.waiting.answered = stored.answers;
        state.waiting.decided = stored.decisions;
        if stored.has_unflushed_documents {
            state.documents_may_exist();
        }
        state
    }
}

/// Returns the sequences of the messages that the events announce.
pub(crate) fn added_sequences(events: &[(Timestamp, Event)]) -> impl Iterator<Item = u64> {
    events.iter().filter_map(|(_, event)| added_sequence(event))
}

fn added_sequence(event: &Event) -> Option<u64> {
    match event {
        Event::Message(MessageEvent::Added { sequence, .. }) => Some(*sequence),
        _ => None,
    }
}
