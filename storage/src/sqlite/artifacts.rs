//! Rows of artifacts, and blob intents (DUR-8).
//!
//! Elsewhere: the stored versions (`artifacts/version.rs`), the edits of documents (`edits.rs`).

mod version;

use rusqlite::{Connection, OptionalExtension, Row};
use soong_protocol::{Artifact, ArtifactId, ArtifactScope, SessionId, Timestamp};
pub(super) use version::{blob, blob_paths, flush, insert_copy, insert_version, versions};

use super::{
    columns::{Columns, clamp_to_i64, collect_rows, json},
    edits, sessions,
};
use crate::store::{ChangedDocument, RecentArtifacts};

/// Selects a row if the document was withdrawn by the edit with this revision.
const IS_WITHDRAWN: &str = "SELECT 1 FROM document_edit WHERE artifact_key = ?1 AND revision = ?2 AND update_type = 'withdraw'";

/// Current numbers of an artifact.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RevisionNumbers {
    /// Number of the current content.
    pub(super) current: u64,
    /// Number of the last stored version.
    pub(super) stored: u64,
}

/// Returns the numbers of an artifact; `None` if there is no artifact with that id.
pub(super) fn numbers(
    conn: &Connection,
    id: &ArtifactId,
) -> rusqlite::Result<Option<RevisionNumbers>> {
    conn.prepare_cached(
        "SELECT current_version, stored_version FROM artifact LEFT JOIN session USING (session_key)
         WHERE artifact_id = ?1 AND removal IS NULL",
    )?
    .query_row([id.as_str()], |row| {
        let mut columns = Columns::of(row);
        Ok(RevisionNumbers {
            current: columns.count()?,
            stored: columns.count()?,
        })
    })
    .optional()
}

fn key(conn: &Connection, id: &ArtifactId) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached("SELECT artifact_key FROM artifact WHERE artifact_id = ?1")?
        .query_row([id.as_str()], |row| row.get(0))
        .optional()
}

/// Returns the id of the artifact with this name in a scope.
pub(super) fn id_by_name(
    conn: &Connection,
    scope: &ArtifactScope,
    name: &str,
) -> rusqlite::Result<Option<ArtifactId>> {
    let (mut query, owner) = match scope {
        ArtifactScope::Session { session_id } => (
            conn.prepare_cached(
                "SELECT artifact_id FROM artifact
                 WHERE session_key = (SELECT session_key FROM session WHERE session_id = ?1 AND removal IS NULL)
                 AND name = ?2",
            )?,
            session_id.as_str(),
        ),
        ArtifactScope::User { uid } => {
            (conn.prepare_cached("SELECT artifact_id FROM artifact WHERE uid = ?1 AND name = ?2")?, uid.as_str())
        }
    };
    query
        .query_row([owner, name], |row| Columns::of(row).id(ArtifactId::new))
        .optional()
}

/// Inserts or updates the row of an artifact; returns its key.
pub(super) fn save(conn: &Connection, artifact: &Artifact) -> rusqlite::Result<i64> {
    match key(conn, &artifact.artifact_id)? {
        Some(key) => update(conn, key, artifact),
        None => insert(conn, artifact),
    }
}

/// Deletes an artifact with its versions and edits. Its blobs become intents, so that they are
/// deleted later.
pub(super) fn remove(conn: &Connection, id: &ArtifactId, at: Timestamp) -> rusqlite::Result<()> {
    let Some(key) = key(conn, id)? else {
        return Ok(());
    };
    conn.prepare_cached(
        "INSERT OR IGNORE INTO blob_intent (path, at) SELECT path, ?2 FROM artifact_version WHERE artifact_key = ?1",
    )?
    .execute((key, at.as_millis()))?;
    edits::remove(conn, key)?;
    conn.prepare_cached("DELETE FROM artifact_version WHERE artifact_key = ?1")?
        .execute([key])?;
    conn.prepare_cached("DELETE FROM artifact WHERE artifact_key = ?1")?
        .execute([key])?;
    Ok(())
}

fn insert(conn: &Connection, artifact: &Artifact) -> rusqlite::Result<i64> {
    let (session_key, uid) = match &artifact.scope {
        ArtifactScope::Session { session_id } => (sessions::key(conn, session_id)?, None),
        ArtifactScope::User { uid } => (None, Some(uid)),
    };
    conn.prepare_cached(
        "INSERT INTO artifact (artifact_id, session_key, uid, name, title, filename, content_type, size,
                               current_version, stored_version, source, debug, provenance, summary, metadata,
                               created_at, updated_at, withdrawn)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
    )?
    .execute(rusqlite::params![
        artifact.artifact_id.as_str(),
        session_key,
        uid,
        artifact.name,
        artifact.title,
        artifact.filename,
        artifact.content_type,
        clamp_to_i64(artifact.size),
        clamp_to_i64(artifact.current_version),
        clamp_to_i64(artifact.stored_version),
        artifact.source.as_str(),
        artifact.debug,
        json(&artifact.provenance),
        artifact.summary,
        metadata(artifact),
        artifact.created_at.as_millis(),
        artifact.updated_at.as_millis(),
        artifact.withdrawn,
    ])?;
    Ok(conn.last_insert_rowid())
}

/// Updates the row of an artifact, except its scope and creation time.
fn update(conn: &Connection, key: i64, artifact: &Artifact) -> rusqlite::Result<i64> {
    conn.prepare_cached(
        "UPDATE artifact SET title = ?2, filename = ?3, content_type = ?4, size = ?5, current_version = ?6,
                stored_version = ?7, source = ?8, debug = ?9, provenance = ?10, summary = ?11, metadata = ?12,
                updated_at = ?13, name = ?14, withdrawn = ?15
         WHERE artifact_key = ?1",
    )?
    .execute(rusqlite::params![
        key,
        artifact.title,
        artifact.filename,
        artifact.content_type,
        clamp_to_i64(artifact.size),
        clamp_to_i64(artifact.current_version),
        clamp_to_i64(artifact.stored_version),
        artifact.source.as_str(),
        artifact.debug,
        json(&artifact.provenance),
        artifact.summary,
        metadata(artifact),
        artifact.updated_at.as_millis(),
        artifact.name,
        artifact.withdrawn,
    ])?;
    Ok(key)
}

fn metadata(artifact: &Artifact) -> Option<String> {
    (!artifact.metadata.is_empty()).then(|| json(&artifact.metadata))
}

/// Announces a blob; does nothing if it was already announced.
pub(super) fn begin_intent(conn: &Connection, path: &str, at: Timestamp) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO blob_intent (path, at) VALUES (?1, ?2) ON CONFLICT (path) DO NOTHING",
    )?
    .execute((path, at.as_millis()))?;
    Ok(())
}

/// Ends an intent; does nothing if it has already ended.
pub(super) fn end_intent(conn: &Connection, path: &str) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM blob_intent WHERE path = ?1")?
        .execute([path])?;
    Ok(())
}

/// Lists the open intents, oldest first.
pub(super) fn intents(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut query = conn.prepare_cached("SELECT path FROM blob_intent ORDER BY at, path")?;
    collect_rows(query.query_map([], |row| row.get(0))?)
}

macro_rules! select {
    ($tail:literal) => {
        select!($tail, "")
    };
    ($tail:literal, $more:literal) => {
        concat!(
            "SELECT artifact_id, session_id, artifact.uid, artifact.name, title, filename, content_type, size,
                    current_version, stored_version, source, debug, provenance, summary, metadata,
                    artifact.created_at, artifact.updated_at, withdrawn",
            $more,
            " FROM artifact LEFT JOIN session USING (session_key) ",
            $tail
        )
    };
}

fn read(row: &Row<'_>) -> rusqlite::Result<Artifact> {
    read_columns(&mut Columns::of(row))
}

fn read_columns(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Artifact> {
    let artifact_id = columns.id(ArtifactId::new)?;
    let session_id = columns.maybe_id(SessionId::new)?;
    let uid: Option<String> = columns.next()?;
    let scope = match session_id {
        Some(session_id) => ArtifactScope::Session { session_id },
        None => ArtifactScope::User {
            uid: uid.unwrap_or_default(),
        },
    };
    let mut artifact = Artifact {
        artifact_id,
        scope,
        name: columns.next()?,
        withdrawn: None,
        title: columns.next()?,
        filename: columns.next()?,
        content_type: columns.next()?,
        size: columns.count()?,
        current_version: columns.count()?,
        stored_version: columns.count()?,
        dirty: false,
        source: columns.enum_value()?,
        debug: columns.next()?,
        provenance: columns.json()?,
        summary: columns.next()?,
        metadata: columns.maybe_json()?.unwrap_or_default(),
        created_at: columns.time()?,
        updated_at: columns.time()?,
    };
    artifact.withdrawn = columns.next()?;
    artifact.dirty = artifact.current_version > artifact.stored_version;
    Ok(artifact)
}

/// Lists the artifacts of a scope by name; artifacts without a name come last.
pub(super) fn list(conn: &Connection, scope: &ArtifactScope) -> rusqlite::Result<Vec<Artifact>> {
    let (mut query, owner) = match scope {
        ArtifactScope::Session { session_id } => (
            conn.prepare_cached(select!(
                "WHERE session_key = (SELECT session_key FROM session WHERE session_id = ?1 AND removal IS NULL)
                 AND withdrawn IS NULL ORDER BY artifact.name IS NULL, artifact.name, artifact_id"
            ))?,
            session_id.as_str(),
        ),
        ArtifactScope::User { uid } => (
            conn.prepare_cached(select!(
                "WHERE artifact.uid = ?1 ORDER BY artifact.name IS NULL, artifact.name, artifact_id"
            ))?,
            uid.as_str(),
        ),
    };
    collect_rows(query.query_map([owner], read)?)
}

/// Reads up to `limit` of the most recently changed artifacts of a scope, and the numbers of
/// artifacts. Debug artifacts do not count. Of the artifacts without a name only texts count: the
/// others are images and files of messages.
pub(super) fn recent(
    conn: &Connection,
    scope: &ArtifactScope,
    limit: i64,
) -> rusqlite::Result<RecentArtifacts> {
    let (mut count, mut query, owner) = match scope {
        ArtifactScope::Session { session_id } => (
            conn.prepare_cached(
                "SELECT count(name), count(*) FILTER (WHERE name IS NULL AND content_type LIKE 'text/%') FROM artifact
                 WHERE session_key = (SELECT session_key FROM session WHERE session_id = ?1 AND removal IS NULL)
                 AND NOT debug AND withdrawn IS NULL",
            )?,
            conn.prepare_cached(select!(
                "WHERE session_key = (SELECT session_key FROM session WHERE session_id = ?1 AND removal IS NULL)
                 AND artifact.name IS NOT NULL AND NOT debug
                 ORDER BY artifact.updated_at DESC, artifact_key DESC LIMIT ?2"
            ))?,
            session_id.as_str(),
        ),
        ArtifactScope::User { uid } => (
            conn.prepare_cached(
                "SELECT count(name), count(*) - count(name) FROM artifact WHERE uid = ?1 AND NOT debug",
            )?,
            conn.prepare_cached(select!(
                "WHERE artifact.uid = ?1 AND artifact.name IS NOT NULL AND NOT debug
                 ORDER BY artifact.updated_at DESC, artifact_key DESC LIMIT ?2"
            ))?,
            uid.as_str(),
        ),
    };
    let (named_count, unnamed_count) = count.query_row([owner], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.count()?, columns.count()?))
    })?;
    Ok(RecentArtifacts {
        named: collect_rows(query.query_map((owner, limit), read)?)?,
        named_count,
        unnamed_count,
    })
}

/// Lists the artifacts of all sessions, each with the total bytes of its versions; the least
/// recently changed one first.
pub(super) fn list_of_all_sessions(conn: &Connection) -> rusqlite::Result<Vec<(Artifact, u64)>> {
    let mut query = conn.prepare_cached(select!(
        "LEFT JOIN (SELECT artifact_key, sum(size) AS stored_bytes FROM artifact_version GROUP BY artifact_key)
             USING (artifact_key)
         WHERE session_key IS NOT NULL AND removal IS NULL ORDER BY artifact.updated_at, artifact_key",
        ", coalesce(stored_bytes, 0)"
    ))?;
    collect_rows(query.query_map([], |row| {
        let mut columns = Columns::of(row);
        let artifact = read_columns(&mut columns)?;
        Ok((artifact, columns.count()?))
    })?)
}

/// Lists the documents of a run's session that have edits without a stored version, by name:
/// documents edited by this run or by ended runs.
pub(super) fn unflushed(conn: &Connection, run_key: i64) -> rusqlite::Result<Vec<Artifact>> {
    let mut query = conn.prepare_cached(select!(
        "WHERE session_key = (SELECT session_key FROM run WHERE run_key = ?1)
         AND current_version > stored_version AND withdrawn IS NULL
         AND EXISTS (
             SELECT 1 FROM document_edit AS later JOIN run_state USING (run_key)
             WHERE later.artifact_key = artifact.artifact_key AND later.revision > stored_version
             AND (later.run_key = ?1 OR status IN ('completed', 'failed', 'cancelled'))
         ) ORDER BY artifact.name"
    ))?;
    collect_rows(query.query_map([run_key], read)?)
}

/// Lists the documents that a trace has changed since an lsn.
pub(super) fn documents_changed_since(
    conn: &Connection,
    trace_key: i64,
    lsn: u64,
) -> rusqlite::Result<Vec<ChangedDocument>> {
    let mut query = conn.prepare_cached(select!(
        "WHERE artifact_key IN (SELECT artifact_key FROM document_edit WHERE trace_key = ?1 AND lsn > ?2)
         AND session_key = (SELECT session_key FROM trace WHERE trace_key = ?1) ORDER BY artifact_key",
        ", max(coalesce((SELECT max(revision) FROM document_edit
                         WHERE document_edit.artifact_key = artifact.artifact_key AND lsn <= ?2), 0),
               coalesce((SELECT max(version) FROM artifact_version
                         WHERE artifact_version.artifact_key = artifact.artifact_key AND lsn <= ?2), 0)),
         EXISTS (SELECT 1 FROM document_edit WHERE document_edit.artifact_key = artifact.artifact_key
                 AND lsn > ?2 AND trace_key <> ?1)
         OR EXISTS (SELECT 1 FROM artifact_version WHERE artifact_version.artifact_key = artifact.artifact_key
                    AND lsn > ?2 AND NOT EXISTS (
                        SELECT 1 FROM document_edit WHERE document_edit.artifact_key = artifact_version.artifact_key
                        AND revision = version)),
         artifact_key"
    ))?;
    let mut withdrawn = conn.prepare_cached(IS_WITHDRAWN)?;
    collect_rows(query.query_map((trace_key, clamp_to_i64(lsn)), |row| {
        let mut columns = Columns::of(row);
        let artifact = read_columns(&mut columns)?;
        let revision = columns.count()?;
        let is_foreign = columns.next()?;
        let key: i64 = columns.next()?;
        let is_there = revision > 0 && !withdrawn.exists((key, clamp_to_i64(revision)))?;
        Ok(ChangedDocument {
            artifact,
            revision,
            existed: is_there,
            changed_elsewhere: is_foreign,
        })
    })?)
}

/// Lists the artifacts of a session that existed at an lsn, each with its number at that lsn; the
/// most recently changed one last.
pub(super) fn list_at(
    conn: &Connection,
    id: &SessionId,
    lsn: u64,
) -> rusqlite::Result<Vec<(Artifact, u64)>> {
    let mut query = conn.prepare_cached(select!(
        "WHERE session_id = ?1 AND removal IS NULL ORDER BY artifact.updated_at, artifact_key",
        ", max(coalesce((SELECT max(revision) FROM document_edit
                         WHERE document_edit.artifact_key = artifact.artifact_key AND lsn <= ?2), 0),
               coalesce((SELECT max(version) FROM artifact_version
                         WHERE artifact_version.artifact_key = artifact.artifact_key AND lsn <= ?2), 0)),
         artifact_key"
    ))?;
    let mut withdrawn = conn.prepare_cached(IS_WITHDRAWN)?;
    let mut found = Vec::new();
    let mut rows = query.query((id.as_str(), clamp_to_i64(lsn)))?;
    while let Some(row) = rows.next()? {
        let mut columns = Columns::of(row);
        let artifact = read_columns(&mut columns)?;
        let revision = columns.count()?;
        let key = columns.next::<i64>()?;
        if revision > 0 && !withdrawn.exists((key, clamp_to_i64(revision)))? {
            found.push((artifact, revision));
        }
    }
    Ok(found)
}

/// Reads an artifact of a scope by name, else by id, else by the id of the artifact that it was
/// copied from.
pub(super) fn artifact(
    conn: &Connection,
    scope: &ArtifactScope,
    name: &str,
) -> rusqlite::Result<Option<Artifact>> {
    let id = id_by_name(conn, scope, name)?.unwrap_or_else(|| ArtifactId::new(name));
    let found = conn
        .prepare_cached(select!("WHERE artifact_id = ?1 AND removal IS NULL"))?
        .query_row([id.as_str()], read)
        .optional()?;
    match (found.filter(|artifact| artifact.scope == *scope), scope) {
        (None, ArtifactScope::Session { session_id }) => conn
            .prepare_cached(select!(
                "WHERE session_id = ?1 AND removal IS NULL AND instr(' ' || copied_from || ' ', ' ' || ?2 || ' ') > 0"
            ))?
            .query_row((session_id.as_str(), name), read)
            .optional(),
        (found, _) => Ok(found),
    }
}
