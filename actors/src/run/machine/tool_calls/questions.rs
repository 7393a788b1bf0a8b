//! Questions to users. A question is a row in the store. The tool call that asks it stays open
//! until the user has answered (SUB-9).
//!
//! This module is part of the run state machine and performs no I/O.
//!
//! Invariant: a question is asked once, even if the run's actor restarts. Its answer is read from
//! its row.
//!
//! Elsewhere: how an answer reaches the run (`runtime/questions.rs`).

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use soong_protocol::{
    Collaborator, CollaboratorKind, CollaboratorStatus, ErrorCode, ErrorInfo, QuestionId, RunEvent,
    SubAgentEvent, ToolCall,
};
use soong_tool::{ToolOutput, ToolResult};

use crate::run::machine::{
    RunState, Transition,
    effect::{Effect, ToolCallEffect},
    errors::run_has_ended,
    input::QuestionRequest,
    outcome::one_line,
    state::{
        calls::{CallState, OpenCall},
        phase::Phase,
    },
    tools::is_internal_tool,
};

/// Value of `for` in a `waiting` event if the run waits for an answer, or for an answer and a
/// permission.
const WAIT_QUESTION: &str = "question";
/// Value of `for` in a `waiting` event if the run waits only for a permission.
const WAIT_PERMISSION: &str = "permission";

#[derive(Deserialize)]
struct AskArguments {
    question: String,
    to: Option<String>,
}

/// Returns the collaborator entry of a user who was asked. If `to` is `None`, its name is `user`.
fn user_collaborator(to: Option<&str>, status: CollaboratorStatus, summary: &str) -> Collaborator {
    Collaborator {
        name: to.unwrap_or("user").to_owned(),
        kind: CollaboratorKind::Human,
        trace_id: None,
        status,
        summary: one_line(summary),
    }
}

impl RunState {
    /// Returns whether nothing but an answer or a permission of a user can continue the run.
    pub(crate) fn only_waits_for_user(&self) -> bool {
        let Phase::RunningTools { calls } = &self.phase else {
            return false;
        };
        let is_open = |open: &&OpenCall| open.state != CallState::Done;
        let mut open = calls.iter().filter(is_open).peekable();
        self.end.ending.is_none()
            && self.sub_agents.open == 0
            && open.peek().is_some()
            // A call that has not started starts only after the calls that wait for a user.
            && open.all(|open| open.state == CallState::Waiting || open.waits_for_user())
    }

    fn wait_kind(&self) -> &'static str {
        let Phase::RunningTools { calls } = &self.phase else {
            return WAIT_QUESTION;
        };
        let is_asked = calls
            .iter()
            .any(|open| open.state != CallState::Done && open.question.is_some());
        if is_asked {
            WAIT_QUESTION
        } else {
            WAIT_PERMISSION
        }
    }

    pub(crate) fn apply_question(&mut self, call: &str, id: &QuestionId, to: Option<&String>) {
        if let Some(open) = self.calls_mut().and_then(|calls| calls.get_mut(call)) {
            open.question = Some((id.clone(), to.cloned()));
        }
    }

    /// Records that the question of a running tool is answered.
    pub(crate) fn close_tool_question(&mut self, id: &QuestionId) {
        let calls = self
            .calls_mut()
            .into_iter()
            .flat_map(|calls| calls.iter_mut());
        let asks = |open: &&mut OpenCall| {
            open.is_asked_by_tool() && open.question.as_ref().is_some_and(|(known, _)| known == id)
        };
        if let Some(open) = calls.into_iter().find(asks) {
            open.question = None;
        }
    }
}

impl Transition<'_, '_> {
    /// Records the question of a tool call. The call stays open until the question is answered.
    pub(crate) fn ask_human(&mut self, call: &ToolCall, arguments: Value) -> Result<(), ErrorInfo> {
        let request: AskArguments = soong_tool::arguments(arguments)?;
        if request.question.trim().is_empty() {
            return Err(ErrorInfo::new(
                ErrorCode::ValidationError,
                "`question` is empty: say what you need to know",
            ));
        }
        let spec = Arc::clone(&self.state.spec);
        let Some(calls) = self.state.calls_mut() else {
            return Ok(());
        };
        let question_id = spec
            .identity
            .question_id(calls.message_sequence, calls.index_of(&call.id));
        let collaborator = user_collaborator(
            request.to.as_deref(),
            CollaboratorStatus::Waiting,
            &request.question,
        );
        let question = request.question;
        let to = request.to;
        let tool_call_id = call.id.clone();
        self.emit(SubAgentEvent::QuestionAsked {
            question_id,
            question,
            to,
            tool_call_id,
        });
        self.emit(SubAgentEvent::CollaboratorUpdated { collaborator });
        Ok(())
    }

    /// Handles the answer to a question: it is the result of a call of `ask_human`, or goes to the
    /// tool that asked. If no open call asks this question, it is kept for a tool that is repeated.
    pub(crate) fn question_answered(&mut self, id: &QuestionId, answer: &str) {
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        let is_asking = |open: &&OpenCall| {
            open.state != CallState::Done
                && open.question.as_ref().is_some_and(|(known, _)| known == id)
        };
        let Some((call, to)) = calls.iter().find(is_asking).map(|open| {
            (
                open.call.clone(),
                open.question.as_ref().and_then(|(_, to)| to.clone()),
            )
        }) else {
            if !self.state.waiting.tool_answers.contains_key(id) {
                self.state
                    .waiting
                    .tool_answers
                    .insert(id.clone(), answer.to_owned());
            }
            return;
        };
        self.emit(SubAgentEvent::QuestionAnswered {
            question_id: id.clone(),
        });
        let collaborator = user_collaborator(to.as_deref(), CollaboratorStatus::Completed, answer);
        self.emit(SubAgentEvent::CollaboratorUpdated { collaborator });
        if !is_internal_tool(&call.name) {
            return self.answer_tool(id, answer);
        }
        let who = to.as_deref().unwrap_or("the user");
        let result: ToolResult = Ok(ToolOutput::text(format!("{who} answered"), answer));
        self.close_call(&call, result);
        self.schedule();
    }

    /// Records the question of a running tool. If its interrupted attempt got an answer, the tool
    /// gets that.
    pub(crate) fn ask_for_tool(&mut self, request: QuestionRequest, ticket: u64) {
        let answer = match self.record_tool_question(request, ticket) {
            Ok(None) => return,
            Ok(Some(answer)) => Ok(answer),
            Err(error) => Err(error),
        };
        self.step
            .effects
            .push(Effect::Tool(ToolCallEffect::AnswerQuestion {
                ticket,
                answer,
            }));
    }

    /// Returns the answer if it is known.
    fn record_tool_question(
        &mut self,
        QuestionRequest { call, question, to }: QuestionRequest,
        ticket: u64,
    ) -> Result<Option<String>, ErrorInfo> {
        let reject = |message: &str| Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        if question.trim().is_empty() {
            return reject("the question is empty");
        }
        let spec = Arc::clone(&self.state.spec);
        let calls = self
            .state
            .calls_mut()
            .filter(|calls| calls.started(&call).is_some())
            .ok_or_else(run_has_ended)?;
        let first_id = spec
            .identity
            .question_id(calls.message_sequence, calls.index_of(&call));
        let open = calls.get_mut(&call).ok_or_else(run_has_ended)?;
        let question_id = match open.asked_questions {
            0 => first_id,
            earlier => QuestionId::new(format!("{first_id}-{}", earlier + 1)),
        };
        let pending = open.question.as_ref().map(|(id, _)| id.clone());
        // A repeated call asks its earlier questions again, while the last one of its interrupted
        // attempt is still open.
        let earlier_answer = self.state.waiting.tool_answers.remove(&question_id);
        if earlier_answer.is_none()
            && pending
                .as_ref()
                .is_some_and(|pending| *pending != question_id)
        {
            return reject(
                "a tool call can ask one question at a time: wait for the answer to the last one",
            );
        }
        if let Some(open) = self
            .state
            .calls_mut()
            .and_then(|calls| calls.get_mut(&call))
        {
            open.asked_questions += 1;
        }
        if earlier_answer.is_some() {
            return Ok(earlier_answer);
        }
        self.state
            .waiting
            .tool_questions
            .insert(question_id.clone(), ticket);
        if pending.is_none() {
            let collaborator =
                user_collaborator(to.as_deref(), CollaboratorStatus::Waiting, &question);
            self.emit(SubAgentEvent::QuestionAsked {
                question_id,
                question,
                to,
                tool_call_id: call,
            });
            self.emit(SubAgentEvent::CollaboratorUpdated { collaborator });
        }
        Ok(None)
    }

    /// Passes an answer to the tool that asked, or keeps it until the tool is repeated.
    fn answer_tool(&mut self, id: &QuestionId, answer: &str) {
        match self.state.waiting.tool_questions.remove(id) {
            Some(ticket) => {
                let answer = Ok(answer.to_owned());
                self.step
                    .effects
                    .push(Effect::Tool(ToolCallEffect::AnswerQuestion {
                        ticket,
                        answer,
                    }));
            }
            None => drop(
                self.state
                    .waiting
                    .tool_answers
                    .insert(id.clone(), answer.to_owned()),
            ),
        }
    }

    /// Records that nobody waits for the answer to the open question of a tool: its call has an
    /// outcome.
    pub(super) fn withdraw_tool_question(&mut self, call: &str) {
        let open = self.state.calls_mut().and_then(|calls| calls.get_mut(call));
        let Some((id, to)) = open
            .filter(|open| open.is_asked_by_tool())
            .and_then(|open| open.question.take())
        else {
            return;
        };
        self.state.waiting.tool_questions.remove(&id);
        let collaborator = user_collaborator(
            to.as_deref(),
            CollaboratorStatus::Failed,
            "not answered before the call ended",
        );
        self.emit(SubAgentEvent::CollaboratorUpdated { collaborator });
    }

    /// Closes the calls that wait for an answer or a permission with the error `cancelled`, because
    /// the run is ending.
    pub(crate) fn withdraw_pending_calls(&mut self) {
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        let withdrawn = calls
            .iter()
            .filter(|open| open.state != CallState::Done && open.waits_without_running());
        let withdrawn: Vec<OpenCall> = withdrawn.cloned().collect();
        for OpenCall { call, question, .. } in withdrawn {
            let mut error =
                ErrorInfo::new(ErrorCode::Cancelled, "not answered before the run ended");
            match question {
                Some((_, to)) => {
                    let collaborator = user_collaborator(
                        to.as_deref(),
                        CollaboratorStatus::Failed,
                        &error.message,
                    );
                    self.emit(SubAgentEvent::CollaboratorUpdated { collaborator });
                }
                None => error.message = "not run: not approved before the run ended".to_owned(),
            }
            self.close_call(&call, Err(error));
        }
    }

    /// If the run has started or stopped waiting for users, emits `waiting` or `resumed` and
    /// notifies the parent (RUN-1).
    pub(crate) fn update_waiting(&mut self) {
        let waits = self.state.only_waits_for_user();
        if waits == self.state.waiting.since.is_some()
            || (self.state.end.ending.is_some() && !waits)
        {
            return;
        }
        let kind = self
            .state
            .waiting
            .reason
            .clone()
            .unwrap_or_else(|| self.state.wait_kind().to_owned());
        self.emit(if waits {
            RunEvent::Waiting { r#for: kind }
        } else {
            RunEvent::Resumed { from: kind }
        });
        let status = if waits {
            CollaboratorStatus::Waiting
        } else {
            CollaboratorStatus::Running
        };
        self.notify_parent(status, true);
    }
}
