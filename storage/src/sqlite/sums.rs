//! Columns of a usage sum, and their arithmetic.

use soong_protocol::Stats;

use super::columns::clamp_to_i64;

/// The columns of a sum, in the order of [`Sums`].
macro_rules! sum_columns {
    () => {
        "runs, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, cost_nanos, runs_without_price,
         estimated_runs, model_calls, tool_calls, cache_write_tokens"
    };
}
pub(super) use sum_columns;

/// Number of columns in [`sum_columns`].
const COUNT: usize = 11;

/// Usage of runs: the values of [`sum_columns`], each limited to `i64::MAX`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums(pub(super) [i64; COUNT]);

impl Sums {
    /// Returns the amounts that one run adds.
    pub(super) fn of_run(stats: &Stats) -> Self {
        let has_no_price =
            stats.cost.is_none() && (stats.prompt_tokens > 0 || stats.completion_tokens > 0);
        Self([
            1,
            clamp_to_i64(stats.prompt_tokens),
            clamp_to_i64(stats.completion_tokens),
            clamp_to_i64(stats.cached_tokens),
            clamp_to_i64(stats.reasoning_tokens),
            stats.cost.map_or(0, |cost| clamp_to_i64(cost.as_nanos())),
            has_no_price.into(),
            stats.estimated.into(),
            clamp_to_i64(stats.model_calls),
            clamp_to_i64(stats.tool_calls),
            clamp_to_i64(stats.cache_write_tokens),
        ])
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(sum, value)| *sum = sum.saturating_add(value));
    }

    /// Returns whether a value has reached its limit.
    pub(super) fn is_limited(&self) -> bool {
        self.0.contains(&i64::MAX)
    }

    /// Subtracts down to zero only, because a sum that was limited to `i64::MAX` is not exact.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(sum, value)| *sum = sum.saturating_sub(value).max(0));
    }
}
