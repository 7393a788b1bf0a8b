//! Routes of sessions: list, read, create, fork, move the head, delete.

use std::path::PathBuf;

use axum::{Json, http::StatusCode};
use serde::{Deserialize, Serialize};
use soong::{
    Fork, HeadSwitched, NewSessionSpec, SessionFilter,
    protocol::{Session, SessionId},
};
use utoipa::{IntoParams, ToSchema};

use super::{
    caller::Access,
    error::{ApiError, validation_error},
    request::{self, Path, Query},
};

/// Number of items of a page: default and maximum.
const PAGE_ITEMS: (usize, usize) = (50, 100);

/// Selects a page of a list.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Maximum number of items, 1 to 100. Default: 50.
    #[param(minimum = 1, maximum = 100)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Start of the page: `next_cursor` of the previous page.
    #[param(pattern = "^[0-9]{1,18}$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl PageQuery {
    pub(super) fn limit(&self) -> Result<usize, ApiError> {
        limit(self.limit, PAGE_ITEMS)
    }
}

/// Returns the number of items of a page. Rejects a number outside the limits.
pub(super) fn limit(wanted: Option<usize>, (usual, most): (usize, usize)) -> Result<usize, ApiError> {
    match wanted {
        Some(wanted) if !(1..=most).contains(&wanted) => Err(validation_error(format!("limit must be 1 to {most}"))),
        wanted => Ok(wanted.unwrap_or(usual)),
    }
}

/// A page of sessions, newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionPage {
    /// The sessions, newest first.
    pub sessions: Vec<Session>,
    /// Cursor of the next page; absent on the last page.
    pub next_cursor: Option<String>,
}

/// A session.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// The session.
    pub session: Session,
}

/// Lists sessions, newest first.
#[utoipa::path(get, path = "/api/sessions", tag = "sessions", params(PageQuery),
    responses((status = OK, body = SessionPage)))]
pub(super) async fn list(access: Access, Query(query): Query<PageQuery>) -> Result<Json<SessionPage>, ApiError> {
    let filter = SessionFilter { uid: access.caller.visible_uid() };
    let limit = query.limit()?;
    let page = access.runtime().sessions().list(filter, limit, query.cursor).await?;
    Ok(Json(SessionPage { sessions: page.items, next_cursor: page.next_cursor }))
}

/// Reads a session.
#[utoipa::path(get, path = "/api/sessions/{session_id}", tag = "sessions", params(("session_id" = String, Path)),
    responses((status = OK, body = SessionView)))]
pub(super) async fn show(access: Access, Path(id): Path<SessionId>) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(SessionView { session: access.session(&id).await? }))
}

/// A session to create before its first run.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSessionBody {
    /// Id of the session: 1 to 128 letters, digits, `_`, `-` or `.`. Default: generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Folder that the session's runs work in, on the server's machine. Default: the server's folder.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_dir: Option<PathBuf>,
    /// Allows the home folder of the server's user, or a folder above it, as the project.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_home_project: bool,
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// User that owns the session. Only the caller's own id is accepted. Default: the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// Creates a session without a run, so that files can be uploaded first.
#[utoipa::path(post, path = "/api/sessions", tag = "sessions", request_body = Option<NewSessionBody>,
    responses((status = CREATED, body = SessionView)))]
pub(super) async fn create(
    access: Access,
    request::Json(body): request::Json<NewSessionBody>,
) -> Result<(StatusCode, Json<SessionView>), ApiError> {
    let _passing = access.begin_change()?;
    let NewSessionBody { session_id, project_dir, allow_home_project, name, uid } = body;
    let uid = Some(access.uid(uid.as_deref())?);
    let body = NewSessionSpec { session_id, project_dir, allow_home_project, name, uid };
    Ok((StatusCode::CREATED, Json(SessionView { session: access.runtime().sessions().create(body).await? })))
}

/// Options of a fork.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkBody {
    /// Sequence number of the last message to copy. Default: the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_sequence: Option<u64>,
    /// Id of the copy. Default: generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Display name of the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Copies a session with its conversation, goals and documents as of a message.
#[utoipa::path(post, path = "/api/sessions/{session_id}/fork", tag = "sessions", params(("session_id" = String, Path)),
    request_body = Option<ForkBody>, responses((status = CREATED, body = SessionView)))]
pub(super) async fn fork(
    access: Access,
    Path(id): Path<SessionId>,
    request::Json(body): request::Json<ForkBody>,
) -> Result<(StatusCode, Json<SessionView>), ApiError> {
    let _passing = access.begin_change()?;
    access.session(&id).await?;
    let ForkBody { at_sequence, session_id, name } = body;
    let session = access.runtime().sessions().fork(&id, Fork { at: at_sequence, session_id, name }).await?;
    Ok((StatusCode::CREATED, Json(SessionView { session })))
}

/// The message from which a conversation continues.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeadBody {
    /// Sequence number of the message that becomes the head.
    pub sequence: u64,
}

/// Head of a conversation after a switch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HeadView {
    /// Sequence number of the new head.
    pub sequence: u64,
    /// Sequence number of the previous head.
    pub from_sequence: u64,
    /// Documents that were restored to their content at that message.
    pub restored: Vec<String>,
    /// Documents that were not restored, because another writer has changed them since.
    pub left: Vec<String>,
}

/// Moves the head of a conversation to another message, on its main path or off it. Starts no run.
#[utoipa::path(post, path = "/api/sessions/{session_id}/head", tag = "sessions", params(("session_id" = String, Path)),
    request_body = HeadBody, responses((status = OK, body = HeadView)))]
pub(super) async fn head(
    access: Access,
    Path(id): Path<SessionId>,
    request::Json(HeadBody { sequence }): request::Json<HeadBody>,
) -> Result<Json<HeadView>, ApiError> {
    let _passing = access.begin_change()?;
    access.session(&id).await?;
    let HeadSwitched { sequence, from_sequence, restored, not_restored } =
        access.runtime().sessions().switch_head(&id, sequence).await?;
    Ok(Json(HeadView { sequence, from_sequence, restored, left: not_restored }))
}

/// Deletes a session and everything in it. Responds once it is deleted.
#[utoipa::path(delete, path = "/api/sessions/{session_id}", tag = "sessions", params(("session_id" = String, Path)),
    responses((status = NO_CONTENT)))]
pub(super) async fn delete(access: Access, Path(id): Path<SessionId>) -> Result<StatusCode, ApiError> {
    access.session(&id).await?;
    access.runtime().sessions().delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
