//! Events of permissions and hooks: who may do what, and who said so (PERM-1, HOOK-1).

use crate::{ChainLink, Decision, PermissionId, event_macro::events};

events! {
    /// What happened to a permission.
    PermissionEvent {
        /// A tool call needs leave, and somebody is asked; the row of the permission holds the whole.
        Requested = "permission_requested" {
            /// The permission; who decides names it.
            permission_id: PermissionId,
            /// The call that waits.
            tool_call_id: String,
            /// The tool.
            tool: String,
            /// How far leave for the session would reach, in words.
            scope: String,
            /// What the call touches, shortened.
            target: String,
            /// Arguments, shortened.
            arguments_preview: String,
            /// Who works for whom, the user's run first and the one that asks last.
            chain: Vec<ChainLink>,
        },
        /// The run has heard the decision.
        Decided = "permission_decided" {
            /// The permission.
            permission_id: PermissionId,
            /// What was decided.
            decision: Decision,
            /// Who decided: `terminal`, `cli`, `monitor`, `http:UID`, `api`, `handler`, `rule` or `timeout`.
            by: String,
            /// Why.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            reason: Option<String>,
        },
    }
}

events! {
    /// What happened to a hook.
    HookEvent {
        /// A hook refused something.
        Denied = "hook_denied" {
            /// What it was asked about, such as `PreToolUse`.
            event: String,
            /// Why.
            reason: String,
        },
        /// A hook failed, or took too long; what it was asked about went on.
        Failed = "hook_failed" {
            /// What it was asked about.
            event: String,
            /// What went wrong.
            error: String,
        },
    }
}
