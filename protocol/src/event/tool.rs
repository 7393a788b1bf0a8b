//! Events of tool calls: each `tool_started` has exactly one closing event.

use std::collections::BTreeMap;

use crate::{ArtifactRef, ArtifactSnapshot, ErrorInfo, event_macro::events};

events! {
    /// What happened to a tool call.
    ToolEvent {
        /// The call was accepted; it runs when its turn comes (TOOL-3).
        Started = "tool_started" {
            /// The call.
            tool_call_id: String,
            /// The tool.
            name: String,
            /// Arguments, shortened.
            arguments_preview: String,
        },
        /// The call succeeded.
        Completed = "tool_completed" {
            /// The call.
            tool_call_id: String,
            /// The tool.
            name: String,
            /// How long it took, in milliseconds.
            duration_ms: u64,
            /// Output, shortened.
            preview: String,
            /// What it stored.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            artifact_ref: Option<ArtifactRef>,
            /// What the artifact that it wrote holds now (ART-10).
            #[serde(default, skip_serializing_if = "Option::is_none")]
            artifact_snapshot: Option<ArtifactSnapshot>,
            /// The names it wrote with their versions.
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            artifact_delta: BTreeMap<String, u64>,
        },
        /// The call did not succeed.
        Failed = "tool_failed" {
            /// The call.
            tool_call_id: String,
            /// The tool.
            name: String,
            /// How long it took, in milliseconds.
            duration_ms: u64,
            /// Why.
            error: ErrorInfo,
        },
        /// The call was not allowed: nothing of it was done.
        Denied = "tool_denied" {
            /// The call.
            tool_call_id: String,
            /// The tool.
            name: String,
            /// How long it took to decide, in milliseconds.
            duration_ms: u64,
            /// Why.
            reason: String,
            /// Who refused it: `rule`, `hook`, or who decided its permission; absent if nobody could be asked, or the runtime
            /// itself refused it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            by: Option<String>,
            /// What it would have touched, where nobody could be asked.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            target: Option<String>,
            /// The grants that would have allowed it, as `--allow` takes them, where nobody could be asked.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            allow: Vec<String>,
        },
        /// When the run began, a configured server of tools was not there; the run goes on without its tools.
        McpServerFailed = "mcp_server_failed" {
            /// The server.
            server: String,
            /// Why it is not there.
            error: ErrorInfo,
        },
    }
}
