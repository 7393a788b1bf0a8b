//! Whether the owner is well, and ready.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use soong::{ErrorCode, ErrorInfo};
use utoipa::ToSchema;

use super::{Api, error::ApiError};

/// That the process answers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Live {
    status: String,
}

/// Who owns the home.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Ready {
    pub(crate) status: String,
    /// Its process.
    pub(crate) pid: u32,
    pub(crate) version: String,
}

/// Tells that the process answers. Needs no token.
#[utoipa::path(get, path = "/health/live", tag = "health", security(()), responses((status = OK, body = Live)))]
pub(super) async fn live() -> Json<Live> {
    Json(Live { status: "live".to_owned() })
}

/// Tells whether runs are taken in: not while the owner leaves. Needs no token.
#[utoipa::path(get, path = "/health/ready", tag = "health", security(()), responses((status = OK, body = Ready)))]
pub(super) async fn ready(State(api): State<Api>) -> Result<Json<Ready>, ApiError> {
    if api.gate.is_leaving() || api.runtime.is_closing() {
        return Err(ErrorInfo::retryable(ErrorCode::Closing, "the owner of the home leaves it").into());
    }
    Ok(Json(Ready {
        status: "ready".to_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }))
}
