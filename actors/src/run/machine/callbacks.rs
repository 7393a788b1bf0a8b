//! The consequences of the program's callbacks for a run (HOOK-2).
//!
//! Pure; part of the run state machine. Elsewhere: calling them (`tasks/callbacks.rs`), and
//! callbacks around model calls, which change only the call.
//!
//! Invariant: what the callbacks of a step did is recorded together with its effect: with the
//! result of the tool call, the message, or the end of the run. Changed tasks and arguments are
//! recorded before they are used, and read from the event.

use soong_protocol::{
    ContentPart, EndReason, ErrorInfo, HookEvent, Message, MessageContent, MessageEvent, Role,
    RunStatus,
};

use crate::{
    callback::{AfterResult, BeforeResult, Reports},
    run::machine::{
        RunState, Transition,
        effect::{Effect, HookEffect},
        ending::Ending,
        input::AgentCallbackResult,
        state::phase::{EndCheck, Phase},
    },
};

impl RunState {
    /// Applies what a callback did.
    pub(super) fn apply_hook(&mut self, event: &HookEvent) {
        let (point, decision, tool_call_id, change) = match event {
            HookEvent::CallbackCompleted {
                error: Some(error), ..
            } => return self.fail_by_callback(error),
            // Before a tool call, only the call is refused.
            HookEvent::CallbackFailed {
                point,
                is_closed: true,
                error,
                ..
            } if point != "before_tool" => {
                return self.fail_by_callback(error);
            }
            HookEvent::CallbackCompleted {
                point,
                decision,
                tool_call_id,
                change,
                ..
            } => (point, decision, tool_call_id, change),
            _ => return,
        };
        match (point.as_str(), decision.as_str(), change) {
            ("before_agent", "changed", Some(task)) => {
                self.start.changed_task = task.as_str().map(str::to_owned);
            }
            ("before_agent", "answered", _) => self.start.is_answered = true,
            ("after_agent", "replaced", _) => self.end.after_agent = EndCheck::Passed,
            ("before_tool", "changed", Some(arguments)) => {
                let open = tool_call_id
                    .as_ref()
                    .and_then(|id| self.calls_mut()?.get_mut(id));
                if let Some(open) = open {
                    open.call.arguments = arguments.to_string();
                    open.is_changed_by_callback = true;
                }
            }
            _ => {}
        }
    }

    /// Ends the run because of a callback.
    pub(super) fn fail_by_callback(&mut self, error: &ErrorInfo) {
        let status = RunStatus::Failed;
        let reason = EndReason::Failed;
        self.end.ending.get_or_insert_with(|| Ending {
            status,
            reason,
            error: Some(error.clone()),
        });
    }

    /// Returns the task of the run, as a callback may have changed it.
    pub(in crate::run) fn task(&self) -> &str {
        self.start
            .changed_task
            .as_deref()
            .unwrap_or(&self.spec.task)
    }

    /// Returns the message that begins the work of the run.
    pub(super) fn task_message(&self) -> MessageContent {
        let spec = &self.spec;
        let given = if spec.settings.task_content.is_blank() {
            MessageContent::from(spec.task.as_str())
        } else {
            spec.settings.task_content.clone()
        };
        let Some(changed) = &self.start.changed_task else {
            return given;
        };
        let mut content = MessageContent::from(changed.as_str());
        let files = given
            .into_parts()
            .into_iter()
            .filter(|part| !matches!(part, ContentPart::Text { .. }));
        files.for_each(|file| content.push(file));
        content
    }
}

impl Transition<'_, '_> {
    /// Requests the callbacks before the run. Returns `false` if there are none, or if they were
    /// called.
    pub(super) fn awaits_before_agent(&mut self) -> bool {
        let spec = &self.state.spec;
        let has_callback = spec.has_callback(|functions| functions.before_agent.as_ref());
        if !has_callback || spec.settings.resumes || self.state.start.changed_task.is_some() {
            return false;
        }
        let task = spec.task.clone();
        self.state.phase = Phase::Preparing;
        self.step
            .effects
            .push(Effect::Hook(HookEffect::CallBeforeAgent(task)));
        true
    }

    /// Requests the callbacks after a run with an answer. Returns `true` while the run must wait
    /// for them.
    pub(super) fn awaits_after_agent(&mut self) -> bool {
        let state = &mut self.state;
        let spec = &state.spec;
        let is_completing = state.phase == Phase::Answered && state.end.ending.is_none();
        let is_exempt = spec.settings.driven
            || state.reflection.is_some()
            || !state.answer.unexecuted_calls.is_empty();
        let has_callback = spec.has_callback(|functions| functions.after_agent.as_ref());
        if !is_completing || is_exempt || !has_callback {
            return false;
        }
        match state.end.after_agent {
            EndCheck::Passed => false,
            EndCheck::Pending => true,
            EndCheck::NotCalled => {
                state.end.after_agent = EndCheck::Pending;
                self.step
                    .effects
                    .push(Effect::Hook(HookEffect::CallAfterAgent {
                        turn: state.turn.number,
                        answer: state.answer.text.clone(),
                    }));
                true
            }
        }
    }

    pub(super) fn agent_callbacks_called(&mut self, result: AgentCallbackResult) {
        match result {
            AgentCallbackResult::Before(result, reports) => {
                self.before_agent_called(result, reports)
            }
            AgentCallbackResult::After {
                turn,
                result,
                reports,
            } => self.after_agent_called(turn, result, reports),
            AgentCallbackResult::Cancelled if self.state.phase == Phase::Preparing => {
                self.state.phase = Phase::Halted;
            }
            AgentCallbackResult::Cancelled => {}
        }
    }

    fn before_agent_called(&mut self, result: BeforeResult<String, String>, mut reports: Reports) {
        if self.state.phase != Phase::Preparing {
            return;
        }
        if self.state.end.ending.is_some() {
            self.state.phase = Phase::Halted;
            return;
        }
        match result {
            BeforeResult::Proceed { .. } => {
                self.record_reports(reports);
                self.recall_or_start();
            }
            BeforeResult::Answered(answer) => {
                let answered = reports.pop();
                self.record_reports(reports);
                self.state.start.callback_answer = Some((answer, answered.into_iter().collect()));
                self.start_conversation(None);
            }
            BeforeResult::Refused(_) | BeforeResult::Failed(_) => {
                self.record_reports(reports);
                self.state.phase = Phase::Halted;
            }
        }
    }

    /// Adds the answer of a callback to the conversation. Returns `false` if no callback has
    /// answered.
    pub(super) fn add_callback_answer(&mut self) -> bool {
        let Some((answer, reports)) = self.state.start.callback_answer.take() else {
            return false;
        };
        self.record_reports(reports);
        self.add_message(Role::Assistant, answer, |message| {
            message.description = "a callback answered".to_owned();
        });
        true
    }

    /// Handles what the callbacks made of the answer of a turn. If another turn was opened
    /// meanwhile, it is ignored.
    fn after_agent_called(&mut self, turn: u32, result: AfterResult<String>, reports: Reports) {
        if turn != self.state.turn.number || self.state.end.after_agent != EndCheck::Pending {
            return;
        }
        if self.state.phase != Phase::Answered || self.state.end.ending.is_some() {
            self.state.end.after_agent = EndCheck::NotCalled;
            return;
        }
        self.state.end.after_agent = EndCheck::Passed;
        self.record_reports(reports);
        match result {
            AfterResult::Result {
                is_replaced: false, ..
            } => {}
            AfterResult::Result { result, .. } => {
                // The new answer takes the place of the old one in the conversation, also on the
                // stored main path.
                let replaced = self.state.conversation.head;
                let old_answer = self.state.conversation.transcript.last();
                self.state.conversation.head =
                    old_answer.and_then(|entry| entry.message.parent_sequence);
                let to_event = |message: &Message| MessageEvent::replacing(message, replaced);
                self.add_message_with(Role::Assistant, result, to_event, |message| {
                    message.description = "a callback replaced the answer".to_owned();
                });
            }
            AfterResult::Failed(_) => {} // its event has set the ending
        }
    }

    /// Records the changed arguments of a call, and requests its execution with them.
    pub(crate) fn callbacks_changed(&mut self, id: &str, reports: Reports) {
        if self
            .state
            .calls_mut()
            .is_none_or(|calls| calls.started(id).is_none())
        {
            return;
        }
        self.record_reports(reports);
        let Some(call) = self.call_to_execute(id) else {
            return;
        };
        if let Err(error) = self.request_tool(&call, None) {
            self.close_call(&call, Err(error));
            self.schedule();
        }
    }

    /// Records what callbacks did.
    pub(super) fn record_reports(&mut self, reports: Reports) {
        for report in reports {
            self.emit(report);
        }
    }
}
