//! Events about sub-agents, on their parent's timeline.

use crate::{
    ArtifactRef, ChildMode, Collaborator, GoalId, QuestionId, RunId, RunStatus, StatsPair, TraceId, event_macro::events,
};

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
            /// Whether its result enters the conversation, though a program asked for it.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            deliver: bool,
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
        /// The result of a child that a program asked for stands in the conversation.
        Delivered = "sub_trace_delivered" {
            /// Its trace.
            sub_trace_id: TraceId,
            /// Its run.
            run_id: RunId,
            /// The message that holds it.
            sequence: u64,
        },
        /// A person is asked (SUB-9).
        QuestionAsked = "question_asked" {
            /// The question's id; who answers names it.
            question_id: QuestionId,
            /// What is asked.
            question: String,
            /// Who is asked; absent = whoever looks after the run.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            to: Option<String>,
            /// The tool call that waits for the answer.
            tool_call_id: String,
        },
        /// The run has the answer.
        QuestionAnswered = "question_answered" {
            /// The question.
            question_id: QuestionId,
        },
        /// A collaborator changed (SUB-8).
        CollaboratorUpdated = "collaborator_updated" {
            /// The collaborator as it is now.
            collaborator: Collaborator,
        },
    }
}
