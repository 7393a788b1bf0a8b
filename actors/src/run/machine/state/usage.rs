//! Usage of a run, and the times of its events.

use soong_protocol::{
    BudgetDimension, ErrorCode, Event, MemoryEvent, ModelEvent, RunEvent, Stats, Timestamp, Usd,
};

use crate::budget::Consumed;

/// Usage of the run and of its children.
pub(in crate::run::machine) struct Usage {
    /// Usage of the run alone.
    pub(in crate::run::machine) own: Stats,
    /// Usage of all its descendants.
    pub(in crate::run::machine) below: Stats,
    /// Limits that the model was warned of.
    pub(in crate::run::machine) warned: Vec<BudgetDimension>,
    /// Charges for calls that were lost with an earlier process. They are guessed, and do not count
    /// against budgets.
    pub(in crate::run::machine) excused: Consumed,
    /// Whether the calls without an outcome were lost with their process, not only with their
    /// actor.
    pub(in crate::run::machine) lost_process: bool,
    /// The lost calls of the current turn, as long as its prompt stays the same.
    pub(in crate::run::machine) lost_calls: LostCalls,
}

/// Lost calls of a turn whose charge is estimated. It is corrected when the service reports the
/// size of their prompt.
#[derive(Debug, Default)]
pub(in crate::run::machine) struct LostCalls {
    /// Model and size of the last prompt by our own count, in tokens.
    prompt: (String, u64),
    pub(in crate::run::machine) calls: Vec<LostCall>,
}

/// A lost call.
#[derive(Debug, Clone)]
pub(in crate::run::machine) struct LostCall {
    /// Model and size of its prompt by our own count, in tokens.
    prompt: (String, u64),
    pub(in crate::run::machine) estimate: soong_protocol::Usage,
    pub(in crate::run::machine) cost: Option<Usd>,
    /// Whether the estimate does not count against budgets.
    is_excused: bool,
}

impl LostCall {
    /// Returns the name of the model that was called.
    pub(in crate::run::machine) fn model(&self) -> &str {
        &self.prompt.0
    }
}

impl LostCalls {
    fn apply(&mut self, event: &ModelEvent, lost_process: bool) {
        match event {
            ModelEvent::ContextBuilt {
                estimated_tokens, ..
            } => self.prompt.1 = *estimated_tokens,
            ModelEvent::Started { model, attempt } => {
                self.prompt.0.clone_from(model);
                // A new turn, or another prompt: nobody will report the size of the lost one.
                let prompt = &self.prompt;
                self.calls
                    .retain(|call| *attempt > 1 && call.prompt == *prompt);
            }
            ModelEvent::Retrying {
                error,
                usage: Some(estimate),
                cost,
                ..
            } if error.code == ErrorCode::Interrupted && estimate.estimated => {
                let prompt = self.prompt.clone();
                self.calls.push(LostCall {
                    prompt,
                    estimate: *estimate,
                    cost: *cost,
                    is_excused: lost_process,
                });
            }
            ModelEvent::Retrying { .. }
            | ModelEvent::Waiting { .. }
            | ModelEvent::UsageCorrected { .. }
            | ModelEvent::EffortAdjusted { .. }
            | ModelEvent::ProviderDataRejected { .. }
            | ModelEvent::CallsFoundInText { .. }
            | ModelEvent::Fallback { .. }
            | ModelEvent::FallbackEnded { .. }
            | ModelEvent::NamingStarted { .. }
            | ModelEvent::NamingEnded { .. }
            | ModelEvent::Completed { .. }
            | ModelEvent::Failed { .. } => {}
        }
    }
}

impl Usage {
    /// Applies an event to the charges for lost calls.
    ///
    /// The charge for a call that was lost with its process is excused: the reservations of a
    /// killed process are unknown, so the charge is a guess. The call was made, so it still counts
    /// as one.
    pub(in crate::run::machine) fn track_lost_calls(&mut self, event: &Event) {
        if let Event::Model(event) = event {
            self.lost_calls.apply(event, self.lost_process);
        }
        match event {
            Event::Run(RunEvent::Recovered { .. }) => self.lost_process = true,
            Event::Run(RunEvent::ActorRestarted { .. }) => self.lost_process = false,
            Event::Model(ModelEvent::UsageCorrected {
                estimate,
                estimated_cost,
                usage,
                cost,
            }) => {
                let is_corrected =
                    |call: &LostCall| call.estimate == *estimate && call.cost == *estimated_cost;
                let Some(index) = self.lost_calls.calls.iter().position(is_corrected) else {
                    return;
                };
                if self.lost_calls.calls.remove(index).is_excused {
                    self.excused = self.excused.minus(consumed_by(estimate, *estimated_cost));
                    self.excused = self.excused.plus(consumed_by(usage, *cost));
                }
            }
            // The search precedes the first turn, so neither of those events is recorded before it.
            Event::Memory(MemoryEvent::Injected {
                usage: Some(usage),
                cost,
                error: Some(error),
                ..
            }) if error.code == ErrorCode::Interrupted => {
                self.excuse_estimate(usage, *cost);
            }
            _ if self.lost_process => {
                if let Some((usage, cost)) = charge_of_lost_call(event) {
                    self.excuse_estimate(usage, cost);
                }
            }
            _ => {}
        }
    }

    fn excuse_estimate(&mut self, usage: &soong_protocol::Usage, cost: Option<Usd>) {
        if usage.estimated {
            self.excused = self.excused.plus(consumed_by(usage, cost));
        }
    }
}

fn consumed_by(usage: &soong_protocol::Usage, cost: Option<Usd>) -> Consumed {
    Consumed {
        tokens: usage.total_tokens(),
        usd: cost.unwrap_or_default(),
        ..Consumed::default()
    }
}

/// Returns the charge that an event records for a call that was interrupted.
fn charge_of_lost_call(event: &Event) -> Option<(&soong_protocol::Usage, Option<Usd>)> {
    let ended = event.ended_model_call()?;
    let was_interrupted = ended
        .error
        .is_some_and(|error| error.code == ErrorCode::Interrupted);
    let usage = ended.usage.filter(|_| was_interrupted)?;
    Some((usage, ended.cost))
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            own: Stats::zero(),
            below: Stats::zero(),
            warned: Vec::new(),
            excused: Consumed::default(),
            lost_process: false,
            lost_calls: LostCalls::default(),
        }
    }
}

/// Times of the events of a run.
#[derive(Default)]
pub(in crate::run::machine) struct Times {
    pub(in crate::run::machine) started_at: Option<Timestamp>,
    pub(in crate::run::machine) last_event_at: Option<Timestamp>,
    /// Time that the run was active, in milliseconds: it was not queued, had a process, and did not
    /// wait for a user, for a slot or for its turn with a model (SUB-7). Measured with a monotonic
    /// clock and stored with each append.
    pub(in crate::run::machine) used_ms: u64,
    /// Time that the run was not active, computed from its events: for runs of versions that did
    /// not store `used_ms`.
    pub(in crate::run::machine) idle_ms: u64,
    /// Time of the last progress report to the parent.
    pub(in crate::run::machine) parent_notified_at: Option<Timestamp>,
}

impl Times {
    /// Sets the time at which the run started.
    pub(in crate::run::machine) fn start(&mut self, at: Timestamp) {
        self.started_at = Some(at);
    }

    /// Sets the time of the last progress report to the parent.
    pub(in crate::run::machine) fn notify_parent(&mut self, at: Timestamp) {
        self.parent_notified_at = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use soong_protocol::ErrorInfo;

    use super::*;

    fn retrying(code: ErrorCode, estimated: bool) -> Event {
        let usage = soong_protocol::Usage {
            prompt_tokens: 10,
            estimated,
            ..soong_protocol::Usage::default()
        };
        let error = ErrorInfo::new(code, "cut off");
        Event::Model(ModelEvent::Retrying {
            attempt: 1,
            error,
            wait_ms: 0,
            usage: Some(usage),
            cost: Some(Usd::from_nanos(3)),
        })
    }

    #[test]
    fn only_estimates_of_calls_lost_with_a_process_are_excused() {
        let recovered = || Event::Run(RunEvent::Recovered { healed_calls: 0 });
        let restarted = || {
            let actor = "run".to_owned();
            Event::Run(RunEvent::ActorRestarted {
                actor,
                count: 1,
                error: "crashed".to_owned(),
            })
        };
        let lost = || retrying(ErrorCode::Interrupted, true);
        for (events, excused_tokens) in [
            (vec![recovered(), lost()], 10),
            (vec![recovered(), lost(), recovered(), lost()], 20),
            (vec![lost()], 0),
            (vec![restarted(), lost()], 0),
            (vec![recovered(), restarted(), lost()], 0),
            (
                vec![recovered(), retrying(ErrorCode::Interrupted, false)],
                0,
            ),
            (
                vec![recovered(), retrying(ErrorCode::ProviderError, true)],
                0,
            ),
        ] {
            let mut usage = Usage::default();
            for event in &events {
                usage.track_lost_calls(event);
            }
            assert_eq!(usage.excused.tokens, excused_tokens, "{events:?}");
            assert_eq!(
                usage.excused.usd.as_nanos(),
                excused_tokens / 10 * 3,
                "{events:?}"
            );
        }
    }

    #[test]
    fn estimate_is_corrected_only_for_the_same_prompt_of_the_same_model() {
        let built = |estimated_tokens| {
            Event::Model(ModelEvent::ContextBuilt {
                messages: 1,
                tools: 0,
                estimated_tokens,
                left_out: 0,
                rebuilt: None,
            })
        };
        let started = |model: &str, attempt| {
            Event::Model(ModelEvent::Started {
                model: model.to_owned(),
                attempt,
            })
        };
        let lost = || retrying(ErrorCode::Interrupted, true);
        let recovered = Event::Run(RunEvent::Recovered { healed_calls: 0 });
        for (next, is_known) in [
            (vec![built(7), started("a", 2)], true),
            (vec![built(8), started("a", 2)], false),
            (vec![built(7), started("b", 2)], false),
            (vec![built(7), started("a", 1)], false),
        ] {
            let mut usage = Usage::default();
            let first = [built(7), started("a", 1), recovered.clone(), lost()];
            for event in first.iter().chain(&next) {
                usage.track_lost_calls(event);
            }
            assert_eq!(
                usage.lost_calls.calls.len(),
                usize::from(is_known),
                "{next:?}"
            );
            let estimate = soong_protocol::Usage {
                prompt_tokens: 10,
                estimated: true,
                ..Default::default()
            };
            usage.track_lost_calls(&Event::Model(ModelEvent::UsageCorrected {
                estimate,
                estimated_cost: Some(Usd::from_nanos(3)),
                usage: soong_protocol::Usage {
                    prompt_tokens: 25,
                    ..estimate
                },
                cost: Some(Usd::from_nanos(8)),
            }));
            let expected = if is_known { (25, 8) } else { (10, 3) };
            assert_eq!(
                (usage.excused.tokens, usage.excused.usd.as_nanos()),
                expected,
                "{next:?}"
            );
        }
    }
}
