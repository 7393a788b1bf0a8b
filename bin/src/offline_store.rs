//! Reads the records of a home from disk without owning the home.

use std::{
    collections::{BTreeSet, HashSet},
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

use rustix::process::{Pid, test_kill_process};

use soong::{
    ErrorCode, ErrorInfo, PermissionFilter, QuestionFilter,
    protocol::{
        ArtifactId, PermissionStatus, QuestionStatus, Run, RunId, RunStatus, Session, SessionId,
        Trace, TraceId, TraceStatus,
    },
};
use soong_storage::{
    sqlite::SqliteReader,
    store::{Page, Reader, SessionFilter, StoreError, TraceFilter},
};

use crate::exit::{Exit, Failure};

/// Maximum number of items per page of a list.
pub(crate) const PAGE: usize = 100;

/// A home, open for reading.
pub(crate) struct OfflineStore {
    home: PathBuf,
    pub(crate) reader: SqliteReader,
    /// Whether a process owns the home and may therefore be executing unfinished runs.
    is_owned: bool,
}

/// Returns the process id of a home's owner, or `None` if the home has no owner.
pub(crate) fn owner(home: &Path) -> Option<u32> {
    let path = home.join("lock");
    let named = std::fs::read_to_string(&path).ok()?;
    let pid = named
        .trim()
        .parse()
        .ok()
        .filter(|pid| *pid > 0)
        .and_then(Pid::from_raw)?;
    // A process of another user cannot be signalled, but it exists.
    let is_alive =
        test_kill_process(pid).map_or_else(|error| error == rustix::io::Errno::PERM, |()| true);
    // The process id may have been reused, so the lock decides. It is tested only if the process is
    // alive, so that the test does not block a process that is about to own the home.
    let is_locked = is_alive
        && matches!(
            File::open(&path).ok()?.try_lock_shared(),
            Err(TryLockError::WouldBlock)
        );
    is_locked.then(|| pid.as_raw_nonzero().get().unsigned_abs())
}

/// Runs that have not ended, as recorded.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedRuns {
    /// Runs of sessions without open requests. If no process executes them, they were interrupted.
    pub(crate) interrupted: Vec<Run>,
    /// Runs of sessions that wait for answers or permissions.
    pub(crate) awaiting_input: Vec<Run>,
}

/// Reads the runs that have not ended.
pub(crate) fn unfinished(reader: &SqliteReader) -> Result<UnfinishedRuns, StoreError> {
    let open = QuestionFilter {
        status: Some(QuestionStatus::Pending),
        ..QuestionFilter::default()
    };
    let mut asks: HashSet<SessionId> = reader
        .questions(&open)?
        .into_iter()
        .map(|question| question.session_id)
        .collect();
    let open = PermissionFilter {
        status: Some(PermissionStatus::Pending),
        ..PermissionFilter::default()
    };
    asks.extend(
        reader
            .permissions(&open)?
            .into_iter()
            .map(|permission| permission.session_id),
    );
    let (parked, at_work) = reader
        .live_runs(None)?
        .into_iter()
        .partition(|run| asks.contains(&run.session_id));
    Ok(UnfinishedRuns {
        interrupted: at_work,
        awaiting_input: parked,
    })
}

/// Returns whether nothing has ever run in a home: it does not exist, or contains no database files
/// and no sessions.
pub(crate) fn is_unused(home: &Path) -> bool {
    ["sessions.sqlite", "sessions.sqlite-wal", "sessions"]
        .iter()
        .all(|name| !home.join(name).exists())
}

/// Returns whether the database of a home has the format of an earlier version, which its owner
/// migrates.
pub(crate) fn needs_migration(home: &Path) -> bool {
    matches!(
        SqliteReader::open(home.join("sessions.sqlite")),
        Err(StoreError::OlderFormat { .. })
    )
}

impl OfflineStore {
    /// Opens the home's database. Creates nothing if there is none.
    pub(crate) fn open(home: &Path) -> Result<Self, Failure> {
        let nothing = |what: String| {
            let advice =
                "Nothing has run there yet. Try `soong demo`, or set another home with --home DIR.";
            Failure::new(Exit::NotFound, what, advice)
        };
        if !home.is_dir() {
            return Err(nothing(format!("there is no home at {}", home.display())));
        }
        let database = home.join("sessions.sqlite");
        match SqliteReader::open(&database) {
            Ok(reader) => Ok(Self {
                home: home.to_owned(),
                reader,
                is_owned: owner(home).is_some(),
            }),
            Err(StoreError::NotFound(_)) => Err(nothing(format!(
                "the home {} has no database",
                home.display()
            ))),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Returns whether a process owns the home. It cannot be reached: it has no control socket or
    /// does not answer.
    pub(crate) fn is_owned(&self) -> bool {
        self.is_owned
    }

    /// Lists all sessions, newest first. `with_calls`: single calls too.
    pub(crate) fn sessions(&self, with_calls: bool) -> Result<Vec<Session>, Failure> {
        let filter = SessionFilter {
            hides_calls: !with_calls,
            ..SessionFilter::default()
        };
        collect_pages(|cursor| self.reader.sessions(&filter, PAGE, cursor))
    }

    /// Lists all traces that match the filter, newest first.
    pub(crate) fn traces(&self, filter: &TraceFilter) -> Result<Vec<Trace>, Failure> {
        let found = collect_pages(|cursor| self.reader.traces(filter, PAGE, cursor))?;
        Ok(found
            .into_iter()
            .map(|trace| self.mark_trace(trace))
            .collect())
    }

    /// Marks a running trace as interrupted if no process owns the home.
    pub(crate) fn mark_trace(&self, trace: Trace) -> Trace {
        // A trace that was created before its first run has no live run and stays marked as
        // running.
        let has_runs = || {
            self.reader
                .session(&trace.session_id)
                .is_ok_and(|found| found.is_some_and(|s| s.live_runs > 0))
        };
        let is_interrupted = trace.status == TraceStatus::Running && !self.is_owned && has_runs();
        Trace {
            status: if is_interrupted {
                TraceStatus::Interrupted
            } else {
                trace.status
            },
            ..trace
        }
    }

    /// Reads a run. Fails if it does not exist.
    pub(crate) fn run(&self, id: &RunId) -> Result<Run, ErrorInfo> {
        let run = self.reader.run(id).map_err(read_error)?.ok_or_else(|| {
            ErrorInfo::new(ErrorCode::RunNotFound, format!("there is no run {id}"))
        })?;
        let is_interrupted = !run.status.is_terminal() && !self.is_owned;
        Ok(Run {
            status: if is_interrupted {
                RunStatus::Interrupted
            } else {
                run.status
            },
            ..run
        })
    }

    /// Reads a session. Fails if it does not exist.
    pub(crate) fn session(&self, id: &SessionId) -> Result<Session, ErrorInfo> {
        let found = self.reader.session(id).map_err(read_error)?;
        found.ok_or_else(|| {
            ErrorInfo::new(
                ErrorCode::SessionNotFound,
                format!("there is no session {id}"),
            )
        })
    }

    /// Reads a trace. Fails if it does not exist.
    pub(crate) fn trace(&self, id: &TraceId) -> Result<Trace, ErrorInfo> {
        let found = self
            .reader
            .trace(id)
            .map_err(read_error)?
            .map(|trace| self.mark_trace(trace));
        found.ok_or_else(|| {
            ErrorInfo::new(ErrorCode::TraceNotFound, format!("there is no trace {id}"))
        })
    }

    /// Returns the names of the models that the unfinished runs of a session need to resume.
    pub(crate) fn unfinished_models(
        &self,
        session: &SessionId,
    ) -> Result<BTreeSet<String>, Failure> {
        let runs = self.reader.live_runs(Some(session))?;
        Ok(runs
            .into_iter()
            .filter(|run| !run.settings.driven)
            .map(|run| run.settings.model)
            .collect())
    }

    /// Returns whether `among` contains an unfinished run of the session that a user has started
    /// and that calls a model.
    pub(crate) fn has_user_run(&self, session: &SessionId, among: &[RunId]) -> bool {
        let is_wanted = |run: &Run| {
            run.parent_run_id.is_none() && !run.settings.driven && among.contains(&run.run_id)
        };
        self.reader
            .live_runs(Some(session))
            .is_ok_and(|runs| runs.iter().any(is_wanted))
    }

    /// Returns the model of the last run of a trace.
    pub(crate) fn last_model(&self, trace: &TraceId) -> Option<String> {
        let last = self.reader.last_run(trace).ok()??;
        Some(last.settings.model).filter(|_| !last.settings.driven)
    }

    /// Returns the file of an artifact's version, or of the next stored version: an edited version
    /// may have been stored together with later edits. `None` if there is no file.
    pub(crate) fn file(&self, id: &ArtifactId, version: u64) -> Option<PathBuf> {
        let path = match self.reader.blob_path(id, version).ok()? {
            Some(path) => path,
            None => {
                let versions = self.reader.versions(id).ok()?;
                let next = versions
                    .into_iter()
                    .find(|stored| stored.version > version)?;
                self.reader.blob_path(id, next.version).ok()??
            }
        };
        Some(self.home.join(path)).filter(|file| file.exists())
    }
}

/// Returns the error of a read that failed.
pub(crate) fn read_error(error: StoreError) -> ErrorInfo {
    ErrorInfo::from(&error)
}

fn collect_pages<T>(
    page: impl Fn(Option<&str>) -> Result<Page<T>, StoreError>,
) -> Result<Vec<T>, Failure> {
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut next = page(cursor.as_deref())?;
        items.append(&mut next.items);
        cursor = next.next_cursor;
        if cursor.is_none() {
            return Ok(items);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_detected_by_lock_not_by_stored_pid() {
        let home = tempfile::tempdir().unwrap();
        let lock = home.path().join("lock");
        assert_eq!(owner(home.path()), None);
        let own = std::process::id();
        for left_behind in [
            "",
            "no number",
            "0",
            "-1",
            "999999999999",
            "2147483646",
            &own.to_string(),
        ] {
            std::fs::write(&lock, left_behind).unwrap();
            assert_eq!(owner(home.path()), None, "{left_behind:?}");
        }
        let lock_file = File::open(&lock).unwrap();
        lock_file.lock().unwrap();
        assert_eq!(owner(home.path()), Some(own));
    }
}
