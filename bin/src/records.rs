//! The records of a home, read from disk without owning it.

use std::{
    collections::{BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use soong::{
    PermissionFilter, QuestionFilter,
    protocol::{ArtifactId, PermissionStatus, QuestionStatus, Run, Session, SessionId, Trace, TraceId},
};
use soong_storage::{
    sqlite::SqliteReader,
    store::{Page, Reader, SessionFilter, StoreError, TraceFilter},
};

use crate::exit::{Exit, Failure};

/// Most items of one page of a list.
pub(crate) const PAGE: usize = 100;

/// A home, open for reading.
pub(crate) struct Records {
    home: PathBuf,
    pub(crate) reader: SqliteReader,
}

/// Runs that are recorded as not ended.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// In sessions that ask nobody anything: where no process is at work, they were cut off.
    pub(crate) at_work: Vec<Run>,
    /// In sessions that wait for answers, or for leave.
    pub(crate) parked: Vec<Run>,
}

/// Reads which runs have not ended.
pub(crate) fn unfinished(reader: &SqliteReader) -> Result<Unfinished, StoreError> {
    let open = QuestionFilter { status: Some(QuestionStatus::Pending), ..QuestionFilter::default() };
    let mut asks: HashSet<SessionId> =
        reader.questions(&open)?.into_iter().map(|question| question.session_id).collect();
    let open = PermissionFilter { status: Some(PermissionStatus::Pending), ..PermissionFilter::default() };
    asks.extend(reader.permissions(&open)?.into_iter().map(|asked| asked.session_id));
    let (parked, at_work) = reader.live_runs(None)?.into_iter().partition(|run| asks.contains(&run.session_id));
    Ok(Unfinished { at_work, parked })
}

impl Records {
    /// Opens the home's database; nothing is made where there is none.
    pub(crate) fn open(home: &Path) -> Result<Self, Failure> {
        let nothing = |what: String| {
            let advice = "Nothing has run there yet: try `soong demo`, or name the home with --home DIR.";
            Failure::new(Exit::NotFound, what, advice)
        };
        if !home.is_dir() {
            return Err(nothing(format!("there is no home {}", home.display())));
        }
        let database = home.join("sessions.sqlite");
        match SqliteReader::open(&database) {
            Ok(reader) => Ok(Self { home: home.to_owned(), reader }),
            Err(StoreError::Missing(_)) => Err(nothing(format!("the home {} has no database", home.display()))),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Lists all sessions, newest first.
    pub(crate) fn sessions(&self) -> Result<Vec<Session>, Failure> {
        all(|cursor| self.reader.sessions(&SessionFilter::default(), PAGE, cursor))
    }

    /// Lists all traces that fit, newest first.
    pub(crate) fn traces(&self, filter: &TraceFilter) -> Result<Vec<Trace>, Failure> {
        all(|cursor| self.reader.traces(filter, PAGE, cursor))
    }

    /// Reads a session that must exist.
    pub(crate) fn session(&self, id: &str) -> Result<Session, Failure> {
        let found = self.reader.session(&SessionId::new(id))?;
        found.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("there is no session {id}"), "List them with `soong sessions list`.")
        })
    }

    /// Reads a trace that must exist.
    pub(crate) fn trace(&self, id: &str) -> Result<Trace, Failure> {
        let found = self.reader.trace(&TraceId::new(id))?;
        found.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("there is no trace {id}"), "List them with `soong traces list`.")
        })
    }

    /// Returns the models, by name, with which the runs of a session go on that have not ended.
    pub(crate) fn models_at_work(&self, session: &SessionId) -> Result<BTreeSet<String>, Failure> {
        let runs = self.reader.live_runs(Some(session))?;
        Ok(runs.into_iter().filter(|run| !run.settings.driven).map(|run| run.settings.model).collect())
    }

    /// Returns the file of an artifact's version, or of the first after it: others may have edited what
    /// became a version then. `None` where there is no file.
    pub(crate) fn file(&self, id: &ArtifactId, version: u64) -> Option<PathBuf> {
        let path = match self.reader.blob_path(id, version).ok()? {
            Some(path) => path,
            None => {
                let versions = self.reader.versions(id).ok()?;
                let next = versions.into_iter().find(|stored| stored.version > version)?;
                self.reader.blob_path(id, next.version).ok()??
            }
        };
        Some(self.home.join(path)).filter(|file| file.exists())
    }
}

fn all<T>(page: impl Fn(Option<&str>) -> Result<Page<T>, StoreError>) -> Result<Vec<T>, Failure> {
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
