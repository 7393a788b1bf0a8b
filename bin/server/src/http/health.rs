//! Routes of health checks: liveness and readiness of the owner.

use axum::{Json, extract::State};
use soong::{
    ErrorCode, ErrorInfo,
    protocol::api::{
        Live, Ready,
        operation::{CheckLiveness, CheckReadiness},
    },
};

use super::{Api, caller::Access, error::ApiError};

/// Model profile of runs that name no model.
const DEFAULT_PROFILE: &str = "default";

/// Answers [`CheckLiveness`] to a request without a caller.
pub(super) async fn live_without_caller() -> Json<Live> {
    Json(liveness())
}

pub(super) async fn live(_: &Access, _: CheckLiveness) -> Result<Live, ApiError> {
    Ok(liveness())
}

fn liveness() -> Live {
    Live {
        status: "live".to_owned(),
    }
}

/// Answers [`CheckReadiness`] to a request without a caller.
pub(super) async fn ready_without_caller(State(api): State<Api>) -> Result<Json<Ready>, ApiError> {
    readiness(&api).await.map(Json)
}

pub(super) async fn ready(access: &Access, _: CheckReadiness) -> Result<Ready, ApiError> {
    readiness(access.api()).await
}

async fn readiness(api: &Api) -> Result<Ready, ApiError> {
    if api.gate.is_stopping() || api.runtime.info().is_closing() {
        return Err(ErrorInfo::retryable(
            ErrorCode::Closing,
            "the owner process of the home is shutting down",
        )
        .into());
    }
    let mut failed = api.runtime.info().failed_profiles();
    let failure = match api
        .runtime
        .info()
        .failure()
        .or_else(|| failed.remove(DEFAULT_PROFILE))
    {
        None => api.runtime.info().check_storage().await.err(),
        failure => failure,
    };
    let ready = Ready {
        status: "ready".to_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        failed_profiles: failed.into_keys().collect(),
        failure: None,
    };
    match failure {
        None => Ok(ready),
        Some(failure) => {
            // The error contains the owner's details, so that clients can find the owner even if it
            // accepts no runs.
            let details = serde_json::to_value(Ready {
                status: "failed".to_owned(),
                ..ready
            })
            .unwrap_or_default();
            Err(ErrorInfo { details, ..failure }.into())
        }
    }
}
