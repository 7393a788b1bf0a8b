//! Events of artifacts.

use std::collections::BTreeMap;

use crate::{ArtifactId, ArtifactSnapshot, ArtifactSource, FlushFailure, MatchLayer, UpdateType, event_macro::events};

events! {
    /// What happened to an artifact.
    ArtifactEvent {
        /// A version was stored.
        Saved = "artifact_saved" {
            /// Its name; absent for captured products.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            name: Option<String>,
            /// The artifact.
            artifact_id: ArtifactId,
            /// The version.
            version: u64,
            /// MIME type.
            content_type: String,
            /// Size in bytes.
            size: u64,
            /// Who made it.
            source: ArtifactSource,
        },
        /// A document was edited; a version of it is stored when the run ends.
        Edited = "artifact_edited" {
            /// Its name.
            name: String,
            /// How the text changed.
            update_type: UpdateType,
            /// How the replaced part was found; absent for whole texts.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            layer: Option<MatchLayer>,
            /// What it holds now.
            snapshot: ArtifactSnapshot,
        },
        /// A run that ends has stored what it edited.
        Flushed = "artifacts_flushed" {
            /// The versions, by name.
            versions: BTreeMap<String, u64>,
            /// What could not be stored, and why.
            failed: Vec<FlushFailure>,
        },
        /// A document is not there any more, because the conversation went back to before it was made. Its
        /// versions stay.
        Withdrawn = "artifact_withdrawn" {
            /// The name that it had.
            name: String,
            /// The artifact.
            artifact_id: ArtifactId,
        },
        /// An artifact is gone, with all its versions.
        Deleted = "artifact_deleted" {
            /// Its name; absent for captured products.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            name: Option<String>,
            /// The artifact.
            artifact_id: ArtifactId,
        },
    }
}
