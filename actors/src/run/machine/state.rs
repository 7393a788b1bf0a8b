//! The state of a run. Events change what is durable of it, live and on rebuild. Methods set the rest:
//! phases and states of jobs that a rebuild derives, or that the next incarnation sets again.
//!
//! Pure: no clock, no I/O, no actor. [`RunState::apply`] is the only place where an event changes
//! the state. `machine/transition.rs` decides which events are emitted.
//!
//! Invariants:
//! - R1: an ended phase never changes again.
//! - R2: `turn` only increases.
//! - R3: sequences only increase.
//! - R4: every tool call of an assistant message has exactly one outcome before the next model
//!   call.

pub(in crate::run) mod calls;
pub(in crate::run) mod children;
pub(in crate::run) mod conversation;
pub(in crate::run) mod phase;
pub(in crate::run) mod repetition;
pub(in crate::run) mod usage;

use std::sync::Arc;

use soong_model::is_refusal;
use soong_protocol::{
    EndReason, ErrorCode, Event, GoalEvent, GoalTree, Message, MessageEvent, MessageOrigin,
    ModelEvent, Role, RunEvent, RunStatus, Stats, Timestamp, ToolEvent,
};

use crate::run::machine::{
    RunState,
    ending::Ending,
    errors::{answer_truncated, content_refused, window_full},
    spec::ModelSpec,
    state::{
        calls::OpenCalls,
        phase::Phase,
        repetition::{RepeatedCall, Repetition},
    },
    tools::is_waiting_tool,
};

/// Duration from which a call counts as polling, in milliseconds.
const POLLING_MS: u64 = 5_000;

impl RunState {
    /// Applies one event that happened at `at`. Messages are applied by [`Self::apply_message`],
    /// child results by `child_ended`.
    pub(crate) fn apply(&mut self, event: &Event, at: Timestamp) {
        if matches!(self.phase, Phase::Ended(_)) {
            return; // R1
        }
        // Waiting for a user is counted by its own events.
        if let (Event::Run(RunEvent::Recovered { .. }), Some(last), None) =
            (event, self.clock.last_event_at, self.waiting.since)
        {
            self.clock.idle_ms += at.millis_since(last);
        }
        self.clock.last_event_at = Some(at);
        self.open_model_calls.apply(event);
        self.usage.track_lost_calls(event);
        self.apply_to_jobs(event);
        match event {
            Event::Run(event) => self.apply_run(event, at),
            Event::Model(event) => self.apply_model(event),
            Event::Budget(event) => self.apply_budget(event),
            Event::Permission(event) => self.apply_permission(event),
            Event::Tool(event) => self.apply_tool(event),
            Event::Context(event) => self.apply_context(event),
            Event::Memory(event) => self.usage.own.add_memory_event(event),
            Event::Goal(event) => self.apply_goal(event),
            Event::Message(event) => self.apply_message_event(event),
            Event::SubAgent(event) => self.apply_sub_agent(event),
            Event::Hook(event) => self.apply_hook(event),
            // Only jobs use these events.
            Event::Artifact(_) => {}
            Event::Unknown { .. } => {}
        }
    }

    fn apply_tool(&mut self, event: &ToolEvent) {
        self.usage.own.add_tool_event(event);
        match event {
            ToolEvent::Failed { tool_call_id, .. } | ToolEvent::Denied { tool_call_id, .. } => {
                if let Some(calls) = self.calls_mut() {
                    calls.close(tool_call_id, true);
                }
            }
            ToolEvent::Completed {
                tool_call_id,
                artifact_ref,
                ..
            } => {
                if let Some(calls) = self.calls_mut() {
                    calls.close(tool_call_id, false);
                }
                if let Some(reference) = artifact_ref {
                    self.artifacts
                        .retain(|known| known.artifact_id != reference.artifact_id);
                    self.artifacts.push(reference.clone());
                }
            }
            ToolEvent::Started { .. } | ToolEvent::McpServerFailed { .. } => {}
        }
    }

    fn apply_goal(&mut self, event: &GoalEvent) {
        self.goals.apply(event);
        match event {
            GoalEvent::Updated {
                goal_id, changes, ..
            } if changes.summary.is_some() => self.goal_summarized(goal_id),
            GoalEvent::Updated { .. } | GoalEvent::Added { .. } | GoalEvent::Focused { .. } => {}
        }
    }

    fn apply_message_event(&mut self, event: &MessageEvent) {
        match event {
            MessageEvent::Rewind {
                head_sequence,
                goal_tree,
                collaborators,
                ..
            } => {
                self.conversation.head = Some(*head_sequence);
                self.goals.restore(GoalTree::clone(goal_tree));
                self.replace_collaborators(collaborators.as_deref());
            }
            // The message itself is applied. The head is switched only while no run is live.
            MessageEvent::Added { .. } | MessageEvent::HeadSwitched { .. } => {}
        }
    }

    /// Returns the model that makes the calls: the run's own, or a fallback.
    pub(super) fn model(&self) -> &ModelSpec {
        self.spec.model_or_fallback(self.turn.fallback)
    }

    fn apply_model(&mut self, event: &ModelEvent) {
        self.usage.own.add_model_event(event);
        match event {
            ModelEvent::ContextBuilt {
                estimated_tokens,
                rebuilt,
                ..
            } => {
                self.conversation.prompt_tokens = *estimated_tokens;
                if let Some(omitted) = rebuilt {
                    let model = self.model().name.clone();
                    self.conversation
                        .rebuild(&self.spec, &model, omitted.clone());
                }
            }
            ModelEvent::Started { attempt, .. } => {
                self.phase = Phase::CallingModel;
                self.turn.kept_partial = false;
                self.turn.is_open = true;
                self.turn.attempt = *attempt;
                if *attempt == 1 {
                    self.turn.number += 1; // R2
                }
            }
            ModelEvent::Completed {
                waited_ms,
                answer_check,
                ..
            } => {
                self.clock.idle_ms += waited_ms;
                self.turn.answers_too_large = 0;
                self.answer.check.clone_from(answer_check);
            }
            ModelEvent::Fallback { to, .. } => {
                self.turn.fallback = self
                    .spec
                    .fallbacks
                    .entries
                    .iter()
                    .position(|fallback| fallback.name == *to);
            }
            ModelEvent::FallbackEnded { .. } => self.turn.fallback = None,
            ModelEvent::Retrying { error, .. } => match error.code {
                ErrorCode::PromptTooLong => {
                    self.conversation.window = self.conversation.reduced_window(error)
                }
                ErrorCode::ModelAnswerTooLarge => self.turn.answers_too_large += 1,
                _ => {}
            },
            ModelEvent::Failed {
                error, waited_ms, ..
            } => {
                self.clock.idle_ms += waited_ms;
                self.phase = Phase::Halted;
                let reason = match error.code {
                    _ if self.turn.kept_partial => EndReason::AbortedStreaming,
                    ErrorCode::PromptTooLong => EndReason::PromptTooLong,
                    ErrorCode::BudgetExceeded => EndReason::BudgetExceeded,
                    _ => EndReason::Failed,
                };
                self.end.ending.get_or_insert_with(|| Ending {
                    status: RunStatus::Failed,
                    reason,
                    error: Some(error.clone()),
                });
            }
            ModelEvent::CallsFoundInText { .. } => self.turn.are_calls_from_text = true,
            ModelEvent::ProviderDataRejected { .. } => {
                self.conversation.drop_provider_data(&self.spec)
            }
            ModelEvent::Waiting { .. }
            | ModelEvent::EffortAdjusted { .. }
            | ModelEvent::NamingStarted { .. }
            | ModelEvent::NamingEnded { .. }
            | ModelEvent::UsageCorrected { .. } => {}
        }
    }

    fn apply_run(&mut self, event: &RunEvent, at: Timestamp) {
        match event {
            RunEvent::Waiting { r#for } => {
                self.waiting.since = Some(at);
                self.waiting.reason = Some(r#for.clone());
            }
            RunEvent::Resumed { .. } => {
                let since = self.waiting.since.take();
                self.waiting.reason = None;
                self.clock.idle_ms += since.map_or(0, |since| at.millis_since(since));
            }
            RunEvent::LoopStarted { .. } => {
                self.start.loop_started = true;
                if self.spec.settings.driven {
                    self.phase = Phase::Driven;
                }
            }
            RunEvent::Ending { error, end_reason } => {
                self.end.ending.get_or_insert_with(|| Ending {
                    status: RunStatus::Failed,
                    reason: *end_reason,
                    error: Some(error.clone()),
                });
            }
            RunEvent::CancelRequested {} => {
                let reason = match self.phase {
                    Phase::CallingModel => EndReason::AbortedStreaming,
                    Phase::RunningTools { .. } if self.waiting.since.is_none() => {
                        EndReason::AbortedTools
                    }
                    _ => EndReason::Cancelled,
                };
                self.end.is_cancel_requested = true;
                self.end.ending.get_or_insert(Ending {
                    status: RunStatus::Cancelled,
                    reason,
                    error: None,
                });
            }
            RunEvent::Queued { .. } => self.start.was_queued = true,
            RunEvent::Completed { summary, stats } => {
                self.clock.used_ms = stats.own.duration_ms;
                // In these cases, the answer is not in a message.
                if self.spec.settings.driven || self.reflection.is_some() {
                    self.answer.text.clone_from(summary);
                }
                self.phase = Phase::Ended(RunStatus::Completed);
            }
            RunEvent::Failed {
                error,
                end_reason,
                stats,
            } => {
                self.clock.used_ms = stats.own.duration_ms;
                let error = Some(error.clone());
                self.end.ending = Some(Ending {
                    status: RunStatus::Failed,
                    reason: *end_reason,
                    error,
                });
                self.phase = Phase::Ended(RunStatus::Failed);
            }
            RunEvent::Cancelled {
                end_reason, stats, ..
            } => {
                self.clock.used_ms = stats.own.duration_ms;
                self.end.ending = Some(Ending {
                    status: RunStatus::Cancelled,
                    reason: *end_reason,
                    error: None,
                });
                self.phase = Phase::Ended(RunStatus::Cancelled);
            }
            RunEvent::Dequeued { .. }
            | RunEvent::Stuck { .. }
            | RunEvent::CancelTimeout { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::SessionForked { .. }
            | RunEvent::ActorRestarted { .. } => {}
        }
    }

    /// Applies a message that the run has added to the trace.
    pub(crate) fn apply_own_message(&mut self, message: &Arc<Message>) {
        self.start.has_spoken = true;
        self.apply_message(message);
    }

    /// Applies a message of the trace.
    pub(crate) fn apply_message(&mut self, message: &Arc<Message>) {
        self.conversation.last_sequence = self.conversation.last_sequence.max(message.sequence); // R3
        if message.side_branch {
            self.begin_side_branch();
        }
        self.usage.own.messages += 1;
        // It belongs to the next message only.
        let recorded_check = self.answer.check.take();
        if message.partial {
            return self.apply_partial(message);
        }
        if let Some(covers) = &message.covers {
            let summary = self.entry(message);
            return self
                .conversation
                .replace_with_summary(&self.spec, summary, covers);
        }
        self.conversation.head = Some(message.sequence);
        self.record_repetition(message);
        self.conversation
            .apply_recorded_changes(&self.spec, message);
        match message.role {
            Role::System => {
                let is_own = *self.spec.system_prompt.text == *message.content;
                let shared = || Arc::clone(&self.spec.system_prompt.text);
                self.conversation.system = Some(if is_own {
                    shared()
                } else {
                    message.content.as_str().into()
                });
                self.conversation.system_sequence = Some(message.sequence);
                // The messages so far were answered with another system prompt.
                self.conversation.drop_bound_data(&self.spec);
                return;
            }
            // Message of an earlier run, or given with the task: it starts nothing here.
            Role::Assistant if self.turn.number == 0 && !self.is_answered_by_callback() => {
                self.close_turn()
            }
            Role::Assistant if message.tool_calls.is_empty() => {
                let is_replaced = self.phase == Phase::Answered;
                if is_replaced {
                    self.conversation.transcript.pop();
                }
                self.close_turn();
                self.phase = Phase::Answered;
                self.set_answer(
                    &message.content,
                    recorded_check,
                    is_replaced || self.turn.number == 0,
                );
            }
            Role::Assistant if self.spec.settings.returns_tool_calls() => {
                self.close_turn();
                self.phase = Phase::Answered;
                message.content.as_str().clone_into(&mut self.answer.text);
                self.answer.unexecuted_calls.clone_from(&message.tool_calls);
            }
            Role::Assistant => {
                self.close_turn();
                self.turn.has_called_tools |= !std::mem::take(&mut self.turn.are_calls_from_text);
                if let Some(ending) = self.turn.cut_calls.record(message) {
                    self.end.ending.get_or_insert(ending);
                }
                let spec = Arc::clone(&self.spec);
                let mut calls = OpenCalls::new(&message.tool_calls, |name| spec.is_barrier(name));
                calls.message_sequence = Some(message.sequence);
                self.phase = Phase::RunningTools {
                    calls: Box::new(calls),
                };
            }
            // The model is asked for another answer.
            Role::User if message.origin == Some(MessageOrigin::Correction) => {
                self.answer.unfit = None
            }
            Role::User | Role::Tool => {}
        }
        self.conversation.transcript.push(self.entry(message));
    }

    /// Counts a tool call or an answer that equals the one before it.
    fn record_repetition(&mut self, message: &Message) {
        match message.role {
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                let Some(open) = self.calls_mut().and_then(|calls| calls.get(id)) else {
                    return;
                };
                let is_slow = message
                    .duration_ms
                    .is_some_and(|duration_ms| duration_ms >= POLLING_MS);
                let has_waited =
                    is_slow || open.approval.is_some() || is_waiting_tool(&open.call.name);
                let call =
                    RepeatedCall::new(&open.call.name, &open.call.arguments, &message.content);
                // Files of two results are never compared: the text around them may be the same.
                if message.content.files().next().is_some() {
                    self.repetition = Repetition::default();
                    return;
                }
                self.repetition
                    .record_call(call, self.turn.number, has_waited);
            }
            // The next answer is one to another message.
            Role::User if message.origin != Some(MessageOrigin::Hook) => {
                self.repetition = Repetition::default()
            }
            Role::Assistant if message.tool_calls.is_empty() => {
                self.repetition.record_answer(&message.content)
            }
            Role::Assistant => self.repetition.record_text(&message.content),
            Role::User | Role::System => {}
        }
    }

    /// Returns whether an answer and its prompt fill the context window, as counted by the runtime,
    /// to 95 %.
    fn fills_window(&self, answer: &Message) -> bool {
        let window = self.conversation.window;
        let counter = self.spec.model.counter;
        let reasoning = answer
            .reasoning
            .as_deref()
            .map_or(0, |text| counter.count_text(text));
        let tokens =
            self.conversation.prompt_tokens + counter.count_text(&answer.content) + reasoning;
        tokens >= window - window / 20
    }

    /// Applies an answer that was cut off, refused or interrupted.
    fn apply_partial(&mut self, message: &Message) {
        self.turn.kept_partial = true;
        message.content.as_str().clone_into(&mut self.answer.text);
        let (reason, error) = match message.finish_reason.as_deref() {
            Some("length") if self.fills_window(message) => (
                EndReason::PromptTooLong,
                window_full(self.conversation.window),
            ),
            Some("length") => (EndReason::MaxOutputTokens, answer_truncated()),
            Some(reason) if is_refusal(reason) => {
                (EndReason::ContentRefused, content_refused(reason))
            }
            _ => return,
        };
        self.phase = Phase::Halted;
        self.end.ending.get_or_insert(Ending {
            status: RunStatus::Failed,
            reason,
            error: Some(error),
        });
    }

    /// Closes the turn: the model has answered.
    fn close_turn(&mut self) {
        self.turn.is_open = false;
        self.renew_summary_attempts();
    }

    /// Halts an ending run whose summary or reflection has just ended (R6).
    pub(super) fn halt_if_ending(&mut self) {
        if self.end.ending.is_some() {
            self.phase = Phase::Halted;
        }
    }

    pub(crate) fn calls_mut(&mut self) -> Option<&mut OpenCalls> {
        match &mut self.phase {
            Phase::RunningTools { calls } => Some(calls),
            _ => None,
        }
    }

    /// Returns the active time until the last recorded event, in milliseconds, computed from the
    /// events' timestamps.
    pub(crate) fn used_ms_by_events(&self) -> u64 {
        let (Some(start), Some(last)) = (self.clock.started_at, self.clock.last_event_at) else {
            return 0;
        };
        let waiting_ms = self
            .waiting
            .since
            .map_or(0, |since| last.millis_since(since));
        last.millis_since(start)
            .saturating_sub(self.clock.idle_ms + waiting_ms)
    }

    /// Returns the usage of the run itself, including tool calls that are still running.
    pub(crate) fn own_stats_with_running_calls(&self) -> Stats {
        let Phase::RunningTools { calls } = &self.phase else {
            return self.usage.own;
        };
        Stats {
            tool_calls: self.usage.own.tool_calls + calls.running_count() as u64,
            ..self.usage.own
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }
}
