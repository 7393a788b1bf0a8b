//! The supervision tree, and whether the owner is well.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use soong::{ActorView, ErrorCode, ErrorInfo};

use super::{Api, error::ApiError};

/// Who owns the home.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) status: String,
    pub(crate) pid: u32,
    pub(crate) version: String,
}

/// GET `/api/tree`
pub(super) async fn show(State(api): State<Api>) -> Result<Json<ActorView>, ApiError> {
    let closed = || ErrorInfo::retryable(ErrorCode::Closing, "the runtime has closed");
    Ok(Json(api.runtime.tree().ok_or_else(closed)?))
}

/// GET `/health/live`
pub(super) async fn live() -> Json<Value> {
    Json(json!({ "status": "live" }))
}

/// GET `/health/ready`
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
