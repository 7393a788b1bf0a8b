//! The reading side: separate connections and short transactions, without waiting for the writer.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, config::DbConfig};
use soong_protocol::{
    Artifact, ArtifactId, ArtifactScope, ArtifactVersion, ChildResult, Collaborator, DocumentEdit,
    EventRecord, GoalTree, KeyedRequest, Message, OpenModelCall, Permission, PermissionId,
    Question, QuestionId, Run, RunId, Session, SessionId, Trace, TraceId, UsageBy, UsageRow,
};

use super::{
    BUSY_TIMEOUT_MS, STATEMENT_CACHE_CAPACITY, artifacts, backup, collaborators,
    columns::{Columns, clamp_to_i64},
    deletion, edits, events, goals, keyed_requests, messages,
    migrate::{self, MIGRATIONS},
    permissions, questions, resume_points, runs, sessions, store_error_at, task_journals, traces,
    usage,
};
use crate::store::{
    ChangedDocument, MessageAuthor, MessagePath, Page, PendingTaskJournal, PermissionFilter,
    QuestionFilter, Reader, RecentArtifacts, ResumePoint, SessionDeletion, SessionFilter,
    StoreError, StoredBlob, TraceFilter, UsageFilter,
};

/// Maximum number of idle connections kept for reuse. Concurrent reads beyond it open connections
/// that are closed afterwards.
const IDLE_CONNECTIONS: usize = 4;
/// Maximum number of faults that an integrity check reports.
const MAX_FAULTS: usize = 20;

/// Reader of the store in one SQLite file, whether or not a writer has it open.
pub struct SqliteReader {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl std::fmt::Debug for SqliteReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteReader")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl SqliteReader {
    /// Opens the database at `path` for reading. It must exist and have the format of this build.
    ///
    /// # Errors
    /// - [`StoreError::NotFound`] if the file does not exist.
    /// - [`StoreError::NewerFormat`] and [`StoreError::Corrupt`] as for the writer.
    /// - [`StoreError::OlderFormat`] if the writer has to migrate the file first.
    /// - [`StoreError::Io`] if the disk fails.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let path = path.into();
        match migrate::check(&path, MIGRATIONS)? {
            0 => {
                return Err(StoreError::NotFound(format!(
                    "the database {}",
                    path.display()
                )));
            }
            found if found < migrate::latest_version(MIGRATIONS) => {
                return Err(StoreError::OlderFormat {
                    found,
                    known: migrate::latest_version(MIGRATIONS),
                });
            }
            _ => {}
        }
        let reader = Self {
            path,
            idle: Mutex::default(),
        };
        let first = reader.connect()?;
        reader.return_connection(first);
        Ok(reader)
    }

    /// Checks the integrity of the whole file without writing. Returns the faults; empty if there
    /// are none.
    ///
    /// Indexes are not compared with their tables. At most 20 faults are returned.
    pub fn check_integrity(&self) -> Result<Vec<String>, StoreError> {
        let mut faults = self.read(|conn| {
            let mut check = conn.prepare(&format!("PRAGMA quick_check({MAX_FAULTS})"))?;
            let faults = check.query_map([], |row| row.get::<_, String>(0))?;
            faults.collect::<rusqlite::Result<Vec<String>>>()
        })?;
        faults.retain(|fault| fault != "ok");
        Ok(faults)
    }

    /// Returns the size in bytes of each table including its indexes, largest first. Reads the
    /// whole file.
    pub fn table_sizes(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.read(|conn| {
            let mut query = conn.prepare(
                "SELECT coalesce(tbl_name, dbstat.name) AS of_table, sum(pgsize) FROM dbstat('main', true) AS dbstat
                 LEFT JOIN sqlite_schema ON sqlite_schema.name = dbstat.name GROUP BY of_table ORDER BY 2 DESC",
            )?;
            let sizes = query.query_map([], |row| {
                let mut columns = Columns::of(row);
                Ok((columns.next()?, columns.count()?))
            });
            sizes?.collect()
        })
    }

    /// Copies a consistent snapshot of the database to `target` and syncs it. `target` must not
    /// exist. Writers are not blocked. A partial copy is kept if the copy fails.
    pub fn copy_to(&self, target: &Path) -> Result<(), StoreError> {
        backup::copy(&self.connect()?, target)
    }

    /// Counts sessions.
    pub fn session_count(&self) -> Result<u64, StoreError> {
        self.read(backup::count_sessions)
    }

    /// Lists all stored versions with the paths of their blobs, grouped by artifact. Versions of
    /// sessions that are being deleted are omitted.
    pub fn stored_blobs(
        &self,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<StoredBlob>, StoreError> {
        let start = match cursor {
            None => (i64::MIN, i64::MIN),
            Some(text) => {
                let parts = text
                    .split_once('.')
                    .and_then(|(key, version)| Some((key.parse().ok()?, version.parse().ok()?)));
                parts.ok_or_else(|| StoreError::InvalidCursor(text.to_owned()))?
            }
        };
        let limit = limit.max(1);
        let mut found =
            self.read(|conn| backup::blobs(conn, rows(limit).saturating_add(1), start))?;
        let is_last = found.len() <= limit;
        found.truncate(limit);
        let next_cursor = found
            .last()
            .filter(|_| !is_last)
            .map(|((key, version), _)| format!("{key}.{version}"));
        Ok(Page {
            items: found.into_iter().map(|(_, blob)| blob).collect(),
            next_cursor,
        })
    }

    fn connect(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let conn = Connection::open_with_flags(&self.path, flags)?;
            #[cfg(test)]
            let conn = super::tests::plans::record_statements(conn)?;
            conn.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
            conn.set_prepared_statement_cache_capacity(STATEMENT_CACHE_CAPACITY);
            // Without QPSG, a plan could depend on the bound values and would be prepared again
            // whenever they change.
            conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            Ok(conn)
        };
        open().map_err(|error| store_error_at(&self.path, error))
    }

    fn return_connection(&self, conn: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_CONNECTIONS {
            idle.push(conn);
        }
    }

    /// Reads in one transaction, so that several queries see the same snapshot.
    fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let conn = match idle {
            Some(conn) => conn,
            None => self.connect()?,
        };
        let found = Transaction::new_unchecked(&conn, TransactionBehavior::Deferred)
            .and_then(|transaction| query(&transaction))
            .map_err(|error| store_error_at(&self.path, error))?; // a failed connection is not reused
        self.return_connection(conn);
        Ok(found)
    }

    fn page<T>(
        &self,
        limit: usize,
        cursor: Option<&str>,
        list: impl FnOnce(&Connection, i64, i64) -> rusqlite::Result<Vec<(i64, T)>>,
    ) -> Result<Page<T>, StoreError> {
        let before = match cursor {
            None => i64::MAX,
            Some(text) => text
                .parse()
                .map_err(|_| StoreError::InvalidCursor(text.to_owned()))?,
        };
        let limit = limit.max(1);
        let mut found = self.read(|conn| list(conn, rows(limit).saturating_add(1), before))?;
        let is_last = found.len() <= limit;
        found.truncate(limit);
        let next_cursor = found
            .last()
            .filter(|_| !is_last)
            .map(|(key, _)| key.to_string());
        Ok(Page {
            items: found.into_iter().map(|(_, item)| item).collect(),
            next_cursor,
        })
    }
}

fn rows(limit: usize) -> i64 {
    clamp_to_i64(limit as u64)
}

impl Reader for SqliteReader {
    fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        self.read(|conn| sessions::session(conn, id))
    }

    fn store_id(&self) -> Result<u32, StoreError> {
        self.read(migrate::store_id)
    }

    fn next_incarnation(&self, id: &SessionId) -> Result<u64, StoreError> {
        self.read(|conn| Ok(sessions::next_incarnation(conn, id)?.number))
    }

    fn session_owners(&self, ids: &[SessionId]) -> Result<Vec<(SessionId, String)>, StoreError> {
        self.read(|conn| sessions::owners(conn, ids))
    }

    fn sessions(
        &self,
        filter: &SessionFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<Session>, StoreError> {
        self.page(limit, cursor, |conn, limit, before| {
            sessions::list(conn, filter, limit, before)
        })
    }

    fn trace(&self, id: &TraceId) -> Result<Option<Trace>, StoreError> {
        self.read(|conn| traces::trace(conn, id))
    }

    fn traces(
        &self,
        filter: &TraceFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<Trace>, StoreError> {
        self.page(limit, cursor, |conn, limit, before| {
            traces::list(conn, filter, limit, before)
        })
    }

    fn sub_traces(&self, parent: &TraceId) -> Result<Vec<Trace>, StoreError> {
        self.read(|conn| traces::children(conn, parent))
    }

    fn linked_traces(&self, id: &TraceId) -> Result<Vec<Trace>, StoreError> {
        self.read(|conn| traces::list_linked(conn, id))
    }

    fn goal_tree(&self, id: &TraceId) -> Result<Option<GoalTree>, StoreError> {
        self.read(|conn| match traces::key(conn, id)? {
            Some(key) => goals::for_readers(conn, key).map(Some),
            None => Ok(None),
        })
    }

    fn messages(&self, id: &TraceId, path: MessagePath) -> Result<Vec<Message>, StoreError> {
        self.read(|conn| match traces::key(conn, id)? {
            Some(key) => messages::of_trace(conn, key, id, path),
            None => Ok(Vec::new()),
        })
    }

    fn messages_at(&self, id: &TraceId, sequences: &[u64]) -> Result<Vec<Message>, StoreError> {
        self.read(|conn| match traces::key(conn, id)? {
            Some(key) => messages::by_sequence(conn, key, id, sequences),
            None => Ok(Vec::new()),
        })
    }

    fn resume_point(&self, id: &TraceId, sequence: u64) -> Result<Option<ResumePoint>, StoreError> {
        self.read(|conn| match traces::key(conn, id)? {
            Some(key) => resume_points::of_message(conn, key, sequence),
            None => Ok(None),
        })
    }

    fn message_author(
        &self,
        id: &TraceId,
        sequence: u64,
    ) -> Result<Option<MessageAuthor>, StoreError> {
        self.read(|conn| match traces::key(conn, id)? {
            Some(key) => resume_points::author_of_message(conn, key, sequence),
            None => Ok(None),
        })
    }

    fn is_head_switched(&self, id: &TraceId) -> Result<bool, StoreError> {
        self.read(|conn| match traces::key(conn, id)? {
            Some(key) => resume_points::is_head_switched(conn, key),
            None => Ok(false),
        })
    }

    fn goal_tree_at(&self, id: &TraceId, lsn: u64) -> Result<Option<GoalTree>, StoreError> {
        self.read(|conn| match traces::key(conn, id)? {
            Some(key) => goals::at(conn, key, lsn).map(Some),
            None => Ok(None),
        })
    }

    fn collaborators_at(&self, id: &TraceId, lsn: u64) -> Result<Vec<Collaborator>, StoreError> {
        self.read(|conn| match traces::key(conn, id)? {
            Some(key) => collaborators::at(conn, key, lsn),
            None => Ok(Vec::new()),
        })
    }

    fn events(
        &self,
        id: &TraceId,
        since: u64,
        limit: usize,
    ) -> Result<Vec<EventRecord>, StoreError> {
        self.read(|conn| events::of_trace(conn, id, since, limit))
    }

    fn run_events(&self, id: &RunId) -> Result<Vec<EventRecord>, StoreError> {
        self.read(|conn| events::of_run(conn, id))
    }

    fn session_events(
        &self,
        id: &SessionId,
        since_lsn: u64,
        limit: usize,
    ) -> Result<Vec<EventRecord>, StoreError> {
        self.read(|conn| events::of_session(conn, id, since_lsn, limit))
    }

    fn session_lsn(&self, id: &SessionId, session_seq: u64) -> Result<u64, StoreError> {
        self.read(|conn| events::lsn_of(conn, id, session_seq))
    }

    fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError> {
        self.read(|conn| runs::run(conn, id))
    }

    fn last_run(&self, id: &TraceId) -> Result<Option<Run>, StoreError> {
        self.read(|conn| runs::last_of(conn, id))
    }

    fn last_started_run(&self, id: &TraceId) -> Result<Option<Run>, StoreError> {
        self.read(|conn| runs::last_started_of(conn, id))
    }

    fn deny_rules(&self, id: &SessionId) -> Result<Vec<String>, StoreError> {
        self.read(|conn| match sessions::key(conn, id)? {
            Some(key) => runs::deny_rules(conn, key),
            None => Ok(Vec::new()),
        })
    }

    fn live_runs(&self, session: Option<&SessionId>) -> Result<Vec<Run>, StoreError> {
        self.read(|conn| runs::list_live(conn, session))
    }

    fn children(&self, id: &RunId) -> Result<Vec<Run>, StoreError> {
        self.read(|conn| runs::children(conn, id))
    }

    fn open_model_calls(&self, id: &RunId) -> Result<Vec<OpenModelCall>, StoreError> {
        self.read(|conn| runs::open_model_calls(conn, id))
    }

    fn child_results(&self, id: &RunId) -> Result<Vec<ChildResult>, StoreError> {
        self.read(|conn| runs::results(conn, id))
    }

    fn child_result(&self, id: &RunId) -> Result<Option<ChildResult>, StoreError> {
        self.read(|conn| runs::result(conn, id))
    }

    fn artifacts(&self, scope: &ArtifactScope) -> Result<Vec<Artifact>, StoreError> {
        self.read(|conn| artifacts::list(conn, scope))
    }

    fn recent_artifacts(
        &self,
        scope: &ArtifactScope,
        limit: usize,
    ) -> Result<RecentArtifacts, StoreError> {
        self.read(|conn| artifacts::recent(conn, scope, rows(limit)))
    }

    fn session_artifacts(&self) -> Result<Vec<(Artifact, u64)>, StoreError> {
        self.read(artifacts::list_of_all_sessions)
    }

    fn changed_documents(
        &self,
        id: &TraceId,
        since_lsn: u64,
    ) -> Result<Vec<ChangedDocument>, StoreError> {
        self.read(|conn| match traces::key(conn, id)? {
            Some(key) => artifacts::documents_changed_since(conn, key, since_lsn),
            None => Ok(Vec::new()),
        })
    }

    fn unflushed_documents(&self, run: &RunId) -> Result<Vec<Artifact>, StoreError> {
        self.read(|conn| match edits::run_key(conn, run)? {
            Some(key) => artifacts::unflushed(conn, key),
            None => Ok(Vec::new()),
        })
    }

    fn edits(
        &self,
        id: &ArtifactId,
        after: u64,
        upto: u64,
    ) -> Result<Vec<DocumentEdit>, StoreError> {
        self.read(|conn| edits::in_range(conn, id, after, upto))
    }

    fn turn_edits(&self, run: &RunId, turn: u32) -> Result<Vec<DocumentEdit>, StoreError> {
        self.read(|conn| match edits::run_key(conn, run)? {
            Some(key) => edits::of_turn(conn, key, turn),
            None => Ok(Vec::new()),
        })
    }

    fn artifacts_at(&self, id: &SessionId, lsn: u64) -> Result<Vec<(Artifact, u64)>, StoreError> {
        self.read(|conn| artifacts::list_at(conn, id, lsn))
    }

    fn artifact(&self, scope: &ArtifactScope, name: &str) -> Result<Option<Artifact>, StoreError> {
        self.read(|conn| artifacts::artifact(conn, scope, name))
    }

    fn versions(&self, id: &ArtifactId) -> Result<Vec<ArtifactVersion>, StoreError> {
        self.read(|conn| artifacts::versions(conn, id))
    }

    fn blob_path_and_type(
        &self,
        id: &ArtifactId,
        version: u64,
    ) -> Result<Option<(String, String)>, StoreError> {
        self.read(|conn| artifacts::blob(conn, id, version))
    }

    fn blob_paths(&self, id: &ArtifactId) -> Result<Vec<String>, StoreError> {
        self.read(|conn| artifacts::blob_paths(conn, id))
    }

    fn blob_intents(&self) -> Result<Vec<String>, StoreError> {
        self.read(artifacts::intents)
    }

    fn session_deletions(&self) -> Result<Vec<SessionDeletion>, StoreError> {
        self.read(deletion::list)
    }

    fn deletion_blob_paths(&self, id: &SessionId) -> Result<Vec<String>, StoreError> {
        self.read(|conn| deletion::blobs(conn, id))
    }

    fn permission(&self, id: &PermissionId) -> Result<Option<Permission>, StoreError> {
        self.read(|conn| permissions::permission(conn, id))
    }

    fn permissions(&self, filter: &PermissionFilter) -> Result<Vec<Permission>, StoreError> {
        self.read(|conn| permissions::list(conn, filter))
    }

    fn keyed_request(&self, uid: &str, key_hash: &str) -> Result<Option<KeyedRequest>, StoreError> {
        self.read(|conn| keyed_requests::find(conn, uid, key_hash))
    }

    fn question(&self, id: &QuestionId) -> Result<Option<Question>, StoreError> {
        self.read(|conn| questions::question(conn, id))
    }

    fn questions(&self, filter: &QuestionFilter) -> Result<Vec<Question>, StoreError> {
        self.read(|conn| questions::list(conn, filter))
    }

    fn pending_task_journal(&self, id: &RunId) -> Result<Option<PendingTaskJournal>, StoreError> {
        self.read(|conn| task_journals::of_run(conn, id))
    }

    fn runs_with_pending_task_journal(&self) -> Result<Vec<Run>, StoreError> {
        self.read(runs::with_task_journal)
    }

    fn usage(&self, by: UsageBy, filter: &UsageFilter) -> Result<Vec<UsageRow>, StoreError> {
        self.read(|conn| usage::sums(conn, by, filter))
    }
}
