//! Cleanup of the task journals of projects.

use axum::Json;
use soong::{protocol::api::TaskCleanupBody, task_journal::TaskCleanupReport};

use super::{caller::Access, cleanup::task_cleanup, error::ApiError, request};

/// Lists the task journals of a project that can be deleted, and deletes them unless it is a dry
/// run. A project may contain journals of several users, so the home's own token is required.
#[cfg_attr(feature = "openapi", utoipa::path(post, path = "/api/cleanup/tasks", tag = "home", request_body = TaskCleanupBody,
    responses((status = OK, body = TaskCleanupReport))))]
pub(super) async fn clean_up(
    access: Access,
    request::Json(body): request::Json<TaskCleanupBody>,
) -> Result<Json<TaskCleanupReport>, ApiError> {
    let _passing = access.begin_change()?;
    let cleanup = task_cleanup(body)?;
    let traces = access.runtime().traces();
    Ok(Json(traces.clean_up_project_tasks(cleanup).await?))
}
