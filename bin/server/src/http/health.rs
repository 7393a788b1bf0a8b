//! Whether the owner is well, and ready.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use soong::{ErrorCode, ErrorInfo};
use utoipa::ToSchema;

use super::{Api, error::ApiError};

/// The profile of runs that name no model.
const DEFAULT_PROFILE: &str = "default";

/// That the process answers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Live {
    status: String,
}

/// Who owns the home.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Ready {
    /// `ready`, or why not.
    pub status: String,
    /// Its process.
    pub pid: u32,
    /// Version of the server.
    pub version: String,
    /// Model profiles that cannot be used until the process is restarted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_profiles: Vec<String>,
    /// Why it accepts no runs. Taken from the error, not from the body.
    #[serde(skip)]
    pub failure: Option<ErrorInfo>,
}

impl Ready {
    fn new(failed_profiles: Vec<String>) -> Self {
        let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION").to_owned());
        Self { status: "ready".to_owned(), pid, version, failed_profiles, failure: None }
    }

    /// Reads who owns the home from an error that says why it takes no runs in; `None` = the error is another one.
    pub fn of_failure(error: &ErrorInfo) -> Option<Self> {
        let is_failure = matches!(error.code, ErrorCode::RuntimeFailed | ErrorCode::StorageError);
        let owner = is_failure.then(|| Self::deserialize(&error.details).ok())??;
        Some(Self { failure: Some(error.clone()), ..owner })
    }
}

/// Tells that the process answers. Needs no token.
#[utoipa::path(get, path = "/health/live", tag = "health", security(()), responses((status = OK, body = Live)))]
pub(super) async fn live() -> Json<Live> {
    Json(Live { status: "live".to_owned() })
}

/// Tells whether runs are taken in. Needs no token.
///
/// 503 while the owner of the home leaves it, while the disk takes nothing, and once the runtime, or the gateway of the
/// default model profile, has failed for good.
#[utoipa::path(get, path = "/health/ready", tag = "health", security(()), responses((status = OK, body = Ready)))]
pub(super) async fn ready(State(api): State<Api>) -> Result<Json<Ready>, ApiError> {
    if api.gate.is_leaving() || api.runtime.is_closing() {
        return Err(ErrorInfo::retryable(ErrorCode::Closing, "the owner of the home leaves it").into());
    }
    let mut failed = api.runtime.failed_profiles();
    let failure = match api.runtime.failure().or_else(|| failed.remove(DEFAULT_PROFILE)) {
        None => api.runtime.check_storage().await.err(),
        failure => failure,
    };
    let ready = Ready::new(failed.into_keys().collect());
    match failure {
        None => Ok(Json(ready)),
        Some(failure) => {
            // Whoever looks for the owner of the home finds it also when it takes nothing in.
            let details = serde_json::to_value(Ready { status: "failed".to_owned(), ..ready }).unwrap_or_default();
            Err(ErrorInfo { details, ..failure }.into())
        }
    }
}
