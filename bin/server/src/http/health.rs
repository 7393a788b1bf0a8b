//! Routes of health checks: liveness and readiness of the owner.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use soong::{ErrorCode, ErrorInfo};
use utoipa::ToSchema;

use super::{Api, error::ApiError};

/// Model profile of runs that name no model.
const DEFAULT_PROFILE: &str = "default";

/// Liveness of the process.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Live {
    status: String,
}

/// Readiness of the owner of the home.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
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
    /// Why no runs are accepted. Read from the error, not from the body.
    #[serde(skip)]
    pub failure: Option<ErrorInfo>,
}

impl Ready {
    fn new(failed_profiles: Vec<String>) -> Self {
        let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION").to_owned());
        Self { status: "ready".to_owned(), pid, version, failed_profiles, failure: None }
    }

    /// Extracts the readiness from an error that reports why no runs are accepted; `None` for any other error.
    pub fn of_failure(error: &ErrorInfo) -> Option<Self> {
        let is_failure = matches!(error.code, ErrorCode::RuntimeFailed | ErrorCode::StorageError);
        let owner = is_failure.then(|| Self::deserialize(&error.details).ok())??;
        Some(Self { failure: Some(error.clone()), ..owner })
    }
}

/// Checks that the process responds. Requires no token.
#[utoipa::path(get, path = "/health/live", tag = "health", security(()), responses((status = OK, body = Live)))]
pub(super) async fn live() -> Json<Live> {
    Json(Live { status: "live".to_owned() })
}

/// Checks whether runs are accepted. Requires no token.
///
/// Returns 503 while the owner of the home shuts down, while the disk cannot be written, and after the runtime or the
/// gateway of the default model profile has failed permanently.
#[utoipa::path(get, path = "/health/ready", tag = "health", security(()), responses((status = OK, body = Ready)))]
pub(super) async fn ready(State(api): State<Api>) -> Result<Json<Ready>, ApiError> {
    if api.gate.is_stopping() || api.runtime.info().is_closing() {
        return Err(ErrorInfo::retryable(ErrorCode::Closing, "the owner process of the home is shutting down").into());
    }
    let mut failed = api.runtime.info().failed_profiles();
    let failure = match api.runtime.info().failure().or_else(|| failed.remove(DEFAULT_PROFILE)) {
        None => api.runtime.info().check_storage().await.err(),
        failure => failure,
    };
    let ready = Ready::new(failed.into_keys().collect());
    match failure {
        None => Ok(Json(ready)),
        Some(failure) => {
            // The error contains the owner's details, so that clients can find the owner even if it accepts no runs.
            let details = serde_json::to_value(Ready { status: "failed".to_owned(), ..ready }).unwrap_or_default();
            Err(ErrorInfo { details, ..failure }.into())
        }
    }
}
