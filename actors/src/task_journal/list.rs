//! Lists the task journals of a project, and deletes those of ended tasks (TASK-2).
//!
//! Accesses only files, so no process has to own the home. A file is deleted only if its location,
//! its name and its lines identify it as a journal, and only if its last line ends the task. If the
//! last line is incomplete, the task counts as unfinished.
//!
//! Elsewhere: writing journals (`writer.rs`).

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use soong_protocol::{ErrorCode, ErrorInfo, RunId, SessionId, Timestamp};

use super::{
    line::{LineIdentity, TaskEvent, TaskLine, TaskStatus},
    location::{self, FILE_SUFFIX, TaskPlace},
};

/// Description of a task journal of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProjectTask {
    /// Path of the file.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub path: PathBuf,
    /// Location of the file: in the project or under the home.
    pub kept_in: TaskPlace,
    /// The session.
    pub session_id: SessionId,
    /// The run; absent if the first line cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Status of the task.
    pub status: TaskStatus,
    /// Mission, as stored in the first line; empty if that line cannot be read.
    pub mission: String,
    /// Number of complete lines.
    pub lines: u64,
    /// Time of the last write.
    pub modified_at: Timestamp,
}

/// Request to delete task journals. A journal is deleted only if it matches all filters. Journals
/// of unfinished tasks never match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskCleanup {
    /// The project directory.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub project_dir: PathBuf,
    /// Whether the journals are only listed and not deleted. Default: true.
    #[serde(default = "default_true")]
    pub dry_run: bool,
    /// Whether journals of failed tasks are deleted too, in addition to those of completed tasks.
    /// Default: false.
    #[serde(default)]
    pub include_failed: bool,
    /// Whether journals of cancelled tasks are deleted too. Default: false.
    #[serde(default)]
    pub include_cancelled: bool,
    /// Minimum time since the last write, in milliseconds. Default: no minimum.
    #[serde(default)]
    pub older_than_ms: Option<u64>,
}

const fn default_true() -> bool {
    true
}

impl TaskCleanup {
    /// Creates a request that lists the journals of a project's completed tasks and deletes
    /// nothing.
    pub fn dry_run_for(project_dir: impl Into<PathBuf>) -> Self {
        let project_dir = project_dir.into();
        Self {
            project_dir,
            dry_run: true,
            include_failed: false,
            include_cancelled: false,
            older_than_ms: None,
        }
    }
}

/// A task journal that matches the filters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskCandidate {
    /// Path of the file.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub path: PathBuf,
    /// Reason why it can be deleted.
    pub reason: String,
    /// Time of the last write.
    pub modified_at: Timestamp,
    /// Whether it was deleted. False in a dry run, if the deletion failed, or if the journal
    /// changed meanwhile.
    pub deleted: bool,
}

/// A task journal that could not be deleted. The cleanup continues with the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskCleanupFailure {
    /// Path of the file.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub path: PathBuf,
    /// The error.
    pub error: ErrorInfo,
}

/// Result of a cleanup.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskCleanupReport {
    /// Whether it was a dry run, which deletes nothing.
    pub dry_run: bool,
    /// The journals that match the filters, including those that could not be deleted.
    pub candidates: Vec<TaskCandidate>,
    /// The journals that could not be deleted.
    pub failed: Vec<TaskCleanupFailure>,
}

/// Lists the task journals of a project, in the project and under the home, most recently written
/// first.
///
/// `project` must be an absolute path without symbolic links, as stored in sessions.
pub fn project_tasks(home: Option<&Path>, project: &Path) -> Result<Vec<ProjectTask>, ErrorInfo> {
    let mut tasks = Vec::new();
    if let Some(folder) = location::project_tasks(project) {
        collect_journals(&folder, TaskPlace::Project, project, &mut tasks)
            .map_err(|error| unreadable_error(&folder, &error))?;
    }
    if let Some(folder) = home
        .map(location::home_tasks)
        .filter(|folder| folder.is_dir())
    {
        collect_journals(&folder, TaskPlace::Home, project, &mut tasks)
            .map_err(|error| unreadable_error(&folder, &error))?;
    }
    tasks.sort_by(|a, b| (b.modified_at, &b.path).cmp(&(a.modified_at, &a.path)));
    Ok(tasks)
}

/// Finds the task journals of a project that match the filters, and deletes them unless `dry_run`
/// is set.
///
/// `request.project_dir` must be an absolute path without symbolic links, as stored in sessions.
pub fn clean_up_tasks(
    home: Option<&Path>,
    request: &TaskCleanup,
) -> Result<TaskCleanupReport, ErrorInfo> {
    let tasks = project_tasks(home, &request.project_dir)?;
    let mut report = TaskCleanupReport {
        dry_run: request.dry_run,
        ..TaskCleanupReport::default()
    };
    for task in tasks {
        let Some(reason) = deletion_reason(request, &task, to_timestamp(SystemTime::now())) else {
            continue;
        };
        let ProjectTask {
            path, modified_at, ..
        } = task;
        let mut deleted = false;
        if !request.dry_run {
            match delete(&path, modified_at) {
                Ok(gone) => deleted = gone,
                Err(error) => {
                    let error = ErrorInfo::new(
                        ErrorCode::StorageError,
                        format!("could not delete the file: {error}"),
                    );
                    report.failed.push(TaskCleanupFailure {
                        path: path.clone(),
                        error,
                    });
                }
            }
        }
        report.candidates.push(TaskCandidate {
            path,
            reason,
            modified_at,
            deleted,
        });
    }
    Ok(report)
}

/// Returns the reason why a journal can be deleted; `None` if it does not match the filters.
fn deletion_reason(cleanup: &TaskCleanup, task: &ProjectTask, now: Timestamp) -> Option<String> {
    let mut reason = match task.status {
        TaskStatus::Completed => "the task was completed",
        TaskStatus::Failed if cleanup.include_failed => "the task failed",
        TaskStatus::Cancelled if cleanup.include_cancelled => "the task was cancelled",
        TaskStatus::Unfinished | TaskStatus::Failed | TaskStatus::Cancelled => return None,
    }
    .to_owned();
    if let Some(older_than_ms) = cleanup.older_than_ms {
        let age_ms = now.millis_since(task.modified_at);
        if age_ms < older_than_ms {
            return None;
        }
        reason.push_str(&format!(
            ", last written {} s ago",
            Duration::from_millis(age_ms).as_secs()
        ));
    }
    Some(reason)
}

/// Deletes a journal, and then the folder of its session if it is empty. Returns `false`, and keeps
/// the journal, if it was modified after it was listed.
fn delete(path: &Path, modified_at: Timestamp) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() || to_timestamp(metadata.modified()?) != modified_at {
        return Ok(false);
    }
    fs::remove_file(path)?;
    if let Some(folder) = path.parent() {
        let _ = fs::remove_dir(folder); // fails if the folder is not empty
    }
    Ok(true)
}

/// Reads the journals below `tasks`, in one folder for each session, and adds those of `project` to
/// `metadata`. Logs journals and folders that it cannot read, and skips them.
fn collect_journals(
    tasks: &Path,
    kept_in: TaskPlace,
    project: &Path,
    metadata: &mut Vec<ProjectTask>,
) -> io::Result<()> {
    for folder in fs::read_dir(tasks)? {
        let folder = folder?;
        let session = folder
            .file_name()
            .to_str()
            .and_then(|name| SessionId::parse(name).ok());
        let Some(session) = session.filter(|_| folder.file_type().is_ok_and(|kind| kind.is_dir()))
        else {
            continue;
        };
        let files = match fs::read_dir(folder.path()) {
            Ok(files) => files,
            Err(error) => {
                log_skipped(&folder.path(), &error);
                continue;
            }
        };
        for file in files {
            let file = file?;
            let is_journal = file
                .file_name()
                .to_str()
                .is_some_and(|name| name.ends_with(FILE_SUFFIX));
            if !is_journal || !file.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            match read(file.path(), &session, kept_in) {
                Ok((task, of))
                    if kept_in == TaskPlace::Project || of.as_deref() == Some(project) =>
                {
                    metadata.push(task)
                }
                Ok(_) => {}
                Err(error) => log_skipped(&file.path(), &error),
            }
        }
    }
    Ok(())
}

fn log_skipped(path: &Path, error: &io::Error) {
    // If the file does not exist, another process has deleted it after it was listed.
    if error.kind() != io::ErrorKind::NotFound {
        tracing::warn!(path = %path.display(), %error, "skipped an unreadable task journal");
    }
}

/// Reads a journal. Returns its description, and its project directory if the first line can be
/// read.
fn read(
    path: PathBuf,
    session: &SessionId,
    kept_in: TaskPlace,
) -> io::Result<(ProjectTask, Option<PathBuf>)> {
    // The time is read before the text. If the file is written in between, the recorded time is too
    // old, so `delete` keeps the file.
    let modified_at = to_timestamp(fs::metadata(&path)?.modified()?);
    let text = fs::read(&path)?;
    let is_complete = text.ends_with(b"\n");
    let lines: Vec<&[u8]> = text
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n"))
        .collect();
    let line_count = lines.len() as u64;
    let mut run_id = None;
    let mut mission = String::new();
    let mut project = None;
    let first = lines
        .first()
        .and_then(|line| serde_json::from_slice::<TaskLine>(line).ok());
    if let Some(line) = first
        && let TaskEvent::TaskCreated(created) = line.event
    {
        run_id = Some(line.run_id);
        mission = created.mission;
        project = Some(created.project_dir);
    }
    let mut status = TaskStatus::Unfinished;
    if is_complete
        && let Some(last) = lines.last()
        && let Some(identity) = LineIdentity::parse(last.trim_ascii_end())
        && identity.session_id == *session
        && identity.wal_seq == line_count
    {
        status = identity.status();
    }
    let task = ProjectTask {
        path,
        kept_in,
        session_id: session.clone(),
        run_id,
        status,
        mission,
        lines: line_count,
        modified_at,
    };
    Ok((task, project))
}

fn to_timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn unreadable_error(folder: &Path, error: &io::Error) -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::StorageError,
        format!(
            "the task journals in {} cannot be read: {error}",
            folder.display()
        ),
    )
}

#[cfg(test)]
mod tests;
