//! The modes of child runs.

use serde::{Deserialize, Serialize};

/// Why a child was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChildMode {
    /// One of several that look at different things at the same time.
    Explore,
    /// One that does a piece of work.
    Delegate,
    /// One that judges whether a goal is met.
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
