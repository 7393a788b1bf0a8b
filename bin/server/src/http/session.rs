//! Sessions: lists, one, a new one, a copy of one, where its conversation goes on, and its end.

use std::path::PathBuf;

use axum::{Json, http::StatusCode};
use serde::{Deserialize, Serialize};
use soong::{
    Fork, NewSessionSpec, SessionFilter, Switched,
    protocol::{Session, SessionId},
};
use utoipa::{IntoParams, ToSchema};

use super::{
    caller::Access,
    error::{ApiError, refuse},
    request::{self, Path, Query},
};

/// Items of a page unless the client says otherwise, and at most.
const PAGE_ITEMS: (usize, usize) = (50, 100);

/// Which page of a list.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Most items; 50 unless it is said, at most 100.
    #[param(minimum = 1, maximum = 100)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Where the page begins: `next_cursor` of the one before.
    #[param(pattern = "^[0-9]{1,18}$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl PageQuery {
    pub(super) fn limit(&self) -> Result<usize, ApiError> {
        limit(self.limit, PAGE_ITEMS)
    }
}

/// Returns how many items a page has: as many as are wanted, within what may be.
pub(super) fn limit(wanted: Option<usize>, (usual, most): (usize, usize)) -> Result<usize, ApiError> {
    match wanted {
        Some(wanted) if !(1..=most).contains(&wanted) => Err(refuse(format!("limit has to be 1 to {most}"))),
        wanted => Ok(wanted.unwrap_or(usual)),
    }
}

/// A page of sessions, newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionPage {
    /// The sessions, newest first.
    pub sessions: Vec<Session>,
    /// Where the next page begins; absent on the last one.
    pub next_cursor: Option<String>,
}

/// One session.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// The session.
    pub session: Session,
}

/// Lists sessions, newest first.
#[utoipa::path(get, path = "/api/sessions", tag = "sessions", params(PageQuery),
    responses((status = OK, body = SessionPage)))]
pub(super) async fn list(access: Access, Query(query): Query<PageQuery>) -> Result<Json<SessionPage>, ApiError> {
    let filter = SessionFilter { uid: access.caller.only() };
    let limit = query.limit()?;
    let page = access.runtime().sessions(filter, limit, query.cursor).await?;
    Ok(Json(SessionPage { sessions: page.items, next_cursor: page.next_cursor }))
}

/// Reads a session.
#[utoipa::path(get, path = "/api/sessions/{session_id}", tag = "sessions", params(("session_id" = String, Path)),
    responses((status = OK, body = SessionView)))]
pub(super) async fn show(access: Access, Path(id): Path<SessionId>) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(SessionView { session: access.session(&id).await? }))
}

/// What a client says of a session that is to be made before its first run.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSessionBody {
    /// Its id; made if absent. 1 to 128 letters, digits, `_`, `-` or `.`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The folder that its runs work in, on the server's machine; the server's own if absent.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_dir: Option<PathBuf>,
    /// Allows the home folder of the server's user, or a folder above it, as the project.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_home_project: bool,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whose it is: nobody but the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// Makes a session without a run, so that files can come first.
#[utoipa::path(post, path = "/api/sessions", tag = "sessions", request_body = Option<NewSessionBody>,
    responses((status = CREATED, body = SessionView)))]
pub(super) async fn create(
    access: Access,
    request::Json(wish): request::Json<NewSessionBody>,
) -> Result<(StatusCode, Json<SessionView>), ApiError> {
    let _passing = access.enter()?;
    let NewSessionBody { session_id, project_dir, allow_home_project, name, uid } = wish;
    let uid = Some(access.uid(uid.as_deref())?);
    let wish = NewSessionSpec { session_id, project_dir, allow_home_project, name, uid };
    Ok((StatusCode::CREATED, Json(SessionView { session: access.runtime().create_session(wish).await? })))
}

/// What a client says of a copy.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkBody {
    /// The last message that comes along; absent = the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_sequence: Option<u64>,
    /// The id of the copy; made if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// What people call the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Copies a session's conversation, goals and documents as they were at a message.
#[utoipa::path(post, path = "/api/sessions/{session_id}/fork", tag = "sessions", params(("session_id" = String, Path)),
    request_body = Option<ForkBody>, responses((status = CREATED, body = SessionView)))]
pub(super) async fn fork(
    access: Access,
    Path(id): Path<SessionId>,
    request::Json(wish): request::Json<ForkBody>,
) -> Result<(StatusCode, Json<SessionView>), ApiError> {
    let _passing = access.enter()?;
    access.session(&id).await?;
    let ForkBody { at_sequence, session_id, name } = wish;
    let session = access.runtime().fork_session(&id, Fork { at: at_sequence, session_id, name }).await?;
    Ok((StatusCode::CREATED, Json(SessionView { session })))
}

/// From which message a conversation is to go on.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeadBody {
    /// Sequence number of the message that is the head.
    pub sequence: u64,
}

/// Where a conversation stands after a switch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HeadView {
    /// Sequence number of the message that is the head.
    pub sequence: u64,
    /// The head before.
    pub from_sequence: u64,
    /// Documents that are as they were at that message again.
    pub restored: Vec<String>,
    /// Documents that stay, because somebody else has changed them since.
    pub left: Vec<String>,
}

/// Lets a conversation go on from another message, on its main path or off it. No run is started.
#[utoipa::path(post, path = "/api/sessions/{session_id}/head", tag = "sessions", params(("session_id" = String, Path)),
    request_body = HeadBody, responses((status = OK, body = HeadView)))]
pub(super) async fn head(
    access: Access,
    Path(id): Path<SessionId>,
    request::Json(HeadBody { sequence }): request::Json<HeadBody>,
) -> Result<Json<HeadView>, ApiError> {
    let _passing = access.enter()?;
    access.session(&id).await?;
    let Switched { sequence, from_sequence, restored, left } = access.runtime().switch_head(&id, sequence).await?;
    Ok(Json(HeadView { sequence, from_sequence, restored, left }))
}

/// Deletes a session with everything in it; answers when it is gone.
#[utoipa::path(delete, path = "/api/sessions/{session_id}", tag = "sessions", params(("session_id" = String, Path)),
    responses((status = NO_CONTENT)))]
pub(super) async fn delete(access: Access, Path(id): Path<SessionId>) -> Result<StatusCode, ApiError> {
    access.session(&id).await?;
    access.runtime().delete_session(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
