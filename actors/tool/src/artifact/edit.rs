//! Edits of a text: the change, the request and the result.

use serde::{Deserialize, Serialize};
use soong_protocol::{
    Artifact, ArtifactSnapshot, ArtifactSource, EffectId, MatchLayer, Provenance, UpdateType,
};

use super::ChangeCondition;

/// A change to a text.
#[derive(Debug, Clone)]
pub enum Change {
    /// Creates the artifact. Fails with `artifact_exists` if it exists.
    Create {
        /// The whole text.
        content: String,
        /// MIME type of a text.
        content_type: String,
        /// Title for users. Empty: the name.
        title: String,
    },
    /// Replaces the passage that matches `old` (ART-7).
    Update {
        /// The passage to find.
        old: String,
        /// Its replacement.
        new: String,
    },
    /// Replaces the whole text.
    Rewrite {
        /// The whole text.
        content: String,
    },
}

/// A request to edit a text.
#[derive(Debug, Clone)]
pub struct EditRequest {
    /// Name of the artifact, with the prefix `user:` for the user scope.
    pub key: String,
    /// The change.
    pub change: Change,
    /// Kind of producer.
    pub source: ArtifactSource,
    /// Run, call and trace that produced the edit.
    pub provenance: Provenance,
    /// Id of the edit, derived from its tool call; `None` for clients. A repeated request with the
    /// same id returns the first result.
    pub effect: Option<EffectId>,
    /// Version that the artifact must have. Only checked for clients.
    pub condition: ChangeCondition,
}

/// The result of an edit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edited {
    /// The artifact after the edit.
    pub artifact: Artifact,
    /// Type of the change.
    pub update_type: UpdateType,
    /// Layer of the matcher that found the replaced passage; absent if the whole text was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<MatchLayer>,
    /// Similarity of `replaced` to the passage that was searched for, up to 1; absent if the whole
    /// text was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similarity: Option<f64>,
    /// Passage that was replaced; absent if the whole text was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<String>,
    /// Content after the edit. `None` if the edit was recorded earlier and others followed.
    #[serde(skip)]
    pub snapshot: Option<ArtifactSnapshot>,
}
