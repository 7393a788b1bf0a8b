//! Model calls without an outcome: what they have used so far, and what is charged for them if they
//! are lost with their actor or process (BUD-1a).
//!
//! Pure; part of the run state machine. A lost call is charged for what it had used when that was
//! last recorded, or for its prompt if nothing was: calls that last less than a second record
//! nothing. The charge of a turn is in `model_retrying`, or in `model_failed` if the run is ending
//! (`lifecycle/resume.rs`), that of a job in the event of its `lost`, if it records one. Elsewhere:
//! counting what a call uses (`tasks/call_meter.rs`).

use soong_protocol::{
    Event, ModelCallKind, ModelEvent, OpenModelCall, RunWrite, Timestamp, Usage, Write,
};

use crate::{
    budget::Consumed,
    run::machine::{
        RunState, Transition,
        auxiliary_call::Used,
        state::{self, phase::Phase, usage::LostCall},
    },
};

/// The model calls of a run that have no outcome yet.
#[derive(Default)]
pub(crate) struct OpenModelCalls {
    /// The calls that have reported their usage.
    pub(in crate::run::machine) calls: Vec<OpenModelCall>,
    /// The calls as they were last written.
    pub(in crate::run::machine) recorded: Vec<OpenModelCall>,
}

impl OpenModelCalls {
    /// Sets the calls as they are stored.
    pub(in crate::run::machine) fn restore(&mut self, calls: Vec<OpenModelCall>) {
        self.calls.clone_from(&calls);
        self.recorded = calls;
    }

    /// Removes the call that an event gives an outcome.
    pub(in crate::run::machine) fn apply(&mut self, event: &Event) {
        if let Some(ended) = event.ended_model_call() {
            self.calls.retain(|call| call.kind != ended.kind);
        }
    }

    pub(in crate::run::machine) fn set(&mut self, open_call: OpenModelCall) {
        self.calls.retain(|call| call.kind != open_call.kind);
        self.calls.push(open_call);
    }

    pub(in crate::run::machine) fn get(&self, kind: ModelCallKind) -> Option<Used> {
        let open_call = self.calls.iter().find(|call| call.kind == kind)?;
        Some((open_call.usage, open_call.cost))
    }
}

impl RunState {
    fn is_open(&self, kind: ModelCallKind) -> bool {
        match kind {
            ModelCallKind::Turn => self.phase == Phase::CallingModel,
            // Any other call is that of a job.
            _ => self.is_job_calling(kind),
        }
    }

    /// Returns what counts against the budgets of the run and of the runs above it. Estimated
    /// charges for calls that were lost with an earlier process do not count, so that they cannot
    /// exhaust the budget of a resumed run.
    pub(crate) fn consumed(&self) -> Consumed {
        let own = Consumed::of(&self.own_stats_with_running_calls(), self.child_count());
        own.minus(self.usage.excused)
    }
}

/// Returns what the events of a run charge for calls that were lost with an earlier process; see
/// [`RunState::consumed`].
pub(in crate::run) fn excused_consumption(events: &[(Timestamp, Event)]) -> Consumed {
    let mut usage = state::usage::Usage::default();
    for (_, event) in events {
        usage.track_lost_calls(event);
    }
    usage.excused
}

impl Transition<'_, '_> {
    /// Stores what a model call in progress has used so far.
    pub(super) fn call_progressed(&mut self, open_call: OpenModelCall) {
        if self.state.is_open(open_call.kind) {
            self.state.open_model_calls.set(open_call);
        }
    }

    /// Records the calls without an outcome, if they have changed.
    pub(super) fn record_open_model_calls(&mut self) {
        let open_model_calls = &mut self.state.open_model_calls;
        if open_model_calls.calls == open_model_calls.recorded {
            return;
        }
        open_model_calls
            .recorded
            .clone_from(&open_model_calls.calls);
        let calls = open_model_calls.calls.clone();
        let run_id = self.state.spec.identity.run_id.clone();
        self.step
            .writes
            .push(Write::Run(RunWrite::OpenModelCalls { run_id, calls }));
    }

    /// Corrects the charges for lost calls of the turn after the same model has reported the size
    /// of their prompt, which the answered call repeated. What the service had cached of it when
    /// the lost calls were made is unknown, so they are charged the full price. `fallback`: the
    /// model that has answered.
    pub(super) fn correct_lost_calls(&mut self, fallback: Option<usize>, reported: &Usage) {
        if reported.estimated {
            return;
        }
        let model = self.state.spec.model_or_fallback(fallback);
        let prices = model.prices;
        let is_same_model = |call: &&LostCall| call.model() == model.name;
        let calls: Vec<LostCall> = self
            .state
            .usage
            .lost_calls
            .calls
            .iter()
            .filter(is_same_model)
            .cloned()
            .collect();
        for LostCall {
            estimate,
            cost: estimated_cost,
            ..
        } in calls
        {
            let usage = Usage {
                prompt_tokens: reported.prompt_tokens,
                ..estimate
            };
            if usage != estimate {
                let cost = prices.map(|prices| prices.cost(&usage));
                self.emit(ModelEvent::UsageCorrected {
                    estimate,
                    estimated_cost,
                    usage,
                    cost,
                });
            }
        }
    }

    /// Returns what is charged for a call without an outcome: what was last reported, else
    /// `default_usage`.
    pub(super) fn used_by_lost_call(&self, kind: ModelCallKind, default_usage: Used) -> Used {
        self.state
            .open_model_calls
            .get(kind)
            .unwrap_or(default_usage)
    }

    /// Returns what is charged for the lost call of a turn; `None` if the budget shows that no
    /// request was made. `same_process`: the incarnation that made it ran in this process, so its
    /// budget reservation is known.
    pub(super) fn used_by_lost_turn(&self, same_process: bool) -> Option<Used> {
        if self.is_known_to_have_lost_no_call(same_process) {
            return None;
        }
        let usage = Usage::estimate(self.state.conversation.prompt_tokens, 0);
        // The call used the current fallback, or the run's own model if that was tried again: the
        // higher price is charged.
        let own = self
            .state
            .spec
            .model
            .prices
            .map(|prices| prices.cost(&usage));
        let of_fallback = self.state.model().prices.map(|prices| prices.cost(&usage));
        let cost = own
            .zip(of_fallback)
            .map(|(own, of_fallback)| own.max(of_fallback));
        Some(self.used_by_lost_call(ModelCallKind::Turn, (usage, cost)))
    }

    /// Returns whether certainly no call was lost, because none had reserved budget.
    pub(super) fn is_known_to_have_lost_no_call(&self, same_process: bool) -> bool {
        same_process
            && self
                .context
                .budget
                .is_some_and(|account| account.lost_reservation().model_calls == 0)
    }
}
