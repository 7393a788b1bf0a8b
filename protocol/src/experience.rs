//! Experiences: knowledge from earlier runs for later ones (MEM-2).

use serde::{Deserialize, Serialize};

use crate::{ExperienceId, Timestamp, TraceId};

/// An experience.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Experience {
    /// Unique id, such as `ex_001`.
    pub id: ExperienceId,
    /// Trace in which it was learned. Absent if a user wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// Category: `tool_usage`, `logic_flow`, `environment`, `domain`, `other`, or a user-defined
    /// word.
    pub category: String,
    /// Tags of the situations to which it applies.
    pub tags: Tags,
    /// Ratings of the experience.
    pub metrics: Metrics,
    /// Creation time. Absent if a user did not specify it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Markdown text of the experience.
    pub text: String,
}

/// Tags of a task or an experience: its intent and its circumstances.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tags {
    /// Intent, such as `fix-test` or `write-docs`.
    #[serde(default)]
    pub intent: Vec<String>,
    /// Circumstances, such as `rust` or `no-network`.
    #[serde(default)]
    pub state: Vec<String>,
}

impl Tags {
    /// Returns whether there are no tags.
    pub fn is_empty(&self) -> bool {
        self.intent.is_empty() && self.state.is_empty()
    }
}

/// Number of reflections that rated an experience as helpful or as harmful.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Metrics {
    /// Number of helpful ratings.
    #[serde(default)]
    pub helpful: u32,
    /// Number of harmful ratings.
    #[serde(default)]
    pub harmful: u32,
}

impl Metrics {
    /// Returns the number of helpful ratings minus the number of harmful ones.
    pub fn score(self) -> i64 {
        i64::from(self.helpful) - i64::from(self.harmful)
    }
}
