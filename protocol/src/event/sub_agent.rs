//! Events of sub-agents, on the timeline of their parent.

use crate::{
    ArtifactRef, ChildMode, ChildResult, Collaborator, GoalId, QuestionId, RunId, RunStatus,
    StatsPair, TraceId, event_macro::events,
};

events! {
    /// A change of a run's sub-agents, questions or collaborators.
    SubAgentEvent {
        /// A child was accepted. It runs, or waits for a slot.
        Started = "sub_trace_started" {
            /// Trace of the child.
            sub_trace_id: TraceId,
            /// The child run.
            run_id: RunId,
            /// Mode of the child.
            mode: ChildMode,
            /// Preset of the child.
            agent_type: String,
            /// Task of the child.
            task: String,
            /// Goal of the parent that the child works on. `null` if there is none.
            parent_goal_id: Option<GoalId>,
            /// Tool call that requested the child. Absent if a program did.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            tool_call_id: Option<String>,
            /// Whether the result is added to the conversation although a program requested the
            /// child.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            deliver: bool,
        },
        /// A child ended.
        Completed = "sub_trace_completed" {
            /// Trace of the child.
            sub_trace_id: TraceId,
            /// The child run.
            run_id: RunId,
            /// Terminal status of the child.
            status: RunStatus,
            /// Result of the child, shortened.
            summary: String,
            /// Statistics of the child.
            stats: StatsPair,
            /// Artifacts that the child stored.
            artifacts: Vec<ArtifactRef>,
        },
        /// The result of a child that a program requested was added to the conversation.
        Delivered = "sub_trace_delivered" {
            /// Trace of the child.
            sub_trace_id: TraceId,
            /// The child run.
            run_id: RunId,
            /// Message that contains the result.
            sequence: u64,
        },
        /// The run asks a user a question (SUB-9).
        QuestionAsked = "question_asked" {
            /// Id of the question. An answer refers to it.
            question_id: QuestionId,
            /// Text of the question.
            question: String,
            /// Addressee. Absent if the question is for the user of the run.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            to: Option<String>,
            /// Tool call that waits for the answer.
            tool_call_id: String,
        },
        /// The run received the answer.
        QuestionAnswered = "question_answered" {
            /// Id of the question.
            question_id: QuestionId,
        },
        /// A collaborator changed (SUB-8).
        CollaboratorUpdated = "collaborator_updated" {
            /// New state of the collaborator.
            collaborator: Collaborator,
        },
    }
}

impl SubAgentEvent {
    /// Returns the event that reports the end of a child. `summary` is its result, shortened if it
    /// is long.
    pub fn completed(result: &ChildResult, summary: String) -> Self {
        Self::Completed {
            sub_trace_id: result.sub_trace_id.clone(),
            run_id: result.run_id.clone(),
            status: result.status,
            summary,
            stats: result.stats,
            artifacts: result.artifacts.clone(),
        }
    }

    /// Returns whether this is the event that [`completed`](Self::completed) returns for `result`
    /// with its whole summary.
    pub fn is_completion_of(&self, result: &ChildResult) -> bool {
        let Self::Completed {
            sub_trace_id,
            run_id,
            status,
            summary,
            stats,
            artifacts,
        } = self
        else {
            return false;
        };
        *run_id == result.run_id
            && *sub_trace_id == result.sub_trace_id
            && *status == result.status
            && *summary == result.summary
            && *stats == result.stats
            && *artifacts == result.artifacts
    }
}
