//! What a run knows: rebuilt from its events, changed by nothing else.
//!
//! Pure: no clock, no I/O, no actor. [`RunState::apply`] is the one place where an event changes
//! the state, live and on rebuild alike; `machine/transition.rs` says which events those are.
//! Invariants: R1 an ended phase is never left; R2 `turn` only grows; R3 sequences only grow;
//! R4 every tool call of an assistant message has one outcome before the next model call.
//! Not here: what is in flight in this incarnation beyond the `started` marks of open calls.

pub(in crate::run) mod calls;
pub(in crate::run) mod children;
pub(in crate::run) mod compaction;
pub(in crate::run) mod cut_calls;
pub(in crate::run) mod phase;
pub(in crate::run) mod reflection;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use soong_protocol::{
    ArtifactRef, BudgetDimension, ChildResult, Collaborator, EndReason, ErrorCode, ErrorInfo, Event, GoalChanges,
    GoalEvent, GoalId, GoalTree, Message, MessageEvent, ModelEvent, PermissionDecision, QuestionId, Role, RunEvent,
    RunId, RunStatus, Stats, Timestamp, ToolCall, ToolEvent, TraceId,
};

use crate::{
    context::Entry,
    run::machine::{
        ending::Ending,
        errors::{cut_at_limit, does_not_fit},
        rewind::WayBack,
        spec::RunSpec,
        state::{
            calls::OpenCalls,
            children::{Branches, Child},
            compaction::Plan,
            cut_calls::CutCalls,
            phase::{Phase, StopHook},
            reflection::LookBack,
        },
        tools::is_decided_here,
    },
    tool::ToolOutput,
};

/// How many summaries that failed still count in the next turn.
const LASTING_FAILURES: u32 = 2;

/// All that a run knows.
pub(crate) struct RunState {
    pub(in crate::run::machine) spec: Arc<RunSpec>,
    pub(in crate::run::machine) phase: Phase,
    pub(in crate::run::machine) ending: Option<Ending>,
    /// Whether somebody has asked for its end, and that is written down.
    pub(in crate::run::machine) is_cancel_requested: bool,
    /// Whether it had to wait for another run of its session.
    pub(in crate::run::machine) was_queued: bool,
    /// Whether its beginning is recorded, and whether a message of its own is.
    pub(in crate::run::machine) loop_started: bool,
    pub(in crate::run::machine) has_spoken: bool,
    pub(in crate::run::machine) turn: u32,
    /// The try of the last model call, from 1.
    pub(in crate::run::machine) attempt: u32,
    /// Tokens of its prompt, by our count.
    pub(in crate::run::machine) prompt_tokens: u64,
    pub(in crate::run::machine) last_sequence: u64,
    pub(in crate::run::machine) head: Option<u64>,
    /// The main path without the system message.
    pub(in crate::run::machine) transcript: Vec<Entry>,
    pub(in crate::run::machine) system: Option<Arc<str>>,
    pub(in crate::run::machine) system_sequence: Option<u64>,
    /// How many tokens the model takes: as configured, or less where it refused a prompt that should have fitted.
    pub(in crate::run::machine) window: u64,
    /// Whether the model was called in this turn and has not answered.
    pub(in crate::run::machine) turn_is_open: bool,
    /// How often this turn has summed up, and how often in vain.
    pub(in crate::run::machine) compactions: u32,
    pub(in crate::run::machine) failed_compactions: u32,
    /// How many summaries in a row have failed.
    pub(in crate::run::machine) summaries_in_vain: u32,
    /// Calls whose arguments were cut at the token limit.
    pub(in crate::run::machine) cut_calls: CutCalls,
    /// How long the prompt was for which a summary was asked last, in tokens.
    pub(in crate::run::machine) compacting_at: u64,
    /// Below how many tokens no summary is tried, since one has failed.
    pub(in crate::run::machine) compact_above: u64,
    /// What the summary on its way will stand for; only the incarnation that asked for it knows.
    pub(in crate::run::machine) plan: Option<Plan>,
    pub(in crate::run::machine) goals: GoalTree,
    pub(in crate::run::machine) children: Vec<Child>,
    pub(in crate::run::machine) child_index: HashMap<RunId, usize>,
    pub(in crate::run::machine) open_children: usize,
    /// The children that serve each goal by calls of the model.
    pub(in crate::run::machine) branches: HashMap<GoalId, Branches>,
    /// Sub-traces that earlier runs of the trace started: numbers go on behind them.
    pub(in crate::run::machine) earlier_children: Vec<TraceId>,
    pub(in crate::run::machine) collaborators: Vec<Collaborator>,
    pub(in crate::run::machine) collaborator_index: HashMap<String, usize>,
    pub(in crate::run::machine) own: Stats,
    pub(in crate::run::machine) below: Stats,
    pub(in crate::run::machine) started_at: Option<Timestamp>,
    pub(in crate::run::machine) last_event_at: Option<Timestamp>,
    /// How long it has been at work, in milliseconds: neither queued, nor without a process, nor waiting for people, for
    /// a slot or for its turn with a model (SUB-7). Counted by a clock that nobody sets, and stored with each append.
    pub(in crate::run::machine) used_ms: u64,
    /// How long it was not at work, as its events say: for runs of versions that did not store the above.
    away_ms: u64,
    /// Since when it waits for people.
    pub(in crate::run::machine) waiting_since: Option<Timestamp>,
    /// What it then waits for, as its events say.
    pub(in crate::run::machine) waits_for: Option<String>,
    pub(in crate::run::machine) answer: String,
    /// The calls with which it ends, for its caller to run.
    pub(in crate::run::machine) handed_out: Vec<ToolCall>,
    /// Why the last answer does not fit what was asked for, and how many in a row did not.
    pub(in crate::run::machine) unfit: Option<String>,
    unfit_answers: u32,
    /// Where the answer is stored that is too large for a result, and whether that was tried (SUB-4).
    pub(in crate::run::machine) stored_answer: Option<ArtifactRef>,
    pub(in crate::run::machine) storing_answer: bool,
    pub(in crate::run::machine) answer_is_kept: bool,
    /// Places of children whose results are to enter the conversation.
    pub(in crate::run::machine) deliveries: Vec<usize>,
    /// When its parent was last told what it does.
    pub(in crate::run::machine) told_parent_at: Option<Timestamp>,
    /// The limits of which the model was told.
    pub(in crate::run::machine) warned: Vec<BudgetDimension>,
    /// Answers to its questions that were given before this incarnation, in the order in which they were.
    pub(in crate::run::machine) answered: Vec<(QuestionId, String)>,
    /// The same of decisions about its calls.
    pub(in crate::run::machine) decided: Vec<PermissionDecision>,
    /// Whether partial text of the current model call was kept.
    pub(in crate::run::machine) kept_partial: bool,
    /// How many of the model's last answers, one after the other, were larger than they may be.
    pub(in crate::run::machine) answers_too_large: u32,
    /// Whether a tool that writes was begun: then there may be edits to be flushed at the end (ART-4).
    pub(in crate::run::machine) wrote: bool,
    pub(in crate::run::machine) flushed: bool,
    /// Whether its end may be refused still.
    pub(in crate::run::machine) stop_hook: StopHook,
    /// Whether this incarnation has asked for the flush.
    pub(in crate::run::machine) flushing: bool,
    /// Documents that were edited before a crash, with the version that the run has stored of them; 0 = none.
    pub(in crate::run::machine) documents: BTreeMap<String, u64>,
    /// Outcomes of open calls that are recorded with their effects, from before a crash (ART-5).
    pub(in crate::run::machine) recorded: HashMap<String, ToolOutput>,
    /// How it goes back before it begins; `Err` = it cannot.
    pub(in crate::run::machine) way_back: Option<Result<Box<WayBack>, ErrorInfo>>,
    /// What is known of sub-agents of an earlier run whose results are not in the conversation.
    pub(in crate::run::machine) asked: HashMap<String, Vec<ChildResult>>,
    pub(in crate::run::machine) artifacts: Vec<ArtifactRef>,
    /// What it knows where it looks back, from the first message of its side branch on.
    pub(in crate::run::machine) look_back: Option<LookBack>,
}

impl RunState {
    /// Makes the state of a run on an empty trace.
    pub(crate) fn fresh(spec: Arc<RunSpec>) -> Self {
        Self {
            goals: GoalTree::new(spec.task.clone()),
            phase: Phase::New,
            ending: None,
            is_cancel_requested: false,
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
            summaries_in_vain: 0,
            cut_calls: CutCalls::default(),
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
            used_ms: 0,
            away_ms: 0,
            waiting_since: None,
            waits_for: None,
            answer: String::new(),
            handed_out: Vec::new(),
            unfit: None,
            unfit_answers: 0,
            stored_answer: None,
            storing_answer: false,
            answer_is_kept: false,
            deliveries: Vec::new(),
            told_parent_at: None,
            warned: Vec::new(),
            answered: Vec::new(),
            decided: Vec::new(),
            kept_partial: false,
            answers_too_large: 0,
            wrote: false,
            flushed: false,
            stop_hook: StopHook::default(),
            flushing: false,
            documents: BTreeMap::new(),
            recorded: HashMap::new(),
            way_back: None,
            asked: HashMap::new(),
            artifacts: Vec::new(),
            look_back: None,
            spec,
        }
    }

    /// Changes the state by one event, and the time at which it happened. Messages and child results come by their
    /// own doors.
    pub(crate) fn apply(&mut self, event: &Event, at: Timestamp) {
        if matches!(self.phase, Phase::Ended(_)) {
            return; // R1
        }
        // Waiting for people counts from its own event.
        if let (Event::Run(RunEvent::Recovered { .. }), Some(last), None) =
            (event, self.last_event_at, self.waiting_since)
        {
            self.away_ms += at.millis_since(last);
        }
        self.last_event_at = Some(at);
        if let Event::Tool(event) = event {
            self.own.take_tool(event);
        }
        match event {
            Event::Run(event) => self.apply_run(event, at),
            Event::Model(event) => self.apply_model(event),
            Event::Tool(ToolEvent::Started { name, .. }) => {
                self.wrote |= self.spec.tool(name).is_some_and(|tool| tool.effect.changes()) && !is_decided_here(name);
            }
            Event::Artifact(event) => self.apply_artifact(event),
            Event::Budget(event) => self.apply_budget(event),
            Event::Permission(event) => self.apply_permission(event),
            Event::Tool(ToolEvent::Failed { tool_call_id, .. } | ToolEvent::Denied { tool_call_id, .. }) => {
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
            Event::Memory(event) => self.own.take_memory(event),
            Event::Goal(event) => {
                self.goals.apply(event);
                if let GoalEvent::Updated { goal_id, changes: GoalChanges { summary: Some(_), .. }, .. } = event {
                    self.goal_is_summed_up(goal_id);
                }
            }
            Event::Message(MessageEvent::Rewind { head_sequence, goal_tree, collaborators, .. }) => {
                self.head = Some(*head_sequence);
                self.goals.replace(GoalTree::clone(goal_tree));
                self.replace_collaborators(collaborators.as_deref());
            }
            Event::SubAgent(event) => self.apply_sub_agent(event),
            _ => {}
        }
    }

    fn apply_model(&mut self, event: &ModelEvent) {
        self.own.take_model(event);
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
            ModelEvent::Completed { waited_ms, .. } => {
                self.away_ms += waited_ms;
                self.answers_too_large = 0;
            }
            ModelEvent::Retrying { error, .. } => {
                match error.code {
                    // It takes less than we thought, or counts more.
                    ErrorCode::PromptTooLong => self.window = self.window.min(self.prompt_tokens / 10 * 9),
                    ErrorCode::ModelAnswerTooLarge => self.answers_too_large += 1,
                    _ => {}
                }
            }
            ModelEvent::Failed { error, waited_ms, .. } => {
                self.away_ms += waited_ms;
                self.phase = Phase::Halted;
                let reason = match error.code {
                    _ if self.kept_partial => EndReason::AbortedStreaming,
                    ErrorCode::PromptTooLong => EndReason::PromptTooLong,
                    ErrorCode::BudgetExceeded => EndReason::BudgetExceeded,
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

    fn apply_run(&mut self, event: &RunEvent, at: Timestamp) {
        match event {
            RunEvent::Waiting { r#for } => {
                self.waiting_since = Some(at);
                self.waits_for = Some(r#for.clone());
            }
            RunEvent::Resumed { .. } => {
                let since = self.waiting_since.take();
                self.waits_for = None;
                self.away_ms += since.map_or(0, |since| at.millis_since(since));
            }
            RunEvent::LoopStarted { .. } => {
                self.loop_started = true;
                if self.spec.settings.driven {
                    self.phase = Phase::Driven;
                }
            }
            RunEvent::CancelRequested {} => {
                let reason = match self.phase {
                    Phase::Thinking => EndReason::AbortedStreaming,
                    Phase::Acting { .. } if self.waiting_since.is_none() => EndReason::AbortedTools,
                    _ => EndReason::Cancelled,
                };
                self.is_cancel_requested = true;
                self.ending.get_or_insert(Ending { status: RunStatus::Cancelled, reason, error: None });
            }
            RunEvent::Queued { .. } => self.was_queued = true,
            RunEvent::Completed { summary, stats } => {
                self.used_ms = stats.own.duration_ms;
                // What no message of it says.
                if self.spec.settings.driven || self.look_back.is_some() {
                    self.answer.clone_from(summary);
                }
                self.phase = Phase::Ended(RunStatus::Completed);
            }
            RunEvent::Failed { error, end_reason, stats } => {
                self.used_ms = stats.own.duration_ms;
                let error = Some(error.clone());
                self.ending = Some(Ending { status: RunStatus::Failed, reason: *end_reason, error });
                self.phase = Phase::Ended(RunStatus::Failed);
            }
            RunEvent::Cancelled { end_reason, stats, .. } => {
                self.used_ms = stats.own.duration_ms;
                self.ending = Some(Ending { status: RunStatus::Cancelled, reason: *end_reason, error: None });
                self.phase = Phase::Ended(RunStatus::Cancelled);
            }
            _ => {}
        }
    }

    /// Takes a message that was added to the trace.
    pub(crate) fn add(&mut self, message: &Arc<Message>) {
        self.last_sequence = self.last_sequence.max(message.sequence); // R3
        if message.side_branch {
            self.begin_side_branch();
        }
        self.own.messages += 1;
        if message.partial {
            self.kept_partial = true;
            self.answer.clone_from(&message.content);
            if message.finish_reason.as_deref() == Some("length") {
                self.phase = Phase::Halted;
                let error = Some(cut_at_limit());
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
                let is_own = *self.spec.system_prompt == *message.content;
                let shared = || Arc::clone(&self.spec.system_prompt);
                self.system = Some(if is_own { shared() } else { message.content.as_str().into() });
                self.system_sequence = Some(message.sequence);
                return;
            }
            // Of an earlier run, or given with the task: nothing follows from it here.
            Role::Assistant if self.turn == 0 => self.close_turn(),
            Role::Assistant if message.tool_calls.is_empty() => {
                self.close_turn();
                self.phase = Phase::Answered;
                self.take_answer(&message.content);
            }
            Role::Assistant if self.spec.settings.hands_out_calls() => {
                self.close_turn();
                self.phase = Phase::Answered;
                self.answer.clone_from(&message.content);
                self.handed_out.clone_from(&message.tool_calls);
            }
            Role::Assistant => {
                self.close_turn();
                if let Some(ending) = self.cut_calls.note(message) {
                    self.ending.get_or_insert(ending);
                }
                let spec = Arc::clone(&self.spec);
                let mut calls = OpenCalls::new(&message.tool_calls, |name| spec.is_barrier(name));
                calls.asked_in = Some(message.sequence);
                self.phase = Phase::Acting { calls: Box::new(calls) };
            }
            Role::User | Role::Tool => {}
        }
        self.transcript.push(self.entry(message));
    }

    /// Takes the final answer; where it has to fit a schema, the second one in a row that does not ends the run.
    fn take_answer(&mut self, text: &str) {
        let checked = self.spec.schema.as_ref().map_or_else(|| Ok(text.to_owned()), |schema| schema.check(text));
        match checked {
            Ok(answer) => {
                self.answer = answer;
                (self.unfit, self.unfit_answers) = (None, 0);
            }
            Err(why) => {
                text.clone_into(&mut self.answer);
                self.unfit_answers += 1;
                if self.unfit_answers > 1 {
                    let error = Some(does_not_fit(&why, self.spec.parent.is_some()));
                    let (status, reason) = (RunStatus::Failed, EndReason::Failed);
                    self.ending.get_or_insert(Ending { status, reason, error });
                }
                self.unfit = Some(why);
            }
        }
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

    /// Returns how long it had been at work when its last event was recorded, by the times of its events.
    pub(crate) fn used_ms_by_events(&self) -> u64 {
        let (Some(start), Some(last)) = (self.started_at, self.last_event_at) else { return 0 };
        let waiting_ms = self.waiting_since.map_or(0, |since| last.millis_since(since));
        last.millis_since(start).saturating_sub(self.away_ms + waiting_ms)
    }

    /// Returns what the run used itself, tool calls at work included.
    pub(crate) fn own_with_calls_on_their_way(&self) -> Stats {
        let Phase::Acting { calls } = &self.phase else { return self.own };
        Stats { tool_calls: self.own.tool_calls + calls.at_work() as u64, ..self.own }
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }
}
