//! Rows of the stored versions of artifacts (DUR-8).

use rusqlite::{Connection, OptionalExtension};
use soong_protocol::{
    ArtifactId, ArtifactVersion, NewArtifactCopy, NewDocumentVersion, NewVersion,
};

use super::{end_intent, save};
use crate::sqlite::{
    columns::{Columns, clamp_to_i64, collect_rows, json},
    edits,
};

/// Registers a version, and inserts or updates the artifact's row; ends the blob's intent.
pub(in crate::sqlite) fn insert_version(
    conn: &Connection,
    new: &NewVersion,
    lsn: u64,
) -> rusqlite::Result<()> {
    let artifact = &new.artifact;
    let key = save(conn, artifact)?;
    conn.prepare_cached(
        "INSERT INTO artifact_version (artifact_key, version, size, content_type, update_type, source, provenance,
                                       path, created_at, lsn)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute((
        key,
        clamp_to_i64(artifact.current_version),
        clamp_to_i64(artifact.size),
        &artifact.content_type,
        new.update_type.as_str(),
        artifact.source.as_str(),
        json(&artifact.provenance),
        &new.path,
        artifact.updated_at.as_millis(),
        clamp_to_i64(lsn),
    ))?;
    end_intent(conn, &new.path)
}

/// Registers the first version of a copy. The copy can also be found by the ids of the artifacts
/// that it was copied from.
pub(in crate::sqlite) fn insert_copy(
    conn: &Connection,
    new: &NewArtifactCopy,
    lsn: u64,
) -> rusqlite::Result<()> {
    insert_version(conn, &new.version, lsn)?;
    conn.prepare_cached(
        "UPDATE artifact SET copied_from = ?2 || coalesce(
             (SELECT ' ' || source.copied_from FROM artifact AS source WHERE source.artifact_id = ?2), '')
         WHERE artifact_id = ?1",
    )?
    .execute((new.version.artifact.artifact_id.as_str(), new.source_artifact.as_str()))?;
    Ok(())
}

/// Registers the content of a document at one of its edits as a version; ends the blob's intent.
pub(in crate::sqlite) fn flush(
    conn: &Connection,
    new: &NewDocumentVersion,
    lsn: u64,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO artifact_version (artifact_key, version, size, content_type, update_type, source, provenance,
                                       path, created_at, lsn)
         SELECT artifact_key, ?2, ?3, content_type, ?4, source, ?5, ?6, ?7, ?8 FROM artifact WHERE artifact_id = ?1",
    )?
    .execute((
        new.artifact_id.as_str(),
        clamp_to_i64(new.version),
        clamp_to_i64(new.size),
        new.update_type.as_str(),
        json(&new.provenance),
        &new.path,
        new.at.as_millis(),
        clamp_to_i64(lsn),
    ))?;
    conn.prepare_cached("UPDATE artifact SET stored_version = ?2 WHERE artifact_id = ?1")?
        .execute((new.artifact_id.as_str(), clamp_to_i64(new.version)))?;
    end_intent(conn, &new.path)
}

/// Lists the versions of an artifact in order, each with the edits that led to it.
pub(in crate::sqlite) fn versions(
    conn: &Connection,
    id: &ArtifactId,
) -> rusqlite::Result<Vec<ArtifactVersion>> {
    let mut query = conn.prepare_cached(
        "SELECT version, artifact_version.size, artifact_version.content_type, update_type, artifact_version.source,
                artifact_version.provenance, artifact_version.created_at
         FROM artifact_version JOIN artifact USING (artifact_key) LEFT JOIN session USING (session_key)
         WHERE artifact_id = ?1 AND removal IS NULL ORDER BY version",
    )?;
    let mut versions: Vec<ArtifactVersion> =
        collect_rows(query.query_map([id.as_str()], |row| {
            let mut columns = Columns::of(row);
            Ok(ArtifactVersion {
                version: columns.count()?,
                size: columns.count()?,
                content_type: columns.next()?,
                update_type: columns.enum_value()?,
                source: columns.enum_value()?,
                provenance: columns.json()?,
                changes: Vec::new(),
                created_at: columns.time()?,
            })
        })?)?;
    for (revision, change) in edits::replacements(conn, id)? {
        let index = versions.partition_point(|version| version.version < revision);
        if let Some(version) = versions.get_mut(index) {
            version.changes.push(change);
        }
    }
    Ok(versions)
}

/// Returns the path of a version's blob and its MIME type.
pub(in crate::sqlite) fn blob(
    conn: &Connection,
    id: &ArtifactId,
    version: u64,
) -> rusqlite::Result<Option<(String, String)>> {
    conn.prepare_cached(
        "SELECT path, artifact_version.content_type FROM artifact_version JOIN artifact USING (artifact_key)
         LEFT JOIN session USING (session_key) WHERE artifact_id = ?1 AND version = ?2 AND removal IS NULL",
    )?
    .query_row((id.as_str(), clamp_to_i64(version)), |row| Ok((row.get(0)?, row.get(1)?)))
    .optional()
}

/// Lists the paths of an artifact's blobs, by version.
pub(in crate::sqlite) fn blob_paths(
    conn: &Connection,
    id: &ArtifactId,
) -> rusqlite::Result<Vec<String>> {
    let mut query = conn.prepare_cached(
        "SELECT path FROM artifact_version JOIN artifact USING (artifact_key) LEFT JOIN session USING (session_key)
         WHERE artifact_id = ?1 AND removal IS NULL ORDER BY version",
    )?;
    collect_rows(query.query_map([id.as_str()], |row| row.get(0))?)
}
