//! The severity of events.

use serde::{Deserialize, Serialize};

/// Severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Normal operation.
    Info,
    /// A problem that was handled.
    Warn,
    /// A failure.
    Error,
}

impl Level {
    /// Returns the name of the level in the store and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}
