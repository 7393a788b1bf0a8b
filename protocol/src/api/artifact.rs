//! Artifacts, their versions, edits and uploads.

use serde::{Deserialize, Serialize};

use crate::{Artifact, ArtifactId, ArtifactVersion, MatchLayer};

/// Artifact name in the path of multipart uploads.
pub const UPLOAD_NAME: &str = "upload";

/// List of artifacts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Artifacts {
    /// The artifacts, sorted by name.
    pub artifacts: Vec<Artifact>,
}

/// An artifact with its current content.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArtifactView {
    /// The artifact's current record.
    pub artifact: Artifact,
    /// Current content; absent if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Stored versions, oldest first.
    pub versions: Vec<ArtifactVersion>,
}

/// Stored versions of an artifact.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Versions {
    /// Stored versions, oldest first.
    pub versions: Vec<ArtifactVersion>,
}

/// Edit of an artifact's text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EditBody {
    /// The passage to replace.
    pub old: String,
    /// The text that replaces it.
    pub new: String,
}

/// Result of an edit.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EditView {
    /// Current version of the artifact after the edit.
    pub version: u64,
    /// How the passage was matched; `null` if the whole text was replaced.
    pub layer: Option<MatchLayer>,
    /// Similarity of the replaced passage to the requested one, from 0 to 1; `null` if the whole
    /// text was replaced.
    pub similarity: Option<f64>,
    /// The passage that was replaced; `null` if the whole text was replaced.
    pub replaced: Option<String>,
}

/// A stored version.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stored {
    /// Name of the artifact.
    pub name: String,
    /// Id of the artifact.
    pub artifact_id: ArtifactId,
    /// The stored version.
    pub version: u64,
    /// Size in bytes.
    pub size: u64,
    /// MIME type.
    pub content_type: String,
}

impl From<Artifact> for Stored {
    fn from(artifact: Artifact) -> Self {
        Self {
            name: artifact.key(),
            artifact_id: artifact.artifact_id,
            version: artifact.current_version,
            size: artifact.size,
            content_type: artifact.content_type,
        }
    }
}

/// The artifacts that an upload stored. The fields of the first one are also at the top level, as
/// in the response to a PUT, because most uploads are one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Uploaded {
    /// The first artifact.
    #[serde(flatten)]
    pub first: Stored,
    /// All artifacts, in the order of the request.
    pub artifacts: Vec<Stored>,
}

/// Query of the content route.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct VersionQuery {
    /// Number of a stored version. Default: the current content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// Query of the export route.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct ExportQuery {
    /// Format of the exported file.
    #[cfg_attr(feature = "openapi", param(inline))]
    pub format: Format,
}

/// Export format.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Word document.
    Docx,
}
