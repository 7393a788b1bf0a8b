//! Events of tool calls. Each `tool_started` is followed by exactly one event that ends the call.

use std::collections::BTreeMap;

use crate::{ArtifactRef, ArtifactSnapshot, ErrorInfo, FileChange, event_macro::events};

events! {
    /// A step of a tool call.
    ToolEvent {
        /// The call was accepted. It runs when its turn comes (TOOL-3).
        Started = "tool_started" {
            /// Id of the call.
            tool_call_id: String,
            /// Name of the tool.
            name: String,
            /// Arguments, shortened.
            arguments_preview: String,
        },
        /// The call succeeded.
        Completed = "tool_completed" {
            /// Id of the call.
            tool_call_id: String,
            /// Name of the tool.
            name: String,
            /// Duration, in milliseconds.
            duration_ms: u64,
            /// Output, shortened.
            preview: String,
            /// Artifact that the call stored.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            artifact_ref: Option<ArtifactRef>,
            /// Content of the artifact that the call wrote (ART-10).
            #[serde(default, skip_serializing_if = "Option::is_none")]
            artifact_snapshot: Option<ArtifactSnapshot>,
            /// Versions of the artifacts that the call wrote, by name.
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            artifact_delta: BTreeMap<String, u64>,
            /// Change that the call made to a file of the project.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            file_change: Option<Box<FileChange>>,
        },
        /// The call failed.
        Failed = "tool_failed" [Warn] {
            /// Id of the call.
            tool_call_id: String,
            /// Name of the tool.
            name: String,
            /// Duration, in milliseconds.
            duration_ms: u64,
            /// Why it failed.
            error: ErrorInfo,
        },
        /// The call was denied. None of it was executed.
        Denied = "tool_denied" [Warn] {
            /// Id of the call.
            tool_call_id: String,
            /// Name of the tool.
            name: String,
            /// Time until the denial, in milliseconds.
            duration_ms: u64,
            /// Reason for the denial.
            reason: String,
            /// Origin of the denial: `rule`, `hook`, or the origin of the decision about its
            /// permission. Absent if no approver was available, or if the runtime itself denied the
            /// call.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            by: Option<String>,
            /// Target of the call. Present if no approver was available.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            target: Option<String>,
            /// Grants that would have allowed the call, in the form of `--allow`. Present if no
            /// approver was available.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            allow: Vec<String>,
        },
        /// A configured MCP server was not available when the run started. The run continues
        /// without the tools of that server.
        McpServerFailed = "mcp_server_failed" [Warn] {
            /// Name of the server.
            server: String,
            /// Why the server was not available.
            error: ErrorInfo,
        },
    }
}
