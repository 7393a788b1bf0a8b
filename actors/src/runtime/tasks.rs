//! Task journals for programs and clients (TASK-2).
//!
//! A thin layer over `task_journal`.

use std::path::{Path, PathBuf};

use soong_protocol::{ErrorCode, ErrorInfo};

use super::{Traces, project};
use crate::task_journal::{
    ProjectTask, TaskCleanup, TaskCleanupReport, clean_up_tasks, project_tasks,
};

impl Traces<'_> {
    /// Lists the task journals of a project, last written first, including those stored under the
    /// home.
    pub async fn project_tasks(self, project: &Path) -> Result<Vec<ProjectTask>, ErrorInfo> {
        let project = project.to_owned();
        self.run_blocking(move |home| {
            project_tasks(Some(&home), &project::resolve_project(&project)?)
        })
        .await
    }

    /// Lists the task journals of a project that can be deleted, with the reason, and deletes them
    /// unless it is a dry run.
    ///
    /// Task journals of completed tasks are deleted; other finished ones only if their option is
    /// set. A task journal whose last line does not mark the end of its task is never deleted.
    pub async fn clean_up_project_tasks(
        self,
        request: TaskCleanup,
    ) -> Result<TaskCleanupReport, ErrorInfo> {
        self.run_blocking(move |home| {
            let project_dir = project::resolve_project(&request.project_dir)?;
            clean_up_tasks(
                Some(&home),
                &TaskCleanup {
                    project_dir,
                    ..request
                },
            )
        })
        .await
    }

    async fn run_blocking<T: Send + 'static>(
        self,
        work: impl FnOnce(PathBuf) -> Result<T, ErrorInfo> + Send + 'static,
    ) -> Result<T, ErrorInfo> {
        let home = self.runtime.info().home().to_owned();
        let failed = |error: tokio::task::JoinError| {
            ErrorInfo::new(ErrorCode::InternalError, error.to_string())
        };
        tokio::task::spawn_blocking(move || work(home))
            .await
            .map_err(failed)?
    }
}
