//! Sessions: lists, one, a new one, a copy of one, where its conversation goes on, and its end.

use std::path::PathBuf;

use axum::{
    Json,
    body::Bytes,
    extract::{
        Path, Query, State,
        rejection::{BytesRejection, QueryRejection},
    },
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use soong::{
    Fork, NewSessionSpec, Switched,
    protocol::{Session, SessionId},
};

use super::{
    Api,
    error::{ApiError, body},
    trace::PAGE_ITEMS,
};

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

/// What a client says of a session that is to be made before its first run.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSessionBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) project_dir: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

/// POST `/api/sessions`: so that files can come before the first run.
pub(super) async fn create(
    State(api): State<Api>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<SessionView>), ApiError> {
    let _passing = api.enter()?;
    let NewSessionBody { session_id, project_dir, name } = body(bytes)?;
    let wish = NewSessionSpec { session_id, project_dir, name, uid: None };
    Ok((StatusCode::CREATED, Json(SessionView { session: api.runtime.create_session(wish).await? })))
}

/// What a client says of a copy.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkBody {
    /// The last message that comes along; absent = the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at_sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

/// POST `/api/sessions/{id}/fork`
pub(super) async fn fork(
    State(api): State<Api>,
    Path(id): Path<SessionId>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<SessionView>), ApiError> {
    let _passing = api.enter()?;
    let ForkBody { at_sequence, session_id, name } = body(bytes)?;
    let session = api.runtime.fork_session(&id, Fork { at: at_sequence, session_id, name }).await?;
    Ok((StatusCode::CREATED, Json(SessionView { session })))
}

/// From which message a conversation is to go on.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeadBody {
    pub(crate) sequence: u64,
}

/// Where a conversation stands after a switch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HeadView {
    pub(crate) sequence: u64,
    pub(crate) from_sequence: u64,
    /// Documents that are as they were at that message again.
    pub(crate) restored: Vec<String>,
    /// Documents that stay, because somebody else has changed them since.
    pub(crate) left: Vec<String>,
}

/// POST `/api/sessions/{id}/head`
pub(super) async fn head(
    State(api): State<Api>,
    Path(id): Path<SessionId>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Json<HeadView>, ApiError> {
    let _passing = api.enter()?;
    let HeadBody { sequence } = body(bytes)?;
    let Switched { sequence, from_sequence, restored, left } = api.runtime.switch_head(&id, sequence).await?;
    Ok(Json(HeadView { sequence, from_sequence, restored, left }))
}

/// DELETE `/api/sessions/{id}`: 204 when it is gone.
pub(super) async fn delete(State(api): State<Api>, Path(id): Path<SessionId>) -> Result<StatusCode, ApiError> {
    api.runtime.delete_session(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
