//! Events of artifacts.

use std::collections::BTreeMap;

use crate::{
    ArtifactId, ArtifactSnapshot, ArtifactSource, FlushFailure, MatchLayer, UpdateType,
    event_macro::events,
};

events! {
    /// A change of an artifact.
    ArtifactEvent {
        /// A version was stored.
        Saved = "artifact_saved" {
            /// Name of the artifact. Absent for stored tool outputs.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            name: Option<String>,
            /// The artifact.
            artifact_id: ArtifactId,
            /// Number of the version.
            version: u64,
            /// MIME type.
            content_type: String,
            /// Size in bytes.
            size: u64,
            /// Source of the version.
            source: ArtifactSource,
            /// Whether it records a model call, a hook or a crash for debugging.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            debug: bool,
        },
        /// A document was edited. A version is stored when the run ends.
        Edited = "artifact_edited" {
            /// Name of the document.
            name: String,
            /// How the edit changed the text.
            update_type: UpdateType,
            /// How the replaced part was found. Absent if the whole text was replaced.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            layer: Option<MatchLayer>,
            /// Content after the edit.
            snapshot: ArtifactSnapshot,
        },
        /// An ending run stored its edited documents as versions.
        Flushed = "artifacts_flushed" {
            /// Stored versions, by name.
            versions: BTreeMap<String, u64>,
            /// Documents that could not be stored, with the reasons.
            failed: Vec<FlushFailure>,
        },
        /// A document does not exist any more, because the conversation was rewound to before its
        /// creation. Its versions remain stored.
        Withdrawn = "artifact_withdrawn" {
            /// Former name of the document.
            name: String,
            /// The artifact.
            artifact_id: ArtifactId,
        },
        /// An artifact was deleted with all its versions.
        Deleted = "artifact_deleted" {
            /// Name of the artifact. Absent for stored tool outputs.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            name: Option<String>,
            /// The artifact.
            artifact_id: ArtifactId,
        },
    }
}
