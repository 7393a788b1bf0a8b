//! Cleanup of artifacts: the request and its result (ART-13).

use serde::{Deserialize, Serialize};

use crate::{ArtifactId, ErrorInfo, SessionId, Timestamp};

/// Cleanup request. An artifact is a candidate only if it passes all filters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Cleanup {
    /// Only artifacts of this session. `None`: of all sessions.
    pub session_id: Option<SessionId>,
    /// Only artifacts of this user's sessions. `None`: of all users.
    pub uid: Option<String>,
    /// Whether to list the candidates without deleting them.
    pub dry_run: bool,
    /// Whether to include ordinary artifacts. Otherwise only diagnostic artifacts are considered.
    pub include_all: bool,
    /// Only artifacts that have not been changed for longer than this, in milliseconds.
    pub older_than_ms: Option<u64>,
    /// Maximum total size, in bytes and over all versions, of the artifacts to keep. The most
    /// recently changed ones are kept up to this size, and only the others are candidates.
    /// Artifacts that are too recent for `older_than_ms` count towards the size; artifacts that
    /// fail another filter or belong to a skipped session do not.
    pub max_bytes: Option<u64>,
}

impl Default for Cleanup {
    /// Lists all diagnostic artifacts and deletes nothing.
    fn default() -> Self {
        Self {
            session_id: None,
            uid: None,
            dry_run: true,
            include_all: false,
            older_than_ms: None,
            max_bytes: None,
        }
    }
}

/// Artifact that may be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Candidate {
    /// Id of the artifact.
    pub artifact_id: ArtifactId,
    /// Session of the artifact.
    pub session_id: SessionId,
    /// Name; absent for stored tool outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Title for users.
    pub title: String,
    /// Total size of all versions, in bytes.
    pub bytes: u64,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Why the artifact may be deleted.
    pub reason: String,
}

/// Artifact that could not be deleted. The cleanup continues with the other artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CleanupFailure {
    /// Id of the artifact.
    pub artifact_id: ArtifactId,
    /// Why the deletion failed.
    pub error: ErrorInfo,
}

/// Session that was skipped because it has unfinished runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BusySession {
    /// Id of the session.
    pub session_id: SessionId,
    /// Number of artifacts of the session that pass all filters except `max_bytes`.
    pub artifacts: u64,
}

/// Result of a cleanup.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CleanupReport {
    /// Whether the cleanup was a dry run, which deletes nothing.
    pub dry_run: bool,
    /// Artifacts that were selected for deletion, least recently changed first.
    pub candidates: Vec<Candidate>,
    /// Sessions that have artifacts that pass the filters, but were skipped because they have
    /// unfinished runs.
    #[serde(default)]
    pub busy: Vec<BusySession>,
    /// Artifacts that were deleted.
    pub deleted: Vec<ArtifactId>,
    /// Artifacts that could not be deleted.
    pub failed: Vec<CleanupFailure>,
}
