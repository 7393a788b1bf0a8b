//! The run state machine: computes the rows to write and the effects that follow from one input.
//!
//! Pure: time and new ids are arguments. Durable state changes only through `emit` and
//! `add_message`, which apply a change and record it in one step. A halted phase, which is set
//! directly, follows from the events again on rebuild. The actor (`actor.rs`) appends the rows, and
//! executes the effects once they are durable (DUR-1).
//!
//! Invariants:
//! - R4: each tool call has exactly one outcome.
//! - R5: the terminal event is the last event of the run.
//! - R6: nothing new starts once an ending is set.
//! - R7: a run does not end before its children.
//!
//! Elsewhere: tool calls and children (`tool_calls/`, `sub_agents/`), retries (the gateway).

use std::sync::Arc;

use soong_model::Completion;
use soong_protocol::{
    AnswerCheck, ChildResult, EndReason, ErrorInfo, Event, EventDraft, GoalEvent, Message,
    MessageContent, MessageEvent, MessageOrigin, ModelEvent, Role, RunEvent, RunId, Usage, Write,
};

use crate::{
    budget::{self, LimitStatus},
    run::machine::{
        RunState, Step, StepContext, Transition,
        auxiliary_call::{Used, usage_and_cost},
        effect::{ChildEffect, Effect, ToolCallEffect},
        errors,
        inline::preview,
        input::{ChildInput, EndInput, ModelInput, RunInput, ToolInput},
        jobs::JobRequest,
        spec::ModelSpec,
        state::phase::Phase,
    },
};

impl RunState {
    /// Handles one input. An input that arrives after the end has no effect.
    pub(crate) fn handle(&mut self, input: RunInput, context: &mut StepContext<'_>) -> Step {
        if self.is_ended() {
            return handle_after_end(input);
        }
        self.clock.used_ms = self.clock.used_ms.max(context.used_ms);
        let mut transition = Transition {
            state: self,
            context,
            step: Step::default(),
        };
        transition.handle(input);
        transition.finish_if_done();
        transition.record_open_model_calls();
        transition.step
    }
}

/// Handles an input of an ended run: rejects requests, and ignores everything else.
fn handle_after_end(input: RunInput) -> Step {
    let mut step = Step::default();
    match input {
        RunInput::Child(ChildInput::Spawn { ticket, .. }) => {
            step.effects.push(Effect::Child(ChildEffect::AnswerSpawn {
                ticket,
                answer: Err(errors::run_has_ended()),
            }));
        }
        RunInput::PermissionMode {
            ticket: Some(ticket),
            ..
        } => {
            step.effects
                .push(Effect::Tool(ToolCallEffect::ConfirmModeChange { ticket }));
        }
        RunInput::Tool(ToolInput::Ask { ticket, .. }) => {
            let answer = Err(errors::run_has_ended());
            step.effects
                .push(Effect::Tool(ToolCallEffect::AnswerQuestion {
                    ticket,
                    answer,
                }));
        }
        _ => {}
    }
    step
}

impl Transition<'_, '_> {
    fn handle(&mut self, input: RunInput) {
        // A task that was cancelled may report before the cancel request arrives.
        if input.is_cancellation() && self.state.end.ending.is_none() {
            self.cancel();
        }
        match input {
            RunInput::Start => self.start(),
            RunInput::Resume(reason) => self.resume(reason),
            RunInput::Model(input) if self.state.phase == Phase::CallingModel => {
                self.model_input(input)
            }
            RunInput::Model(_) => {}
            RunInput::Job(outcome) => self.job_ended(outcome),
            RunInput::CallProgress(open_call) => self.call_progressed(open_call),
            RunInput::Tool(input) => self.tool_input(input),
            RunInput::Child(ChildInput::Ended(result)) => self.child_ended(*result),
            RunInput::Child(ChildInput::Changed {
                run_id,
                collaborator,
            }) => {
                self.state.child_changed(&run_id, *collaborator);
            }
            RunInput::Child(ChildInput::Spawn { request, ticket }) => {
                self.spawn_for_program(request, ticket)
            }
            RunInput::Child(ChildInput::Named(collaborator)) => {
                self.set_named_collaborator(*collaborator)
            }
            RunInput::PermissionMode { mode, ticket } => self.set_permission_mode(mode, ticket),
            RunInput::Report(event) => self.emit(*event),
            RunInput::End(input) => self.end_input(input),
        }
    }

    fn model_input(&mut self, input: ModelInput) {
        match input {
            ModelInput::Answered {
                completion,
                fallback,
                context_update,
                duration_ms,
                waited_ms,
                short_of,
                answer_check,
                text_call_form,
            } => {
                if let Some(form) = text_call_form {
                    self.emit(ModelEvent::CallsFoundInText {
                        model: self.state.spec.model_or_fallback(fallback).name.clone(),
                        form: form.to_owned(),
                        tool_calls: to_u64(completion.tool_calls.len()),
                    });
                }
                self.model_answered(
                    *completion,
                    fallback,
                    context_update,
                    duration_ms,
                    waited_ms,
                    short_of,
                    answer_check,
                );
            }
            ModelInput::Failed {
                error,
                partial,
                used,
                waited_ms,
            } => self.model_failed(error, partial, used, waited_ms),
            ModelInput::Note(event) => self.emit(event),
        }
    }

    fn tool_input(&mut self, input: ToolInput) {
        match input {
            ToolInput::Ended {
                id,
                result,
                reports,
                duration_ms,
                coercion_note,
            } => {
                self.tool_ended(&id, *result, reports, duration_ms, coercion_note);
            }
            ToolInput::HooksPassed { id } => self.hooks_allowed(&id),
            ToolInput::Changed { id, reports } => self.callbacks_changed(&id, reports),
            ToolInput::SettingsRead { id, settings } => self.settings_read(&id, settings),
            ToolInput::PermissionRequired(permission) => self.request_approval(*permission),
            ToolInput::PermissionDecided(decision) => self.permission_decided(*decision),
            ToolInput::QuestionAnswered { id, answer } => self.question_answered(&id, &answer),
            ToolInput::Ask { request, ticket } => self.ask_for_tool(request, ticket),
        }
    }

    fn end_input(&mut self, input: EndInput) {
        match input {
            EndInput::Undriven
                if self.state.phase == Phase::Driven && self.state.sub_agents.open == 0 =>
            {
                self.fail(EndReason::Interrupted, errors::undriven());
            }
            EndInput::Undriven => {}
            EndInput::CallbackFailed { error, reports } => {
                self.record_reports(reports);
                self.fail(EndReason::Failed, error);
            }
            EndInput::Stuck { since } => self.emit(RunEvent::Stuck { since }),
            EndInput::Finish { summary } if self.state.phase == Phase::Driven => {
                let answer = self.state.spec.redactor.text(&summary).into_owned();
                self.state.finish_driven(answer);
            }
            EndInput::Finish { .. } => {}
            EndInput::Cancel => self.cancel(),
            EndInput::CancelTimeout { after_ms } => self.emit(RunEvent::CancelTimeout { after_ms }),
            EndInput::TimedOut {
                limit_ms,
                is_budget: true,
            } => {
                self.end_by_time_budget(limit_ms / 1_000);
                self.abort();
            }
            EndInput::TimedOut {
                limit_ms,
                is_budget: false,
            } => {
                self.fail(EndReason::TimedOut, errors::timed_out(limit_ms));
            }
            EndInput::Abandon { ending, flushed } => {
                self.state.replace_ending(ending);
                // Nothing can store the answer any more: a long one is shortened.
                self.give_up_answer_storage();
                // Without a budget account, no reservation is known.
                let same_process = self.context.budget.is_some();
                self.lose_jobs(same_process);
                self.close_in_flight(same_process);
                self.record_flush(flushed);
            }
        }
    }

    /// Ends the run as failed, and aborts its work.
    fn fail(&mut self, reason: EndReason, error: ErrorInfo) {
        self.set_failure(reason, error);
        self.abort();
    }

    pub(super) fn start_job(&mut self, request: impl Into<JobRequest>) {
        self.step.effects.push(Effect::Job {
            turn: self.state.turn.number,
            request: request.into(),
        });
    }

    /// Applies an event of this run and records it.
    pub(crate) fn emit(&mut self, event: impl Into<Event>) {
        let mut draft = self.draft(event);
        self.state.spec.redactor.redact_draft(&mut draft);
        self.state.apply(&draft.event, self.context.now);
        self.step.writes.push(Write::Event(draft));
    }

    /// Adds a message after the head of the conversation, and records it.
    pub(crate) fn add_message(
        &mut self,
        role: Role,
        content: impl Into<MessageContent>,
        complete: impl FnOnce(&mut Message),
    ) {
        self.add_message_with(role, content, MessageEvent::added, complete);
    }

    /// Adds a message like [`add_message`](Self::add_message), and records it with the event that
    /// `to_event` builds.
    pub(crate) fn add_message_with(
        &mut self,
        role: Role,
        content: impl Into<MessageContent>,
        to_event: impl FnOnce(&Message) -> MessageEvent,
        complete: impl FnOnce(&mut Message),
    ) {
        let state = &self.state;
        let mut content = content.into();
        state.spec.redactor.redact_content(&mut content); // before its description is made of it
        let mut message = Message::new(
            state.spec.identity.trace_id.clone(),
            state.conversation.last_sequence + 1,
            state.conversation.head,
            role,
            content,
            self.context.now,
        );
        message.goal_id.clone_from(&state.goals.current_id);
        message.side_branch = state.spec.settings.reflects.is_some();
        if role == Role::User {
            message.origin = Some(MessageOrigin::Request);
        }
        complete(&mut message);
        self.record(message, to_event);
    }

    /// Applies and records a message, together with the event that the closure builds from it.
    pub(crate) fn record(
        &mut self,
        mut message: Message,
        to_event: impl FnOnce(&Message) -> MessageEvent,
    ) {
        self.state.spec.redactor.redact_message(&mut message);
        let message = Arc::new(message);
        self.state.apply_own_message(&message);
        let draft = self.draft(to_event(&message));
        self.step
            .writes
            .extend([Write::Message(message), Write::Event(draft)]);
    }

    /// Creates an event of this run.
    fn draft(&self, event: impl Into<Event>) -> EventDraft {
        let identity = &self.state.spec.identity;
        EventDraft::new(
            identity.trace_id.clone(),
            Some(identity.run_id.clone()),
            self.context.now,
            event,
        )
    }

    fn model_answered(
        &mut self,
        completion: Completion,
        fallback: Option<usize>,
        context_update: Option<String>,
        duration_ms: u64,
        waited_ms: u64,
        short_of: Option<LimitStatus>,
        answer_check: Option<AnswerCheck>,
    ) {
        let model = self.state.spec.model_or_fallback(fallback);
        let usage = completion
            .usage
            .unwrap_or_else(|| self.estimated_usage(model, &completion));
        let cost = model.prices.map(|prices| prices.cost(&usage));
        if completion.provider_data_rejected {
            let model = model.name.clone();
            self.emit(ModelEvent::ProviderDataRejected { model });
        }
        self.emit(ModelEvent::Completed {
            finish_reason: completion.finish_reason.clone(),
            tool_calls: to_u64(completion.tool_calls.len()),
            usage,
            cost,
            duration_ms,
            waited_ms,
            answer_check,
        });
        self.correct_lost_calls(fallback, &usage);
        let was_cut_off = completion.tool_calls.is_empty() && completion.finish_reason == "length";
        if let Some(mark) = short_of.filter(|_| was_cut_off) {
            self.end_if_budget_exceeded(&budget::budget_exceeded_error(&mark));
        }
        let was_refused = completion.is_refused();
        let finish_reason = completion.finish_reason;
        // Calls of a refused answer may be incomplete.
        let calls = if was_refused {
            Vec::new()
        } else {
            completion.tool_calls
        };
        let with_calls = !calls.is_empty();
        let may_plan = self.state.reflection.is_none()
            && !self.state.spec.settings.returns_tool_calls()
            && self.state.goals.needs_mission_goal();
        if with_calls && may_plan && !calls.iter().any(|call| call.name == "goal") {
            self.plan_root_goal();
        }
        let changes = self.state.conversation.unrecorded_changes();
        self.add_message(Role::Assistant, completion.text, |message| {
            message.reasoning = completion.reasoning;
            message.provider_data = completion.provider_data;
            message.context_update = context_update;
            if with_calls && message.content.is_empty() {
                let names: Vec<&str> = calls
                    .iter()
                    .map(|call| call.name.as_str())
                    .take(8)
                    .collect();
                message.description = preview(&format!("calls {}", names.join(", ")));
            }
            message.tool_calls = calls;
            message.partial = was_cut_off || was_refused;
            message.prompt_changes = changes.filter(|_| !message.partial);
            message.prompt_tokens = Some(usage.prompt_tokens);
            message.completion_tokens = Some(usage.completion_tokens);
            message.cost = cost;
            message.duration_ms = Some(duration_ms);
            message.finish_reason = Some(finish_reason);
        });
        self.name_trace();
        if with_calls && !was_cut_off {
            self.start_calls();
        } else if !was_refused {
            self.request_schema_fix();
        }
    }

    /// Returns the usage of a call whose service reported none.
    fn estimated_usage(&self, model: &ModelSpec, answer: &Completion) -> Usage {
        let count = |text: &str| model.counter.count_text(text);
        let mut tokens = count(&answer.text) + answer.reasoning.as_deref().map_or(0, count);
        for call in &answer.tool_calls {
            tokens += count(&call.name) + count(&call.arguments);
        }
        Usage::estimate(self.state.conversation.prompt_tokens, tokens)
    }

    fn plan_root_goal(&mut self) {
        // The goal belongs to the message that follows.
        let task = self.state.task().to_owned();
        for event in self.state.goals.plan_mission_goal(
            &task,
            self.state.conversation.last_sequence + 1,
            self.context.now,
        ) {
            self.emit(event);
        }
    }

    /// Handles the failure of a model call. `used`: what is charged for it.
    fn model_failed(
        &mut self,
        error: ErrorInfo,
        partial: String,
        used: Option<Used>,
        waited_ms: u64,
    ) {
        if partial.is_empty() && self.retry_with_compaction(&error) {
            return;
        }
        if partial.is_empty() && self.retry_without_files(&error) {
            return;
        }
        if self.retry_with_smaller_answer(&error, used) {
            return;
        }
        if !partial.is_empty() {
            self.state.set_answer_text(partial.clone());
            self.add_message(Role::Assistant, partial, |message| message.partial = true);
        }
        self.end_if_budget_exceeded(&error);
        let (usage, cost) = usage_and_cost(used);
        self.emit(ModelEvent::Failed {
            error,
            usage,
            cost,
            waited_ms,
        });
    }

    pub(crate) fn child_ended(&mut self, result: ChildResult) {
        if let Some(index) = self.state.child_ended(result)
            && let Some(call) = self.state.sub_agents.children[index].tool_call_id.clone()
        {
            self.summarize_goals();
            self.close_if_children_ended(&call);
        }
    }

    /// Records the first request to cancel the run, and aborts its work. A run that already has
    /// another ending may still wait for children, so each request aborts what is left (SUB-10).
    fn cancel(&mut self) {
        if !self.state.end.is_cancel_requested {
            self.emit(RunEvent::CancelRequested {});
        }
        self.abort();
    }

    /// Records that the run fails, unless it is ending already.
    pub(crate) fn set_failure(&mut self, end_reason: EndReason, error: ErrorInfo) {
        if self.state.end.ending.is_none() {
            self.emit(RunEvent::Ending { error, end_reason });
        }
    }

    /// Cancels all running tasks and children of the run.
    pub(crate) fn abort(&mut self) {
        self.step.effects.push(Effect::AbortTasks);
        let open: Vec<RunId> = self
            .state
            .unfinished_children()
            .map(|child| child.run_id.clone())
            .collect();
        if !open.is_empty() {
            self.step
                .effects
                .push(Effect::Child(ChildEffect::Cancel(open)));
        }
        if matches!(
            self.state.phase,
            Phase::Driven | Phase::Answered | Phase::New
        ) {
            self.state.halt();
        }
    }

    pub(crate) fn emit_goals(&mut self, events: Vec<GoalEvent>) {
        for event in events {
            self.emit(event);
        }
    }
}

pub(crate) fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
