//! A session: a root trace with its sub-traces, a queue of user runs, and artifacts.

use serde::{Deserialize, Serialize};

use crate::{SessionId, Timestamp};

/// Kind of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// A conversation.
    #[default]
    Conversation,
    /// A single model call (RT-5). Lists leave it out unless they are asked for it.
    Call,
}

impl SessionKind {
    /// Returns whether the session is a conversation.
    pub fn is_conversation(&self) -> bool {
        *self == Self::Conversation
    }
}

/// Returns the number of the first incarnation of an id, and of the first event.
pub(crate) fn first() -> u64 {
    1
}

pub(crate) fn is_first(number: &u64) -> bool {
    *number == first()
}

/// A session as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Session {
    /// Unique id, which is also the id of the root trace.
    pub session_id: SessionId,
    /// How often the id has been used: ids of deleted sessions may be used again. Absent for 1.
    #[serde(
        default = "crate::session::first",
        skip_serializing_if = "crate::session::is_first"
    )]
    pub incarnation: u64,
    /// Readable name that is unique and does not change, such as `plan-a-garden-3f`. Absent if the
    /// caller chose the id, if the name has no letters, before the first run, and in sessions of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slug: Option<String>,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kind of the session. Absent for a conversation.
    #[serde(default, skip_serializing_if = "SessionKind::is_conversation")]
    pub kind: SessionKind,
    /// User that owns the session.
    pub uid: String,
    /// Project directory in which the runs of the session work.
    pub project_dir: String,
    /// Number of the first event, which the session may not have yet. Absent for 1. A session whose
    /// id was used before continues the event numbers of the deleted session.
    #[serde(
        default = "crate::session::first",
        skip_serializing_if = "crate::session::is_first"
    )]
    pub first_session_seq: u64,
    /// Highest assigned `session_seq`. Without events, the number before the first.
    pub last_session_seq: u64,
    /// Number of runs that have not ended, including child runs.
    pub live_runs: u64,
    /// Creation time.
    pub created_at: Timestamp,
    /// Time of the last event.
    pub updated_at: Timestamp,
    /// Time at which the last run that a user started was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at: Option<Timestamp>,
}

impl Session {
    /// Returns the short name: the slug, else the id.
    pub fn short_name(&self) -> &str {
        self.slug.as_deref().unwrap_or(self.session_id.as_str())
    }
}
