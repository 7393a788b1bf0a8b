//! A session: a root trace with its sub-traces, its queue of user runs and its artifacts.

use serde::{Deserialize, Serialize};

use crate::{SessionId, Timestamp};

/// A session as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Session {
    /// Its id; also the id of its root trace.
    pub session_id: SessionId,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whose it is.
    pub uid: String,
    /// The project directory its runs work in.
    pub project_dir: String,
    /// Highest `session_seq` given out.
    pub last_session_seq: u64,
    /// How many of its runs, children included, have not ended.
    pub live_runs: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its last event happened.
    pub updated_at: Timestamp,
}
