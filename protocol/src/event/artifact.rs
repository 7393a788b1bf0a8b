//! Events of artifacts.

use crate::{ArtifactId, ArtifactSource, event::events};

events! {
    /// What happened to an artifact.
    ArtifactEvent {
        /// A version was stored.
        Saved = "artifact_saved" {
            /// Its name.
            name: String,
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
    }
}
