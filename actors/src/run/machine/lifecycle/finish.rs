//! Finishes a run: when no work is left, its edited documents become versions, and then it ends.
//!
//! Pure; part of the run state machine.
//!
//! Invariants:
//! - R5: the terminal event is the last event of the run.
//! - R7: a run does not end before its children.
//!
//! Elsewhere: the reasons for an end (`machine/transition.rs`), the outcome for callers
//! (`outcome.rs`).

use soong_protocol::{
    CollaboratorStatus, EndReason, ErrorCode, ErrorInfo, EventDraft, GoalChanges, GoalEvent,
    GoalStatus, RunEvent, RunStatus, RunWrite, SubAgentEvent, Write,
};

use crate::run::machine::{
    Transition, effect::Effect, ending::Ending, outcome, state::phase::Phase,
};

impl Transition<'_, '_> {
    /// Ends the run if no work is left (R7).
    pub(crate) fn finish_if_done(&mut self) {
        if self.state.is_ended() {
            return;
        }
        if self.state.end.ending.is_some() {
            self.skip_waiting_calls();
        }
        self.update_waiting();
        let may_call_model = self.state.end.ending.is_none()
            && self.state.answer.unexecuted_calls.is_empty()
            && self.state.turn.number < self.state.spec.limits.max_turns;
        if self.state.phase == Phase::Answered
            && !self.state.sub_agents.deliveries.is_empty()
            && may_call_model
        {
            // Results of children arrived that the model has not seen.
            self.open_turn();
        }
        if !matches!(self.state.phase, Phase::Answered | Phase::Halted)
            || self.state.sub_agents.open > 0
        {
            return;
        }
        if self.awaits_learning() || self.awaits_stop_hooks() || self.awaits_after_agent() {
            return;
        }
        if self.awaits_flush() || self.awaits_answer_storage() {
            return;
        }
        let ending = self.state.end.ending.clone().unwrap_or(Ending {
            status: RunStatus::Completed,
            reason: EndReason::Completed,
            error: None,
        });
        self.finish(&ending);
    }

    fn finish(&mut self, ending: &Ending) {
        if ending.status == RunStatus::Completed {
            for kind in self.detach_jobs() {
                self.step.effects.push(Effect::DetachJob(kind));
            }
        }
        // A job that was not detached ends with the run.
        self.lose_jobs(true);
        if ending.status == RunStatus::Completed
            && self.state.reflection.is_none()
            && let Some(goal) = self.state.goals.open_mission_goal()
        {
            let goal_id = goal.id.clone();
            // If sub-agents have set a summary, it is kept. Otherwise, the answer becomes the
            // summary.
            let summary = goal
                .summary
                .is_none()
                .then(|| outcome::summary(&self.state.answer.text));
            let status = Some(GoalStatus::Completed);
            let changes = GoalChanges {
                status,
                summary,
                ..GoalChanges::default()
            };
            self.emit(GoalEvent::Updated {
                goal_id,
                changes,
                affected_goals: Vec::new(),
            });
        }
        let result = outcome::child_result(self.state, ending);
        if let Some(result) = &result {
            // The result is written before the events that report it, so that their rows can refer
            // to it.
            self.step
                .writes
                .push(Write::Run(RunWrite::ChildResult(Box::new(result.clone()))));
        }
        self.emit_end(ending);
        self.notify_parent_trace(match ending.status {
            RunStatus::Completed => CollaboratorStatus::Completed,
            _ => CollaboratorStatus::Failed,
        });
        if let (Some(result), Some(parent)) = (result, self.state.spec.identity.parent.clone()) {
            let event = |event: SubAgentEvent| {
                Write::Event(EventDraft::new(
                    parent.trace_id.clone(),
                    Some(parent.run_id.clone()),
                    self.context.now,
                    event,
                ))
            };
            let completed = event(SubAgentEvent::completed(
                &result,
                outcome::summary(&result.summary),
            ));
            let settings = &self.state.spec.settings;
            let trace = &self.state.spec.identity.trace_id;
            let name = outcome::collaborator_name(settings, trace);
            let collaborator = outcome::ended_collaborator(name, &result);
            let updated = event(SubAgentEvent::CollaboratorUpdated { collaborator });
            self.step.writes.extend([completed, updated]);
        }
    }

    fn emit_end(&mut self, ending: &Ending) {
        let stats = self.state.stats();
        let never_started = self.state.clock.started_at.is_none();
        let no_error = || {
            ErrorInfo::new(
                ErrorCode::InternalError,
                "the run failed without an error message",
            )
        };
        self.emit(match ending.status {
            RunStatus::Completed => RunEvent::Completed {
                summary: outcome::summary(&self.state.answer.text),
                stats,
            },
            RunStatus::Cancelled => RunEvent::Cancelled {
                queued: never_started,
                end_reason: ending.reason,
                stats,
            },
            _ => RunEvent::Failed {
                error: ending.error.clone().unwrap_or_else(no_error),
                end_reason: ending.reason,
                stats,
            },
        });
    }
}
