//! Routes of traces: lists, one trace with its goals, and its messages.

use axum::Json;
use serde::{Deserialize, Serialize};
use soong::{
    MessagePath, TraceFilter,
    protocol::{
        GoalId, RunMode, SessionId, TraceId, TraceStatus,
        api::{Messages, TracePage, TraceView},
    },
};

use super::{
    caller::Access,
    error::ApiError,
    request::{Path, Query},
    session::PageQuery,
};

/// Filters for traces, and the selected page.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub(crate) struct TraceQuery {
    /// Traces with this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<TraceStatus>,
    /// Traces whose last run had this mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_mode: Option<RunMode>,
    /// Traces whose last run had this preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// Traces of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Children of this trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_trace_id: Option<TraceId>,
    /// Also list single calls. They are always listed if the mode, the session or the parent is
    /// given.
    #[serde(default)]
    pub all: bool,
    /// Maximum number of items, 1 to 100. Default: 50.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Start of the page: `next_cursor` of the previous page.
    #[cfg_attr(feature = "openapi", param(pattern = "^[0-9]{1,18}$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Lists traces, newest first.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/traces", tag = "traces", params(TraceQuery),
    responses((status = OK, body = TracePage))))]
pub(super) async fn list(
    access: Access,
    Query(query): Query<TraceQuery>,
) -> Result<Json<TracePage>, ApiError> {
    let page = PageQuery {
        limit: query.limit,
        cursor: query.cursor,
    };
    let filter = TraceFilter {
        uid: None,
        is_live: false,
        status: query.status,
        hides_calls: !query.all
            && query.run_mode.is_none()
            && query.session_id.is_none()
            && query.parent_trace_id.is_none(),
        run_mode: query.run_mode,
        agent_type: query.agent_type,
        session_id: query.session_id,
        parent_trace_id: query.parent_trace_id,
    };
    listed(&access, filter, page).await
}

/// Lists traces with an active or waiting run, newest first.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/traces/running", tag = "traces", params(PageQuery),
    responses((status = OK, body = TracePage))))]
pub(super) async fn running(
    access: Access,
    Query(page): Query<PageQuery>,
) -> Result<Json<TracePage>, ApiError> {
    let filter = TraceFilter {
        is_live: true,
        status: Some(TraceStatus::Running),
        ..TraceFilter::default()
    };
    listed(&access, filter, page).await
}

async fn listed(
    access: &Access,
    filter: TraceFilter,
    page: PageQuery,
) -> Result<Json<TracePage>, ApiError> {
    let filter = TraceFilter {
        uid: access.caller.visible_uid(),
        ..filter
    };
    let limit = page.limit()?;
    let found = access
        .runtime()
        .traces()
        .list(filter, limit, page.cursor)
        .await?;
    Ok(Json(TracePage {
        traces: found.items,
        next_cursor: found.next_cursor,
    }))
}

/// Reads a trace with its goals and its sub-traces.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/traces/{trace_id}", tag = "traces", params(("trace_id" = String, Path)),
    responses((status = OK, body = TraceView))))]
pub(super) async fn show(
    access: Access,
    Path(id): Path<TraceId>,
) -> Result<Json<TraceView>, ApiError> {
    Ok(Json(read_trace(&access, &id).await?))
}

/// Reads a trace with its goals and its sub-traces.
pub(super) async fn read_trace(access: &Access, id: &TraceId) -> Result<TraceView, ApiError> {
    let trace = access.trace(id).await?;
    let goal_tree = access.runtime().traces().goal_tree(id).await?;
    let sub_traces = access.runtime().traces().sub_traces(id).await?;
    Ok(TraceView {
        trace,
        goal_tree,
        sub_traces,
    })
}

/// Selects the messages of a trace.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum PathName {
    /// Messages of the main path, from the first to the head.
    #[default]
    MainPath,
    /// All messages, including those off the main path.
    All,
}

#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub(crate) struct MessageQuery {
    #[serde(default)]
    #[cfg_attr(feature = "openapi", param(inline))]
    pub mode: PathName,
    /// Only messages of this goal.
    pub goal_id: Option<GoalId>,
}

/// Reads the messages of a trace.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/traces/{trace_id}/messages", tag = "traces",
    params(("trace_id" = String, Path), MessageQuery), responses((status = OK, body = Messages))))]
pub(super) async fn messages(
    access: Access,
    Path(id): Path<TraceId>,
    Query(query): Query<MessageQuery>,
) -> Result<Json<Messages>, ApiError> {
    access.trace(&id).await?;
    let path = match query.mode {
        PathName::MainPath => MessagePath::Main,
        PathName::All => MessagePath::All,
    };
    let mut messages = access.runtime().traces().messages(&id, path).await?;
    if let Some(goal) = query.goal_id {
        messages.retain(|message| message.goal_id.as_ref() == Some(&goal));
    }
    Ok(Json(Messages { messages }))
}
