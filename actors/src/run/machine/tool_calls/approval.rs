//! Approval of tool calls: a call that requires permission stays pending until it is granted or
//! denied (PERM-1).
//!
//! Pure; part of the run state machine.
//!
//! Invariants:
//! - A pending call has not started, in this incarnation or an earlier one.
//! - Each call is asked for once, even if it is resumed after a crash (DUR-4).
//! - A decision that arrives while the run is ending starts nothing (R6).
//!
//! Elsewhere: which calls require permission (`tasks/authorize.rs` and the tools), who decides
//! (`permission.rs`).

use serde_json::json;
use soong_protocol::{
    Decision, ErrorCode, ErrorInfo, Permission, PermissionDecision, PermissionEvent,
    PermissionWrite, ToolCall, Write,
};

use crate::run::machine::{
    RunState, Transition,
    effect::{Effect, ToolCallEffect},
    inline::preview,
    state::calls::{Approval, CallState},
};

impl RunState {
    pub(crate) fn apply_permission(&mut self, event: &PermissionEvent) {
        match event {
            PermissionEvent::Requested {
                permission_id,
                tool_call_id,
                ..
            } => {
                if let Some(open) = self
                    .calls_mut()
                    .and_then(|calls| calls.get_mut(tool_call_id))
                {
                    open.approval = Some(Approval::Pending(permission_id.clone()));
                }
            }
            PermissionEvent::Decided {
                permission_id,
                decision,
                ..
            } => {
                let pending = Approval::Pending(permission_id.clone());
                let Some(calls) = self.calls_mut() else {
                    return;
                };
                if let Some(open) = calls
                    .iter_mut()
                    .find(|open| open.approval.as_ref() == Some(&pending))
                {
                    let granted = Approval::Granted(permission_id.clone());
                    open.approval = Some(if decision.allows() {
                        granted
                    } else {
                        Approval::Denied
                    });
                }
            }
            PermissionEvent::ModeChanged { mode } => self.waiting.permission_mode = *mode,
        }
    }
}

impl Transition<'_, '_> {
    /// Requests approval of a call. The call stays open until there is a decision.
    pub(crate) fn request_approval(&mut self, permission: Permission) {
        let is_open = self
            .state
            .calls_mut()
            .is_some_and(|calls| calls.started(&permission.tool_call_id).is_some());
        if !is_open {
            return; // too late
        }
        let id = permission.permission_id.clone();
        let arguments_preview = preview(&permission.arguments);
        let event = PermissionEvent::Requested {
            permission_id: id.clone(),
            tool_call_id: permission.tool_call_id.clone(),
            tool: permission.tool.clone(),
            scope: permission.demand.scope.to_string(),
            target: preview(&permission.demand.target),
            arguments_preview,
            chain: permission.chain.clone(),
        };
        self.step
            .writes
            .push(Write::Permission(PermissionWrite::Request(Box::new(
                permission,
            ))));
        self.emit(event);
        if self.state.end.ending.is_some() {
            return self.withdraw_pending_calls();
        }
        self.step
            .effects
            .push(Effect::Tool(ToolCallEffect::RequestPermission(id)));
    }

    /// Applies the decision about a pending call. Decisions about other calls are too late, and
    /// ignored.
    pub(crate) fn permission_decided(&mut self, answer: PermissionDecision) {
        let PermissionDecision {
            permission_id,
            decision,
            decided_by: by,
            reason,
            ..
        } = answer;
        let pending = Approval::Pending(permission_id.clone());
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        let pending_call = calls
            .iter()
            .find(|open| open.state != CallState::Done && open.approval.as_ref() == Some(&pending));
        let Some(call) = pending_call.map(|open| open.call.clone()) else {
            return;
        };
        let others_wait = calls.iter().any(|open| {
            open.call.id != call.id && open.state != CallState::Done && open.waits_for_user()
        });
        if self.state.end.ending.is_some() {
            return; // R6; its call is closed with the others
        }
        let why = denied_error(&call, &by, reason.as_deref());
        self.emit(PermissionEvent::Decided {
            permission_id: permission_id.clone(),
            decision,
            by,
            reason,
        });
        // The run no longer waits, whatever the decision. This is recorded before the consequences
        // of the decision.
        if !others_wait {
            self.update_waiting();
        }
        if decision == Decision::Deny {
            self.close_call(&call, Err(why));
            return self.schedule();
        }
        if let Err(error) = self.request_tool(&call, Some(permission_id)) {
            self.close_call(&call, Err(error));
            self.schedule();
        }
    }
}

/// Returns the error for the model whose call was denied.
fn denied_error(call: &ToolCall, by: &str, reason: Option<&str>) -> ErrorInfo {
    let error = reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let who = match by {
        "timeout" => "no decision came",
        _ => "it was refused",
    };
    let message = format!(
        "`{}` was not run, {who}{error}. Do not try the same again; find another way, or say what you could not do",
        call.name
    );
    ErrorInfo {
        details: json!({ "by": by }),
        ..ErrorInfo::new(ErrorCode::PermissionDenied, message)
    }
}
