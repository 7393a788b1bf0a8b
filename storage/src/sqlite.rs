//! The store in one SQLite file (DUR-2, DUR-7).
//!
//! [`SqliteStore`] writes and is owned by the writer thread. [`SqliteReader`] reads through
//! separate connections and never waits for the writer. Each module holds the SQL of one kind of
//! record, for reading and writing. Values that change with every event are kept in memory while
//! their run is live (`cache.rs`), and are written once per batch.
//!
//! Architecture invariants:
//! - Rows are derived from appends only (`apply.rs`, `event_effects.rs`, `row_updates.rs`).
//! - An append is rejected before its first write (`admit.rs`).
//!
//! Elsewhere: the format of the file (`sqlite/migrate.rs`), threads (`writer.rs`).

mod admit;
mod apply;
mod artifacts;
mod backup;
mod cache;
mod collaborators;
mod columns;
mod deletion;
mod edits;
mod event_effects;
mod event_rows;
mod events;
mod fork;
mod goals;
mod hot_row;
mod keyed_requests;
mod main_path;
mod messages;
mod migrate;
mod permissions;
mod prompts;
mod questions;
mod reader;
mod resume_points;
mod row_updates;
mod runs;
mod sessions;
mod slug;
mod store;
mod sums;
mod task_journals;
#[cfg(test)]
mod tests;
mod traces;
mod usage;
mod usage_sums;

use std::path::Path;

pub use reader::SqliteReader;
use rusqlite::ErrorCode;
pub use store::SqliteStore;

use crate::store::StoreError;

/// Time that a connection waits for another one's lock, in milliseconds.
const BUSY_TIMEOUT_MS: u64 = 5_000;
/// Capacity of the statement cache; more than there are statements, so none is prepared twice.
const STATEMENT_CACHE_CAPACITY: usize = 128;

/// Reason why an append could not be written.
#[derive(Debug)]
enum WriteError {
    /// The append is invalid in the current state of the store.
    Rejected(StoreError),
    /// SQLite reported an error.
    Sql(rusqlite::Error),
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        Self::Rejected(error)
    }
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl WriteError {
    /// Returns whether the append itself is the cause, and not the disk. Then other appends can
    /// still be written.
    fn is_append_error(&self) -> bool {
        let Self::Sql(error) = self else { return true };
        error
            .sqlite_error_code()
            .is_none_or(|code| !is_transient(code) && !is_file_damage(code))
    }

    fn into_store_error(self) -> StoreError {
        match self {
            Self::Rejected(error) => error,
            Self::Sql(error)
                if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) =>
            {
                StoreError::AlreadyExists(format!("a row of the append ({error})"))
            }
            Self::Sql(error) => store_error(error),
        }
    }
}

/// Converts an error of SQLite.
pub(crate) fn store_error(error: rusqlite::Error) -> StoreError {
    use rusqlite::Error as E;
    match (&error, error.sqlite_error_code()) {
        (_, Some(code)) if is_file_damage(code) => StoreError::Corrupt(error.to_string()),
        (_, Some(code)) if is_transient(code) => StoreError::Io(error.to_string()),
        (
            E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::InvalidColumnType(..)
            | E::Utf8Error(..),
            _,
        ) => StoreError::Corrupt(format!("a row cannot be read: {error}")),
        _ => StoreError::Internal(error.to_string()),
    }
}

/// Returns whether the file is damaged or not a database.
fn is_file_damage(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
}

/// Returns whether the cause is the disk, another process or a lack of memory, so that a retry may
/// succeed.
fn is_transient(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::SystemIoFailure
            | ErrorCode::DiskFull
            | ErrorCode::ReadOnly
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::NoLargeFileSupport
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationAborted
            | ErrorCode::OperationInterrupted
            | ErrorCode::SchemaChanged
    )
}

/// Converts an error of SQLite. If the file is damaged, the error names it and says what to do.
fn store_error_at(path: &Path, error: rusqlite::Error) -> StoreError {
    with_repair_advice(path, store_error(error))
}

/// Adds the file and the advice to an error about a damaged file; returns other errors unchanged.
fn with_repair_advice(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt(why) => StoreError::Corrupt(format!(
            "{} is damaged ({why}): make a copy of the home, then restore a backup or recover the readable data",
            path.display()
        )),
        error => error,
    }
}
