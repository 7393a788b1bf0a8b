//! Budgets: limits on the usage of a run and its descendants (BUD-1).
//!
//! Elsewhere: accounting and waiting for budget, which the runtime does.

use serde::{Deserialize, Serialize};

use crate::Usd;

/// Limits on the usage of a run and its descendants. Absent fields have no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Request and answer tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Cost in USD. Requires that the prices of all models are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<Usd>,
    /// Model calls, including calls that write summaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    /// Tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// Run time of the run with the budget, in seconds. Time spent waiting in a queue or for a user
    /// does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_time_s: Option<u64>,
    /// Levels of sub-agents below the run with the budget. 0 means that it may start none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Number of descendants over the lifetime of the run with the budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<u64>,
}

impl Budget {
    /// Returns whether the budget sets no limit.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the budget with missing limits taken from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.or(other.tokens),
            usd: self.usd.or(other.usd),
            model_calls: self.model_calls.or(other.model_calls),
            tool_calls: self.tool_calls.or(other.tool_calls),
            wall_time_s: self.wall_time_s.or(other.wall_time_s),
            depth: self.depth.or(other.depth),
            children: self.children.or(other.children),
        }
    }
}

/// A quantity that a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BudgetDimension {
    /// Request and answer tokens.
    Tokens,
    /// Cost in USD.
    Usd,
    /// Model calls.
    ModelCalls,
    /// Tool calls.
    ToolCalls,
    /// Run time, in seconds.
    WallTimeS,
    /// Levels of sub-agents.
    Depth,
    /// Number of sub-agents on all levels.
    Children,
}

impl BudgetDimension {
    /// Returns the dimension as clients see it, which is also the key in a budget.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Usd => "usd",
            Self::ModelCalls => "model_calls",
            Self::ToolCalls => "tool_calls",
            Self::WallTimeS => "wall_time_s",
            Self::Depth => "depth",
            Self::Children => "children",
        }
    }
}
