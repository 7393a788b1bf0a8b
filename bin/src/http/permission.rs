//! Permissions, and the decisions about them (PERM-1).

use axum::{
    Json,
    body::Bytes,
    extract::{
        Path, Query, State,
        rejection::{BytesRejection, QueryRejection},
    },
};
use serde::{Deserialize, Serialize};
use soong::{
    ErrorCode, ErrorInfo, PermissionFilter,
    protocol::{Decision, Permission, PermissionId, PermissionStatus, SessionId},
};

use super::{
    Api,
    error::{ApiError, body},
};

/// Which permissions; absent = any.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermissionQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<PermissionStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<SessionId>,
}

/// Permissions, the oldest first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Permissions {
    pub(crate) permissions: Vec<Permission>,
}

/// A decision.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionBody {
    pub(crate) decision: Decision,
    /// The model reads it where the call is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// GET `/api/permissions`
pub(super) async fn list(
    State(api): State<Api>,
    query: Result<Query<PermissionQuery>, QueryRejection>,
) -> Result<Json<Permissions>, ApiError> {
    let Query(PermissionQuery { status, session_id }) = query?;
    let permissions = api.runtime.permissions(PermissionFilter { status, session_id, run_id: None }).await?;
    Ok(Json(Permissions { permissions }))
}

/// POST `/api/permissions/{id}`: the run goes on, also one that an earlier process left behind.
pub(super) async fn decide(
    State(api): State<Api>,
    Path(id): Path<PermissionId>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Json<Permission>, ApiError> {
    let passing = api.enter()?;
    let DecisionBody { decision, reason } = body(bytes)?;
    let runtime = api.runtime.clone();
    // In a task of its own: a client that leaves meanwhile leaves no run behind that is decided upon and waits.
    let deciding = tokio::spawn(async move {
        let decided = runtime.decide_permission(&id, decision, reason).await;
        if decided.as_ref().is_err_and(|error| error.code != ErrorCode::AlreadyDecided) {
            return decided;
        }
        // Who was first may have been cut off before the run went on.
        let asked = runtime.permission(&id).await?;
        let is_decided = matches!(asked.status, PermissionStatus::Allowed | PermissionStatus::Denied);
        if is_decided && runtime.handle(&asked.run_id).is_err() {
            runtime.resume(&asked.session_id).await?;
        }
        drop(passing);
        decided
    });
    let lost = |error| ErrorInfo::new(ErrorCode::InternalError, format!("the decision did not finish: {error}"));
    Ok(Json(deciding.await.map_err(lost)??))
}
