//! Budgets: what a run and everything below it may use (BUD-1).
//!
//! Not here: who keeps count, and what waits for whom; that is the runtime's.

use serde::{Deserialize, Serialize};

use crate::Usd;

/// What a run and everything below it may use; what is absent has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Prompt and completion tokens together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money; only where the prices of all models are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<Usd>,
    /// Model calls, those that summaries take included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    /// Tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// Run time of the run that holds the budget, in seconds; waiting in a queue or for a person does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_time_s: Option<u64>,
    /// Levels of sub-agents below the run that holds the budget; 0 = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Sub-agents of all levels, over the whole life of the run that holds the budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<u64>,
}

impl Budget {
    /// Returns whether nothing is limited.
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the budget with what `other` says where this one says nothing.
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

/// One of the things that a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BudgetDimension {
    /// Prompt and completion tokens together.
    Tokens,
    /// Money, in USD.
    Usd,
    /// Model calls.
    ModelCalls,
    /// Tool calls.
    ToolCalls,
    /// Run time, in seconds.
    WallTimeS,
    /// Levels of sub-agents.
    Depth,
    /// Sub-agents of all levels.
    Children,
}

impl BudgetDimension {
    /// Returns the dimension as clients see it, and as the key of a budget.
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
