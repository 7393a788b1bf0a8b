//! Authorization of tool calls: a call is allowed, requires approval, or is denied (PERM-1).
//!
//! After callbacks and hooks, in this order: the deny rules for the tool and its path, the mode
//! `plan`, whether the tool requires any access, and the deny rules for that access. An approved call
//! is then compared with its row. Any other call is decided by the table `RULES`.
//!
//! Invariant: an approved call runs only if its tool, its arguments and the resources that it
//! touches are the approved ones, according to the stored row.
//!
//! Elsewhere: how a call waits for approval (`machine/tool_calls/approval.rs`), deny rules and grants
//! (`permission.rs`), who approves (`approvals.rs`).

use std::sync::Arc;

use serde_json::{Value, json};
use soong_protocol::{
    AccessRequest, ChainLink, ErrorCode, ErrorInfo, NETWORK_TAG, NetworkPolicy, Permission,
    PermissionId, PermissionMode, PermissionStatus, Run, Scope, ToolSpec,
};
use soong_sandbox::{Confinement, confinement};
use soong_storage::store::{Reader, StoreError};
use soong_text::Redactor;
use soong_tool::{Tool, ToolContext, command::CommandVerdict};

use crate::{
    clock::now,
    permission::{Permissions, UNCONFINED, exact_grants, fingerprint},
    run::{
        core::Core,
        machine::{inline, spec::RunSpec, tools::changes_only_artifacts},
        tasks::checked_call::CheckedToolCall,
    },
};

/// Name of the tool that reads files.
const READ: &str = "read";

/// Result of the authorization of a call.
pub(crate) enum Authorization {
    /// The call may run, with this access.
    Allowed(Option<AccessRequest>),
    /// The call requires approval.
    NeedsApproval(Box<Permission>),
    /// The call is denied.
    Denied(ErrorInfo),
}

/// Facts about a call that requires permission and was not approved before.
#[derive(Debug, Clone)]
struct Facts {
    /// Answer of the deny rules and the grants.
    verdict: CommandVerdict,
    /// Answer of the network policy. `Ask` for a call that it does not cover.
    network: NetworkPolicy,
    is_allowed_by_mode: bool,
    /// Why a command that is to run without a sandbox has none: the machine cannot confine it.
    why_unconfined: Option<String>,
    has_approver: bool,
}

/// Decision about a call that requires permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallDecision {
    Allowed,
    DeniedByRule,
    DeniedByNetworkPolicy,
    LacksConfinement,
    LacksApprover,
    NeedsApproval,
}

/// A rule: whether it applies, and what it decides.
type Rule = (fn(&Facts) -> bool, CallDecision);

/// The rules for a call that requires permission, in order: the first that applies decides. If none
/// does, the call needs approval.
const RULES: [Rule; 7] = [
    (
        |facts| facts.verdict == CommandVerdict::Deny,
        CallDecision::DeniedByRule,
    ),
    (
        |facts| facts.verdict == CommandVerdict::Allow,
        CallDecision::Allowed,
    ),
    (
        |facts| facts.network == NetworkPolicy::Allow,
        CallDecision::Allowed,
    ),
    (
        |facts| facts.network == NetworkPolicy::Deny,
        CallDecision::DeniedByNetworkPolicy,
    ),
    // A mode does not allow a command for which a deny rule cannot be checked.
    (
        |facts| facts.is_allowed_by_mode && facts.verdict == CommandVerdict::Ask,
        CallDecision::Allowed,
    ),
    (
        |facts| facts.why_unconfined.is_some(),
        CallDecision::LacksConfinement,
    ),
    (|facts| !facts.has_approver, CallDecision::LacksApprover),
];

fn decide(facts: &Facts) -> CallDecision {
    let rule = RULES.iter().find(|(applies, _)| applies(facts));
    rule.map_or(CallDecision::NeedsApproval, |(_, decision)| *decision)
}

/// Authorizes the tool calls of a runtime.
pub(crate) struct Authorizer {
    pub(crate) core: Arc<Core>,
    pub(crate) permissions: Arc<Permissions>,
}

impl Authorizer {
    /// Decides whether a call runs, requires approval, or is denied. An error denies it.
    pub(crate) async fn authorize(
        &self,
        spec: &RunSpec,
        mode: PermissionMode,
        call: &CheckedToolCall,
        tool: &Arc<dyn Tool>,
        context: &ToolContext,
    ) -> Authorization {
        match self.check(spec, mode, call, tool, context).await {
            Ok(authorization) => authorization,
            Err(error) => Authorization::Denied(error),
        }
    }

    async fn check(
        &self,
        spec: &RunSpec,
        mode: PermissionMode,
        call: &CheckedToolCall,
        tool: &Arc<dyn Tool>,
        context: &ToolContext,
    ) -> Result<Authorization, ErrorInfo> {
        let name = call.name();
        if self.permissions.denies_tool(&spec.settings, name) {
            return Err(denied_tool(name));
        }
        let opened = tool.resolved_path(context, &call.arguments);
        if opened.is_some_and(|path| {
            self.permissions
                .denies_path(&spec.settings, &context.project_dir, name, &path)
        }) {
            return Err(denied_tool(name));
        }
        // Also calls that need no permission, such as those to an allowed host.
        if mode == PermissionMode::Plan
            && call.request.spec.requires_permission()
            && !changes_only_artifacts(name)
        {
            return Err(refused_in_plan(name));
        }
        let Some(access) = tool.required_access(context, &call.arguments)? else {
            return Ok(Authorization::Allowed(None));
        };
        let verdict = self.permissions.verdict(
            &spec.identity.session_id,
            &spec.settings,
            &context.project_dir,
            name,
            &access,
        );
        if let Some(id) = &call.request.permission_id {
            // The call may have been approved in a process with other rules.
            if verdict == CommandVerdict::Deny {
                return Err(denied_tool(name));
            }
            let is_allowed = self.is_allowed(spec, tool, context, call, id, &access);
            return if is_allowed.await? {
                Ok(Authorization::Allowed(Some(access)))
            } else {
                Err(access_changed(name))
            };
        }
        let facts = Facts {
            verdict,
            network: self.network_policy(&call.request.spec, &access),
            is_allowed_by_mode: self.permissions.mode_allows(
                &spec.identity.session_id,
                mode,
                &context.project_dir,
                name,
                &access,
            ),
            why_unconfined: match (&access.scope, confinement()) {
                (Scope::Unconfined, Confinement::None { why }) => Some(why),
                _ => None,
            },
            has_approver: self.permissions.has_approver(&spec.settings),
        };
        match decide(&facts) {
            CallDecision::Allowed => return Ok(Authorization::Allowed(Some(access))),
            CallDecision::DeniedByRule => return Err(denied_tool(name)),
            CallDecision::DeniedByNetworkPolicy => return Err(network_denied(name)),
            CallDecision::LacksConfinement => {
                let why = facts.why_unconfined.as_deref().unwrap_or_default();
                return Err(unconfined(name, &access, why));
            }
            CallDecision::LacksApprover => {
                // No grant helps if a deny rule cannot be checked.
                let allow = if verdict == CommandVerdict::AskUncheckable {
                    Vec::new()
                } else {
                    exact_grants(name, &access)
                };
                return Err(no_approver(name, &access, allow, &self.core.redactor));
            }
            CallDecision::NeedsApproval => {}
        }
        let diff = self.preview(spec, tool, context, &call.arguments).await;
        let permission = self.permission_request(spec, call, access, diff).await?;
        Ok(Authorization::NeedsApproval(Box::new(permission)))
    }

    /// Creates the pending permission of a call. `diff` is the change that it would make.
    async fn permission_request(
        &self,
        spec: &RunSpec,
        call: &CheckedToolCall,
        access: AccessRequest,
        diff: Option<String>,
    ) -> Result<Permission, ErrorInfo> {
        let name = call.name();
        let fingerprint = fingerprint(name, &call.request.raw_arguments, &access, diff.as_deref());
        let run_id = spec.identity.run_id.clone();
        let chain = self
            .core
            .reader
            .read(move |reader| chain(reader, &run_id))
            .await?;
        let mut permission = Permission {
            permission_id: PermissionId::asked_in(
                &spec.identity.trace_id,
                spec.identity.session_incarnation,
                call.request.message_sequence.unwrap_or_default(),
                call.request.index,
            ),
            run_id: spec.identity.run_id.clone(),
            trace_id: spec.identity.trace_id.clone(),
            session_id: spec.identity.session_id.clone(),
            tool_call_id: call.id().to_owned(),
            tool: name.to_owned(),
            arguments: call.request.raw_arguments.clone(),
            fingerprint,
            demand: access,
            diff,
            chain,
            status: PermissionStatus::Pending,
            decision: None,
            by: None,
            reason: None,
            created_at: now(),
            decided_at: None,
        };
        self.core.redactor.redact_permission(&mut permission);
        Ok(permission)
    }

    /// Returns the change that a call would make. `None` if it cannot be computed, or if a deny
    /// rule forbids reading the file.
    async fn preview(
        &self,
        spec: &RunSpec,
        tool: &Arc<dyn Tool>,
        context: &ToolContext,
        arguments: &Value,
    ) -> Option<String> {
        let path = tool.resolved_path(context, arguments);
        if path.is_some_and(|path| {
            self.permissions
                .denies_path(&spec.settings, &context.project_dir, READ, &path)
        }) {
            return None;
        }
        let tool = Arc::clone(tool);
        let context = context.clone();
        let arguments = arguments.clone();
        tokio::task::spawn_blocking(move || tool.preview(&context, &arguments))
            .await
            .ok()
            .flatten()
    }

    /// Reads from the store whether the call was allowed with its current arguments, access and
    /// shown change. The state in memory is not used.
    async fn is_allowed(
        &self,
        spec: &RunSpec,
        tool: &Arc<dyn Tool>,
        context: &ToolContext,
        call: &CheckedToolCall,
        id: &PermissionId,
        access: &AccessRequest,
    ) -> Result<bool, ErrorInfo> {
        let wanted = id.clone();
        let Some(row) = self
            .core
            .reader
            .read(move |reader| reader.permission(&wanted))
            .await?
        else {
            return Ok(false);
        };
        let diff = match row.diff {
            Some(_) => self.preview(spec, tool, context, &call.arguments).await,
            None => None,
        };
        let fingerprint = fingerprint(
            call.name(),
            &call.request.raw_arguments,
            access,
            diff.as_deref(),
        );
        Ok(row.status == PermissionStatus::Allowed
            && row.run_id == spec.identity.run_id
            && row.fingerprint == fingerprint)
    }

    /// Returns the network policy for a call. `Allow` applies only to calls that use the network,
    /// change nothing and touch nothing sensitive. All calls that the policy does not cover require
    /// approval.
    fn network_policy(&self, tool: &ToolSpec, access: &AccessRequest) -> NetworkPolicy {
        match self.core.config.permissions.network {
            NetworkPolicy::Deny if tool.has_tag(NETWORK_TAG) => NetworkPolicy::Deny,
            NetworkPolicy::Allow
                if tool.has_tag(NETWORK_TAG)
                    && !tool.effect.is_mutating()
                    && !access.is_sensitive =>
            {
                NetworkPolicy::Allow
            }
            _ => NetworkPolicy::Ask,
        }
    }
}

fn denied_tool(tool: &str) -> ErrorInfo {
    let message = format!(
        "`{tool}` was not run: a deny rule forbids it (--deny, permissions.deny). Do it in another way, or say what you \
         could not do"
    );
    denied_by_rule(message)
}

fn refused_in_plan(tool: &str) -> ErrorInfo {
    denied_by_rule(format!(
        "`{tool}` was not run: in the permission mode `plan`, calls that write, run commands or use the network are \
         refused. Describe in your answer what you would do"
    ))
}

/// Returns the error for a command on a machine without confinement. Only a grant that existed
/// before the run allows such a command, so no approval is requested.
fn unconfined(tool: &str, access: &AccessRequest, why: &str) -> ErrorInfo {
    let message = format!(
        "`{tool}` was not run: no sandbox is available on this machine: {why}. If that is acceptable, allow it \
         before the run: `--allow {tool}:{UNCONFINED}`, permissions.allow, or RuntimeBuilder::allow"
    );
    let details =
        json!({ "by": "rule", "target": access.target, "allow": exact_grants(tool, access) });
    ErrorInfo {
        details,
        ..ErrorInfo::new(ErrorCode::PermissionDenied, message)
    }
}

fn network_denied(tool: &str) -> ErrorInfo {
    denied_by_rule(format!(
        "`{tool}` was not run: it uses the network, and permissions.network is \"deny\""
    ))
}

/// Returns the error for a call that a rule of the configuration or of its run denies.
fn denied_by_rule(message: String) -> ErrorInfo {
    ErrorInfo {
        details: json!({ "by": "rule" }),
        ..ErrorInfo::new(ErrorCode::PermissionDenied, message)
    }
}

fn access_changed(tool: &str) -> ErrorInfo {
    let message = format!(
        "`{tool}` was not run: its arguments or targets differ from the approved ones (a link or a folder may have \
         changed in the meantime). Call it again to request a new approval"
    );
    ErrorInfo::new(ErrorCode::PermissionDenied, message)
}

/// Returns the error for a call that requires approval when no approver is available. The details
/// name the target, and the grants that would allow the call.
fn no_approver(
    tool: &str,
    access: &AccessRequest,
    allow: Vec<String>,
    redactor: &Redactor,
) -> ErrorInfo {
    let target = redactor.text(&access.target);
    let advice = match &allow[..] {
        [] => "No grant can allow it: it requires approval by a user".to_owned(),
        grants => format!(
            "It can be allowed before the run ({})",
            redactor.text(&grants.join(", "))
        ),
    };
    let message = format!(
        "`{tool}` of {} requires permission, and no approver is available. {advice}. Continue without it, and report \
         what you could not do",
        inline::preview(&target)
    );
    let details = json!({ "target": target, "allow": allow });
    ErrorInfo {
        details,
        ..ErrorInfo::new(ErrorCode::PermissionDenied, message)
    }
}

/// Reads the chain of runs from the user's run down to this one.
fn chain(reader: &dyn Reader, run: &soong_protocol::RunId) -> Result<Vec<ChainLink>, StoreError> {
    let mut links = Vec::new();
    let mut next = Some(run.clone());
    while let Some(id) = next {
        let Some(Run {
            run_id,
            trace_id,
            settings,
            task,
            parent_run_id,
            ..
        }) = reader.run(&id)?
        else {
            break;
        };
        links.push(ChainLink {
            run_id,
            trace_id,
            agent_type: settings.agent_type,
            task: inline::preview(&task),
        });
        next = parent_run_id;
    }
    links.reverse();
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_rule_that_applies_decides() {
        let denied = Facts {
            verdict: CommandVerdict::Deny,
            network: NetworkPolicy::Allow,
            is_allowed_by_mode: true,
            why_unconfined: Some("no kernel support".to_owned()),
            has_approver: false,
        };
        let granted = Facts {
            verdict: CommandVerdict::Allow,
            network: NetworkPolicy::Deny,
            ..denied.clone()
        };
        let allowed_on_network = Facts {
            verdict: CommandVerdict::AskUncheckable,
            ..denied.clone()
        };
        let denied_on_network = Facts {
            network: NetworkPolicy::Deny,
            verdict: CommandVerdict::Ask,
            ..denied.clone()
        };
        let allowed_by_mode = Facts {
            network: NetworkPolicy::Ask,
            ..denied_on_network.clone()
        };
        let uncheckable = Facts {
            verdict: CommandVerdict::AskUncheckable,
            ..allowed_by_mode.clone()
        };
        let without_approver = Facts {
            why_unconfined: None,
            ..uncheckable.clone()
        };
        let with_approver = Facts {
            has_approver: true,
            ..without_approver.clone()
        };
        for (facts, decision) in [
            (denied, CallDecision::DeniedByRule),
            (granted, CallDecision::Allowed),
            (allowed_on_network, CallDecision::Allowed),
            (denied_on_network, CallDecision::DeniedByNetworkPolicy),
            (allowed_by_mode, CallDecision::Allowed),
            (uncheckable, CallDecision::LacksConfinement),
            (without_approver, CallDecision::LacksApprover),
            (with_approver, CallDecision::NeedsApproval),
        ] {
            assert_eq!(decide(&facts), decision, "{facts:?}");
        }
    }
}
