//! Copying a database while it is used, and listing which files a copy asks for (DUR-5).
//!
//! `VACUUM INTO` and not SQLite's backup by pages: both read one moment and hold no writer up, but what was
//! deleted does not come along in pages that are free.
//! Not here: the files themselves, and what else belongs to a home.

use std::{fs, path::Path};

use rusqlite::Connection;
use soong_protocol::ArtifactId;

use super::{
    columns::{Columns, all, int},
    migrate, store_error,
};
use crate::store::{StoreError, StoredBlob};

/// Where a page of stored blobs begins: behind this version.
pub(super) type Behind = (i64, i64);

/// Copies the database as it is at one moment; the copy is on disk after this. What there is of a copy that
/// failed is for the caller to remove.
pub(super) fn copy(conn: &Connection, target: &Path) -> Result<(), StoreError> {
    let name = target.to_str().ok_or_else(|| StoreError::Io(format!("{} is not valid Unicode", target.display())))?;
    if target.exists() {
        return Err(StoreError::Io(format!("{} is there already", target.display())));
    }
    conn.execute("VACUUM INTO ?1", [name]).and_then(|_| migrate::make_anonymous(target)).map_err(store_error)?;
    let synced = fs::File::open(target).and_then(|file| file.sync_all());
    synced.map_err(|error| StoreError::Io(format!("{}: {error}", target.display())))
}

/// Counts sessions, but for those that are being removed.
pub(super) fn count_sessions(conn: &Connection) -> rusqlite::Result<u64> {
    conn.query_row("SELECT count(*) FROM session WHERE removal IS NULL", [], |row| Columns::of(row).count())
}

/// Lists stored versions with where their blobs lie, each with the place behind it.
pub(super) fn blobs(
    conn: &Connection,
    limit: i64,
    (key, version): Behind,
) -> rusqlite::Result<Vec<(Behind, StoredBlob)>> {
    let mut query = conn.prepare_cached(
        "SELECT artifact_key, version, artifact_id, path, v.size
         FROM artifact_version AS v JOIN artifact USING (artifact_key) LEFT JOIN session USING (session_key)
         WHERE removal IS NULL AND (artifact_key, version) > (?1, ?2)
         ORDER BY artifact_key, version LIMIT ?3",
    )?;
    all(query.query_map((key, version, limit), |row| {
        let mut columns = Columns::of(row);
        let (key, version) = (columns.next()?, columns.count()?);
        let artifact_id = columns.id(ArtifactId::new)?;
        let (path, size) = (columns.next()?, columns.count()?);
        Ok(((key, int(version)), StoredBlob { artifact_id, version, path, size }))
    })?)
}
