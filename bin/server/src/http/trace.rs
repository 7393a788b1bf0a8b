//! Routes of traces: lists, one trace with its goals, and its messages.

use soong::{
    MessagePath, TraceFilter,
    protocol::{
        TraceId, TraceStatus,
        api::{
            Messages, PageQuery, PathName, TracePage, TraceQuery, TraceView,
            operation::{ListRunningTraces, ListTraces, ReadMessages, ReadTrace},
        },
    },
};

use super::{caller::Access, error::ApiError, session::page_limit};

pub(super) async fn list(access: &Access, request: ListTraces) -> Result<TracePage, ApiError> {
    let ListTraces { query } = request;
    let filter = trace_filter(&query);
    let page = PageQuery {
        limit: query.limit,
        cursor: query.cursor,
    };
    listed(access, filter, page).await
}

/// Returns the filter of a list of traces, for all users.
pub fn trace_filter(query: &TraceQuery) -> TraceFilter {
    TraceFilter {
        uid: None,
        is_live: false,
        status: query.status,
        hides_calls: !query.all
            && query.run_mode.is_none()
            && query.session_id.is_none()
            && query.parent_trace_id.is_none(),
        run_mode: query.run_mode,
        agent_type: query.agent_type.clone(),
        session_id: query.session_id.clone(),
        parent_trace_id: query.parent_trace_id.clone(),
    }
}

pub(super) async fn running(
    access: &Access,
    request: ListRunningTraces,
) -> Result<TracePage, ApiError> {
    let ListRunningTraces { query: page } = request;
    let filter = TraceFilter {
        is_live: true,
        status: Some(TraceStatus::Running),
        ..TraceFilter::default()
    };
    listed(access, filter, page).await
}

async fn listed(
    access: &Access,
    filter: TraceFilter,
    page: PageQuery,
) -> Result<TracePage, ApiError> {
    let filter = TraceFilter {
        uid: access.caller.visible_uid(),
        ..filter
    };
    let limit = page_limit(&page)?;
    let found = access
        .runtime()
        .traces()
        .list(filter, limit, page.cursor)
        .await?;
    Ok(TracePage {
        traces: found.items,
        next_cursor: found.next_cursor,
    })
}

pub(super) async fn show(access: &Access, request: ReadTrace) -> Result<TraceView, ApiError> {
    let ReadTrace { trace_id: id } = request;
    read_trace(access, &id).await
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

pub(super) async fn messages(access: &Access, request: ReadMessages) -> Result<Messages, ApiError> {
    let ReadMessages {
        trace_id: id,
        query,
    } = request;
    access.trace(&id).await?;
    let path = match query.mode {
        PathName::MainPath => MessagePath::Main,
        PathName::All => MessagePath::All,
    };
    let mut messages = access.runtime().traces().messages(&id, path).await?;
    if let Some(goal) = query.goal_id {
        messages.retain(|message| message.goal_id.as_ref() == Some(&goal));
    }
    Ok(Messages { messages })
}
