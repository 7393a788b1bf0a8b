//! Permission mode: which tool calls of a run are allowed, request permission, or are refused
//! (PERM-2).

use serde::{Deserialize, Serialize};

/// Permission mode of a run, from the most restrictive to the least restrictive.
///
/// Deny rules, hooks, and the rules about sensitive and guarded files apply in each mode.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PermissionMode {
    /// Calls that write, run commands or use the network are refused.
    Plan,
    /// Such calls request permission, unless a rule allows them.
    #[default]
    Ask,
    /// Like `ask`, but writes and edits in the project are allowed.
    Edits,
    /// All calls are allowed, except those that no general rule covers: sensitive and guarded
    /// files, unconfined commands, and the network if `permissions.network` denies it.
    All,
}

impl PermissionMode {
    /// All modes, from the most restrictive to the least restrictive.
    pub const ALL: [Self; 4] = [Self::Plan, Self::Ask, Self::Edits, Self::All];

    /// Returns the mode with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// Returns the name of the mode.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Ask => "ask",
            Self::Edits => "edits",
            Self::All => "all",
        }
    }
}
