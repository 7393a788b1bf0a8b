//! Sessions: lists, one, and its artifacts.

use axum::{
    Json,
    extract::{Path, Query, State, rejection::QueryRejection},
};
use serde::{Deserialize, Serialize};
use soong::protocol::{Artifact, Session, SessionId};

use super::{Api, error::ApiError, trace::PAGE_ITEMS};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
}

/// A page of sessions, newest first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SessionPage {
    pub(crate) sessions: Vec<Session>,
    pub(crate) next_cursor: Option<String>,
}

/// One session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SessionView {
    pub(crate) session: Session,
}

/// Artifacts by name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Artifacts {
    pub(crate) artifacts: Vec<Artifact>,
}

/// GET `/api/sessions`
pub(super) async fn list(
    State(api): State<Api>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<SessionPage>, ApiError> {
    let Query(query) = query?;
    let page = api.runtime.sessions(query.limit.unwrap_or(PAGE_ITEMS), query.cursor).await?;
    Ok(Json(SessionPage { sessions: page.items, next_cursor: page.next_cursor }))
}

/// GET `/api/sessions/{id}`
pub(super) async fn show(State(api): State<Api>, Path(id): Path<SessionId>) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(SessionView { session: api.runtime.session(&id).await? }))
}

/// GET `/api/sessions/{id}/artifacts`
pub(super) async fn artifacts(State(api): State<Api>, Path(id): Path<SessionId>) -> Result<Json<Artifacts>, ApiError> {
    let artifacts = api.runtime.artifacts(&api.runtime.artifact_place(&id).await?).await?;
    Ok(Json(Artifacts { artifacts }))
}
