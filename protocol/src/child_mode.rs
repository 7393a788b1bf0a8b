//! Modes of child runs.

use serde::{Deserialize, Serialize};

/// Mode of a child run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChildMode {
    /// One of several children that examine different subjects in parallel.
    Explore,
    /// A child that works on one task.
    Delegate,
    /// A child that judges whether a goal is met.
    Evaluate,
}

impl ChildMode {
    /// Returns the mode as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Explore => "explore",
            Self::Delegate => "delegate",
            Self::Evaluate => "evaluate",
        }
    }
}
