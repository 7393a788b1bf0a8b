//! Permission requests, and the decisions about them.

use serde::{Deserialize, Serialize};

use crate::{Decision, Permission, PermissionStatus, SessionId};

/// Filters for permissions. Without filters, all permissions are returned.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct PermissionQuery {
    /// Permissions with this status; `pending`: those that wait for a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<PermissionStatus>,
    /// Permissions of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// List of permissions.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Permissions {
    /// The permissions, oldest first.
    pub permissions: Vec<Permission>,
}

/// A decision.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DecisionBody {
    /// The decision.
    pub decision: Decision,
    /// Reason that is returned to the model if the call is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Header in which a client sends its name, which is recorded with its decisions.
pub const CLIENT_HEADER: &str = "soong-client";
