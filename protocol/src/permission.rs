//! Permissions: what a tool call needs leave for, and who has given or refused it (PERM-1).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{PermissionId, RunId, SessionId, Timestamp, TraceId};

/// How far leave that is given for a session reaches: calls of the same tool with an equal scope need no further one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Scope {
    /// Every call of the tool.
    Tool,
    /// Files that lie directly in a directory.
    Directory {
        /// The directory; absolute, symlinks resolved.
        path: String,
    },
    /// A host of the network.
    Host {
        /// Its name or address, in lower case.
        host: String,
    },
    /// Commands that call a program, or a subcommand of it, with options that are known to be harmless.
    Command {
        /// The program and its subcommand, such as `git status`.
        executable: String,
        /// Where it is called; absolute, symlinks resolved.
        directory: String,
    },
    /// Exactly this command line.
    CommandLine {
        /// The line.
        command: String,
        /// Where it is called; absolute, symlinks resolved.
        directory: String,
    },
    /// This call and no other: leave for the session reaches no further than leave for once.
    Call,
    /// This call and no other, as with `Call`; it acts where nothing confines it, and so is always sensitive.
    Unconfined,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool => f.write_str("every call of the tool"),
            Self::Directory { path } => write!(f, "files in {path}"),
            Self::Host { host } => write!(f, "host {host}"),
            Self::Command { executable, directory } => write!(f, "`{executable}` with harmless options in {directory}"),
            Self::CommandLine { directory, .. } => write!(f, "exactly this command line in {directory}"),
            Self::Call => f.write_str("this call only"),
            Self::Unconfined => f.write_str("this call only, which nothing confines"),
        }
    }
}

/// What a tool call needs leave for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Demand {
    /// What it touches, as people read it: a path, a URL, a command.
    pub target: String,
    /// How far leave for the session would reach.
    pub scope: Scope,
    /// Whether leave that was given in general does not reach it, only leave that names it: a sensitive path.
    #[serde(default)]
    pub is_sensitive: bool,
    /// What a person should know beside the arguments, such as that a command would run unconfined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Demand {
    /// Whether permission for the session would cover more than this call.
    pub const fn can_be_granted(&self) -> bool {
        !self.is_sensitive && !matches!(self.scope, Scope::Call | Scope::Unconfined)
    }

    /// Makes a demand for every call of a tool alike.
    pub fn tool(target: impl Into<String>) -> Self {
        Self { target: target.into(), scope: Scope::Tool, is_sensitive: false, note: None }
    }
}

/// What is decided about a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This call may run.
    AllowOnce,
    /// This call, and those of its scope, until the process that owns the home ends.
    AllowForSession,
    /// It may not.
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

/// Where a permission stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PermissionStatus {
    /// Nobody has decided yet.
    Pending,
    /// The call may run.
    Allowed,
    /// It may not.
    Denied,
    /// Its run ended before anybody decided.
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

/// A run on the way from the user's one to the one that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChainLink {
    /// The run.
    pub run_id: RunId,
    /// Its trace.
    pub trace_id: TraceId,
    /// Its preset.
    pub agent_type: String,
    /// What it is asked to do, shortened.
    pub task: String,
}

/// A question whether a tool call may run: a stored row, bound to the tool and its exact arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Permission {
    /// Its id.
    pub permission_id: PermissionId,
    /// The run that asks.
    pub run_id: RunId,
    /// Its trace.
    pub trace_id: TraceId,
    /// Its session.
    pub session_id: SessionId,
    /// The call.
    pub tool_call_id: String,
    /// The tool.
    pub tool: String,
    /// The arguments, whole, as the model wrote them.
    pub arguments: String,
    /// What ties the decision to the call: a SHA-256 over tool, arguments, demand and diff, in hex.
    pub fingerprint: String,
    /// What it needs leave for.
    pub demand: Demand,
    /// Of an edit or a write: what it would change, as a unified diff; absent where that would be too long,
    /// and for sensitive files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Who works for whom, the user's run first and the one that asks last.
    pub chain: Vec<ChainLink>,
    /// Where it stands.
    pub status: PermissionStatus,
    /// What was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Who decided: `terminal`, `cli`, `monitor`, `http:UID`, `api`, `handler`, `rule` or `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it was decided, or withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
}

/// A decision about a permission.
#[derive(Debug, Clone, PartialEq)]
pub struct PermissionDecision {
    /// The permission.
    pub permission_id: PermissionId,
    /// The decision.
    pub decision: Decision,
    /// Who decided.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}

impl PermissionDecision {
    /// Returns the decision about a permission; `None` if it is pending.
    pub fn of(asked: Permission) -> Option<Self> {
        Some(Self {
            permission_id: asked.permission_id,
            decision: asked.decision?,
            by: asked.by.unwrap_or_default(),
            reason: asked.reason,
            at: asked.decided_at?,
        })
    }
}
