//! Routes of sessions: list, read, create, fork, move the head, set the permission mode, delete.

use soong::{
    Fork, HeadSwitched, SessionFilter, SessionSpec,
    protocol::api::{
        ForkBody, HeadBody, HeadView, NewSessionBody, PageQuery, PermissionModeBody, SessionPage,
        SessionView,
        operation::{
            CreateSession, DeleteSession, ForkSession, ListSessions, ReadSession,
            SetPermissionMode, SwitchHead,
        },
    },
};

use super::{
    caller::Access,
    error::{ApiError, validation_error},
};

/// Number of items on a page.
const PAGE_ITEMS: PageSize = PageSize {
    usual: 50,
    most: 100,
};

/// Returns the number of items on the requested page.
pub(super) fn page_limit(page: &PageQuery) -> Result<usize, ApiError> {
    limit(page.limit, PAGE_ITEMS)
}

/// Number of items of a page: the default, and the maximum.
#[derive(Clone, Copy)]
pub(super) struct PageSize {
    pub(super) usual: usize,
    pub(super) most: usize,
}

/// Returns the number of items of a page. Rejects a number outside the limits.
pub(super) fn limit(wanted: Option<usize>, size: PageSize) -> Result<usize, ApiError> {
    let PageSize { usual, most } = size;
    match wanted {
        Some(wanted) if !(1..=most).contains(&wanted) => {
            Err(validation_error(format!("limit must be 1 to {most}")))
        }
        wanted => Ok(wanted.unwrap_or(usual)),
    }
}

pub(super) async fn list(access: &Access, request: ListSessions) -> Result<SessionPage, ApiError> {
    let ListSessions { query } = request;
    let filter = SessionFilter {
        uid: access.caller.visible_uid(),
        hides_calls: !query.all,
    };
    let query = PageQuery {
        limit: query.limit,
        cursor: query.cursor,
    };
    let limit = page_limit(&query)?;
    let page = access
        .runtime()
        .sessions()
        .list(filter, limit, query.cursor)
        .await?;
    Ok(SessionPage {
        sessions: page.items,
        next_cursor: page.next_cursor,
    })
}

pub(super) async fn show(access: &Access, request: ReadSession) -> Result<SessionView, ApiError> {
    let ReadSession { session_id: id } = request;
    Ok(SessionView {
        session: access.session(&id).await?,
    })
}

pub(super) async fn create(
    access: &Access,
    request: CreateSession,
) -> Result<SessionView, ApiError> {
    let CreateSession { body } = request;
    let _passing = access.begin_change()?;
    let NewSessionBody {
        session_id,
        project_dir,
        allow_home_project,
        name,
        uid,
    } = body;
    let uid = Some(access.uid(uid.as_deref())?);
    let body = SessionSpec {
        session_id,
        project_dir,
        allow_home_project,
        name,
        uid,
    };
    let session = access
        .runtime()
        .sessions()
        .for_request(access.request_key())
        .create(body)
        .await?;
    Ok(SessionView { session })
}

pub(super) async fn fork(access: &Access, request: ForkSession) -> Result<SessionView, ApiError> {
    let ForkSession {
        session_id: id,
        body,
    } = request;
    let _passing = access.begin_change()?;
    access.session(&id).await?;
    let ForkBody {
        at_sequence,
        session_id,
        name,
    } = body;
    let sessions = access
        .runtime()
        .sessions()
        .for_request(access.request_key());
    let session = sessions
        .fork(
            &id,
            Fork {
                at: at_sequence,
                session_id,
                name,
            },
        )
        .await?;
    Ok(SessionView { session })
}

pub(super) async fn switch_head(
    access: &Access,
    request: SwitchHead,
) -> Result<HeadView, ApiError> {
    let SwitchHead {
        session_id: id,
        body: HeadBody { sequence },
    } = request;
    let _passing = access.begin_change()?;
    access.session(&id).await?;
    let HeadSwitched {
        sequence,
        from_sequence,
        restored,
        not_restored,
    } = access
        .runtime()
        .sessions()
        .switch_head(&id, sequence)
        .await?;
    Ok(HeadView {
        sequence,
        from_sequence,
        restored,
        left: not_restored,
    })
}

pub(super) async fn permission_mode(
    access: &Access,
    request: SetPermissionMode,
) -> Result<PermissionModeBody, ApiError> {
    let SetPermissionMode {
        session_id: id,
        body,
    } = request;
    let _passing = access.begin_change()?;
    access.session(&id).await?;
    access
        .runtime()
        .permissions()
        .set_mode(&id, body.permission_mode)
        .await?;
    Ok(body)
}

pub(super) async fn delete(access: &Access, request: DeleteSession) -> Result<(), ApiError> {
    let DeleteSession { session_id: id } = request;
    access.session(&id).await?;
    access.runtime().sessions().delete(&id).await?;
    Ok(())
}
