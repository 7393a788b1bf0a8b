//! The store in one SQLite file (DUR-2, DUR-7).
//!
//! [`SqliteStore`] writes, owned by the writer's thread; [`SqliteReader`] reads through
//! connections of its own and never waits for it. One file per noun holds that noun's SQL, for
//! writing and reading alike. What changes with every event is kept in memory while its run
//! lives (`cache.rs`) and written once per batch.
//!
//! Architecture invariant: rows follow from appends (`apply.rs`, `project.rs`) and from nothing
//! else; a refusal is decided before the first write (`admit.rs`).
//! Not here: the file's format (`sqlite/migrate.rs`), threads (`writer.rs`).

mod admit;
mod apply;
mod artifacts;
mod backup;
mod cache;
mod collaborators;
mod columns;
mod edits;
mod events;
mod fork;
mod goals;
mod hot_row;
mod messages;
mod migrate;
mod paths;
mod permissions;
mod project;
mod questions;
mod reader;
mod removal;
mod runs;
mod sessions;
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

/// How long a connection waits for another one's lock, in milliseconds.
const BUSY_TIMEOUT_MS: u64 = 5_000;
/// More than there are statements: none is prepared twice.
const STATEMENTS: usize = 128;

/// Why one append could not be written.
#[derive(Debug)]
enum Failure {
    /// It asks for something impossible.
    Refused(StoreError),
    /// SQLite said no.
    Sql(rusqlite::Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Failure {
    /// Returns whether the append itself is at fault, and not the disk: others may go on.
    fn is_of_the_append(&self) -> bool {
        let Self::Sql(error) = self else { return true };
        error.sqlite_error_code().is_none_or(|code| !is_of_the_disk(code) && !is_of_the_file(code))
    }

    fn into_store_error(self) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                StoreError::Exists(format!("something that the append adds ({error})"))
            }
            Self::Sql(error) => store_error(error),
        }
    }
}

/// Says in the store's words why SQLite failed.
pub(crate) fn store_error(error: rusqlite::Error) -> StoreError {
    use rusqlite::Error as E;
    match (&error, error.sqlite_error_code()) {
        (_, Some(code)) if is_of_the_file(code) => StoreError::Corrupt(error.to_string()),
        (_, Some(code)) if is_of_the_disk(code) => StoreError::Io(error.to_string()),
        (
            E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::InvalidColumnType(..)
            | E::Utf8Error(..),
            _,
        ) => StoreError::Corrupt(format!("a row cannot be read: {error}")),
        _ => StoreError::Defect(error.to_string()),
    }
}

/// Returns whether the file is no database, or damaged.
fn is_of_the_file(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
}

/// Returns whether the disk, another process or a lack of memory is at fault: the same may succeed later.
fn is_of_the_disk(code: ErrorCode) -> bool {
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

/// The same, naming the file and what to do where it is the file that is damaged.
fn store_error_at(path: &Path, error: rusqlite::Error) -> StoreError {
    damaged(path, store_error(error))
}

/// Names the file where an error says that it is damaged; other errors stay as they are.
fn damaged(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt(why) => StoreError::Corrupt(format!(
            "{} is damaged ({why}): copy the home aside, then restore a backup or rescue what can be read",
            path.display()
        )),
        error => error,
    }
}
