//! Changes of a prompt that later prompts of the conversation keep.

use serde::{Deserialize, Serialize};

use crate::GoalId;

/// A finished goal whose messages are left out of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OmittedGoal {
    /// The goal.
    pub goal_id: GoalId,
    /// Text that replaces its messages.
    pub text: String,
}

/// Changes of a prompt that later prompts keep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptChanges {
    /// How the prompt was rebuilt, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<PromptRebuild>,
    /// Sequences of the messages whose images and files are left out, because the service has
    /// rejected them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected_files: Vec<u64>,
}

/// How a prompt was rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptRebuild {
    /// Name of the model that the prompt was for.
    pub model: String,
    /// Sequence of the last message of the main path when the prompt was rebuilt.
    pub through: u64,
    /// Goals whose messages up to `through` are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted_goals: Vec<OmittedGoal>,
}
