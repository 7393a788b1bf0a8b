//! Artifacts, their versions, and the intents of blobs, as rows (DUR-8).

use rusqlite::{Connection, OptionalExtension, Row};
use soong_protocol::{Artifact, ArtifactId, ArtifactScope, ArtifactVersion, SessionId, Timestamp};

use super::{
    columns::{Columns, all, int, json},
    sessions,
};
use crate::store::NewVersion;

/// What is known of an artifact before a version is added.
pub(super) struct Known {
    pub(super) key: i64,
    pub(super) current_version: u64,
}

/// Looks an artifact up by id.
pub(super) fn known(conn: &Connection, id: &ArtifactId) -> rusqlite::Result<Option<Known>> {
    conn.prepare_cached("SELECT artifact_key, current_version FROM artifact WHERE artifact_id = ?1")?
        .query_row([id.as_str()], |row| {
            let mut columns = Columns::of(row);
            Ok(Known { key: columns.next()?, current_version: columns.count()? })
        })
        .optional()
}

/// Returns which artifact has a name in a scope.
pub(super) fn named(conn: &Connection, scope: &ArtifactScope, name: &str) -> rusqlite::Result<Option<ArtifactId>> {
    let (mut query, owner) = match scope {
        ArtifactScope::Session { session_id } => (
            conn.prepare_cached(
                "SELECT artifact_id FROM artifact
                 WHERE session_key = (SELECT session_key FROM session WHERE session_id = ?1) AND name = ?2",
            )?,
            session_id.as_str(),
        ),
        ArtifactScope::User { uid } => {
            (conn.prepare_cached("SELECT artifact_id FROM artifact WHERE uid = ?1 AND name = ?2")?, uid.as_str())
        }
    };
    query.query_row([owner, name], |row| Columns::of(row).id(ArtifactId::new)).optional()
}

/// Adds a version, and the artifact with its first one; ends the blob's intent.
pub(super) fn insert(conn: &Connection, new: &NewVersion) -> rusqlite::Result<()> {
    let artifact = &new.artifact;
    let key = match known(conn, &artifact.artifact_id)? {
        Some(known) => renew(conn, known.key, artifact)?,
        None => insert_first(conn, artifact)?,
    };
    conn.prepare_cached(
        "INSERT INTO artifact_version (artifact_key, version, size, update_type, source, provenance, path, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute((
        key,
        int(artifact.current_version),
        int(artifact.size),
        new.update_type.as_str(),
        artifact.source.as_str(),
        json(&artifact.provenance),
        &new.path,
        artifact.updated_at.as_millis(),
    ))?;
    end_intent(conn, &new.path)
}

fn insert_first(conn: &Connection, artifact: &Artifact) -> rusqlite::Result<i64> {
    let (session_key, uid) = match &artifact.scope {
        ArtifactScope::Session { session_id } => (sessions::key(conn, session_id)?, None),
        ArtifactScope::User { uid } => (None, Some(uid)),
    };
    conn.prepare_cached(
        "INSERT INTO artifact (artifact_id, session_key, uid, name, title, filename, content_type, size,
                               current_version, source, provenance, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(rusqlite::params![
        artifact.artifact_id.as_str(),
        session_key,
        uid,
        artifact.name,
        artifact.title,
        artifact.filename,
        artifact.content_type,
        int(artifact.size),
        int(artifact.current_version),
        artifact.source.as_str(),
        json(&artifact.provenance),
        artifact.created_at.as_millis(),
        artifact.updated_at.as_millis(),
    ])?;
    Ok(conn.last_insert_rowid())
}

/// Scope, name and time of creation stay as they were.
fn renew(conn: &Connection, key: i64, artifact: &Artifact) -> rusqlite::Result<i64> {
    conn.prepare_cached(
        "UPDATE artifact SET title = ?2, filename = ?3, content_type = ?4, size = ?5, current_version = ?6,
                source = ?7, provenance = ?8, updated_at = ?9
         WHERE artifact_key = ?1",
    )?
    .execute((
        key,
        &artifact.title,
        &artifact.filename,
        &artifact.content_type,
        int(artifact.size),
        int(artifact.current_version),
        artifact.source.as_str(),
        json(&artifact.provenance),
        artifact.updated_at.as_millis(),
    ))?;
    Ok(key)
}

/// Announces a blob; announcing it again is fine.
pub(super) fn begin_intent(conn: &Connection, path: &str, at: Timestamp) -> rusqlite::Result<()> {
    conn.prepare_cached("INSERT INTO blob_intent (path, at) VALUES (?1, ?2) ON CONFLICT (path) DO NOTHING")?
        .execute((path, at.as_millis()))?;
    Ok(())
}

/// Ends an intent; one that is not there has ended already.
pub(super) fn end_intent(conn: &Connection, path: &str) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM blob_intent WHERE path = ?1")?.execute([path])?;
    Ok(())
}

/// Lists the intents that have not ended, oldest first.
pub(super) fn intents(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut query = conn.prepare_cached("SELECT path FROM blob_intent ORDER BY at, path")?;
    all(query.query_map([], |row| row.get(0))?)
}

macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT artifact_id, session_id, artifact.uid, artifact.name, title, filename, content_type, size,
                    current_version, source, provenance, artifact.created_at, artifact.updated_at
             FROM artifact LEFT JOIN session USING (session_key) ",
            $tail
        )
    };
}

fn read(row: &Row<'_>) -> rusqlite::Result<Artifact> {
    let mut columns = Columns::of(row);
    let artifact_id = columns.id(ArtifactId::new)?;
    let session_id = columns.maybe_id(SessionId::new)?;
    let uid: Option<String> = columns.next()?;
    let scope = match session_id {
        Some(session_id) => ArtifactScope::Session { session_id },
        None => ArtifactScope::User { uid: uid.unwrap_or_default() },
    };
    Ok(Artifact {
        artifact_id,
        scope,
        name: columns.next()?,
        title: columns.next()?,
        filename: columns.next()?,
        content_type: columns.next()?,
        size: columns.count()?,
        current_version: columns.count()?,
        source: columns.word()?,
        provenance: columns.json()?,
        created_at: columns.time()?,
        updated_at: columns.time()?,
    })
}

/// Lists the artifacts of a scope by name.
pub(super) fn list(conn: &Connection, scope: &ArtifactScope) -> rusqlite::Result<Vec<Artifact>> {
    let (mut query, owner) = match scope {
        ArtifactScope::Session { session_id } => {
            (conn.prepare_cached(select!("WHERE session_id = ?1 ORDER BY artifact.name"))?, session_id.as_str())
        }
        ArtifactScope::User { uid } => {
            (conn.prepare_cached(select!("WHERE artifact.uid = ?1 ORDER BY artifact.name"))?, uid.as_str())
        }
    };
    all(query.query_map([owner], read)?)
}

/// Reads an artifact by name.
pub(super) fn artifact(conn: &Connection, scope: &ArtifactScope, name: &str) -> rusqlite::Result<Option<Artifact>> {
    let Some(id) = named(conn, scope, name)? else { return Ok(None) };
    conn.prepare_cached(select!("WHERE artifact_id = ?1"))?.query_row([id.as_str()], read).optional()
}

/// Lists the versions of an artifact in order.
pub(super) fn versions(conn: &Connection, id: &ArtifactId) -> rusqlite::Result<Vec<ArtifactVersion>> {
    let mut query = conn.prepare_cached(
        "SELECT version, artifact_version.size, update_type, artifact_version.created_at
         FROM artifact_version JOIN artifact USING (artifact_key) WHERE artifact_id = ?1 ORDER BY version",
    )?;
    all(query.query_map([id.as_str()], |row| {
        let mut columns = Columns::of(row);
        Ok(ArtifactVersion {
            version: columns.count()?,
            size: columns.count()?,
            update_type: columns.word()?,
            created_at: columns.time()?,
        })
    })?)
}

/// Returns where the blob of a version lies.
pub(super) fn path(conn: &Connection, id: &ArtifactId, version: u64) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached(
        "SELECT path FROM artifact_version JOIN artifact USING (artifact_key)
         WHERE artifact_id = ?1 AND version = ?2",
    )?
    .query_row((id.as_str(), int(version)), |row| row.get(0))
    .optional()
}
