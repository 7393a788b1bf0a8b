//! Changes that tool calls make to files of a project.

use serde::{Deserialize, Serialize};

use crate::ArtifactId;

/// A change of a file by a tool call. Users can revert it if nobody but agents has changed the file
/// since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Absolute path, with symlinks resolved.
    pub path: String,
    /// SHA-256 of the content that the call wrote, in hexadecimal.
    pub sha256: String,
    /// Whether the call created the file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub created: bool,
    /// The content that the call replaced. Absent if the file is new, or if the content is not
    /// kept: reading the file requires permission, the session has reached
    /// `artifacts.max_undo_bytes`, or storing the content has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousContent>,
    /// The change as a unified diff, shortened. Absent if the output of the call contains it, and
    /// for files that are not text or require permission to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// Stored content of a file before a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousContent {
    /// Artifact that contains it.
    pub artifact_id: ArtifactId,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}
