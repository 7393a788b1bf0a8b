//! Events of permission requests, hooks and callbacks (PERM-1, HOOK-1, HOOK-2).

use serde_json::Value;

use crate::{ChainLink, Decision, ErrorInfo, PermissionId, PermissionMode, event_macro::events};

events! {
    /// A change of a permission request.
    PermissionEvent {
        /// A tool call requires permission, and a request was stored. Read it for the complete
        /// arguments.
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
            /// Origin of the decision: `terminal`, `cli`, `monitor`, `http:UID`, `api`, `handler`,
            /// `rule` or `timeout`.
            by: String,
            /// Reason for the decision.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            reason: Option<String>,
        },
        /// The permission mode of the run changed. It applies from the next tool call.
        ModeChanged = "permission_mode_changed" {
            /// The new mode.
            mode: PermissionMode,
        },
    }
}

events! {
    /// An outcome of a hook or a callback.
    HookEvent {
        /// A hook denied an operation.
        Denied = "hook_denied" [Warn] {
            /// Hook point, such as `PreToolUse`.
            event: String,
            /// Reason for the denial.
            reason: String,
        },
        /// A hook failed or timed out. The operation continued.
        Failed = "hook_failed" [Warn] {
            /// Hook point.
            event: String,
            /// Description of the error.
            error: String,
        },
        /// A callback of the program changed, answered, replaced or failed a step.
        CallbackCompleted = "callback_completed" {
            /// Name of the callback.
            callback: String,
            /// The step: `before_agent`, `after_agent`, `before_model`, `after_model`,
            /// `before_tool` or `after_tool`.
            point: String,
            /// `changed`, `answered`, `replaced` or `failed`.
            decision: String,
            /// The tool call, if the step is one.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            tool_call_id: Option<String>,
            /// The changed arguments of a tool call, or the changed task.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            change: Option<Value>,
            /// The error of a failed run.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            error: Option<ErrorInfo>,
        },
        /// A callback of the program returned an error, panicked, or exceeded its time limit.
        CallbackFailed = "callback_failed" [Warn] {
            /// Name of the callback.
            callback: String,
            /// The step, as in `callback_completed`.
            point: String,
            /// Whether the tool call is refused, or else the run fails, for that reason. Otherwise,
            /// the callback is ignored.
            is_closed: bool,
            /// The tool call, if the step is one.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            tool_call_id: Option<String>,
            /// The error.
            error: ErrorInfo,
        },
    }
}
