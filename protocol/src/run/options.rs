//! Options that the start of a run, the specification of a child and the settings of a stored run
//! have in common.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::GivenMessage;
use crate::{Budget, PermissionMode};

/// Options of a run that a user, a program or another run starts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunOptions {
    /// Maximum number of turns. Default: the preset's, else `runtime.max_turns`.
    #[serde(
        rename = "max_iterations",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub max_turns: Option<u32>,
    /// Tools that the run and all its descendants may use at most (SUB-6). Default: all configured
    /// tools; for a child, all tools that its parent passes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Messages that precede the task (SUB-1); the first must be a user message. For a run that
    /// resumes its trace, the results of the tool calls that the previous run returned unexecuted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<GivenMessage>,
    /// Skills that the agent loads first, or has in its system prompt if it lacks the tool `skill`
    /// (MEM-1). Default: the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// JSON schema that the answer must match. The model may correct its answer once; then the run
    /// fails with `result_schema_validation_failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_output_schema: Option<Value>,
    /// Budget of the run and its descendants. The remaining budget of the parent limits it further
    /// (BUD-1).
    #[serde(default, skip_serializing_if = "Budget::is_unlimited")]
    pub budget: Budget,
    /// Maximum active time, in milliseconds; waiting for a user does not count. Default: no limit.
    /// For a child, `agents.child_timeout_ms` is the default and the upper limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl RunOptions {
    /// Sets the time limit, rounded up to milliseconds.
    pub fn set_timeout(&mut self, limit: Duration) {
        self.timeout_ms = Some(milliseconds(limit));
    }
}

/// Returns a time in milliseconds, rounded up.
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Permissions of a run and its descendants, in addition to those of the configuration (PERM-1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunPermissions {
    /// Calls that the run and its descendants may make without a permission request, as `TOOL` or
    /// `TOOL:SCOPE`, such as `write:src`, `bash:cargo` or `webfetch:example.org`. Never inherited
    /// from an earlier run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Calls that the run, its descendants and later runs of the session may not make, even if
    /// another rule allows them: `TOOL`, `TOOL:SCOPE`, or `bash(PATTERN)` with the words of a
    /// command, such as `bash(git push *)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// The permission mode. Never inherited from an earlier run. Default in a request:
    /// `permissions.mode`; in a stored run: `ask`. A stored run has its current mode.
    #[serde(
        rename = "permission_mode",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub mode: Option<PermissionMode>,
    /// Whether no approver is available. Calls that require permission are denied immediately.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
}
