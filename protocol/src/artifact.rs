//! Artifacts: named, versioned products of a session or of a user (ART-1).
//!
//! A *product* is stored as a new version on each write. A *document* is edited by models: its
//! edits are recorded one by one and become one version when the run that made them ends (ART-4,
//! ART-5).
//!
//! Elsewhere: the rules for names (`artifact/name.rs`) and the bytes (blobs of the storage crate).
//! This module holds the records.

mod name;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::name::{ArtifactName, ArtifactNameError};
use crate::{ArtifactId, ErrorInfo, RunId, SessionId, Timestamp, TraceId};

/// Scope of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "scope")]
pub enum ArtifactScope {
    /// The artifact belongs to a session and is deleted with it.
    Session {
        /// The session.
        session_id: SessionId,
    },
    /// The artifact belongs to a user and is visible in all sessions of that user.
    User {
        /// The user.
        uid: String,
    },
}

/// Kind of writer that made a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ArtifactSource {
    /// A model wrote it with a document tool.
    Agent,
    /// A tool or a program saved bytes.
    Tool,
    /// A user uploaded a file.
    UserUpload,
    /// A client wrote it through the API.
    Api,
}

impl ArtifactSource {
    /// Returns the name of the source in the store and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Tool => "tool",
            Self::UserUpload => "user_upload",
            Self::Api => "api",
        }
    }
}

/// How a version or an edit changed the text. The order of the variants is significant: the type of
/// a version is the greatest type of its edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum UpdateType {
    /// The document does not exist at this point, because the conversation was rewound to before
    /// its creation (MSG-4).
    Withdraw,
    /// A part was replaced that matched the given text.
    Update,
    /// A part was replaced that matched the given text only approximately (ART-7).
    UpdateFuzzy,
    /// The whole text was replaced.
    Rewrite,
    /// The text was created.
    Create,
}

impl UpdateType {
    /// Returns the name of the type in the store and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Withdraw => "withdraw",
            Self::Update => "update",
            Self::UpdateFuzzy => "update_fuzzy",
            Self::Rewrite => "rewrite",
            Self::Create => "create",
        }
    }
}

/// How the text that an edit replaces was found (ART-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MatchLayer {
    /// Exact match.
    Exact,
    /// Match after normalizing quotes, dashes, spaces and compatibility characters.
    Normalized,
    /// The single most similar region.
    Fuzzy,
}

impl MatchLayer {
    /// Returns the name of the layer in the store and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Normalized => "normalized",
            Self::Fuzzy => "fuzzy",
        }
    }

    /// Returns the update type of an edit that was matched by this layer.
    pub const fn update_type(self) -> UpdateType {
        match self {
            Self::Exact | Self::Normalized => UpdateType::Update,
            Self::Fuzzy => UpdateType::UpdateFuzzy,
        }
    }
}

impl std::fmt::Display for MatchLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Origin of a version: the run, message and tool call that made it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Provenance {
    /// The run that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The trace of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// The message that requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_sequence: Option<u64>,
    /// The tool call that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// An artifact as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Artifact {
    /// Opaque, unique id.
    pub artifact_id: ArtifactId,
    /// Session or user that owns the artifact.
    #[serde(flatten)]
    pub scope: ArtifactScope,
    /// Name, unique in its scope. Absent for stored tool outputs. Lists that contain both scopes
    /// show a user artifact as `user:NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Former name of a document that does not exist any more because the conversation was rewound
    /// to before its creation. Moving the conversation again may restore it (MSG-4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<String>,
    /// Display title.
    pub title: String,
    /// File name for downloads. It does not identify the artifact.
    pub filename: String,
    /// MIME type. Determines how the content is handled.
    pub content_type: String,
    /// Size of the current content, in bytes.
    pub size: u64,
    /// Number of the current content, from 1: that of the last edit or stored version.
    pub current_version: u64,
    /// Number of the last stored version. 0 if there is none yet.
    pub stored_version: u64,
    /// Whether there are edits that are not yet part of a stored version.
    pub dirty: bool,
    /// Source of the current content.
    pub source: ArtifactSource,
    /// Whether models cannot see the artifact: a debug artifact, or the previous content of a
    /// project file. By default, a cleanup covers only such artifacts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
    /// Origin of the current content.
    pub provenance: Provenance,
    /// One-line summary. Default: the beginning of the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Metadata that the writer attached.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: serde_json::Map<String, Value>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

impl Artifact {
    /// Returns the name, or the id if there is no name.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(self.artifact_id.as_str())
    }

    /// Returns the name in lists that contain both scopes: `user:NAME` for a user artifact.
    pub fn key(&self) -> String {
        match self.scope {
            ArtifactScope::Session { .. } => self.label().to_owned(),
            ArtifactScope::User { .. } => format!("{USER_PREFIX}{}", self.label()),
        }
    }

    /// Returns a reference to the current content.
    pub fn reference(&self) -> ArtifactRef {
        ArtifactRef {
            kind: RefKind::ArtifactRef,
            artifact_id: self.artifact_id.clone(),
            name: self.name.as_ref().map(|_| self.key()),
            version: self.current_version,
            content_type: self.content_type.clone(),
            size: self.size,
            summary: self.summary.clone().unwrap_or_else(|| self.title.clone()),
        }
    }
}

/// Prefix of the name of a user artifact.
pub const USER_PREFIX: &str = "user:";

/// A stored version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArtifactVersion {
    /// Version number. The numbers of a document have gaps.
    pub version: u64,
    /// Size in bytes.
    pub size: u64,
    /// MIME type.
    pub content_type: String,
    /// How the version changed the text.
    pub update_type: UpdateType,
    /// Source of the version.
    pub source: ArtifactSource,
    /// Origin of the version.
    pub provenance: Provenance,
    /// Replacements that led to the version, as pairs `[old, new]`. Replacements of the whole text
    /// are not included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<(String, String)>,
    /// Time at which the version was stored.
    pub created_at: Timestamp,
}

/// A recorded edit of a document (ART-5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentEdit {
    /// The document.
    pub artifact_id: ArtifactId,
    /// Number of the document's content after the edit.
    pub revision: u64,
    /// How the edit changed the text.
    pub update_type: UpdateType,
    /// The changed part of the text.
    pub splice: Splice,
    /// Text that the edit was asked to replace. `None` if it replaced the whole text.
    pub old: Option<String>,
    /// The tool call that made the edit.
    pub effect: EffectId,
    /// The trace whose run made the edit.
    pub trace_id: TraceId,
    /// JSON outcome of the call, as the tool returned it.
    pub outcome: String,
    /// Time of the edit.
    pub created_at: Timestamp,
}

/// Identity of a side effect. A repeated tool call is recognized by it (DUR-4).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EffectId {
    /// The run.
    pub run_id: RunId,
    /// Turn of the run.
    pub turn: u32,
    /// The tool call.
    pub tool_call_id: String,
}

/// A replacement of one part of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splice {
    /// Start offset in bytes.
    pub start: u64,
    /// Number of bytes to remove.
    pub removed: u64,
    /// Text to insert.
    pub inserted: String,
}

impl Splice {
    /// Creates a replacement of the whole text.
    pub fn replace_all(before: &str, after: String) -> Self {
        Self {
            start: 0,
            removed: before.len() as u64,
            inserted: after,
        }
    }

    /// Applies the replacement. Returns `None` if the range is not valid in this text.
    pub fn apply(&self, text: &str) -> Option<String> {
        let start = usize::try_from(self.start).ok()?;
        let end = start.checked_add(usize::try_from(self.removed).ok()?)?;
        let before = text.get(..start)?;
        let after = text.get(end..)?;
        text.get(start..end)?;
        Some([before, self.inserted.as_str(), after].concat())
    }
}

/// Content of a document after a write, for watchers of the event stream (ART-10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactSnapshot {
    /// The artifact.
    pub artifact_id: ArtifactId,
    /// Name of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of the content.
    pub version: u64,
    /// MIME type.
    pub content_type: String,
    /// Size in bytes.
    pub size: u64,
    /// The whole text. Absent if it is longer than [`Self::MAX_CHARS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Why the text is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl ArtifactSnapshot {
    /// Maximum length of a text in a snapshot, in characters.
    pub const MAX_CHARS: usize = 256_000;

    /// Creates a snapshot of an artifact with this text.
    pub fn new(artifact: &Artifact, text: &str) -> Self {
        // A text never has more characters than bytes.
        let fits = text.len() <= Self::MAX_CHARS || text.chars().nth(Self::MAX_CHARS).is_none();
        let note = || {
            format!(
                "the text is longer than {} characters: read the artifact",
                Self::MAX_CHARS
            )
        };
        Self {
            artifact_id: artifact.artifact_id.clone(),
            name: artifact.name.as_ref().map(|_| artifact.key()),
            version: artifact.current_version,
            content_type: artifact.content_type.clone(),
            size: artifact.size,
            content: fits.then(|| text.to_owned()),
            note: (!fits).then(note),
        }
    }
}

/// A document whose edits could not be stored as a version. The edits remain recorded (ART-4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushFailure {
    /// Name of the document.
    pub name: String,
    /// Why storing failed.
    pub error: ErrorInfo,
}

/// Result of storing the documents of a run at its end (ART-4).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FlushReport {
    /// Stored versions, by name.
    pub versions: BTreeMap<String, u64>,
    /// Documents that could not be stored.
    pub failed: Vec<FlushFailure>,
}

/// Reference to an artifact. Messages and results contain it instead of the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArtifactRef {
    /// Always `artifact_ref`.
    #[serde(rename = "type")]
    pub kind: RefKind,
    /// The artifact.
    pub artifact_id: ArtifactId,
    /// Name, as `user:NAME` for a user artifact. Absent for stored tool outputs, which are
    /// identified by their id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Referenced version.
    pub version: u64,
    /// MIME type.
    pub content_type: String,
    /// Size in bytes.
    pub size: u64,
    /// One-line summary.
    pub summary: String,
}

impl ArtifactRef {
    /// Returns the name, or the id if there is no name.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(self.artifact_id.as_str())
    }
}

/// Type tag that distinguishes a reference from other JSON objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefKind {
    /// The only value.
    #[default]
    ArtifactRef,
}
