//! Artifacts: named, versioned products of a session or of a user (ART-1).
//!
//! A *product* is stored version by version. A *document* is edited by models in between: its edits are
//! recorded one by one, and become a version when the run that made them ends (ART-4, ART-5).
//!
//! Not here: what may be a name (`artifact/name.rs`), and bytes. They lie with the blobs of the
//! storage crate; this is the registry's face.

mod name;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::name::{ArtifactName, ArtifactNameError};
use crate::{ArtifactId, ErrorInfo, RunId, SessionId, Timestamp, TraceId};

/// Whose an artifact is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "scope")]
pub enum ArtifactScope {
    /// One session's; goes with it.
    Session {
        /// The session.
        session_id: SessionId,
    },
    /// One user's; seen from all sessions of that user.
    User {
        /// The user.
        uid: String,
    },
}

/// Who made a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ArtifactSource {
    /// A model, by a document tool.
    Agent,
    /// A tool or a program, by saving bytes.
    Tool,
    /// A person, with a file.
    UserUpload,
    /// A client, by writing.
    Api,
}

impl ArtifactSource {
    /// Returns the source as the store and clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Tool => "tool",
            Self::UserUpload => "user_upload",
            Self::Api => "api",
        }
    }
}

/// How a version or an edit came about. Of the edits that led to a version, the one that changed most
/// counts: they are declared from the least on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum UpdateType {
    /// It is not there any more: the conversation went back to before it was made (MSG-4).
    Withdraw,
    /// A part was replaced, found as it was given.
    Update,
    /// A part was replaced that was only like what was given (ART-7).
    UpdateFuzzy,
    /// A whole new text.
    Rewrite,
    /// The first text.
    Create,
}

impl UpdateType {
    /// Returns the type as the store and clients see it.
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
    /// As it was given.
    Exact,
    /// Alike but for quotes, dashes, spaces and compatible characters.
    Normalized,
    /// The one region that is most like it.
    Fuzzy,
}

impl MatchLayer {
    /// Returns the layer as the store and clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Normalized => "normalized",
            Self::Fuzzy => "fuzzy",
        }
    }

    /// Returns how an edit by this layer is listed.
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

/// Where a version came from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Provenance {
    /// The run that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// That run's trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// The message that asked for it.
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
    /// Its identity; opaque.
    pub artifact_id: ArtifactId,
    /// Whose it is.
    #[serde(flatten)]
    pub scope: ArtifactScope,
    /// Its name, unique in its scope; absent for captured products. Of a user's, `user:` is written in front
    /// where both scopes are named together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name that it had, where the conversation went back to before it was made; a later move of the
    /// conversation may bring it back (MSG-4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<String>,
    /// What people call it.
    pub title: String,
    /// Its name as a file; for people, never an identity.
    pub filename: String,
    /// MIME type; decides how it is treated.
    pub content_type: String,
    /// Size of the current text or bytes.
    pub size: u64,
    /// Number of what it holds now, from 1: the last edit's, or the last stored version's.
    pub current_version: u64,
    /// Number of the last stored version; 0 = none yet.
    pub stored_version: u64,
    /// Whether it has edits that are no stored version yet.
    pub dirty: bool,
    /// Who made what it holds now.
    pub source: ArtifactSource,
    /// Whether it only helps to find defects: the first to be cleaned up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
    /// Where what it holds now came from.
    pub provenance: Provenance,
    /// One line about it: its maker's, else how its text begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What its maker wants to remember.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: serde_json::Map<String, Value>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
}

impl Artifact {
    /// Returns what it is called by: its name, else its id.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(self.artifact_id.as_str())
    }

    /// Returns its name as both scopes together know it: `user:` in front of a user's.
    pub fn key(&self) -> String {
        match self.scope {
            ArtifactScope::Session { .. } => self.label().to_owned(),
            ArtifactScope::User { .. } => format!("{USER_PREFIX}{}", self.label()),
        }
    }

    /// Refers to it as it is now.
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

/// What stands in front of the name of a user's artifact.
pub const USER_PREFIX: &str = "user:";

/// One stored version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArtifactVersion {
    /// Its number; those of a document have gaps.
    pub version: u64,
    /// Its size in bytes.
    pub size: u64,
    /// MIME type.
    pub content_type: String,
    /// How it came about.
    pub update_type: UpdateType,
    /// Who made it.
    pub source: ArtifactSource,
    /// Where it came from.
    pub provenance: Provenance,
    /// The replacements that led to it, `[old, new]`; whole texts are not repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<(String, String)>,
    /// When it was stored.
    pub created_at: Timestamp,
}

/// One edit of a document, as it is recorded (ART-5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentEdit {
    /// The document.
    pub artifact_id: ArtifactId,
    /// Which number the document has with it.
    pub revision: u64,
    /// How it changed the text.
    pub update_type: UpdateType,
    /// What it changed.
    pub splice: Splice,
    /// What was asked to be replaced, where a part was.
    pub old: Option<String>,
    /// The tool call that made it.
    pub effect: EffectId,
    /// The trace whose run made it.
    pub trace_id: TraceId,
    /// The outcome of the call, as the tool gave it; JSON.
    pub outcome: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Which of the world's changes one is: a repeated call is known by it (DUR-4).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EffectId {
    /// The run.
    pub run_id: RunId,
    /// Its turn.
    pub turn: u32,
    /// The call.
    pub tool_call_id: String,
}

/// A part of a text that gives way to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splice {
    /// Where it begins, in bytes.
    pub start: u64,
    /// How much goes, in bytes.
    pub removed: u64,
    /// What comes.
    pub inserted: String,
}

impl Splice {
    /// Replaces all of a text.
    pub fn whole(before: &str, after: String) -> Self {
        Self { start: 0, removed: before.len() as u64, inserted: after }
    }

    /// Applies it; `None` = it is not of this text.
    pub fn apply(&self, text: &str) -> Option<String> {
        let start = usize::try_from(self.start).ok()?;
        let end = start.checked_add(usize::try_from(self.removed).ok()?)?;
        let (before, after) = (text.get(..start)?, text.get(end..)?);
        text.get(start..end)?;
        Some([before, self.inserted.as_str(), after].concat())
    }
}

/// What a document holds after a write, for those who look on (ART-10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactSnapshot {
    /// The artifact.
    pub artifact_id: ArtifactId,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number that it has with this write.
    pub version: u64,
    /// MIME type.
    pub content_type: String,
    /// Size in bytes.
    pub size: u64,
    /// The whole text, up to [`Self::MAX_CHARS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Why there is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl ArtifactSnapshot {
    /// Longest text that a snapshot carries, in characters.
    pub const MAX_CHARS: usize = 256_000;

    /// Takes what an artifact holds.
    pub fn of(artifact: &Artifact, text: &str) -> Self {
        // No text has more characters than bytes.
        let fits = text.len() <= Self::MAX_CHARS || text.chars().nth(Self::MAX_CHARS).is_none();
        let note = || format!("the text is longer than {} characters: read the artifact", Self::MAX_CHARS);
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

/// A document whose edits could not be stored as a version; they stay recorded (ART-4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushFailure {
    /// Its name.
    pub name: String,
    /// Why.
    pub error: ErrorInfo,
}

/// What became of a run's documents at its end (ART-4).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Flushed {
    /// The versions that were stored, by name.
    pub versions: BTreeMap<String, u64>,
    /// What could not be stored.
    pub failed: Vec<FlushFailure>,
}

/// What stands in a message or result instead of the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArtifactRef {
    /// Always `artifact_ref`.
    #[serde(rename = "type")]
    pub kind: RefKind,
    /// The artifact.
    pub artifact_id: ArtifactId,
    /// Its name, `user:` in front of a user's; absent for captured products, which are called by their id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The version meant.
    pub version: u64,
    /// MIME type.
    pub content_type: String,
    /// Size in bytes.
    pub size: u64,
    /// One line about it.
    pub summary: String,
}

impl ArtifactRef {
    /// Returns what it is called by: its name, else its id.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(self.artifact_id.as_str())
    }
}

/// The mark by which clients tell a reference from other objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefKind {
    /// The only kind there is.
    #[default]
    ArtifactRef,
}
