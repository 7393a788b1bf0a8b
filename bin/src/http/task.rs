//! Task journals of projects: cleaning them up.

use axum::{
    Json,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
};
use soong::task_journal::{TaskCleanup, TaskCleanupReport};

use super::{
    Api,
    error::{ApiError, body},
};

/// POST `/api/cleanup/tasks`
pub(super) async fn clean_up(
    State(api): State<Api>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Json<TaskCleanupReport>, ApiError> {
    let _passing = api.enter()?;
    let wish: TaskCleanup = body(bytes)?;
    Ok(Json(api.runtime.cleanup_project_tasks(wish).await?))
}
