//! Permission policy: which tool calls run without asking, which are denied, and which require
//! permission (PERM-1).
//!
//! Permissions granted for a session are kept in memory, until the process that owns the home
//! exits. Elsewhere: which access of a call requires permission (the tools), permission requests
//! and their decisions (`run/approvals.rs`).

mod grant;
mod names;

use std::{path::Path, sync::Arc};

use dashmap::{DashMap, DashSet};
use futures::{FutureExt, future::BoxFuture};
pub use grant::{Grant, GrantError};
pub(crate) use grant::{UNCONFINED, check_tool, exact_grants};
#[cfg(feature = "mcp")]
pub(crate) use names::missing_mcp_tools;
pub use names::unknown_tools;
use sha2::{Digest, Sha256};
use soong_protocol::{
    AccessRequest, Config, Decision, ErrorInfo, Permission, PermissionId, PermissionMode,
    RunSettings, Scope, SessionId,
};
use soong_tool::command::{CommandPattern, CommandVerdict, Rules};

/// The tool that runs commands.
const BASH: &str = "bash";

/// Decision about a permission request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDecision {
    /// The decision.
    pub decision: Decision,
    /// Reason for the decision. The model reads it if the call is denied.
    pub reason: Option<String>,
}

impl From<Decision> for ApprovalDecision {
    fn from(decision: Decision) -> Self {
        Self {
            decision,
            reason: None,
        }
    }
}

/// Permission policy implemented by the program that embeds the runtime.
pub trait PermissionHandler: Send + Sync + 'static {
    /// Decides about a call. An error, a panic, and a decision later than `permissions.timeout_s`
    /// count as a denial. The future is dropped when the run ends or another approver has decided.
    fn decide(
        &self,
        permission: Permission,
    ) -> BoxFuture<'static, Result<ApprovalDecision, ErrorInfo>>;
}

impl<T: PermissionHandler + ?Sized> PermissionHandler for Arc<T> {
    fn decide(
        &self,
        permission: Permission,
    ) -> BoxFuture<'static, Result<ApprovalDecision, ErrorInfo>> {
        (**self).decide(permission)
    }
}

/// Permission policy made from a function; see
/// [`RuntimeBuilder::on_permission`](crate::RuntimeBuilder::on_permission).
pub(crate) struct HandlerFn<F>(pub(crate) F);

impl<F, R, D> PermissionHandler for HandlerFn<F>
where
    F: Fn(Permission) -> R + Send + Sync + 'static,
    R: Future<Output = D> + Send + 'static,
    D: Into<ApprovalDecision>,
{
    fn decide(
        &self,
        permission: Permission,
    ) -> BoxFuture<'static, Result<ApprovalDecision, ErrorInfo>> {
        let decision = (self.0)(permission);
        async move { Ok(decision.await.into()) }.boxed()
    }
}

/// Allows every call that requires permission. For tests, and for programs whose tools are
/// harmless.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

impl PermissionHandler for AllowAll {
    fn decide(&self, _: Permission) -> BoxFuture<'static, Result<ApprovalDecision, ErrorInfo>> {
        async { Ok(Decision::AllowOnce.into()) }.boxed()
    }
}

/// Approver of permission requests.
#[derive(Clone, Default)]
pub(crate) enum Approver {
    /// No approver is available: calls that require permission are denied immediately.
    #[default]
    None,
    /// Users decide by API, command line or monitor. The run waits for them.
    Users,
    /// The program decides, unless a user decides first.
    Handler(Arc<dyn PermissionHandler>),
}

/// Permission state of a runtime that is not in the database.
pub(crate) struct Permissions {
    pub(crate) approver: Approver,
    /// Allow rules of the configuration.
    allow_rules: Vec<Grant>,
    /// Deny rules of the configuration.
    deny_rules: Vec<Grant>,
    /// Permissions granted for sessions: tool and scope.
    session_grants: DashMap<SessionId, Vec<(String, Scope)>>,
    /// Permission requests for which an approver is currently being asked.
    pub(crate) pending_requests: DashSet<PermissionId>,
}

impl Permissions {
    pub(crate) fn new(approver: Approver, config: &Config) -> Result<Self, GrantError> {
        let parsed = |texts: &[String]| {
            texts
                .iter()
                .map(|text| Grant::parse(text))
                .collect::<Result<_, _>>()
        };
        let configured = parsed(&config.permissions.allow)?;
        let denied = parsed(&config.permissions.deny)?;
        Ok(Self {
            approver,
            allow_rules: configured,
            deny_rules: denied,
            session_grants: DashMap::new(),
            pending_requests: DashSet::new(),
        })
    }

    /// Returns whether an approver is available for the requests of a run.
    pub(crate) fn has_approver(&self, settings: &RunSettings) -> bool {
        !settings.permissions.unattended && !matches!(self.approver, Approver::None)
    }

    /// Returns whether a deny rule forbids every call of a tool.
    pub(crate) fn denies_tool(&self, settings: &RunSettings, tool: &str) -> bool {
        self.effective_deny_rules(settings)
            .iter()
            .any(|grant| grant.denies_tool(tool))
    }

    /// Returns whether a deny rule forbids a tool to open a file or folder. Symlinks in `path` are
    /// resolved.
    pub(crate) fn denies_path(
        &self,
        settings: &RunSettings,
        project: &Path,
        tool: &str,
        path: &Path,
    ) -> bool {
        self.effective_deny_rules(settings)
            .iter()
            .any(|grant| grant.denies_path(tool, path, project))
    }

    /// Decides about a call by the rules of the configuration and of its run, and by the
    /// permissions of its session.
    pub(crate) fn verdict(
        &self,
        session: &SessionId,
        settings: &RunSettings,
        project: &Path,
        tool: &str,
        access: &AccessRequest,
    ) -> CommandVerdict {
        let of_run = settings
            .permissions
            .allow
            .iter()
            .filter_map(|text| Grant::parse(text).ok());
        let granted: Vec<Grant> = self.allow_rules.iter().cloned().chain(of_run).collect();
        let denied = self.effective_deny_rules(settings);
        if tool == BASH {
            return self.command_verdict(session, project, access, &granted, &denied);
        }
        if denied
            .iter()
            .any(|grant| grant.denies(tool, access, project))
        {
            return CommandVerdict::Deny;
        }
        let is_granted = granted
            .iter()
            .any(|grant| grant.covers(tool, access, project))
            || self.is_granted_for_session(session, tool, access);
        if is_granted {
            CommandVerdict::Allow
        } else {
            CommandVerdict::Ask
        }
    }

    /// Returns whether a permission mode allows a call that no rule decides (PERM-2).
    pub(crate) fn mode_allows(
        &self,
        session: &SessionId,
        mode: PermissionMode,
        project: &Path,
        tool: &str,
        access: &AccessRequest,
    ) -> bool {
        let granted = Grant::of_mode(mode);
        if tool == BASH {
            return self.command_verdict(session, project, access, &granted, &[])
                == CommandVerdict::Allow;
        }
        granted
            .iter()
            .any(|grant| grant.covers(tool, access, project))
    }

    fn effective_deny_rules(&self, settings: &RunSettings) -> Vec<Grant> {
        let of_run = settings
            .permissions
            .deny
            .iter()
            .filter_map(|text| Grant::parse(text).ok());
        self.deny_rules.iter().cloned().chain(of_run).collect()
    }

    /// Decides about a command. If it would run unconfined, only grants for unconfined commands
    /// apply.
    fn command_verdict(
        &self,
        session: &SessionId,
        project: &Path,
        access: &AccessRequest,
        granted: &[Grant],
        denied: &[Grant],
    ) -> CommandVerdict {
        let is_unconfined = access.scope == Scope::Unconfined;
        let granted: Vec<&Grant> = granted
            .iter()
            .filter(|grant| grant.applies_to(BASH))
            .collect();
        let allows_all = granted.iter().any(|grant| {
            if is_unconfined {
                grant.program() == Some(UNCONFINED)
            } else {
                grant.covers_whole_tool()
            }
        });
        let confined: &[&Grant] = if is_unconfined { &[] } else { &granted };
        let of_session = self.session_grants.get(session).filter(|_| !is_unconfined);
        let scopes = of_session.iter().flat_map(|granted| granted.iter());
        let scopes: Vec<&Scope> = scopes
            .filter(|(tool, _)| tool == BASH)
            .map(|(_, scope)| scope)
            .collect();
        let denied_programs: Vec<_> = denied
            .iter()
            .filter_map(Grant::program)
            .map(CommandPattern::of_program)
            .collect();
        let denied = denied
            .iter()
            .filter(|grant| grant.applies_to(BASH))
            .filter_map(Grant::pattern);
        let rules = Rules {
            allows_all,
            patterns: &confined
                .iter()
                .filter_map(|grant| grant.pattern())
                .collect::<Vec<_>>(),
            programs: &confined
                .iter()
                .filter_map(|grant| grant.program())
                .collect::<Vec<_>>(),
            session: &scopes,
            denied: &denied.chain(&denied_programs).collect::<Vec<_>>(),
        };
        soong_tool::command::decide(&access.target, &project.to_string_lossy(), rules)
    }

    /// Whether a permission granted for the session covers a call.
    pub(crate) fn is_granted_for_session(
        &self,
        session: &SessionId,
        tool: &str,
        access: &AccessRequest,
    ) -> bool {
        let directory = match &access.scope {
            Scope::Command { directory, .. } | Scope::CommandLine { directory, .. } => directory,
            scope => {
                let is_same =
                    |(known, granted): &(String, Scope)| known == tool && granted == scope;
                return access.is_grantable_for_session()
                    && self
                        .session_grants
                        .get(session)
                        .is_some_and(|granted| granted.iter().any(is_same));
            }
        };
        self.command_verdict(session, Path::new(directory), access, &[], &[])
            == CommandVerdict::Allow
    }

    pub(crate) fn grant_for_session(&self, permission: &Permission) {
        let Permission {
            session_id,
            tool,
            demand: access,
            ..
        } = permission;
        if access.is_grantable_for_session()
            && !self.is_granted_for_session(session_id, tool, access)
        {
            self.session_grants
                .entry(session_id.clone())
                .or_default()
                .push((tool.clone(), access.scope.clone()));
        }
    }

    /// Removes the permissions granted for a session.
    pub(crate) fn revoke_session_grants(&self, session: &SessionId) {
        self.session_grants.remove(session);
    }
}

/// Returns a hash that binds a decision to a call: its tool, its exact arguments, its access, and
/// its diff.
pub(crate) fn fingerprint(
    tool: &str,
    arguments: &str,
    access: &AccessRequest,
    diff: Option<&str>,
) -> String {
    let access = serde_json::to_string(access).unwrap_or_default();
    let mut hash = Sha256::new();
    for part in [tool, arguments, &access].into_iter().chain(diff) {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
