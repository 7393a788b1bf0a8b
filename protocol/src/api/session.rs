//! Sessions, forks, the head of a conversation, and the permission mode.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{PermissionMode, Session};

/// A page of sessions, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionPage {
    /// The sessions, newest first.
    pub sessions: Vec<Session>,
    /// Cursor of the next page; `null` on the last page.
    pub next_cursor: Option<String>,
}

/// A session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionView {
    /// The session.
    pub session: Session,
}

/// A session to create before its first run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSessionBody {
    /// Id of the session: 1 to 128 letters, digits, `_`, `-` or `.`. Default: generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Folder that the session's runs work in, on the server's machine. Default: the server's
    /// folder.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_dir: Option<PathBuf>,
    /// Allows the home folder of the server's user, or a folder above it, as the project.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_home_project: bool,
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// User that owns the session. Only the caller's own id is accepted. Default: the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// Options of a fork.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ForkBody {
    /// Sequence number of the last message to copy. Default: the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_sequence: Option<u64>,
    /// Id of the copy. Default: generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Display name of the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The message from which a conversation continues.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeadBody {
    /// Sequence number of the message that becomes the head.
    pub sequence: u64,
}

/// The permission mode of the active run of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PermissionModeBody {
    /// The mode.
    pub permission_mode: PermissionMode,
}

/// Head of a conversation after a switch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeadView {
    /// Sequence number of the new head.
    pub sequence: u64,
    /// Sequence number of the previous head.
    pub from_sequence: u64,
    /// Documents that were restored to their content at that message.
    pub restored: Vec<String>,
    /// Documents that were not restored, because another writer has changed them since.
    pub left: Vec<String>,
}

/// Selects a page of a list.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct PageQuery {
    /// Maximum number of items, 1 to 100. Default: 50.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Start of the page: `next_cursor` of the previous page.
    #[cfg_attr(feature = "openapi", param(pattern = "^[0-9]{1,18}$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Parameters of a list of sessions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct SessionQuery {
    /// Maximum number of items, 1 to 100. Default: 50.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Start of the page: `next_cursor` of the previous page.
    #[cfg_attr(feature = "openapi", param(pattern = "^[0-9]{1,18}$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Also list single calls.
    #[serde(default)]
    pub all: bool,
}
