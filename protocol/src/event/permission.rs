//! Events of permission requests and hooks (PERM-1, HOOK-1).

use crate::{ChainLink, Decision, PermissionId, event_macro::events};

events! {
    /// A change of a permission request.
    PermissionEvent {
        /// A tool call requires permission, and a request was stored. Read it for the complete arguments.
        Requested = "permission_requested" {
            /// Id of the request. A decision refers to it.
            permission_id: PermissionId,
            /// The waiting tool call.
            tool_call_id: String,
            /// Name of the tool.
            tool: String,
            /// Scope of a permission for the session, in words.
            scope: String,
            /// Target of the call, shortened.
            target: String,
            /// Arguments, shortened.
            arguments_preview: String,
            /// The runs from the user's run to the requesting run, in this order.
            chain: Vec<ChainLink>,
        },
        /// The run received the decision.
        Decided = "permission_decided" {
            /// Id of the request.
            permission_id: PermissionId,
            /// The decision.
            decision: Decision,
            /// Origin of the decision: `terminal`, `cli`, `monitor`, `http:UID`, `api`, `handler`, `rule` or
            /// `timeout`.
            by: String,
            /// Reason for the decision.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            reason: Option<String>,
        },
    }
}

events! {
    /// An outcome of a hook.
    HookEvent {
        /// A hook denied an operation.
        Denied = "hook_denied" {
            /// Hook point, such as `PreToolUse`.
            event: String,
            /// Reason for the denial.
            reason: String,
        },
        /// A hook failed or timed out. The operation continued.
        Failed = "hook_failed" {
            /// Hook point.
            event: String,
            /// Description of the error.
            error: String,
        },
    }
}
