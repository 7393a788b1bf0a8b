//! Task journals by program and by clients: the library's doors (TASK-2).
//!
//! Thin: what is done lies behind `task_journal`.

use std::path::{Path, PathBuf};

use soong_protocol::{ErrorCode, ErrorInfo};

use super::{Runtime, builder};
use crate::task_journal::{ProjectTask, TaskCleanup, TaskCleanupReport, clean_up_tasks, project_tasks};

impl Runtime {
    /// Lists the task journals of a project, what was written last first; those under the home too.
    pub async fn project_tasks(&self, project: &Path) -> Result<Vec<ProjectTask>, ErrorInfo> {
        let project = project.to_owned();
        self.on_disk(move |home| project_tasks(Some(&home), &builder::resolve_project(&project)?)).await
    }

    /// Lists which task journals of a project may go and why, and deletes them unless it is a dry run.
    ///
    /// Those of completed tasks go, others by their flag; never one whose last line does not say that its task is
    /// over.
    pub async fn cleanup_project_tasks(&self, wish: TaskCleanup) -> Result<TaskCleanupReport, ErrorInfo> {
        self.on_disk(move |home| {
            let project_dir = builder::resolve_project(&wish.project_dir)?;
            clean_up_tasks(Some(&home), &TaskCleanup { project_dir, ..wish })
        })
        .await
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(PathBuf) -> Result<T, ErrorInfo> + Send + 'static,
    ) -> Result<T, ErrorInfo> {
        let home = self.home().to_owned();
        let failed = |error: tokio::task::JoinError| ErrorInfo::new(ErrorCode::InternalError, error.to_string());
        tokio::task::spawn_blocking(move || work(home)).await.map_err(failed)?
    }
}
