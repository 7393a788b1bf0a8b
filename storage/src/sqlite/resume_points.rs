//! Messages after which a conversation can be resumed.

use rusqlite::Connection;

use super::{
    columns::{Columns, clamp_to_i64},
    events, main_path,
};
use crate::store::ResumePoint;

/// Reads a message of the trace with that key as a point to resume from.
pub(super) fn of_message(conn: &Connection, key: i64, sequence: u64) -> rusqlite::Result<Option<ResumePoint>> {
    let Some(sequence) = main_path::turn_end(conn, key, sequence)? else { return Ok(None) };
    let mut query = conn.prepare_cached(
        "SELECT lsn, head_sequence FROM message JOIN trace_state USING (trace_key)
         WHERE trace_key = ?1 AND sequence = ?2",
    )?;
    let (lsn, head) = query.query_row((key, clamp_to_i64(sequence)), |row| {
        let mut columns = Columns::of(row);
        Ok((columns.count()?, columns.count()?))
    })?;
    let (event_id, run_id) = events::at_lsn(conn, key, lsn)?.unwrap_or_default();
    // Events that follow from a message, such as a goal that it completes, come between it and the next message.
    let until = events::next_step(conn, key, event_id)?;
    let until_lsn = until.map_or(i64::MAX.unsigned_abs(), |next| next - 1).max(lsn);
    Ok(Some(ResumePoint {
        sequence,
        lsn,
        until_lsn,
        run_id,
        is_on_path: main_path::is_on_path(conn, key, head, sequence)?,
        head,
    }))
}
