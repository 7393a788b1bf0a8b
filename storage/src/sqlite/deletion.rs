//! Deletion of a session's rows in pieces, so that other writes are not delayed (DUR-8, SES-4).
//!
//! A mark in the session's row hides everything that belongs to the session, because readers and
//! the writer look up its rows through that mark. So a partly deleted session is never visible, and
//! nothing is added to it.
//!
//! Invariant: rows that are used to find other rows are deleted after them. The session's row,
//! which holds the mark, is deleted last.
//!
//! Not in this module: files (`blob/session_folder.rs`), and the decision to delete a session.

use rusqlite::{Connection, OptionalExtension};
use soong_protocol::SessionId;

use super::{
    columns::{Columns, clamp_to_i64, collect_rows},
    sessions,
};
use crate::store::{DeletionStage, SessionDeletion};

/// Statements that delete the rows, in this order. `?1` is the session's key, `?2` the maximum
/// number of rows.
///
/// Each finds its rows by an index, through the traces or artifacts of the session.
const DELETE_STATEMENTS: &[&str] = &[
    // A repeated request is still recognized, so only the answer is deleted.
    "UPDATE keyed_request SET session_key = NULL, status = NULL, body = NULL WHERE request_key IN
     (SELECT request_key FROM keyed_request WHERE session_key = ?1 LIMIT ?2)",
    "DELETE FROM event WHERE lsn IN (SELECT lsn FROM event
     WHERE trace_key IN (SELECT trace_key FROM trace WHERE session_key = ?1) LIMIT ?2)",
    "DELETE FROM message WHERE message_key IN (SELECT message_key FROM message
     WHERE trace_key IN (SELECT trace_key FROM trace WHERE session_key = ?1) LIMIT ?2)",
    "DELETE FROM prompt WHERE prompt_key IN (SELECT prompt_key FROM prompt WHERE session_key = ?1 LIMIT ?2)",
    "DELETE FROM document_edit WHERE edit_key IN (SELECT edit_key FROM document_edit
     WHERE artifact_key IN (SELECT artifact_key FROM artifact WHERE session_key = ?1) LIMIT ?2)",
    "DELETE FROM artifact_version WHERE (artifact_key, version) IN (SELECT artifact_key, version FROM artifact_version
     WHERE artifact_key IN (SELECT artifact_key FROM artifact WHERE session_key = ?1) LIMIT ?2)",
    "DELETE FROM artifact WHERE artifact_key IN (SELECT artifact_key FROM artifact WHERE session_key = ?1 LIMIT ?2)",
    "DELETE FROM goal_tree WHERE trace_key IN (SELECT trace_key FROM goal_tree
     WHERE trace_key IN (SELECT trace_key FROM trace WHERE session_key = ?1) LIMIT ?2)",
    "DELETE FROM collaborator WHERE collaborator_key IN (SELECT collaborator_key FROM collaborator
     WHERE trace_key IN (SELECT trace_key FROM trace WHERE session_key = ?1) LIMIT ?2)",
    "DELETE FROM child_result WHERE run_key IN (SELECT run_key FROM run JOIN child_result USING (run_key)
     WHERE trace_key IN (SELECT trace_key FROM trace WHERE session_key = ?1) LIMIT ?2)",
    "DELETE FROM question WHERE question_key IN (SELECT question_key FROM question WHERE session_key = ?1 LIMIT ?2)",
    "DELETE FROM permission WHERE permission_key IN (SELECT permission_key FROM permission WHERE session_key = ?1
     LIMIT ?2)",
    "DELETE FROM task_journal WHERE run_key IN (SELECT run_key FROM run JOIN task_journal USING (run_key)
     WHERE trace_key IN (SELECT trace_key FROM trace WHERE session_key = ?1) LIMIT ?2)",
    "DELETE FROM run_state WHERE run_key IN (SELECT run_key FROM run JOIN run_state USING (run_key)
     WHERE trace_key IN (SELECT trace_key FROM trace WHERE session_key = ?1) LIMIT ?2)",
    "DELETE FROM run WHERE run_key IN (SELECT run_key FROM run
     WHERE trace_key IN (SELECT trace_key FROM trace WHERE session_key = ?1) LIMIT ?2)",
    "DELETE FROM path_range WHERE (trace_key, first) IN (SELECT trace_key, first FROM trace JOIN path_range USING (trace_key)
     WHERE session_key = ?1 LIMIT ?2)",
    "DELETE FROM boundary WHERE (trace_key, next, summary) IN (SELECT trace_key, next, summary FROM trace JOIN boundary
     USING (trace_key) WHERE session_key = ?1 LIMIT ?2)",
    "DELETE FROM linked_trace WHERE (trace_key, linked_key) IN (SELECT trace_key, linked_key FROM trace JOIN linked_trace
     USING (trace_key) WHERE session_key = ?1 LIMIT ?2)",
    "DELETE FROM linked_trace WHERE (trace_key, linked_key) IN (SELECT linked_trace.trace_key, linked_key FROM trace
     CROSS JOIN linked_trace ON linked_key = trace.trace_key WHERE session_key = ?1 LIMIT ?2)",
    "DELETE FROM copied_run WHERE (trace_key, first) IN (SELECT trace_key, first FROM trace JOIN copied_run USING (trace_key)
     WHERE session_key = ?1 LIMIT ?2)",
    "DELETE FROM trace_state WHERE trace_key IN (SELECT trace_key FROM trace JOIN trace_state USING (trace_key)
     WHERE session_key = ?1 LIMIT ?2)",
    "DELETE FROM trace WHERE trace_key IN (SELECT trace_key FROM trace WHERE session_key = ?1 LIMIT ?2)",
];

/// Returns the stage of the deletion of a session; `None` if it is not being deleted.
pub(super) fn stage(conn: &Connection, id: &SessionId) -> rusqlite::Result<Option<DeletionStage>> {
    conn.prepare_cached(
        "SELECT removal FROM session WHERE session_id = ?1 AND removal IS NOT NULL",
    )?
    .query_row([id.as_str()], |row| Columns::of(row).enum_value())
    .optional()
}

/// Returns whether a session has runs that have not ended.
pub(super) fn has_live_runs(conn: &Connection, session_key: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached(
        "SELECT 1 FROM run_state INDEXED BY run_live
         WHERE session_key = ?1 AND (status = 'queued' OR status = 'running' OR status = 'waiting')",
    )?
    .exists([session_key])
}

/// Sets the stage of the deletion of a session; `None` cancels the deletion.
pub(super) fn set_stage(
    conn: &Connection,
    id: &SessionId,
    stage: Option<DeletionStage>,
) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE session SET removal = ?2 WHERE session_id = ?1")?
        .execute((id.as_str(), stage.map(DeletionStage::as_str)))?;
    Ok(())
}

/// Deletes up to `limit` rows of a marked session. The session's own row is deleted with the last
/// ones.
pub(super) fn remove_rows(conn: &Connection, id: &SessionId, limit: u64) -> rusqlite::Result<()> {
    let (key, last_lsn): (i64, i64) = conn
        .prepare_cached("SELECT session_key, last_lsn FROM session WHERE session_id = ?1")?
        .query_row([id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    conn.prepare_cached(
        "INSERT INTO deleted_lsn (only, lsn) VALUES (1, ?1)
         ON CONFLICT (only) DO UPDATE SET lsn = max(lsn, excluded.lsn)",
    )?
    .execute([last_lsn])?;
    set_stage(conn, id, Some(DeletionStage::Rows))?;
    let mut remaining = limit.max(1);
    for statement in DELETE_STATEMENTS {
        remaining -= conn
            .prepare_cached(statement)?
            .execute((key, clamp_to_i64(remaining)))? as u64;
        if remaining == 0 {
            return Ok(());
        }
    }
    sessions::remember_deleted(conn, id, key)?;
    conn.prepare_cached("DELETE FROM session WHERE session_key = ?1")?
        .execute([key])?;
    Ok(())
}

/// Lists the sessions that are being deleted, in the order of their creation.
pub(super) fn list(conn: &Connection) -> rusqlite::Result<Vec<SessionDeletion>> {
    let mut query = conn.prepare_cached(
        "SELECT session_id, removal FROM session WHERE removal IS NOT NULL ORDER BY session_key",
    )?;
    collect_rows(query.query_map([], |row| {
        let mut columns = Columns::of(row);
        Ok(SessionDeletion {
            session_id: columns.id(SessionId::new)?,
            stage: columns.enum_value()?,
        })
    })?)
}

/// Lists the paths of the blobs of a session that is being deleted.
pub(super) fn blobs(conn: &Connection, id: &SessionId) -> rusqlite::Result<Vec<String>> {
    let mut query = conn.prepare_cached(
        "SELECT path FROM session JOIN artifact USING (session_key) JOIN artifact_version USING (artifact_key)
         WHERE session_id = ?1 AND removal IS NOT NULL",
    )?;
    collect_rows(query.query_map([id.as_str()], |row| row.get(0))?)
}
