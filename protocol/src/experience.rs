//! Experiences: what runs have learned, for later ones (MEM-2).

use serde::{Deserialize, Serialize};

use crate::{ExperienceId, Timestamp, TraceId};

/// Something that was learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Experience {
    /// Its name, such as `ex_001`.
    pub id: ExperienceId,
    /// The trace that it was learned in; absent where a person wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// What kind of thing it is: `tool_usage`, `logic_flow`, `environment`, `domain`, `other`, or one's own word.
    pub category: String,
    /// When it fits.
    pub tags: Tags,
    /// How it has done.
    pub metrics: Metrics,
    /// When it was written down; absent where a person did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// What was learned, in Markdown.
    pub text: String,
}

/// What something is about, in small words: what is wanted, and how things stand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tags {
    /// What is wanted: `fix-test`, `write-docs`.
    #[serde(default)]
    pub intent: Vec<String>,
    /// How things stand: `rust`, `no-network`.
    #[serde(default)]
    pub state: Vec<String>,
}

impl Tags {
    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.intent.is_empty() && self.state.is_empty()
    }
}

/// How often an experience has helped, and how often it has done harm, as reflections say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Metrics {
    /// How often it helped.
    #[serde(default)]
    pub helpful: u32,
    /// How often it did harm.
    #[serde(default)]
    pub harmful: u32,
}

impl Metrics {
    /// Returns by how much it has helped more often than it has done harm.
    pub fn worth(self) -> i64 {
        i64::from(self.helpful) - i64::from(self.harmful)
    }
}
