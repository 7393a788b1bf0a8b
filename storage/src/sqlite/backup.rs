//! Copying a database while it is in use, and listing the files that belong to a copy (DUR-5).
//!
//! Uses `VACUUM INTO` instead of SQLite's page-wise backup. Both read one snapshot and do not block
//! writers, but page-wise backup also copies deleted data in free pages.
//!
//! Not in this module: the files themselves, and the other contents of a home.

use std::{fs, path::Path};

use rusqlite::Connection;
use soong_protocol::ArtifactId;

use super::{
    columns::{Columns, clamp_to_i64, collect_rows},
    migrate, store_error,
};
use crate::store::{StoreError, StoredBlob};

/// Start of a page of stored blobs: the page begins after the version with this artifact key and
/// number.
pub(super) type BlobCursor = (i64, i64);

/// Copies a snapshot of the database and syncs the copy. If this fails, the caller must delete the
/// partial copy.
pub(super) fn copy(conn: &Connection, target: &Path) -> Result<(), StoreError> {
    let name = target
        .to_str()
        .ok_or_else(|| StoreError::Io(format!("{} is not valid Unicode", target.display())))?;
    if target.exists() {
        return Err(StoreError::Io(format!(
            "{} already exists",
            target.display()
        )));
    }
    conn.execute("VACUUM INTO ?1", [name])
        .and_then(|_| migrate::clear_store_id(target))
        .map_err(store_error)?;
    let synced = fs::File::open(target).and_then(|file| file.sync_all());
    synced.map_err(|error| StoreError::Io(format!("{}: {error}", target.display())))
}

/// Counts sessions, except those that are being deleted.
pub(super) fn count_sessions(conn: &Connection) -> rusqlite::Result<u64> {
    conn.query_row(
        "SELECT count(*) FROM session WHERE removal IS NULL",
        [],
        |row| Columns::of(row).count(),
    )
}

/// Lists stored versions with the paths of their blobs, each with the start of the page after it.
pub(super) fn blobs(
    conn: &Connection,
    limit: i64,
    (key, version): BlobCursor,
) -> rusqlite::Result<Vec<(BlobCursor, StoredBlob)>> {
    let mut query = conn.prepare_cached(
        "SELECT artifact_key, version, artifact_id, path, v.size
         FROM artifact_version AS v JOIN artifact USING (artifact_key) LEFT JOIN session USING (session_key)
         WHERE removal IS NULL AND (artifact_key, version) > (?1, ?2)
         ORDER BY artifact_key, version LIMIT ?3",
    )?;
    collect_rows(query.query_map((key, version, limit), |row| {
        let mut columns = Columns::of(row);
        let key = columns.next()?;
        let version = columns.count()?;
        let artifact_id = columns.id(ArtifactId::new)?;
        let path = columns.next()?;
        let size = columns.count()?;
        Ok((
            (key, clamp_to_i64(version)),
            StoredBlob {
                artifact_id,
                version,
                path,
                size,
            },
        ))
    })?)
}
