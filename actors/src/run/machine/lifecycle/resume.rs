//! Resumes a run after an earlier incarnation of its actor: work without an outcome is requested
//! again, and recorded outcomes are kept.
//!
//! Pure; part of the run state machine. Elsewhere: reading the stored state (`tasks/load.rs`),
//! resuming single calls (`machine/tool_calls/resumption.rs`).

use soong_protocol::{CollaboratorStatus, ErrorCode, ErrorInfo, ModelEvent, RunEvent};

use crate::run::machine::{
    Transition, auxiliary_call::usage_and_cost, input::ResumeReason, state::phase::Phase,
    transition::to_u64,
};

impl Transition<'_, '_> {
    /// Resumes the run. Work that was in flight is lost; recorded outcomes are kept (DUR-4).
    pub(crate) fn resume(&mut self, reason: ResumeReason) {
        // Budget reservations are known only to the process that made them.
        let same_process = matches!(reason, ResumeReason::Crashed { .. });
        let is_new_process = matches!(reason, ResumeReason::ProcessRestart);
        if self.state.phase != Phase::New {
            match reason {
                ResumeReason::Reactivated => {}
                ResumeReason::Crashed { error, .. } if error.is_empty() => {}
                ResumeReason::Crashed { count, error } => {
                    self.emit(RunEvent::ActorRestarted {
                        actor: "run".to_owned(),
                        count,
                        error,
                    });
                    self.notify_parent(CollaboratorStatus::Running, true);
                }
                ResumeReason::ProcessRestart => {
                    let interrupted_calls = to_u64(self.calls_with_unknown_outcome().len());
                    self.emit(RunEvent::Recovered {
                        healed_calls: interrupted_calls,
                    });
                }
            }
        }
        if is_new_process && self.state.start.loop_started {
            // The configuration may have changed.
            self.record_offered_tools();
        }
        self.summarize_goals();
        self.lose_jobs(same_process);
        match self.state.phase {
            Phase::New if self.state.end.ending.is_some() => self.close_in_flight(same_process), // R6
            // It stopped before its first model call.
            Phase::New if self.state.start.has_spoken => self.open_turn(),
            // It has not added a message.
            Phase::New => self.start(),
            Phase::CallingModel if self.state.end.ending.is_some() => {
                self.close_in_flight(same_process)
            }
            Phase::CallingModel => {
                let attempt = self.state.turn.attempt;
                let charged = self.used_by_lost_turn(same_process);
                let (usage, cost) = usage_and_cost(charged);
                let error =
                    ErrorInfo::new(ErrorCode::Interrupted, "the model call was interrupted");
                self.emit(ModelEvent::Retrying {
                    attempt,
                    error,
                    wait_ms: 0,
                    usage,
                    cost,
                });
                self.call_model();
            }
            Phase::Reflecting | Phase::Compacting => self.call_model(),
            Phase::RunningTools { .. } => self.resume_calls(),
            _ => {}
        }
        if self.state.end.ending.is_some() {
            self.abort();
        }
    }

    /// Closes the work that an earlier incarnation had in flight, without repeating it.
    /// `same_process`: the incarnation ran in this process.
    pub(crate) fn close_in_flight(&mut self, same_process: bool) {
        match self.state.phase {
            Phase::CallingModel => {
                let error =
                    ErrorInfo::new(ErrorCode::Interrupted, "the model call was interrupted");
                let charged = self.used_by_lost_turn(same_process);
                let (usage, cost) = usage_and_cost(charged);
                self.emit(ModelEvent::Failed {
                    error,
                    usage,
                    cost,
                    waited_ms: 0,
                });
            }
            Phase::RunningTools { .. } => {
                self.withdraw_pending_calls();
                self.interrupt_calls();
            }
            Phase::New => {
                if self.state.start.was_queued && !self.state.start.loop_started {
                    self.emit(RunEvent::Dequeued { cancelled: true });
                }
                self.state.halt();
            }
            Phase::Preparing | Phase::Recalling | Phase::Driven | Phase::Answered => {
                self.state.halt();
            }
            // The loss of these jobs halts a run that is ending.
            Phase::Reflecting | Phase::Compacting | Phase::Halted | Phase::Ended(_) => {}
        }
    }
}
