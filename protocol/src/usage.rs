//! Usage of runs: tokens, cost and time, and their totals over a tree (RUN-6).

mod report;

use std::{fmt, iter::Sum, ops::AddAssign, str::FromStr};

pub use report::{UsageBy, UsageOf, UsageReport, UsageRow, UsageSum};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount of US dollars with nine decimal places, serialized as a decimal string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String, pattern = r"^[0-9]+(\.[0-9]{0,9})?$", examples("2.50")))]
pub struct Usd(u64);

const NANOS_PER_USD: u64 = 1_000_000_000;

impl Usd {
    /// Creates an amount from billionths of a dollar.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the amount in billionths of a dollar.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the cost of `tokens` at this price per million tokens.
    fn per_million(self, tokens: u64) -> Self {
        let nanos = u128::from(self.0) * u128::from(tokens) / 1_000_000;
        Self(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl AddAssign for Usd {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl Sum for Usd {
    /// Adds amounts. With `Option<Usd>`, the sum is `None` if one of the amounts is unknown.
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |mut sum, amount| {
            sum += amount;
            sum
        })
    }
}

impl fmt::Display for Usd {
    /// Writes at least two decimal places and no trailing zeros after them: `0.00`, `1.50`,
    /// `0.000042`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:09}", self.0 % NANOS_PER_USD);
        let length = decimals.trim_end_matches('0').len().max(2);
        write!(f, "{}.{}", self.0 / NANOS_PER_USD, &decimals[..length])
    }
}

impl FromStr for Usd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "{text:?} is not a valid amount of USD: use a decimal such as \"2.50\", at most nine decimals"
            )
        };
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 9 {
            return Err(refuse());
        }
        let nanos = format!("{decimals:0<9}")
            .parse::<u64>()
            .map_err(|_| refuse())?;
        let whole = whole
            .parse::<u64>()
            .ok()
            .and_then(|w| w.checked_mul(NANOS_PER_USD));
        whole
            .and_then(|w| w.checked_add(nanos))
            .map(Self)
            .ok_or_else(refuse)
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Token usage of one model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the request.
    pub prompt_tokens: u64,
    /// Tokens of the answer, including reasoning.
    pub completion_tokens: u64,
    /// Tokens of the request that came from the provider's cache.
    #[serde(default)]
    pub cached_tokens: u64,
    /// Tokens of the request that were written to the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Part of `cache_write_tokens` with the longer lifetime (one or twelve hours), which has its
    /// own price.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub long_cache_write_tokens: u64,
    /// Tokens of the answer that were reasoning.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// Whether the counts are estimates because the provider reported none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Usage {
    /// Returns an estimate of a call whose service reported no usage.
    pub fn estimate(prompt_tokens: u64, completion_tokens: u64) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            estimated: true,
            ..Self::default()
        }
    }

    /// Returns the sum of request and answer tokens.
    pub fn total_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    /// Returns the usage of two calls together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            completion_tokens: self
                .completion_tokens
                .saturating_add(other.completion_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            cache_write_tokens: self
                .cache_write_tokens
                .saturating_add(other.cache_write_tokens),
            long_cache_write_tokens: self
                .long_cache_write_tokens
                .saturating_add(other.long_cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            estimated: self.estimated || other.estimated,
        }
    }
}

/// Kind of a model call of a run. A run makes at most one call of a kind at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelCallKind {
    /// The call of a turn.
    Turn,
    /// The summary of the older part of the conversation.
    Summary,
    /// A reflection on messages that a summary is about to replace.
    Reflection,
    /// The name of the trace.
    Naming,
    /// The classification of the task, for recall.
    Recall,
}

/// A model call without an outcome, with its usage so far. A call that is lost with its process is
/// charged it (BUD-1a).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenModelCall {
    /// Kind of the call.
    pub kind: ModelCallKind,
    /// Its usage: the prompt and what has arrived of the answer.
    pub usage: Usage,
    /// Cost of the usage. `None` if the price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Usd>,
}

/// Prices of a model per million tokens (BUD-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prices {
    /// Price of request tokens.
    pub prompt: Usd,
    /// Price of answer tokens.
    pub completion: Usd,
    /// Price of request tokens from the provider's cache.
    pub cached: Usd,
    /// Price of request tokens that are written to the provider's cache.
    pub cache_write: Usd,
    /// Price of request tokens that are written to be kept for longer.
    pub long_cache_write: Usd,
    /// Prices of a call whose prompt is long.
    pub long: Option<LongPrices>,
}

/// Prices of a call whose prompt is long, per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LongPrices {
    /// The prices apply if the prompt has more tokens.
    pub above_tokens: u64,
    /// Price of request tokens.
    pub prompt: Usd,
    /// Price of answer tokens.
    pub completion: Usd,
    /// Price of request tokens from the provider's cache.
    pub cached: Usd,
    /// Price of request tokens that are written to the provider's cache.
    pub cache_write: Usd,
    /// Price of request tokens that are written to be kept for longer.
    pub long_cache_write: Usd,
}

impl Prices {
    /// Returns the cost of a call with this usage.
    pub fn cost(&self, usage: &Usage) -> Usd {
        let prices = match self.long {
            Some(long) if usage.prompt_tokens > long.above_tokens => Self {
                prompt: long.prompt,
                completion: long.completion,
                cached: long.cached,
                cache_write: long.cache_write,
                long_cache_write: long.long_cache_write,
                long: None,
            },
            _ => *self,
        };
        let fresh = usage
            .prompt_tokens
            .saturating_sub(usage.cached_tokens)
            .saturating_sub(usage.cache_write_tokens);
        let mut cost = prices.prompt.per_million(fresh);
        cost += prices.cached.per_million(usage.cached_tokens);
        let long_writes = usage.long_cache_write_tokens.min(usage.cache_write_tokens);
        cost += prices
            .cache_write
            .per_million(usage.cache_write_tokens - long_writes);
        cost += prices.long_cache_write.per_million(long_writes);
        cost += prices.completion.per_million(usage.completion_tokens);
        cost
    }
}

/// Accumulated usage (RUN-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stats {
    /// Number of messages added.
    pub messages: u64,
    /// Request and answer tokens.
    pub total_tokens: u64,
    /// Request tokens.
    pub prompt_tokens: u64,
    /// Answer tokens.
    pub completion_tokens: u64,
    /// Request tokens from the provider's cache.
    pub cached_tokens: u64,
    /// Request tokens that were written to the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Reasoning tokens.
    pub reasoning_tokens: u64,
    /// Total cost. `None` (JSON `null`) if any price is unknown.
    pub cost: Option<Usd>,
    /// Number of model calls. A retried attempt without usage does not count.
    #[serde(default)]
    pub model_calls: u64,
    /// Number of tool calls that started, whether or not they succeeded.
    #[serde(default)]
    pub tool_calls: u64,
    /// Active time, in milliseconds. Time spent waiting for a user, a free slot or the retry of a
    /// model call does not count.
    pub duration_ms: u64,
    /// Whether some token counts are estimates.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Stats {
    /// Returns empty statistics with a known cost of zero.
    pub fn zero() -> Self {
        Self {
            cost: Some(Usd::default()),
            ..Self::default()
        }
    }

    /// Adds the tokens and the cost of one model call. Does not change the number of calls.
    pub fn add_usage(&mut self, usage: &Usage, cost: Option<Usd>) {
        self.total_tokens = self.total_tokens.saturating_add(usage.total_tokens());
        self.prompt_tokens = self.prompt_tokens.saturating_add(usage.prompt_tokens);
        self.completion_tokens = self
            .completion_tokens
            .saturating_add(usage.completion_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(usage.cached_tokens);
        self.cache_write_tokens = self
            .cache_write_tokens
            .saturating_add(usage.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(usage.reasoning_tokens);
        self.estimated |= usage.estimated;
        self.cost = [self.cost, cost].into_iter().sum();
    }

    /// Subtracts the tokens and the cost of one model call, which were added before. Does not
    /// change the number of calls.
    pub fn subtract_usage(&mut self, usage: &Usage, cost: Option<Usd>) {
        self.total_tokens = self.total_tokens.saturating_sub(usage.total_tokens());
        self.prompt_tokens = self.prompt_tokens.saturating_sub(usage.prompt_tokens);
        self.completion_tokens = self
            .completion_tokens
            .saturating_sub(usage.completion_tokens);
        self.cached_tokens = self.cached_tokens.saturating_sub(usage.cached_tokens);
        self.cache_write_tokens = self
            .cache_write_tokens
            .saturating_sub(usage.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_sub(usage.reasoning_tokens);
        if let (Some(total), Some(cost)) = (self.cost, cost) {
            self.cost = Some(Usd::from_nanos(
                total.as_nanos().saturating_sub(cost.as_nanos()),
            ));
        }
    }

    /// Adds the statistics of a descendant, except its duration: descendants run while their
    /// ancestors are active.
    pub fn add_descendant(&mut self, child: &Stats) {
        self.messages = self.messages.saturating_add(child.messages);
        self.total_tokens = self.total_tokens.saturating_add(child.total_tokens);
        self.prompt_tokens = self.prompt_tokens.saturating_add(child.prompt_tokens);
        self.completion_tokens = self
            .completion_tokens
            .saturating_add(child.completion_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(child.cached_tokens);
        self.cache_write_tokens = self
            .cache_write_tokens
            .saturating_add(child.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(child.reasoning_tokens);
        self.model_calls = self.model_calls.saturating_add(child.model_calls);
        self.tool_calls = self.tool_calls.saturating_add(child.tool_calls);
        self.estimated |= child.estimated;
        self.cost = [self.cost, child.cost].into_iter().sum();
    }
}

/// Statistics of a run, without and with its descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatsPair {
    /// Without descendants.
    pub own: Stats,
    /// With all descendants.
    pub tree: Stats,
}

impl StatsPair {
    /// Returns empty statistics with a known cost of zero.
    pub fn zero() -> Self {
        Self {
            own: Stats::zero(),
            tree: Stats::zero(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_decimals() {
        for (text, nanos, shown) in [
            ("0", 0, "0.00"),
            ("2.5", 2_500_000_000, "2.50"),
            ("0.000042", 42_000, "0.000042"),
            ("12.345678901", 12_345_678_901, "12.345678901"),
        ] {
            let amount: Usd = text.parse().unwrap();
            assert_eq!(
                (amount.as_nanos(), amount.to_string().as_str()),
                (nanos, shown),
                "{text}"
            );
        }
        for bad in [
            "",
            ".5",
            "-1",
            "1e3",
            "1,5",
            "0.0000000001",
            "99999999999999",
        ] {
            assert!(bad.parse::<Usd>().is_err(), "{bad}");
        }
    }

    #[test]
    fn cached_tokens_have_their_own_price() {
        let price = |text: &str| text.parse::<Usd>().unwrap();
        let prices = Prices {
            prompt: price("2"),
            completion: price("8"),
            cached: price("0.5"),
            ..Prices::default()
        };
        let usage = Usage {
            prompt_tokens: 1_000,
            completion_tokens: 100,
            cached_tokens: 400,
            ..Usage::default()
        };
        assert_eq!(prices.cost(&usage).to_string(), "0.0022");
        let prices = Prices {
            cache_write: price("2.5"),
            long_cache_write: price("4"),
            ..prices
        };
        let usage = Usage {
            cache_write_tokens: 200,
            long_cache_write_tokens: 50,
            ..usage
        };
        assert_eq!(prices.cost(&usage).to_string(), "0.002375");
    }

    #[test]
    fn one_unknown_price_makes_the_sum_unknown() {
        let mut stats = Stats::zero();
        stats.add_usage(&Usage::default(), Some(Usd::from_nanos(5)));
        assert_eq!(stats.cost, Some(Usd::from_nanos(5)));
        stats.add_usage(&Usage::default(), None);
        stats.add_usage(&Usage::default(), Some(Usd::from_nanos(5)));
        assert_eq!(stats.cost, None);
    }
}
