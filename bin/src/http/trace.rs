//! Traces: lists, one with its goals, its messages.

use axum::{
    Json,
    extract::{Path, Query, State, rejection::QueryRejection},
};
use serde::{Deserialize, Serialize};
use soong::{
    MessagePath, TraceFilter,
    protocol::{GoalTree, Message, RunMode, SessionId, Trace, TraceId, TraceStatus},
};

use super::{Api, error::ApiError};

/// Items of a page unless the client says otherwise; at most 100.
pub(super) const PAGE_ITEMS: usize = 50;

/// Which traces, and which page of them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<TraceStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_mode: Option<RunMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent_trace_id: Option<TraceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
}

/// A page of traces, newest first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TracePage {
    pub(crate) traces: Vec<Trace>,
    pub(crate) next_cursor: Option<String>,
}

/// A trace with what belongs to it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TraceView {
    pub(crate) trace: Trace,
    pub(crate) goal_tree: GoalTree,
    pub(crate) sub_traces: Vec<Trace>,
}

/// GET `/api/traces`
pub(super) async fn list(
    State(api): State<Api>,
    query: Result<Query<TraceQuery>, QueryRejection>,
) -> Result<Json<TracePage>, ApiError> {
    let Query(query) = query?;
    let filter = TraceFilter {
        status: query.status,
        run_mode: query.run_mode,
        agent_type: query.agent_type,
        session_id: query.session_id,
        parent_trace_id: query.parent_trace_id,
    };
    let page = api.runtime.traces(filter, query.limit.unwrap_or(PAGE_ITEMS), query.cursor).await?;
    Ok(Json(TracePage { traces: page.items, next_cursor: page.next_cursor }))
}

/// GET `/api/traces/{id}`
pub(super) async fn show(State(api): State<Api>, Path(id): Path<TraceId>) -> Result<Json<TraceView>, ApiError> {
    let trace = api.runtime.trace(&id).await?;
    let goal_tree = api.runtime.goal_tree(&id).await?;
    let sub_traces = api.runtime.sub_traces(&id).await?;
    Ok(Json(TraceView { trace, goal_tree, sub_traces }))
}

/// Which messages.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PathName {
    #[default]
    MainPath,
    All,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageQuery {
    #[serde(default)]
    pub(crate) mode: PathName,
}

/// Messages in order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Messages {
    pub(crate) messages: Vec<Message>,
}

/// GET `/api/traces/{id}/messages`
pub(super) async fn messages(
    State(api): State<Api>,
    Path(id): Path<TraceId>,
    query: Result<Query<MessageQuery>, QueryRejection>,
) -> Result<Json<Messages>, ApiError> {
    let Query(query) = query?;
    api.runtime.trace(&id).await?;
    let path = match query.mode {
        PathName::MainPath => MessagePath::Main,
        PathName::All => MessagePath::All,
    };
    Ok(Json(Messages { messages: api.runtime.messages(&id, path).await? }))
}
