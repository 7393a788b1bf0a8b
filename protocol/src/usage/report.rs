//! Usage of runs, summed by day, model or session (RUN-6, BUD-2).
//!
//! Each run counts without its children, so that their work is counted once. Elsewhere: the source
//! of the rows.

use serde::{Deserialize, Serialize};

use super::Usd;
use crate::SessionId;

/// Grouping of a usage report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// By the day on which a run started, in UTC.
    #[default]
    Day,
    /// By the model of the run's trace. If it changed, the model of the last run counts.
    Model,
    /// By session.
    Session,
}

impl UsageBy {
    /// Returns the name of the grouping as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Model => "model",
            Self::Session => "session",
        }
    }
}

/// Group of a row: a day, a model or a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum UsageOf {
    /// A day in UTC, `YYYY-MM-DD`.
    Day(String),
    /// Name of a model.
    Model(String),
    /// A session.
    SessionId(SessionId),
}

impl UsageOf {
    /// Returns the day, the model name or the session id.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Day(text) | Self::Model(text) => text,
            Self::SessionId(id) => id.as_str(),
        }
    }
}

/// Total usage of several runs, each without its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageSum {
    /// Number of runs that have started.
    pub runs: u64,
    /// Request and answer tokens.
    pub total_tokens: u64,
    /// Request tokens.
    pub prompt_tokens: u64,
    /// Answer tokens.
    pub completion_tokens: u64,
    /// Request tokens from the provider's cache.
    pub cached_tokens: u64,
    /// Request tokens that were written to the provider's cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Reasoning tokens.
    pub reasoning_tokens: u64,
    /// Number of model calls. A retried attempt without usage does not count.
    pub model_calls: u64,
    /// Number of tool calls.
    pub tool_calls: u64,
    /// Total cost. `None` (JSON `null`) if any price is unknown.
    pub cost: Option<Usd>,
    /// Total cost of the runs with a known price.
    pub known_cost: Usd,
    /// Number of runs that used tokens with an unknown price.
    pub runs_without_price: u64,
    /// Whether some token counts are estimates.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl UsageSum {
    /// Sets `cost` to `known_cost`, or to `None` if runs without a known price are included.
    #[must_use]
    pub fn with_cost(mut self) -> Self {
        self.cost = (self.runs_without_price == 0).then_some(self.known_cost);
        self
    }

    fn add(&mut self, other: &Self) {
        self.runs = self.runs.saturating_add(other.runs);
        self.total_tokens = self.total_tokens.saturating_add(other.total_tokens);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self
            .completion_tokens
            .saturating_add(other.completion_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_write_tokens = self
            .cache_write_tokens
            .saturating_add(other.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.known_cost += other.known_cost;
        self.runs_without_price = self
            .runs_without_price
            .saturating_add(other.runs_without_price);
        self.estimated |= other.estimated;
    }
}

/// A row of a usage report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageRow {
    /// Group of the row.
    #[serde(flatten)]
    pub of: UsageOf,
    /// Total usage of the group.
    #[serde(flatten)]
    pub sum: UsageSum,
}

/// Usage by group, and its total.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageReport {
    /// The rows. Days are in order; models and sessions are sorted by usage, highest first.
    pub usage: Vec<UsageRow>,
    /// Total of all rows.
    pub total: UsageSum,
}

impl UsageReport {
    /// Creates a report with the total of these rows.
    pub fn from_rows(usage: Vec<UsageRow>) -> Self {
        let mut total = UsageSum::default();
        usage.iter().for_each(|row| total.add(&row.sum));
        Self {
            usage,
            total: total.with_cost(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_cost_is_unknown_if_any_row_is() {
        let row = |day: &str, known_cost: u64, runs_without_price: u64| UsageRow {
            of: UsageOf::Day(day.into()),
            sum: UsageSum {
                runs: 2,
                total_tokens: 11,
                prompt_tokens: 10,
                completion_tokens: 1,
                known_cost: Usd::from_nanos(known_cost),
                runs_without_price,
                ..UsageSum::default()
            }
            .with_cost(),
        };
        let known =
            UsageReport::from_rows(vec![row("2026-01-01", 5, 0), row("2026-01-02", 7, 0)]).total;
        assert_eq!(
            (known.runs, known.total_tokens, known.cost),
            (4, 22, Some(Usd::from_nanos(12)))
        );
        let unknown =
            UsageReport::from_rows(vec![row("2026-01-01", 5, 0), row("2026-01-02", 7, 1)]).total;
        assert_eq!(
            (
                unknown.cost,
                unknown.known_cost.as_nanos(),
                unknown.runs_without_price
            ),
            (None, 12, 1)
        );
        assert_eq!(
            UsageReport::from_rows(Vec::new()).total.cost,
            Some(Usd::default())
        );
    }

    #[test]
    fn row_is_keyed_by_grouping_and_round_trips() {
        for (of, key) in [
            (UsageOf::Day("2026-01-01".into()), "day"),
            (UsageOf::Model("m".into()), "model"),
            (UsageOf::SessionId(SessionId::new("s")), "session_id"),
        ] {
            let report = UsageReport::from_rows(vec![UsageRow {
                of: of.clone(),
                sum: UsageSum::default(),
            }]);
            let json = serde_json::to_value(&report).unwrap();
            assert_eq!(json["usage"][0][key], of.as_str(), "{json}");
            assert_eq!(serde_json::from_value::<UsageReport>(json).unwrap(), report);
        }
    }
}
