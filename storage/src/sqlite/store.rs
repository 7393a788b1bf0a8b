//! The writing connection: batches in transactions, and the handling of disk failures.
//!
//! Invariants:
//! - After a rollback nothing is kept in memory.
//! - After a disk failure the connection is closed, then reopened and checked (DUR-2, DUR-6).

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, config::DbConfig};
use soong_protocol::{Durability, SessionId, SessionWrite, Write};

use super::{
    BUSY_TIMEOUT_MS, STATEMENT_CACHE_CAPACITY, WriteError,
    apply::Batch,
    cache::Cache,
    deletion,
    migrate::{self, MIGRATIONS, SCHEMA, latest_version},
    store_error, with_repair_advice,
};
use crate::{
    disk,
    store::{Ack, Append, Store, StoreError},
};

/// Maximum size of the log (WAL), in pages, at which a commit also copies it into the database: 16
/// MiB.
///
/// A checkpoint waits for the disk twice, within a commit. With SQLite's default of 1 000 pages a
/// busy writer pays for that every few dozen commits. With four times as many, most pages are
/// copied once for several changes, and the log is still small enough to be read quickly.
const MAX_CHECKPOINT_PAGES: u64 = 4_000;
/// Checkpoint threshold, in pages, if the disk is nearly full: 256 KiB.
const MIN_CHECKPOINT_PAGES: u64 = 64;
/// Divisor of the free space: the log may take 1/8 of it before it is copied.
const FREE_SPACE_DIVISOR: u64 = 8;
/// Number of commits between checks of the free space.
const FREE_SPACE_CHECK_COMMITS: u64 = 64;
const PAGE_BYTES: u64 = 4_096;
/// Maximum size of the log file, as a multiple of the checkpoint threshold. The file can grow
/// beyond it while a reader prevents its reuse, and is truncated to it afterwards.
const LOG_SIZE_LIMIT_FACTOR: u64 = 4;
/// Page cache of the writer, in KiB. It holds the ends of the indexes, which every batch touches.
const CACHE_KIB: i32 = 32 * 1024;

type Outcomes = Vec<Result<Ack, StoreError>>;

/// The writing side of the store in one SQLite file; owned by one thread.
///
/// Nothing else may write to the file. Dropping the store copies the log into the database.
pub struct SqliteStore {
    path: PathBuf,
    durability: Durability,
    /// The connection; `None` after a failure, until the next batch. Only tests read it from
    /// outside.
    pub(super) conn: Option<Connection>,
    /// Whether the disk itself failed. The next connection then checks the whole file first.
    needs_integrity_check: bool,
    cache: Cache,
    /// Returns the number of free bytes on the disk of a file; `None` if it is unknown.
    free_bytes: fn(&Path) -> Option<u64>,
    /// Current checkpoint threshold, in pages.
    checkpoint_pages: u64,
    commits: u64,
    /// Whether the log may hold deleted data and must be emptied.
    log_needs_truncation: bool,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.path)
            .field("open", &self.conn.is_some())
            .finish()
    }
}

impl SqliteStore {
    /// Opens the database at `path`; creates or migrates it if necessary (DUR-5).
    ///
    /// # Errors
    /// [`StoreError::NewerFormat`] and [`StoreError::Corrupt`] leave the file unchanged; the latter
    /// is also returned for a database of another program. [`StoreError::Io`] if the disk fails.
    pub fn open(path: impl Into<PathBuf>, durability: Durability) -> Result<Self, StoreError> {
        let path = path.into();
        migrate::check_to_write(&path, MIGRATIONS)?;
        if !path.exists() {
            migrate::create(&path, SCHEMA, latest_version(MIGRATIONS))?;
        }
        let conn = connect(&path, durability)?;
        migrate::migrate(&path, &conn, MIGRATIONS)?;
        if let Err(error) = migrate::assign_store_id(&conn) {
            // A full disk does not prevent reading; the next start retries.
            tracing::warn!(%error, "could not assign an id to the database");
        }
        let mut store = Self {
            path,
            durability,
            conn: Some(conn),
            needs_integrity_check: false,
            cache: Cache::default(),
            free_bytes: disk::free_bytes,
            checkpoint_pages: MAX_CHECKPOINT_PAGES,
            commits: 0,
            // It may hold data that was deleted before a process was killed.
            log_needs_truncation: true,
        };
        store.adjust_checkpoint_threshold();
        Ok(store)
    }

    /// Adjusts the checkpoint threshold to the free disk space, so that the log cannot fill a small
    /// disk.
    fn adjust_checkpoint_threshold(&mut self) {
        let pages = checkpoint_pages((self.free_bytes)(&self.path));
        let Some(conn) = self
            .conn
            .as_ref()
            .filter(|_| pages != self.checkpoint_pages)
        else {
            return;
        };
        let set = set_log_size(conn, pages);
        match set {
            Ok(()) => self.checkpoint_pages = pages,
            Err(error) => {
                tracing::warn!(%error, "could not set the size limit of the write-ahead log")
            }
        }
    }

    /// Maintains the log after a commit.
    fn maintain_log(&mut self, batch: &[Append]) {
        self.commits += 1;
        if self.commits.is_multiple_of(FREE_SPACE_CHECK_COMMITS) {
            self.adjust_checkpoint_threshold();
        }
        let Some(conn) = &self.conn else { return };
        let removed =
            batch
                .iter()
                .flat_map(|append| &append.writes)
                .filter_map(|write| match write {
                    Write::Session(SessionWrite::RemoveRows { session_id, .. }) => Some(session_id),
                    _ => None,
                });
        let is_gone = |id: &SessionId| matches!(deletion::stage(conn, id), Ok(None));
        if removed.into_iter().any(is_gone) {
            self.log_needs_truncation = true;
        }
        // If a reader blocks it at the moment, it is retried after the next commit.
        if self.log_needs_truncation && truncate_log(conn).unwrap_or(false) {
            self.log_needs_truncation = false;
        }
    }

    /// Reopens the connection after a failure, and checks the file.
    fn reopen(&mut self) -> Result<(), StoreError> {
        if self.conn.is_some() {
            return Ok(());
        }
        let found = migrate::check_to_write(&self.path, MIGRATIONS)?;
        if found == 0 {
            // SQLite would create an empty file, which would silently be a new store.
            return Err(StoreError::Io(format!(
                "{} no longer exists",
                self.path.display()
            )));
        }
        let conn = connect(&self.path, self.durability)?;
        if self.needs_integrity_check {
            check_pages(&conn).map_err(|error| with_repair_advice(&self.path, error))?;
        }
        tracing::info!(path = %self.path.display(), "reopened the database");
        self.needs_integrity_check = false;
        self.conn = Some(conn);
        self.checkpoint_pages = MAX_CHECKPOINT_PAGES;
        self.adjust_checkpoint_threshold();
        Ok(())
    }

    /// Writes all appends in one transaction.
    fn write_batch(&mut self, batch: &[Append]) -> Result<Outcomes, WriteError> {
        let Self {
            conn: Some(conn),
            cache,
            ..
        } = self
        else {
            return Err(StoreError::Closed.into());
        };
        let written = write(conn, cache, batch);
        if written.is_err() {
            *cache = Cache::default();
        }
        written
    }

    /// Writes each append in a separate transaction, so that a failing append does not affect the
    /// others.
    fn write_individually(&mut self, batch: &[Append]) -> Outcomes {
        let one = |append: &Append| {
            self.reopen()?;
            match self.write_batch(std::slice::from_ref(append)) {
                Ok(outcomes) => outcomes
                    .into_iter()
                    .next()
                    .unwrap_or(Err(StoreError::Closed)),
                Err(failure) if failure.is_append_error() => Err(failure.into_store_error()),
                Err(failure) => Err(self.close_after_failure(failure)),
            }
        };
        batch.iter().map(one).collect()
    }

    /// Closes the connection, because its state after a disk failure cannot be trusted.
    fn close_after_failure(&mut self, failure: WriteError) -> StoreError {
        if let WriteError::Sql(error) = &failure {
            self.needs_integrity_check |= matches!(
                error.sqlite_error_code(),
                Some(
                    ErrorCode::SystemIoFailure
                        | ErrorCode::DatabaseCorrupt
                        | ErrorCode::NotADatabase
                )
            );
            // Emptying the log may free enough of a full disk to continue.
            if error.sqlite_error_code() == Some(ErrorCode::DiskFull)
                && let Some(conn) = &self.conn
                && let Err(error) = truncate_log(conn)
            {
                tracing::debug!(%error, "could not checkpoint the write-ahead log on a full disk");
            }
        }
        self.conn = None;
        self.cache = Cache::default();
        with_repair_advice(&self.path, failure.into_store_error())
    }
}

impl Store for SqliteStore {
    fn commit(&mut self, batch: &[Append]) -> Result<Outcomes, StoreError> {
        self.reopen()?;
        let outcomes = match self.write_batch(batch) {
            Ok(outcomes) => outcomes,
            Err(failure) if failure.is_append_error() && batch.len() == 1 => {
                vec![Err(failure.into_store_error())]
            }
            Err(failure) if failure.is_append_error() => self.write_individually(batch),
            Err(failure) => return Err(self.close_after_failure(failure)),
        };
        self.maintain_log(batch);
        Ok(outcomes)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if let Some(conn) = &self.conn
            && let Err(error) = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        {
            // Nothing is lost: the log is read at the next open.
            tracing::debug!(%error, "could not checkpoint the write-ahead log; the log file is kept");
        }
    }
}

fn write(conn: &Connection, cache: &mut Cache, batch: &[Append]) -> Result<Outcomes, WriteError> {
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let mut writing = Batch::new(&transaction, cache)?;
    let outcomes = batch
        .iter()
        .map(|append| writing.append(append))
        .collect::<Result<Outcomes, WriteError>>()?;
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
        let conn = super::tests::plans::record_statements(conn)?;
        conn.busy_timeout(std::time::Duration::from_millis(BUSY_TIMEOUT_MS))?;
        conn.set_prepared_statement_cache_capacity(STATEMENT_CACHE_CAPACITY);
        // Without QPSG, a plan could depend on the bound values and would be prepared again
        // whenever they change.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        let synchronous = match durability {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
        };
        conn.pragma_update(None, "synchronous", synchronous)?;
        set_log_size(&conn, MAX_CHECKPOINT_PAGES)?;
        // Deleted data is overwritten, including the remains of a row that moved to another page.
        conn.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
        conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
        // References are checked by `admit.rs` before anything is written.
        conn.pragma_update(None, "foreign_keys", false)?;
        Ok(conn)
    };
    open().map_err(|error| match store_error(error) {
        StoreError::Io(why) => StoreError::Io(format!("{}: {why}", path.display())),
        other => other,
    })
}

/// Returns the checkpoint threshold in pages: the maximum if there is enough space, else a power of
/// two.
fn checkpoint_pages(free_bytes: Option<u64>) -> u64 {
    let Some(free_bytes) = free_bytes else {
        return MAX_CHECKPOINT_PAGES;
    };
    match free_bytes / FREE_SPACE_DIVISOR / PAGE_BYTES {
        MAX_CHECKPOINT_PAGES.. => MAX_CHECKPOINT_PAGES,
        0..=MIN_CHECKPOINT_PAGES => MIN_CHECKPOINT_PAGES,
        pages => 1 << pages.ilog2(),
    }
}

fn set_log_size(conn: &Connection, pages: u64) -> rusqlite::Result<()> {
    conn.query_row(&format!("PRAGMA wal_autocheckpoint = {pages}"), [], |_| {
        Ok(())
    })?;
    let limit = pages * PAGE_BYTES * LOG_SIZE_LIMIT_FACTOR;
    conn.query_row(&format!("PRAGMA journal_size_limit = {limit}"), [], |_| {
        Ok(())
    })
}

/// Copies the log into the database and truncates its file, without waiting; returns `false` if a
/// reader blocks it.
fn truncate_log(conn: &Connection) -> rusqlite::Result<bool> {
    conn.busy_timeout(std::time::Duration::ZERO)?;
    let is_busy = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        row.get::<_, bool>(0)
    });
    conn.busy_timeout(std::time::Duration::from_millis(BUSY_TIMEOUT_MS))?;
    is_busy.map(|is_busy| !is_busy)
}

fn check_pages(conn: &Connection) -> Result<(), StoreError> {
    let verdict: String = conn
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(store_error)?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(StoreError::Corrupt(verdict))
    }
}

#[cfg(test)]
#[path = "tests/log.rs"]
mod tests;
