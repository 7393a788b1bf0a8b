//! Artifacts: named, versioned products of a session or of a user (ART-1).
//!
//! Not here: bytes. They lie with the blobs of the storage crate; this is the registry's face.

use serde::{Deserialize, Serialize};

use crate::{ArtifactId, RunId, SessionId, Timestamp, TraceId};

/// Whose an artifact is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[serde(rename_all = "snake_case")]
pub enum ArtifactSource {
    /// A model, by a document tool.
    Agent,
    /// A tool or a program, by saving bytes.
    Tool,
}

impl ArtifactSource {
    /// Returns the source as the store and clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Tool => "tool",
        }
    }
}

/// How a version came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateType {
    /// The first version.
    Create,
    /// A whole new text.
    Rewrite,
}

impl UpdateType {
    /// Returns the type as the store and clients see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Rewrite => "rewrite",
        }
    }
}

/// Where a version came from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Provenance {
    /// The run that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// That run's trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// The tool call that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// An artifact as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its identity; opaque.
    pub artifact_id: ArtifactId,
    /// Whose it is.
    #[serde(flatten)]
    pub scope: ArtifactScope,
    /// Its name, unique in its scope; `user:` is written in front of a user's.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// Its name as a file; for people, never an identity.
    pub filename: String,
    /// MIME type; decides how it is treated.
    pub content_type: String,
    /// Size of the current version in bytes.
    pub size: u64,
    /// Number of the current version, from 1.
    pub current_version: u64,
    /// Who made the current version.
    pub source: ArtifactSource,
    /// Where the current version came from.
    pub provenance: Provenance,
    /// When the first version was stored.
    pub created_at: Timestamp,
    /// When the current version was stored.
    pub updated_at: Timestamp,
}

/// One stored version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactVersion {
    /// Its number.
    pub version: u64,
    /// Its size in bytes.
    pub size: u64,
    /// How it came about.
    pub update_type: UpdateType,
    /// When it was stored.
    pub created_at: Timestamp,
}

/// What stands in a message or result instead of the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRef {
    /// Always `artifact_ref`.
    #[serde(rename = "type")]
    pub kind: RefKind,
    /// The artifact.
    pub artifact_id: ArtifactId,
    /// Its name.
    pub name: String,
    /// The version meant.
    pub version: u64,
    /// MIME type.
    pub content_type: String,
    /// Size in bytes.
    pub size: u64,
    /// One line about it.
    pub summary: String,
}

/// The mark by which clients tell a reference from other objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefKind {
    /// The only kind there is.
    #[default]
    ArtifactRef,
}

/// Why a name cannot be an artifact's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot name an artifact: {why}")]
pub struct ArtifactNameError {
    name: String,
    why: &'static str,
}

/// A name that is safe as an identity and as one path segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ArtifactName(String);

/// Device names of Windows: a file of that name would not be one there.
const RESERVED: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];

impl ArtifactName {
    /// Longest name in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Takes a name from a model or caller: letters, digits, `_`, `-`, `.` and inner spaces.
    ///
    /// Refuses paths, control and invisible characters, leading or trailing dots and spaces, and
    /// device names, so that no name can leave its folder or pass for another.
    pub fn parse(name: &str) -> Result<Self, ArtifactNameError> {
        let refuse = |why| Err(ArtifactNameError { name: name.chars().take(160).collect(), why });
        if name.is_empty() || name.len() > Self::MAX_BYTES {
            return refuse("it must have 1 to 128 bytes");
        }
        if !name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ')) {
            return refuse("only letters, digits, '_', '-', '.' and spaces are allowed");
        }
        if name.starts_with(['.', ' ', '-']) || name.ends_with(['.', ' ']) {
            return refuse("it must not begin with a dot, dash or space, nor end with a dot or space");
        }
        let stem = name.split('.').next().unwrap_or(name).to_ascii_lowercase();
        let device = stem.trim_end_matches(|c: char| c.is_ascii_digit());
        if RESERVED.contains(&device) && (stem.len() - device.len()) <= 1 {
            return refuse("it is a device name on some systems");
        }
        Ok(Self(name.to_owned()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a file name for people: the name, with the type's ending where it has none.
    pub fn filename(&self, content_type: &str) -> String {
        let ending = match content_type.split(';').next().unwrap_or("").trim() {
            "text/markdown" => ".md",
            "text/plain" => ".txt",
            "application/json" => ".json",
            "text/csv" => ".csv",
            "text/html" => ".html",
            _ => "",
        };
        if self.0.contains('.') { self.0.clone() } else { format!("{}{ending}", self.0) }
    }
}

impl std::fmt::Display for ArtifactName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_leave_its_folder_is_refused() {
        for (name, valid) in [
            ("report", true),
            ("task_plan", true),
            ("Bericht 2026.md", true),
            ("报告", true),
            ("", false),
            (".", false),
            ("..", false),
            ("../x", false),
            ("a/b", false),
            ("a\\b", false),
            ("C:evil", false),
            ("nul", false),
            ("COM1.txt", false),
            ("console", true),
            ("a\0b", false),
            ("a\u{202e}b", false),
            ("trailing.", false),
            (" lead", false),
            ("-rf", false),
        ] {
            assert_eq!(ArtifactName::parse(name).is_ok(), valid, "{name:?}");
        }
        assert!(ArtifactName::parse(&"x".repeat(129)).is_err());
    }

    #[test]
    fn a_file_name_gets_the_ending_of_its_type() {
        let name = ArtifactName::parse("report").unwrap();
        assert_eq!(name.filename("text/markdown"), "report.md");
        assert_eq!(name.filename("image/png"), "report");
        assert_eq!(ArtifactName::parse("a.py").unwrap().filename("text/plain"), "a.py");
    }
}
