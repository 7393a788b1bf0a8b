//! Permissions: requests for tool calls that require approval, and the decisions about them
//! (PERM-1).

mod mode;

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use self::mode::PermissionMode;
use crate::{ErrorCode, ErrorInfo, PermissionId, RunId, SessionId, Timestamp, TraceId};

/// Scope of a permission. A permission for the session covers later calls of the same tool with an
/// equal scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Scope {
    /// All calls of the tool.
    Tool,
    /// Files directly in a directory.
    Directory {
        /// The directory. Absolute, with symlinks resolved.
        path: String,
    },
    /// A network host.
    Host {
        /// Name or address of the host, in lower case.
        host: String,
    },
    /// Commands that call a program, or one of its subcommands, with options that are known to be
    /// harmless.
    Command {
        /// Program and subcommand, such as `git status`.
        executable: String,
        /// Working directory. Absolute, with symlinks resolved.
        directory: String,
    },
    /// One exact command line.
    CommandLine {
        /// The command line.
        command: String,
        /// Working directory. Absolute, with symlinks resolved.
        directory: String,
    },
    /// This call only. A permission for the session covers no more than a permission for this call.
    Call,
    /// This call only, which would run without a sandbox. Such a call is always sensitive.
    Unconfined,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool => f.write_str("every call of the tool"),
            Self::Directory { path } => write!(f, "files in {path}"),
            Self::Host { host } => write!(f, "host {host}"),
            Self::Command {
                executable,
                directory,
            } => write!(f, "`{executable}` with harmless options in {directory}"),
            Self::CommandLine { directory, .. } => {
                write!(f, "exactly this command line in {directory}")
            }
            Self::Call => f.write_str("this call only"),
            Self::Unconfined => f.write_str("this call only, without a sandbox"),
        }
    }
}

/// Access that a tool call requires permission for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Demand))]
pub struct AccessRequest {
    /// Target of the call, for display: a path, a URL or a command.
    pub target: String,
    /// Scope of a permission for the session.
    pub scope: Scope,
    /// Whether general permissions do not cover the call, as for a sensitive path. Only a
    /// permission that names the target does.
    #[serde(default)]
    pub is_sensitive: bool,
    /// Information for the approver in addition to the arguments, for example that the command
    /// would run without a sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl AccessRequest {
    /// Returns whether a permission for the session would cover more than this call.
    pub const fn is_grantable_for_session(&self) -> bool {
        !self.is_sensitive && !matches!(self.scope, Scope::Call | Scope::Unconfined)
    }

    /// Creates a request whose scope is all calls of the tool.
    pub fn whole_tool(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            scope: Scope::Tool,
            is_sensitive: false,
            note: None,
        }
    }
}

/// Decision about a permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This call may run.
    AllowOnce,
    /// This call and calls with an equal scope may run, until the process that owns the home exits.
    AllowForSession,
    /// The call may not run.
    Deny,
}

impl Decision {
    /// Returns the decision as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow_once",
            Self::AllowForSession => "allow_for_session",
            Self::Deny => "deny",
        }
    }

    /// Returns whether the call may run.
    pub const fn allows(self) -> bool {
        !matches!(self, Self::Deny)
    }
}

/// Status of a permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PermissionStatus {
    /// No decision yet.
    Pending,
    /// The call may run.
    Allowed,
    /// The call may not run.
    Denied,
    /// The run ended before a decision.
    Withdrawn,
}

impl PermissionStatus {
    /// Returns the status as clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// A run on the path from the user's run to the run that requests permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChainLink {
    /// The run.
    pub run_id: RunId,
    /// Trace of the run.
    pub trace_id: TraceId,
    /// Preset of the run.
    pub agent_type: String,
    /// Task of the run, shortened.
    pub task: String,
}

/// A permission request for one tool call. It is stored, and bound to the tool and its exact
/// arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Permission {
    /// Unique id.
    pub permission_id: PermissionId,
    /// The run that requests permission.
    pub run_id: RunId,
    /// Trace of the run.
    pub trace_id: TraceId,
    /// Session of the run.
    pub session_id: SessionId,
    /// The tool call.
    pub tool_call_id: String,
    /// Name of the tool.
    pub tool: String,
    /// Complete arguments, as the model wrote them.
    pub arguments: String,
    /// Hash that binds the decision to the call: hexadecimal SHA-256 of tool, arguments, requested
    /// access and diff.
    pub fingerprint: String,
    /// Access that the call requires permission for.
    pub demand: AccessRequest,
    /// For an edit or a write, the change as a unified diff. Absent if the diff would be too long
    /// or the file is sensitive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// The runs from the user's run to the requesting run, in this order.
    pub chain: Vec<ChainLink>,
    /// Status of the request.
    pub status: PermissionStatus,
    /// The decision. Absent while the request is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Origin of the decision: `terminal`, `cli`, `monitor`, `http:UID`, `api`, `handler`, `rule`
    /// or `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Reason for the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the request.
    pub created_at: Timestamp,
    /// Time at which the request was decided or withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
}

impl Permission {
    /// Returns the error for another decision about a request that accepts none any more.
    pub fn already_decided(&self) -> ErrorInfo {
        let id = &self.permission_id;
        let message = match self.status {
            PermissionStatus::Withdrawn => {
                format!("permission {id} is no longer pending: its run has ended")
            }
            status => {
                let by = self.by.as_deref().unwrap_or("another approver");
                format!("permission {id} was already {}, by {by}", status.as_str())
            }
        };
        ErrorInfo::new(ErrorCode::AlreadyDecided, message)
    }

    /// Parses the arguments of the call.
    ///
    /// # Errors
    /// `validation_error` if they do not fit `T`.
    pub fn arguments_as<T: DeserializeOwned>(&self) -> Result<T, ErrorInfo> {
        serde_json::from_str(&self.arguments).map_err(|error| {
            let message = format!("the arguments of {} do not match: {error}", self.tool);
            ErrorInfo::new(ErrorCode::ValidationError, message)
        })
    }
}

/// A decision about a permission request.
#[derive(Debug, Clone, PartialEq)]
pub struct PermissionDecision {
    /// The permission request.
    pub permission_id: PermissionId,
    /// The decision.
    pub decision: Decision,
    /// Origin of the decision; see [`Permission::by`].
    pub decided_by: String,
    /// Reason for the decision.
    pub reason: Option<String>,
    /// Time of the decision.
    pub at: Timestamp,
}

impl PermissionDecision {
    /// Returns the decision about a permission request. `None` if it has not been decided.
    pub fn from_request(permission: Permission) -> Option<Self> {
        Some(Self {
            permission_id: permission.permission_id,
            decision: permission.decision?,
            decided_by: permission.by.unwrap_or_default(),
            reason: permission.reason,
            at: permission.decided_at?,
        })
    }
}
