//! What a run knows: rebuilt from its events, changed by nothing else.
//!
//! Pure: no clock, no I/O, no actor. [`RunState::apply`] is the one place where an event changes
//! the state, live and on rebuild alike; `decide.rs` says which events those are.
//! Invariants: R1 an ended phase is never left; R2 `turn` only grows; R3 sequences only grow;
//! R4 every tool call of an assistant message has one outcome before the next model call.
//! Not here: what is in flight in this incarnation beyond the `started` marks of open calls.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use soong_protocol::{
    ChildResult, Collaborator, Effect as ToolEffect, EndReason, ErrorCode, ErrorInfo, Event, GoalId, GoalTree, Message,
    MessageEvent, ModelEvent, Role, RunEvent, RunId, RunStatus, Stats, StatsPair, SubAgentEvent, Timestamp, ToolEvent,
    TraceId,
};

use super::{
    begin::WayBack,
    children::{Branches, Child},
    open_calls::OpenCalls,
    spec::RunSpec,
    stored::Stored,
    turn::Plan,
};
use crate::{context::Entry, tool::ToolOutput};

/// How many summaries that failed still count in the next turn.
const LASTING_FAILURES: u32 = 2;

/// Where the loop stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Phase {
    /// Nothing has happened yet.
    New,
    /// The program drives: there is no model; children come and go.
    Driven,
    /// A model call is owed.
    Thinking,
    /// A summary is owed, and then a model call.
    Compacting,
    /// Tool outcomes are owed.
    Acting { calls: Box<OpenCalls> },
    /// The model gave its final answer; only children may still be at work.
    Answered,
    /// No call is owed; only the ending is left.
    Halted,
    /// Over (R1).
    Ended(RunStatus),
}

/// Why the run is about to end; it ends when nothing below it is open.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ending {
    pub(crate) status: RunStatus,
    pub(crate) reason: EndReason,
    pub(crate) error: Option<ErrorInfo>,
}

/// All that a run knows.
pub(crate) struct RunState {
    pub(crate) spec: Arc<RunSpec>,
    pub(crate) phase: Phase,
    pub(crate) ending: Option<Ending>,
    /// Whether it had to wait for another run of its session.
    pub(crate) was_queued: bool,
    /// Whether its beginning is recorded, and whether a message of its own is.
    pub(crate) loop_started: bool,
    pub(crate) has_spoken: bool,
    pub(crate) turn: u32,
    /// The try of the last model call, from 1.
    pub(crate) attempt: u32,
    /// Tokens of its prompt, by our count.
    pub(crate) prompt_tokens: u64,
    pub(crate) last_sequence: u64,
    pub(crate) head: Option<u64>,
    /// The main path without the system message.
    pub(crate) transcript: Vec<Entry>,
    pub(crate) system: Option<Arc<str>>,
    pub(crate) system_sequence: Option<u64>,
    /// How many tokens the model takes: as configured, or less where it refused a prompt that should have fitted.
    pub(crate) window: u64,
    /// Whether the model was called in this turn and has not answered.
    pub(crate) turn_is_open: bool,
    /// How often this turn has summed up, and how often in vain.
    pub(crate) compactions: u32,
    pub(crate) failed_compactions: u32,
    /// How long the prompt was for which a summary was asked last, in tokens.
    pub(crate) compacting_at: u64,
    /// Below how many tokens no summary is tried, since one has failed.
    pub(crate) compact_above: u64,
    /// What the summary on its way will stand for; only the incarnation that asked for it knows.
    pub(crate) plan: Option<Plan>,
    pub(crate) goals: GoalTree,
    pub(crate) children: Vec<Child>,
    pub(crate) child_index: HashMap<RunId, usize>,
    pub(crate) open_children: usize,
    /// The children that serve each goal by calls of the model.
    pub(crate) branches: HashMap<GoalId, Branches>,
    /// Sub-traces that earlier runs of the trace started: numbers go on behind them.
    pub(crate) earlier_children: Vec<TraceId>,
    pub(crate) collaborators: Vec<Collaborator>,
    pub(crate) collaborator_index: HashMap<String, usize>,
    pub(crate) own: Stats,
    pub(crate) below: Stats,
    pub(crate) started_at: Option<Timestamp>,
    last_event_at: Option<Timestamp>,
    /// How long no process had it at work, in milliseconds.
    away_ms: u64,
    pub(crate) answer: String,
    /// Whether partial text of the current model call was kept.
    kept_partial: bool,
    /// Whether a tool that writes was begun: then there may be edits to be flushed at the end (ART-4).
    pub(crate) wrote: bool,
    pub(crate) flushed: bool,
    /// Whether this incarnation has asked for the flush.
    pub(crate) flushing: bool,
    /// Documents that were edited before a crash, with the version that the run has stored of them; 0 = none.
    pub(crate) documents: BTreeMap<String, u64>,
    /// Outcomes of open calls that are recorded with their effects, from before a crash (ART-5).
    pub(crate) recorded: HashMap<String, ToolOutput>,
    /// How it goes back before it begins; `Err` = it cannot.
    pub(crate) way_back: Option<Result<Box<WayBack>, ErrorInfo>>,
    /// What is known of sub-agents of an earlier run whose results are not in the conversation.
    pub(crate) asked: HashMap<String, Vec<ChildResult>>,
    pub(crate) artifacts: Vec<soong_protocol::ArtifactRef>,
}

impl RunState {
    /// Makes the state of a run on an empty trace.
    pub(crate) fn fresh(spec: Arc<RunSpec>) -> Self {
        Self {
            goals: GoalTree::new(spec.task.clone()),
            phase: Phase::New,
            ending: None,
            was_queued: false,
            turn: 0,
            attempt: 0,
            prompt_tokens: 0,
            last_sequence: 0,
            head: None,
            transcript: Vec::new(),
            system: None,
            system_sequence: None,
            window: spec.context_window,
            turn_is_open: false,
            compactions: 0,
            failed_compactions: 0,
            compacting_at: 0,
            loop_started: false,
            has_spoken: false,
            compact_above: 0,
            plan: None,
            children: Vec::new(),
            child_index: HashMap::new(),
            open_children: 0,
            branches: HashMap::new(),
            earlier_children: Vec::new(),
            collaborators: Vec::new(),
            collaborator_index: HashMap::new(),
            own: Stats::zero(),
            below: Stats::zero(),
            started_at: None,
            last_event_at: None,
            away_ms: 0,
            answer: String::new(),
            kept_partial: false,
            wrote: false,
            flushed: false,
            flushing: false,
            documents: BTreeMap::new(),
            recorded: HashMap::new(),
            way_back: None,
            asked: HashMap::new(),
            artifacts: Vec::new(),
            spec,
        }
    }

    /// Rebuilds the state from what is stored.
    ///
    /// Messages of earlier runs on the trace come first; then the run's events are applied one by
    /// one, as they were when they happened.
    pub(crate) fn rebuild(spec: Arc<RunSpec>, stored: Stored) -> Self {
        let mut state = Self::fresh(spec);
        let own: HashSet<u64> = added_sequences(&stored.events).collect();
        state.has_spoken = !own.is_empty();
        let mut own_messages = HashMap::new();
        for message in stored.messages {
            let message = Arc::new(message);
            if own.contains(&message.sequence) {
                own_messages.insert(message.sequence, message);
            } else {
                state.add(&message);
            }
        }
        // Of those this one goes on with the conversation only: what they used and answered is theirs.
        state.phase = Phase::New;
        state.own = Stats::zero();
        state.answer.clear();
        state.kept_partial = false;
        for collaborator in stored.collaborators {
            state.set_collaborator(collaborator);
        }
        let mut results: HashMap<RunId, ChildResult> =
            stored.results.into_iter().map(|result| (result.run_id.clone(), result)).collect();
        for (at, event) in &stored.events {
            match event {
                Event::Message(MessageEvent::Added { .. }) => {
                    if let Some(message) = added_sequence(event).and_then(|sequence| own_messages.get(&sequence)) {
                        state.add(message);
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
        let begun_here: HashSet<&TraceId> = state.children.iter().map(|child| &child.trace_id).collect();
        state.earlier_children = stored.sub_traces.into_iter().filter(|id| !begun_here.contains(id)).collect();
        state.last_sequence = state.last_sequence.max(stored.last_sequence);
        state.started_at = stored.started_at;
        state.recorded = stored.recorded;
        state.way_back = stored.way_back;
        state.asked = stored.asked;
        state.wrote |= stored.owes_versions;
        state
    }

    /// Changes the state by one event, and the time at which it happened. Messages and child results come by their
    /// own doors.
    pub(crate) fn apply(&mut self, event: &Event, at: Timestamp) {
        if matches!(self.phase, Phase::Ended(_)) {
            return; // R1
        }
        if let (Event::Run(RunEvent::Recovered { .. }), Some(last)) = (event, self.last_event_at) {
            self.away_ms += at.millis_since(last);
        }
        self.last_event_at = Some(at);
        match event {
            Event::Run(event) => self.apply_run(event),
            Event::Model(event) => self.apply_model(event),
            Event::Tool(ToolEvent::Started { name, .. }) => {
                self.wrote |= self.spec.tool(name).is_some_and(|tool| tool.effect == ToolEffect::Write)
                    && !super::calls::is_decided_here(name);
            }
            Event::Artifact(event) => self.apply_artifact(event),
            Event::Tool(ToolEvent::Failed { tool_call_id, .. }) => {
                if let Some(calls) = self.calls_mut() {
                    calls.close(tool_call_id, true);
                }
            }
            Event::Tool(ToolEvent::Completed { tool_call_id, artifact_ref, .. }) => {
                if let Some(calls) = self.calls_mut() {
                    calls.close(tool_call_id, false);
                }
                if let Some(reference) = artifact_ref {
                    self.artifacts.retain(|known| known.artifact_id != reference.artifact_id);
                    self.artifacts.push(reference.clone());
                }
            }
            Event::Context(event) => self.apply_context(event),
            Event::Goal(event) => self.goals.apply(event),
            Event::Message(MessageEvent::Rewind { head_sequence, goal_tree, .. }) => {
                self.head = Some(*head_sequence);
                self.goals.replace(GoalTree::clone(goal_tree));
            }
            Event::SubAgent(event) => self.apply_sub_agent(event),
            _ => {}
        }
    }

    fn apply_model(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::ContextBuilt { estimated_tokens, .. } => self.prompt_tokens = *estimated_tokens,
            ModelEvent::Started { attempt, .. } => {
                self.phase = Phase::Thinking;
                self.kept_partial = false;
                self.turn_is_open = true;
                self.attempt = *attempt;
                if *attempt == 1 {
                    self.turn += 1; // R2
                }
            }
            ModelEvent::Completed { usage, cost, .. } => self.own.book(usage, *cost),
            ModelEvent::Retrying { usage, cost, error, .. } => {
                if let Some(usage) = usage {
                    self.own.book(usage, *cost);
                }
                if error.code == ErrorCode::PromptTooLong {
                    // It takes less than we thought, or counts more.
                    self.window = self.window.min(self.prompt_tokens / 10 * 9);
                }
            }
            ModelEvent::Failed { error, usage, cost } => {
                if let Some(usage) = usage {
                    self.own.book(usage, *cost);
                }
                self.phase = Phase::Halted;
                let reason = match error.code {
                    _ if self.kept_partial => EndReason::AbortedStreaming,
                    ErrorCode::PromptTooLong => EndReason::PromptTooLong,
                    _ => EndReason::Failed,
                };
                self.ending.get_or_insert_with(|| Ending {
                    status: RunStatus::Failed,
                    reason,
                    error: Some(error.clone()),
                });
            }
            ModelEvent::Waiting { .. } => {}
        }
    }

    fn apply_run(&mut self, event: &RunEvent) {
        match event {
            RunEvent::LoopStarted { .. } => {
                self.loop_started = true;
                if self.spec.settings.driven {
                    self.phase = Phase::Driven;
                }
            }
            RunEvent::CancelRequested {} => {
                let reason = match self.phase {
                    Phase::Thinking => EndReason::AbortedStreaming,
                    Phase::Acting { .. } => EndReason::AbortedTools,
                    _ => EndReason::Cancelled,
                };
                self.ending = Some(Ending { status: RunStatus::Cancelled, reason, error: None });
            }
            RunEvent::Queued { .. } => self.was_queued = true,
            RunEvent::Completed { summary, .. } => {
                if self.spec.settings.driven {
                    self.answer.clone_from(summary);
                }
                self.phase = Phase::Ended(RunStatus::Completed);
            }
            RunEvent::Failed { error, end_reason, .. } => {
                let error = Some(error.clone());
                self.ending = Some(Ending { status: RunStatus::Failed, reason: *end_reason, error });
                self.phase = Phase::Ended(RunStatus::Failed);
            }
            RunEvent::Cancelled { end_reason, .. } => {
                self.ending = Some(Ending { status: RunStatus::Cancelled, reason: *end_reason, error: None });
                self.phase = Phase::Ended(RunStatus::Cancelled);
            }
            _ => {}
        }
    }

    /// Takes a message that was added to the trace.
    pub(crate) fn add(&mut self, message: &Arc<Message>) {
        self.last_sequence = self.last_sequence.max(message.sequence); // R3
        self.own.messages += 1;
        if message.partial {
            self.kept_partial = true;
            self.answer.clone_from(&message.content);
            if message.finish_reason.as_deref() == Some("length") {
                self.phase = Phase::Halted;
                let error = Some(super::outcome::cut_at_limit());
                let (status, reason) = (RunStatus::Failed, EndReason::MaxOutputTokens);
                self.ending.get_or_insert(Ending { status, reason, error });
            }
            return;
        }
        if let Some(covers) = &message.covers {
            return self.sum_up(message, covers);
        }
        self.head = Some(message.sequence);
        match message.role {
            Role::System => {
                self.system = Some(message.content.as_str().into());
                self.system_sequence = Some(message.sequence);
                return;
            }
            Role::Assistant if message.tool_calls.is_empty() => {
                self.close_turn();
                self.phase = Phase::Answered;
                self.answer.clone_from(&message.content);
            }
            Role::Assistant => {
                self.close_turn();
                let spec = Arc::clone(&self.spec);
                let mut calls = OpenCalls::new(&message.tool_calls, |name| spec.is_barrier(name));
                calls.asked_in = Some(message.sequence);
                self.phase = Phase::Acting { calls: Box::new(calls) };
            }
            Role::User | Role::Tool => {}
        }
        self.transcript.push(self.entry(message));
    }

    /// Takes note that the model has answered.
    fn close_turn(&mut self) {
        self.turn_is_open = false;
        // Who has failed that often is not asked three times in every turn.
        (self.compactions, self.failed_compactions) = (0, self.failed_compactions.min(LASTING_FAILURES));
        self.forget_what_was_read();
    }

    /// Lets what a tool wants to be read once give way to what is to be remembered of it: the model has
    /// answered, so it has read it (ART-9).
    fn forget_what_was_read(&mut self) {
        let counter = self.spec.counter;
        let since_last_answer =
            self.transcript.iter_mut().rev().take_while(|entry| entry.message.role != Role::Assistant);
        for entry in since_last_answer.filter(|entry| entry.message.include_output_only_once) {
            let mut short = Message::clone(&entry.message);
            short.content = short.long_term_memory.clone().unwrap_or_else(|| short.description.clone());
            *entry = Entry { tokens: counter.count(&short), message: Arc::new(short) };
        }
    }

    pub(crate) fn calls_mut(&mut self) -> Option<&mut OpenCalls> {
        match &mut self.phase {
            Phase::Acting { calls } => Some(calls),
            _ => None,
        }
    }

    /// Returns what the run used so far.
    pub(crate) fn stats(&self, now: Timestamp) -> StatsPair {
        let mut own = self.own;
        own.duration_ms = self.run_time_ms(now);
        let mut tree = own;
        tree.roll_up(&self.below);
        StatsPair { own, tree }
    }

    /// Returns how long it has been at work, in milliseconds: neither queued, nor without a process.
    pub(crate) fn run_time_ms(&self, now: Timestamp) -> u64 {
        self.started_at.map_or(0, |start| now.millis_since(start)).saturating_sub(self.away_ms)
    }

    /// Says how the run ended; `None` while it has not.
    pub(crate) fn ended_as(&self) -> Option<Ending> {
        let Phase::Ended(status) = self.phase else { return None };
        let completed = Ending { status, reason: EndReason::Completed, error: None };
        Some(self.ending.clone().filter(|_| status != RunStatus::Completed).unwrap_or(completed))
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }
}

/// Tells the sequences of the messages that these events announce.
pub(crate) fn added_sequences(events: &[(Timestamp, Event)]) -> impl Iterator<Item = u64> {
    events.iter().filter_map(|(_, event)| added_sequence(event))
}

fn added_sequence(event: &Event) -> Option<u64> {
    match event {
        Event::Message(MessageEvent::Added { sequence, .. }) => Some(*sequence),
        _ => None,
    }
}
