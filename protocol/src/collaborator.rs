//! Collaborators of a run: its sub-agents and the users that it asks (SUB-8).

use serde::{Deserialize, Serialize};

use crate::TraceId;

/// Kind of a collaborator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CollaboratorKind {
    /// A sub-agent.
    Agent,
    /// A user.
    Human,
}

/// Status of a collaborator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CollaboratorStatus {
    /// A sub-agent that runs or is queued.
    Running,
    /// A sub-agent that waits for a user, or a user who has been asked.
    Waiting,
    /// Finished.
    Completed,
    /// Failed or cancelled.
    Failed,
}

impl CollaboratorStatus {
    /// Returns the status as prompts and clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// A sub-agent or user that the run works with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Collaborator {
    /// Name by which the run addresses the collaborator.
    pub name: String,
    /// Kind of the collaborator.
    #[serde(rename = "type")]
    pub kind: CollaboratorKind,
    /// Trace of a sub-agent. Absent for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// Status of the collaborator.
    pub status: CollaboratorStatus,
    /// Current task or result.
    pub summary: String,
}

impl Collaborator {
    /// Returns one line for the prompt: `- name [type, status]: summary`.
    pub fn line(&self) -> String {
        let kind = match self.kind {
            CollaboratorKind::Agent => "agent",
            CollaboratorKind::Human => "human",
        };
        format!(
            "- {} [{kind}, {}]: {}",
            self.name,
            self.status.as_str(),
            self.summary
        )
    }
}
