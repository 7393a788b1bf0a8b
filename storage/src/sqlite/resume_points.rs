//! Messages after which a conversation can be resumed.

use rusqlite::{Connection, OptionalExtension};

use super::{
    columns::{Columns, clamp_to_i64},
    events, main_path, runs,
};
use crate::store::{MessageAuthor, ResumePoint};

/// Reads a message of the trace with that key as a point to resume from.
pub(super) fn of_message(
    conn: &Connection,
    key: i64,
    sequence: u64,
) -> rusqlite::Result<Option<ResumePoint>> {
    let Some(sequence) = main_path::turn_end(conn, key, sequence)? else {
        return Ok(None);
    };
    let mut query = conn.prepare_cached(
        "SELECT lsn, head_sequence FROM message JOIN trace_state USING (trace_key)
         WHERE trace_key = ?1 AND sequence = ?2",
    )?;
    let (lsn, head) = query.query_row((key, clamp_to_i64(sequence)), |row| {
        let mut columns = Columns::of(row);
        Ok((columns.count()?, columns.count()?))
    })?;
    let (event_id, run_id) = events::at_lsn(conn, key, lsn)?.unwrap_or_default();
    // Events that follow from a message, such as a goal that it completes, come between it and the
    // next message.
    let until = events::next_step(conn, key, event_id)?;
    let until_lsn = until
        .map_or(i64::MAX.unsigned_abs(), |next| next - 1)
        .max(lsn);
    Ok(Some(ResumePoint {
        sequence,
        lsn,
        until_lsn,
        run_id,
        is_on_path: main_path::is_on_path(conn, key, head, sequence)?,
        head,
    }))
}

/// Reads the run that wrote a message of the trace with that key.
pub(super) fn author_of_message(
    conn: &Connection,
    key: i64,
    sequence: u64,
) -> rusqlite::Result<Option<MessageAuthor>> {
    let mut query =
        conn.prepare_cached("SELECT lsn FROM message WHERE trace_key = ?1 AND sequence = ?2")?;
    let lsn = query
        .query_row((key, clamp_to_i64(sequence)), |row| {
            Columns::of(row).count()
        })
        .optional()?;
    let Some(lsn) = lsn else { return Ok(None) };
    if let Some((_, Some(run_id))) = events::at_lsn(conn, key, lsn)? {
        return Ok(runs::run(conn, &run_id)?.map(MessageAuthor::from));
    }
    // The message is a copy. On its path, the messages of a run follow one another.
    let mut query = conn.prepare_cached(
        "SELECT mode, task, settings FROM copied_run WHERE trace_key = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1",
    )?;
    let found = query.query_row((key, clamp_to_i64(sequence)), |row| {
        let mut columns = Columns::of(row);
        Ok(MessageAuthor {
            mode: columns.enum_value()?,
            task: columns.next()?,
            settings: columns.json()?,
        })
    });
    found.optional()
}

/// Returns whether the head was switched after the last event of the last run that has started.
pub(super) fn is_head_switched(conn: &Connection, key: i64) -> rusqlite::Result<bool> {
    let mut query = conn.prepare_cached(
        "SELECT 1 FROM event WHERE trace_key = ?1 AND changes_goals AND instr(kind, 'head_switched')
         AND event_id > coalesce(
             (SELECT event_id FROM event WHERE trace_key = ?1 AND run_key = (
                 SELECT run_key FROM run JOIN run_state AS state USING (run_key)
                 WHERE trace_key = ?1 AND state.started_at IS NOT NULL
                 AND json_extract(run.settings, '$.reflects') IS NULL ORDER BY run_key DESC LIMIT 1)
              ORDER BY event_id DESC LIMIT 1), 0)",
    )?;
    query.exists([key])
}
