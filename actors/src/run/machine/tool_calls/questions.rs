//! Questions to users. A question is a row in the store. The tool call that asks it stays open until the user has
//! answered (SUB-9).
//!
//! This module is part of the run state machine and performs no I/O.
//!
//! Invariant: a question is asked once, even if the run's actor restarts. Its answer is read from its row.
//!
//! Elsewhere: how an answer reaches the run (`runtime/questions.rs`).

use serde::Deserialize;
use serde_json::Value;
use soong_protocol::{
    Collaborator, CollaboratorKind, CollaboratorStatus, ErrorCode, ErrorInfo, QuestionId, RunEvent, SubAgentEvent,
    ToolCall,
};
use soong_tool::{ToolOutput, ToolResult};

use crate::run::machine::{
    outcome::one_line,
    state::{
        RunState,
        calls::{CallState, OpenCall},
        phase::Phase,
    },
    transition::Transition,
};

/// Value of `for` in a `waiting` event if the run waits for an answer, or for an answer and a permission.
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
        let Phase::RunningTools { calls } = &self.phase else { return false };
        let is_open = |open: &&OpenCall| open.state != CallState::Done;
        let mut open = calls.iter().filter(is_open).peekable();
        self.end.ending.is_none()
            && self.sub_agents.open == 0
            && open.peek().is_some()
            // A call that has not started starts only after the calls that wait for a user.
            && open.all(|open| open.state == CallState::Waiting || open.waits_for_user())
    }

    fn wait_kind(&self) -> &'static str {
        let Phase::RunningTools { calls } = &self.phase else { return WAIT_QUESTION };
        let is_asked = calls.iter().any(|open| open.state != CallState::Done && open.question.is_some());
        if is_asked { WAIT_QUESTION } else { WAIT_PERMISSION }
    }

    pub(crate) fn apply_question(&mut self, call: &str, id: &QuestionId, to: Option<&String>) {
        if let Some(open) = self.calls_mut().and_then(|calls| calls.get_mut(call)) {
            open.question = Some((id.clone(), to.cloned()));
        }
    }
}

impl Transition<'_, '_> {
    /// Records the question of a tool call. The call stays open until the question is answered.
    pub(crate) fn ask_human(&mut self, call: &ToolCall, arguments: Value) -> Result<(), ErrorInfo> {
        let request: AskArguments = soong_tool::arguments(arguments)?;
        if request.question.trim().is_empty() {
            return Err(ErrorInfo::new(ErrorCode::ValidationError, "`question` is empty: say what you need to know"));
        }
        let trace = self.state.spec.identity.trace_id.clone();
        let Some(calls) = self.state.calls_mut() else { return Ok(()) };
        let question_id =
            QuestionId::for_call(&trace, calls.message_sequence.unwrap_or_default(), calls.index_of(&call.id));
        let collaborator = user_collaborator(request.to.as_deref(), CollaboratorStatus::Waiting, &request.question);
        let (question, to, tool_call_id) = (request.question, request.to, call.id.clone());
        self.emit(SubAgentEvent::QuestionAsked { question_id, question, to, tool_call_id });
        self.emit(SubAgentEvent::CollaboratorUpdated { collaborator });
        Ok(())
    }

    /// Closes the call that asked a question, with the answer as its result. Ignores the answer if no open call
    /// asked this question.
    pub(crate) fn question_answered(&mut self, id: &QuestionId, answer: &str) {
        let Some(calls) = self.state.calls_mut() else { return };
        let is_asking = |open: &&OpenCall| {
            open.state != CallState::Done && open.question.as_ref().is_some_and(|(known, _)| known == id)
        };
        let Some((call, to)) = calls
            .iter()
            .find(is_asking)
            .map(|open| (open.call.clone(), open.question.as_ref().and_then(|(_, to)| to.clone())))
        else {
            return;
        };
        self.emit(SubAgentEvent::QuestionAnswered { question_id: id.clone() });
        let collaborator = user_collaborator(to.as_deref(), CollaboratorStatus::Completed, answer);
        self.emit(SubAgentEvent::CollaboratorUpdated { collaborator });
        let who = to.as_deref().unwrap_or("the user");
        let result: ToolResult = Ok(ToolOutput::text(format!("{who} answered"), answer));
        self.close_call(&call, result);
        self.schedule();
    }

    /// Closes the calls that wait for an answer or a permission with the error `cancelled`, because the run is ending.
    pub(crate) fn withdraw_pending_calls(&mut self) {
        let Some(calls) = self.state.calls_mut() else { return };
        let asked = calls.iter().filter(|open| open.state != CallState::Done && open.waits_for_user());
        let asked: Vec<OpenCall> = asked.cloned().collect();
        for OpenCall { call, question, .. } in asked {
            let mut error = ErrorInfo::new(ErrorCode::Cancelled, "not answered before the run ended");
            match question {
                Some((_, to)) => {
                    let collaborator = user_collaborator(to.as_deref(), CollaboratorStatus::Failed, &error.message);
                    self.emit(SubAgentEvent::CollaboratorUpdated { collaborator });
                }
                None => error.message = "not run: not approved before the run ended".to_owned(),
            }
            self.close_call(&call, Err(error));
        }
    }

    /// If the run has started or stopped waiting for users, emits `waiting` or `resumed` and notifies the parent
    /// (RUN-1).
    pub(crate) fn update_waiting(&mut self) {
        let waits = self.state.only_waits_for_user();
        if waits == self.state.waiting.since.is_some() || (self.state.end.ending.is_some() && !waits) {
            return;
        }
        let kind = self.state.waiting.reason.clone().unwrap_or_else(|| self.state.wait_kind().to_owned());
        self.emit(if waits { RunEvent::Waiting { r#for: kind } } else { RunEvent::Resumed { from: kind } });
        let status = if waits { CollaboratorStatus::Waiting } else { CollaboratorStatus::Running };
        self.notify_parent(status, true);
    }
}
