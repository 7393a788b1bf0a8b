//! Model calls besides the turns: their request, their answer, and what they have used.
//!
//! Pure. Elsewhere: the calls (`tasks/auxiliary_call.rs`).

use soong_model::Completion;
use soong_protocol::{Prices, Usage, Usd};

use crate::context::count_estimate;

/// Usage of a model call, and its cost if the prices are known.
pub(crate) type Used = (Usage, Option<Usd>);

/// Returns usage and cost as the two fields of an event.
pub(super) fn usage_and_cost(used: Option<Used>) -> (Option<Usage>, Option<Usd>) {
    used.map_or((None, None), |(usage, cost)| (Some(usage), cost))
}

/// A summary, a reflection or a name to request.
#[derive(Debug, Clone)]
pub(crate) struct AuxiliaryCall {
    pub(crate) system: String,
    pub(crate) user: String,
}

/// A model of a run for work besides its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuxiliaryRole {
    /// Writes summaries, and reflects on messages.
    Summary,
    /// Answers small questions.
    Utility,
}

/// The answer to a model call besides the turns.
#[derive(Debug)]
pub(crate) struct AuxiliaryAnswer {
    pub(crate) completion: Completion,
    /// Size of the request, in tokens, as counted by the runtime.
    pub(crate) prompt_tokens: u64,
    /// Prices of the model that answered.
    pub(crate) prices: Option<Prices>,
    /// Usage of answers before it that were refused or cut off.
    pub(crate) discarded: Option<Used>,
}

impl AuxiliaryAnswer {
    /// Returns the usage of the call and of discarded answers before it, and the cost if all prices
    /// are known. Usage that was not reported is estimated.
    pub(in crate::run) fn used(&self) -> Used {
        let answer_tokens = || count_estimate(&self.completion.text);
        let estimate = || Usage::estimate(self.prompt_tokens, answer_tokens());
        let usage = self.completion.usage.unwrap_or_else(estimate);
        add_used(
            self.discarded,
            (usage, self.prices.map(|prices| prices.cost(&usage))),
        )
    }
}

/// Model calls that were made together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct UsedByCalls {
    pub(in crate::run) calls: u64,
    pub(in crate::run) used: Option<Used>,
}

impl UsedByCalls {
    /// Adds a call.
    pub(in crate::run) fn add(&mut self, used: Used) {
        self.calls += 1;
        self.used = Some(add_used(self.used, used));
    }
}

/// Adds usage and its cost to earlier usage. The cost is known if each is.
pub(in crate::run) fn add_used(earlier: Option<Used>, (usage, cost): Used) -> Used {
    let Some((earlier, earlier_cost)) = earlier else {
        return (usage, cost);
    };
    (earlier.plus(usage), [earlier_cost, cost].into_iter().sum())
}
