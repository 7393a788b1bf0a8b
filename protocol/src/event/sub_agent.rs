//! Events about sub-agents, on their parent's timeline.

use crate::{ArtifactRef, ChildMode, Collaborator, GoalId, RunId, RunStatus, StatsPair, TraceId, event::events};

events! {
    /// What happened to a run's sub-agents.
    SubAgentEvent {
        /// A child was admitted: it works, or waits for a slot.
        Started = "sub_trace_started" {
            /// Its trace.
            sub_trace_id: TraceId,
            /// Its run.
            run_id: RunId,
            /// Why it was started.
            mode: ChildMode,
            /// Its preset.
            agent_type: String,
            /// Its task.
            task: String,
            /// The parent's goal it serves.
            parent_goal_id: Option<GoalId>,
            /// The tool call that asked for it; absent when a program did.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            tool_call_id: Option<String>,
        },
        /// A child ended.
        Completed = "sub_trace_completed" {
            /// Its trace.
            sub_trace_id: TraceId,
            /// Its run.
            run_id: RunId,
            /// How it ended.
            status: RunStatus,
            /// What it brought, shortened.
            summary: String,
            /// What it used.
            stats: StatsPair,
            /// What it stored.
            artifacts: Vec<ArtifactRef>,
        },
        /// A collaborator changed (SUB-8).
        CollaboratorUpdated = "collaborator_updated" {
            /// The collaborator as it is now.
            collaborator: Collaborator,
        },
    }
}
