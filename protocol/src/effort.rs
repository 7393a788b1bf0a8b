//! How much a model reasons before it answers.

use serde::{Deserialize, Serialize};

/// How much a model reasons before it answers. In ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// No reasoning, or as little as the model allows.
    None,
    /// Less than `low`.
    Minimal,
    /// A little.
    Low,
    /// The usual amount.
    Medium,
    /// More than usual.
    High,
    /// More than `high`.
    Xhigh,
    /// As much as possible.
    Max,
}

impl Effort {
    /// All levels, in ascending order.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Minimal,
        Self::Low,
        Self::Medium,
        Self::High,
        Self::Xhigh,
        Self::Max,
    ];

    /// Returns the name of the level.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}
