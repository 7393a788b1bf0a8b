//! The writing connection: batches in transactions, and what happens when the disk says no.
//!
//! Invariant: after any rollback nothing is kept in memory, and after a failure of the disk the
//! connection is given up, to be opened and checked anew (DUR-2, DUR-6).

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, config::DbConfig};
use soong_protocol::Durability;

use super::{BUSY_TIMEOUT_MS, Failure, STATEMENTS, apply::Batch, cache::Cache, damaged, store_error};
use crate::{
    migrate::{self, STEPS},
    store::{Ack, Append, Store, StoreError},
};

/// After how many pages of log a commit also copies them into the database: 16 MiB.
///
/// The copying waits for the disk twice, within a commit. At SQLite's own 1 000 pages a busy
/// writer pays that every few dozen commits; four times as seldom, most pages are copied once
/// for many changes, and the log stays small enough to be read through quickly.
const CHECKPOINT_PAGES: u32 = 4_000;
/// What the log file shrinks to when a reader had kept it from being reused, in bytes.
const LOG_LIMIT_BYTES: u32 = 64 * 1024 * 1024;
/// Page cache of the writer, in KiB: holds the ends of the indexes that every batch touches.
const CACHE_KIB: i32 = 32 * 1024;

type Outcomes = Vec<Result<Ack, StoreError>>;

/// The store in one SQLite file; the writing side, owned by one thread.
///
/// Nothing else may write the file. Dropping it folds the log into the database.
pub struct SqliteStore {
    path: PathBuf,
    durability: Durability,
    /// Absent after a failure, until the next batch. Only tests look at it from outside.
    pub(super) conn: Option<Connection>,
    /// Whether the disk itself failed: then the next connection reads the whole file first.
    is_suspect: bool,
    cache: Cache,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).field("open", &self.conn.is_some()).finish()
    }
}

impl SqliteStore {
    /// Opens the database at `path`, making or migrating it if need be (DUR-5).
    ///
    /// # Errors
    /// [`StoreError::Newer`] and [`StoreError::Corrupt`] leave the file as it is; the latter also
    /// stands for a database of another program. [`StoreError::Io`] where the disk refuses.
    pub fn open(path: impl Into<PathBuf>, durability: Durability) -> Result<Self, StoreError> {
        let path = path.into();
        migrate::check_to_write(&path, STEPS)?;
        if !path.exists() {
            migrate::create(&path, STEPS)?;
        }
        let conn = connect(&path, durability)?;
        migrate::migrate(&path, &conn, STEPS)?;
        Ok(Self { path, durability, conn: Some(conn), is_suspect: false, cache: Cache::default() })
    }

    /// Opens the connection again after a failure, and looks whether the file is sound.
    fn reopen(&mut self) -> Result<(), StoreError> {
        if self.conn.is_some() {
            return Ok(());
        }
        let found = migrate::check_to_write(&self.path, STEPS)?;
        if found == 0 {
            // An empty file in its place would silently be a new store.
            return Err(StoreError::Io(format!("{} is gone", self.path.display())));
        }
        let conn = connect(&self.path, self.durability)?;
        if self.is_suspect {
            check_pages(&conn).map_err(|error| damaged(&self.path, error))?;
        }
        tracing::info!(path = %self.path.display(), "the database is open again");
        self.is_suspect = false;
        self.conn = Some(conn);
        Ok(())
    }

    /// Writes all appends in one transaction.
    fn together(&mut self, batch: &[Append]) -> Result<Outcomes, Failure> {
        let Self { conn: Some(conn), cache, .. } = self else { return Err(StoreError::Closed.into()) };
        let written = write(conn, cache, batch);
        if written.is_err() {
            *cache = Cache::default();
        }
        written
    }

    /// Writes each append in a transaction of its own, so that one failing append fails alone.
    fn one_by_one(&mut self, batch: &[Append]) -> Outcomes {
        let one = |append: &Append| {
            self.reopen()?;
            match self.together(std::slice::from_ref(append)) {
                Ok(outcomes) => outcomes.into_iter().next().unwrap_or(Err(StoreError::Closed)),
                Err(failure) if failure.is_of_the_append() => Err(failure.into_store_error()),
                Err(failure) => Err(self.give_up(failure)),
            }
        };
        batch.iter().map(one).collect()
    }

    /// Closes the connection: what it knows of a failed disk cannot be trusted.
    fn give_up(&mut self, failure: Failure) -> StoreError {
        if let Failure::Sql(error) = &failure {
            self.is_suspect |= matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
            );
        }
        self.conn = None;
        self.cache = Cache::default();
        damaged(&self.path, failure.into_store_error())
    }
}

impl Store for SqliteStore {
    fn commit(&mut self, batch: &[Append]) -> Result<Outcomes, StoreError> {
        self.reopen()?;
        match self.together(batch) {
            Ok(outcomes) => Ok(outcomes),
            Err(failure) if failure.is_of_the_append() && batch.len() == 1 => Ok(vec![Err(failure.into_store_error())]),
            Err(failure) if failure.is_of_the_append() => Ok(self.one_by_one(batch)),
            Err(failure) => Err(self.give_up(failure)),
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if let Some(conn) = &self.conn
            && let Err(error) = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        {
            // Nothing is lost: the log is read again on the next open.
            tracing::debug!(%error, "the log stays beside the database");
        }
    }
}

fn write(conn: &Connection, cache: &mut Cache, batch: &[Append]) -> Result<Outcomes, Failure> {
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let mut writing = Batch::new(&transaction, cache)?;
    let outcomes = batch.iter().map(|append| writing.append(append)).collect::<Result<Outcomes, Failure>>()?;
    drop(writing);
    cache.save(&transaction)?;
    transaction.commit()?;
    cache.settle();
    Ok(outcomes)
}

fn connect(path: &Path, durability: Durability) -> Result<Connection, StoreError> {
    let open = || {
        let conn = Connection::open(path)?;
        #[cfg(test)]
        let conn = super::tests::plans::noting(conn)?;
        conn.busy_timeout(std::time::Duration::from_millis(BUSY_TIMEOUT_MS))?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS);
        // A plan that looked at what is bound would be made anew each time that something else is.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        let synchronous = match durability {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
        };
        conn.pragma_update(None, "synchronous", synchronous)?;
        conn.query_row(&format!("PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}"), [], |_| Ok(()))?;
        conn.query_row(&format!("PRAGMA journal_size_limit = {LOG_LIMIT_BYTES}"), [], |_| Ok(()))?;
        conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
        // The writer refuses what refers to nothing, before it writes.
        conn.pragma_update(None, "foreign_keys", false)?;
        Ok(conn)
    };
    open().map_err(|error| match store_error(error) {
        StoreError::Io(why) => StoreError::Io(format!("{}: {why}", path.display())),
        other => other,
    })
}

fn check_pages(conn: &Connection) -> Result<(), StoreError> {
    let verdict: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(store_error)?;
    if verdict == "ok" { Ok(()) } else { Err(StoreError::Corrupt(verdict)) }
}
