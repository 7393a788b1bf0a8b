//! Cleanup of artifacts, and of the task journals of a project.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Cleanup, SessionId};

/// An age: a number of seconds, or a duration such as `30d`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Age {
    /// Seconds.
    Seconds(u64),
    /// A duration: `90s`, `30m`, `2h`, `7d`.
    Text(String),
}

const fn yes() -> bool {
    true
}

/// Filters for the artifacts to clean up. An artifact must match all of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(as = Cleanup))]
pub struct ArtifactCleanupBody {
    /// Only artifacts of this session. Default: all sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Only artifacts of this user's sessions. Default: all users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Whether to list the artifacts without deleting them. Default: true.
    #[serde(default = "yes")]
    pub dry_run: bool,
    /// Whether to include ordinary artifacts, in addition to those that only help to find defects.
    #[serde(default)]
    pub include_all: bool,
    /// Only artifacts that have not changed for this time, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// The same in seconds, or as a duration such as `30d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than: Option<Age>,
    /// Delete the artifacts that have not changed for the longest time, until the rest has at most
    /// this many bytes in all versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl From<Cleanup> for ArtifactCleanupBody {
    fn from(cleanup: Cleanup) -> Self {
        let Cleanup {
            session_id,
            uid,
            dry_run,
            include_all,
            older_than_ms,
            max_bytes,
        } = cleanup;
        Self {
            session_id,
            uid,
            dry_run,
            include_all,
            older_than_ms,
            older_than: None,
            max_bytes,
        }
    }
}

/// Filters for the task journals to clean up. A journal must match all of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(as = TaskCleanup))]
pub struct TaskCleanupBody {
    /// The project folder. The name `project` is accepted too.
    #[serde(alias = "project")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub project_dir: PathBuf,
    /// Whether to list the journals without deleting them. Default: true.
    #[serde(default = "yes")]
    pub dry_run: bool,
    /// Whether to include journals of failed tasks, in addition to those of completed tasks.
    #[serde(default)]
    pub include_failed: bool,
    /// Whether to include journals of cancelled tasks.
    #[serde(default)]
    pub include_cancelled: bool,
    /// Only journals that have not been written for this time, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// The same in seconds, or as a duration such as `30d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than: Option<Age>,
}
