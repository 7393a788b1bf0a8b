//! Resumes a run after an earlier incarnation of its actor: work without an outcome is requested again, and recorded
//! outcomes are kept.
//!
//! Pure; part of the run state machine. Elsewhere: reading the stored state (`tasks/load.rs`), resuming single calls
//! (`machine/tool_calls/scheduler.rs`).

use soong_protocol::{CollaboratorStatus, ErrorCode, ErrorInfo, ModelEvent, RunEvent, Usage, Usd};

use crate::run::machine::{
    input::ResumeReason,
    state::phase::Phase,
    transition::{Transition, to_u64},
};

impl Transition<'_, '_> {
    /// Resumes the run. Work that was in flight is lost; recorded outcomes are kept (DUR-4).
    pub(crate) fn resume(&mut self, again: ResumeReason) {
        // Budget reservations are known only to the process that made them.
        let was_here = matches!(again, ResumeReason::Crashed { .. });
        if self.state.phase != Phase::New {
            match again {
                ResumeReason::Reactivated => {}
                ResumeReason::Crashed { error, .. } if error.is_empty() => {}
                ResumeReason::Crashed { count, error } => {
                    self.emit(RunEvent::ActorRestarted { actor: "run".to_owned(), count, error });
                    self.notify_parent(CollaboratorStatus::Running, true);
                }
                ResumeReason::ProcessRestart => {
                    let healed_calls = to_u64(self.calls_with_unknown_outcome().len());
                    self.emit(RunEvent::Recovered { healed_calls });
                }
            }
        }
        self.summarize_goals();
        match self.state.phase {
            // It stopped before its first model call, or has not added a message yet.
            Phase::New if self.state.start.has_spoken => self.open_turn(),
            Phase::New => {
                if self.state.start.loop_started {
                    // The search for experiences may have been interrupted.
                    self.charge_lost_recall(was_here);
                }
                self.start();
            }
            Phase::CallingModel if self.state.end.ending.is_some() => self.close_in_flight(was_here),
            Phase::CallingModel => {
                let attempt = self.state.turn.attempt;
                let booked = self.lost_call_usage(was_here);
                let (usage, cost) = booked.map_or((None, None), |(usage, cost)| (Some(usage), cost));
                let error = ErrorInfo::new(ErrorCode::Interrupted, "the model call was cut off");
                self.emit(ModelEvent::Retrying { attempt, error, wait_ms: 0, usage, cost });
                self.call_model();
            }
            Phase::Compacting if self.state.end.ending.is_some() => self.close_in_flight(was_here),
            Phase::Compacting => {
                self.close_lost_summary();
                self.call_model();
            }
            Phase::RunningTools { .. } => self.resume_calls(),
            _ => {}
        }
        if self.state.end.ending.is_some() {
            self.abort();
        }
    }

    /// Returns the usage charged for a model call whose usage is unknown: the maximum that it may have used (DUR-4).
    pub(in crate::run) fn max_usage(&self) -> (Usage, Option<Usd>) {
        let spec = &self.state.spec;
        let usage = Usage {
            prompt_tokens: self.state.conversation.prompt_tokens,
            completion_tokens: spec.model.max_output_tokens,
            estimated: true,
            ..Usage::default()
        };
        (usage, spec.model.prices.map(|prices| prices.cost(&usage)))
    }

    /// Returns the usage charged for a call that was lost with its actor; `None` if no request was made.
    fn lost_call_usage(&self, was_here: bool) -> Option<(Usage, Option<Usd>)> {
        let (mut usage, _) = self.max_usage();
        if let Some(purse) = self.context.budget.filter(|_| was_here) {
            let held = purse.lost_reservation();
            if held.model_calls == 0 {
                return None;
            }
            usage.completion_tokens = held.tokens.saturating_sub(usage.prompt_tokens);
        }
        Some((usage, self.state.spec.model.prices.map(|prices| prices.cost(&usage))))
    }

    /// Closes the work that an earlier incarnation had in flight, without repeating it. `was_here`: the incarnation ran
    /// in this process.
    pub(crate) fn close_in_flight(&mut self, was_here: bool) {
        match self.state.phase {
            Phase::CallingModel => {
                let error = ErrorInfo::new(ErrorCode::Interrupted, "the model call was cut off");
                let booked = self.lost_call_usage(was_here);
                let (usage, cost) = booked.map_or((None, None), |(usage, cost)| (Some(usage), cost));
                self.emit(ModelEvent::Failed { error, usage, cost, waited_ms: 0 });
            }
            Phase::Compacting => {
                self.close_lost_summary();
                self.state.phase = Phase::Halted;
            }
            Phase::RunningTools { .. } => {
                self.withdraw_pending_calls();
                self.interrupt_calls();
            }
            Phase::New => {
                if self.state.start.loop_started {
                    // The search for experiences may have been interrupted.
                    self.charge_lost_recall(was_here);
                } else if self.state.start.was_queued {
                    self.emit(RunEvent::Dequeued { cancelled: true });
                }
                self.state.phase = Phase::Halted;
            }
            Phase::Recalling | Phase::Driven | Phase::Answered => self.state.phase = Phase::Halted,
            Phase::Halted | Phase::Ended(_) => {}
        }
    }
}
