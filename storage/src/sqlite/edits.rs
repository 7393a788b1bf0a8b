//! Rows of document edits (ART-5): the changes of a document since its last stored version, and the
//! outcomes of the tool calls that made them.

use rusqlite::{Connection, OptionalExtension, Row};
use soong_protocol::{ArtifactId, DocumentEdit, EffectId, RunId, Splice, TraceId};

use super::columns::{Columns, clamp_to_i64, collect_rows};

/// Inserts an edit of the document with that key. `lsn` is that of the event that follows it.
pub(super) fn insert(
    conn: &Connection,
    artifact_key: i64,
    trace_key: i64,
    run_key: i64,
    lsn: u64,
    edit: &DocumentEdit,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO document_edit (artifact_key, revision, lsn, trace_key, run_key, turn, tool_call_id, update_type,
                                    start, removed, inserted, old, outcome, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?
    .execute(rusqlite::params![
        artifact_key,
        clamp_to_i64(edit.revision),
        clamp_to_i64(lsn),
        trace_key,
        run_key,
        edit.effect.turn,
        edit.effect.tool_call_id,
        edit.update_type.as_str(),
        clamp_to_i64(edit.splice.start),
        clamp_to_i64(edit.splice.removed),
        edit.splice.inserted,
        edit.old,
        edit.outcome,
        edit.created_at.as_millis(),
    ])?;
    Ok(())
}

macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT artifact_id, revision, update_type, start, removed, inserted, old, run_id, turn, tool_call_id,
                    trace_id, outcome, document_edit.created_at
             FROM document_edit JOIN artifact USING (artifact_key) JOIN run USING (run_key)
                  JOIN trace ON trace.trace_key = document_edit.trace_key ",
            $tail
        )
    };
}

fn read(row: &Row<'_>) -> rusqlite::Result<DocumentEdit> {
    let mut columns = Columns::of(row);
    Ok(DocumentEdit {
        artifact_id: columns.id(ArtifactId::new)?,
        revision: columns.count()?,
        update_type: columns.enum_value()?,
        splice: Splice {
            start: columns.count()?,
            removed: columns.count()?,
            inserted: columns.next()?,
        },
        old: columns.next()?,
        effect: EffectId {
            run_id: columns.id(RunId::new)?,
            turn: columns.next()?,
            tool_call_id: columns.next()?,
        },
        trace_id: columns.id(TraceId::new)?,
        outcome: columns.next()?,
        created_at: columns.time()?,
    })
}

/// Reads the edits of a document with a revision above `after` and up to `upto`, in order.
pub(super) fn in_range(
    conn: &Connection,
    id: &ArtifactId,
    after: u64,
    upto: u64,
) -> rusqlite::Result<Vec<DocumentEdit>> {
    let mut query = conn.prepare_cached(select!(
        "WHERE artifact_key = (SELECT artifact_key FROM artifact LEFT JOIN session USING (session_key)
                               WHERE artifact_id = ?1 AND removal IS NULL)
         AND revision > ?2 AND revision <= ?3 ORDER BY revision"
    ))?;
    collect_rows(query.query_map((id.as_str(), clamp_to_i64(after), clamp_to_i64(upto)), read)?)
}

/// Reads the edits of the run with that key in one of its turns, in the order of their recording.
pub(super) fn of_turn(
    conn: &Connection,
    run_key: i64,
    turn: u32,
) -> rusqlite::Result<Vec<DocumentEdit>> {
    let mut query = conn.prepare_cached(select!(
        "WHERE run_key = ?1 AND turn = ?2 ORDER BY edit_key"
    ))?;
    collect_rows(query.query_map((run_key, turn), read)?)
}

/// Reads the partial replacements of a document with their revisions, in order: the old and the new
/// text.
pub(super) fn replacements(
    conn: &Connection,
    id: &ArtifactId,
) -> rusqlite::Result<Vec<(u64, (String, String))>> {
    let mut query = conn.prepare_cached(
        "SELECT revision, old, inserted FROM document_edit
         WHERE artifact_key = (SELECT artifact_key FROM artifact WHERE artifact_id = ?1) AND old IS NOT NULL
         ORDER BY revision",
    )?;
    collect_rows(query.query_map([id.as_str()], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.count()?, (columns.next()?, columns.next()?)))
    })?)
}

/// Looks up a run's key.
pub(super) fn run_key(conn: &Connection, id: &RunId) -> rusqlite::Result<Option<i64>> {
    let mut query = conn.prepare_cached(
        "SELECT run_key FROM run JOIN session USING (session_key) WHERE run_id = ?1 AND removal IS NULL",
    )?;
    query.query_row([id.as_str()], |row| row.get(0)).optional()
}

/// Deletes the edits of the document with that key.
pub(super) fn remove(conn: &Connection, artifact_key: i64) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM document_edit WHERE artifact_key = ?1")?
        .execute([artifact_key])?;
    Ok(())
}
