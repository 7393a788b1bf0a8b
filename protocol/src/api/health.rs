//! Readiness of the owner of a home.

use serde::{Deserialize, Serialize};

use crate::{ErrorCode, ErrorInfo};

/// Readiness of the owner of the home.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ready {
    /// `ready`, or `failed`.
    pub status: String,
    /// Process id.
    pub pid: u32,
    /// Version of the server.
    pub version: String,
    /// Model profiles that cannot be used until the process is restarted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_profiles: Vec<String>,
    /// Why no runs are accepted; only after [`Ready::of_failure`], since the body does not contain
    /// it.
    #[serde(skip)]
    pub failure: Option<ErrorInfo>,
}

impl Ready {
    /// Extracts the readiness from an error that reports why no runs are accepted; `None` for any
    /// other error.
    pub fn of_failure(error: &ErrorInfo) -> Option<Self> {
        let is_failure = matches!(
            error.code,
            ErrorCode::RuntimeFailed | ErrorCode::StorageError
        );
        let owner = is_failure.then(|| Self::deserialize(&error.details).ok())??;
        Some(Self {
            failure: Some(error.clone()),
            ..owner
        })
    }
}

/// Liveness of the process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Live {
    /// `live`.
    pub status: String,
}
