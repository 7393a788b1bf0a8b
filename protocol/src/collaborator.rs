//! Whom a run works with now (SUB-8).

use serde::{Deserialize, Serialize};

use crate::TraceId;

/// What a collaborator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CollaboratorKind {
    /// A sub-agent.
    Agent,
    /// A person.
    Human,
}

/// What a collaborator does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CollaboratorStatus {
    /// At work, or queued for a slot.
    Running,
    /// Waits for a person; of a person: is asked.
    Waiting,
    /// Done.
    Completed,
    /// Failed or cancelled.
    Failed,
}

impl CollaboratorStatus {
    /// Returns the status as the prompt and clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// A sub-agent or person that the run works with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Collaborator {
    /// What the run calls it.
    pub name: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: CollaboratorKind,
    /// Its trace; a person has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// What it does now.
    pub status: CollaboratorStatus,
    /// What it works on, or what it brought.
    pub summary: String,
}

impl Collaborator {
    /// Renders one line of the prompt: `- name [type, status]: summary`.
    pub fn line(&self) -> String {
        let kind = match self.kind {
            CollaboratorKind::Agent => "agent",
            CollaboratorKind::Human => "human",
        };
        format!("- {} [{kind}, {}]: {}", self.name, self.status.as_str(), self.summary)
    }
}
