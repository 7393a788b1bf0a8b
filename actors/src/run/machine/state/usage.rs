//! Usage of a run, and the times of its events.

use soong_protocol::{
    BudgetDimension, ContextEvent, ErrorCode, Event, MemoryEvent, ModelEvent, RunEvent, Stats, Timestamp, Usd,
};

use crate::{budget::Consumed, run::machine::state::open_model_calls::OpenModelCalls};

/// Usage of the run and of its children.
pub(in crate::run::machine) struct Usage {
    /// Usage of the run alone.
    pub(in crate::run::machine) own: Stats,
    /// Usage of all its descendants.
    pub(in crate::run::machine) below: Stats,
    /// Limits that the model was warned of.
    pub(in crate::run::machine) warned: Vec<BudgetDimension>,
    /// Model calls without an outcome.
    pub(in crate::run::machine) open_model_calls: OpenModelCalls,
    /// Charges for calls that were lost with an earlier process. They are guessed, and do not count against budgets.
    pub(in crate::run::machine) excused: Consumed,
    /// Whether the calls without an outcome were lost with their process, not only with their actor.
    pub(in crate::run::machine) lost_process: bool,
}

impl Usage {
    /// Excuses the charge of an event for a call that was lost with its process. The reservations of a killed process are
    /// unknown, so the charge is a guess. The call was made, so it still counts as one.
    pub(in crate::run::machine) fn excuse(&mut self, event: &Event) {
        match event {
            Event::Run(RunEvent::Recovered { .. }) => self.lost_process = true,
            Event::Run(RunEvent::ActorRestarted { .. }) => self.lost_process = false,
            // It is recorded before the first turn, when neither of those events is.
            Event::Memory(MemoryEvent::Injected { usage: Some(usage), cost, error: Some(error), .. })
                if error.code == ErrorCode::Interrupted =>
            {
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
            let tokens = usage.total_tokens();
            let usd = cost.unwrap_or_default();
            self.excused = self.excused.plus(Consumed { tokens, usd, ..Consumed::default() });
        }
    }
}

/// Returns the charge that an event records for a call that was interrupted.
fn charge_of_lost_call(event: &Event) -> Option<(&soong_protocol::Usage, Option<Usd>)> {
    let (error, usage, cost) = match event {
        Event::Model(
            ModelEvent::Retrying { error, usage, cost, .. } | ModelEvent::Failed { error, usage, cost, .. },
        )
        | Event::Context(ContextEvent::CompactionFailed { error, usage, cost }) => (error, usage, cost),
        Event::Model(ModelEvent::NamingEnded { error: Some(error), usage, cost, .. })
        | Event::Memory(MemoryEvent::ReflectionEnded { error: Some(error), usage, cost, .. }) => {
            (&**error, usage, cost)
        }
        _ => return None,
    };
    let usage = usage.as_ref().filter(|_| error.code == ErrorCode::Interrupted)?;
    Some((usage, *cost))
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            own: Stats::zero(),
            below: Stats::zero(),
            warned: Vec::new(),
            open_model_calls: OpenModelCalls::default(),
            excused: Consumed::default(),
            lost_process: false,
        }
    }
}

/// Times of the events of a run.
#[derive(Default)]
pub(in crate::run::machine) struct Times {
    pub(in crate::run::machine) started_at: Option<Timestamp>,
    pub(in crate::run::machine) last_event_at: Option<Timestamp>,
    /// Time that the run was active, in milliseconds: it was not queued, had a process, and did not wait for a user,
    /// for a slot or for its turn with a model (SUB-7). Measured with a monotonic clock and stored with each append.
    pub(in crate::run::machine) used_ms: u64,
    /// Time that the run was not active, computed from its events: for runs of versions that did not store `used_ms`.
    pub(in crate::run::machine) idle_ms: u64,
    /// Time of the last progress report to the parent.
    pub(in crate::run::machine) parent_notified_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use soong_protocol::ErrorInfo;

    use super::*;

    fn retrying(code: ErrorCode, estimated: bool) -> Event {
        let usage = soong_protocol::Usage { prompt_tokens: 10, estimated, ..soong_protocol::Usage::default() };
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
            Event::Run(RunEvent::ActorRestarted { actor, count: 1, error: "crashed".to_owned() })
        };
        let lost = || retrying(ErrorCode::Interrupted, true);
        for (events, excused_tokens) in [
            (vec![recovered(), lost()], 10),
            (vec![recovered(), lost(), recovered(), lost()], 20),
            (vec![lost()], 0),
            (vec![restarted(), lost()], 0),
            (vec![recovered(), restarted(), lost()], 0),
            (vec![recovered(), retrying(ErrorCode::Interrupted, false)], 0),
            (vec![recovered(), retrying(ErrorCode::ProviderError, true)], 0),
        ] {
            let mut usage = Usage::default();
            for event in &events {
                usage.excuse(event);
            }
            assert_eq!(usage.excused.tokens, excused_tokens, "{events:?}");
            assert_eq!(usage.excused.usd.as_nanos(), excused_tokens / 10 * 3, "{events:?}");
        }
    }
}
