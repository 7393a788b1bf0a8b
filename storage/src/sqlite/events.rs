//! Rows of events, and the cursors by which they are read (EVT-1).

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};
use soong_protocol::{Event, EventDraft, EventRecord, RunId, SessionId, TraceId};

use super::columns::{Columns, clamp_to_i64, collect_rows};
use crate::store::EventIds;

/// Statement that inserts an event; kept prepared during a batch.
pub(super) const INSERT: &str = "INSERT INTO event (lsn, trace_key, event_id, run_key, run_seq, session_key,
        session_seq, ts, kind, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

/// Keys of the rows that an event belongs to.
pub(super) struct Owners {
    pub(super) trace_key: i64,
    pub(super) run_key: Option<i64>,
    pub(super) session_key: i64,
}

/// Inserts an event with its assigned ids.
pub(super) fn insert(
    statement: &mut CachedStatement<'_>,
    draft: &EventDraft,
    owners: &Owners,
    ids: &EventIds,
) -> rusqlite::Result<()> {
    statement.execute((
        clamp_to_i64(ids.lsn),
        owners.trace_key,
        clamp_to_i64(ids.event_id),
        owners.run_key,
        clamp_to_i64(ids.run_seq),
        owners.session_key,
        clamp_to_i64(ids.session_seq),
        draft.ts.as_millis(),
        draft.event.kind(),
        &draft.data,
    ))?;
    Ok(())
}

/// Returns the next lsn: above those of all existing and all deleted events.
pub(super) fn next_lsn(conn: &Connection) -> rusqlite::Result<u64> {
    let last: Option<i64> = conn.query_row(
        "SELECT max(lsn) FROM (SELECT max(lsn) AS lsn FROM event UNION ALL SELECT lsn FROM deleted_lsn)",
        [],
        |row| row.get(0),
    )?;
    Ok(last.map_or(1, |lsn| lsn.unsigned_abs() + 1))
}

macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT lsn, event_id, trace.trace_id, session.session_id, run.run_id, run_seq, session_seq, ts, kind, data
             FROM event
             JOIN trace ON trace.trace_key = event.trace_key
             JOIN session ON session.session_key = event.session_key AND session.removal IS NULL
             LEFT JOIN run ON run.run_key = event.run_key ",
            $tail
        )
    };
}

fn read(row: &Row<'_>) -> rusqlite::Result<EventRecord> {
    let mut columns = Columns::of(row);
    let (lsn, event_id) = (columns.count()?, columns.count()?);
    let trace_id = columns.id(TraceId::new)?;
    let session_id = columns.id(SessionId::new)?;
    let run_id = columns.maybe_id(RunId::new)?;
    let run_seq = columns.count()?;
    let session_seq = columns.count()?;
    let ts = columns.time()?;
    let (kind, data): (String, String) = (columns.next()?, columns.next()?);
    Ok(EventRecord {
        lsn,
        event_id,
        trace_id,
        session_id,
        run_seq: run_id.is_some().then_some(run_seq),
        run_id,
        session_seq,
        ts,
        event: Event::decode(&kind, &data),
        data,
    })
}

/// Reads up to `limit` events of a trace after `since`.
pub(super) fn of_trace(conn: &Connection, id: &TraceId, since: u64, limit: i64) -> rusqlite::Result<Vec<EventRecord>> {
    let mut query = conn.prepare_cached(select!(
        "WHERE event.trace_key = (SELECT trace_key FROM trace WHERE trace_id = ?1) AND event_id > ?2
         ORDER BY event_id LIMIT ?3"
    ))?;
    collect_rows(query.query_map((id.as_str(), clamp_to_i64(since), limit), read)?)
}

/// Reads all events of a run. They are all on the timeline of its own trace.
///
/// There is no index for this query. It scans backwards until it has as many events as the run counts. So a live run,
/// or the last one that ended, costs only its own events and not those of earlier runs.
pub(super) fn of_run(conn: &Connection, id: &RunId) -> rusqlite::Result<Vec<EventRecord>> {
    let mut query = conn.prepare_cached(
        "SELECT run_key, trace_key, last_run_seq FROM run JOIN run_state USING (run_key) WHERE run_id = ?1",
    )?;
    let found = query.query_row([id.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let Some((run_key, trace_key, count)): Option<(i64, i64, i64)> = found else { return Ok(Vec::new()) };
    let mut query = conn
        .prepare_cached(select!("WHERE event.trace_key = ?1 AND event.run_key = ?2 ORDER BY event_id DESC LIMIT ?3"))?;
    let mut events = collect_rows(query.query_map((trace_key, run_key, count), read)?)?;
    events.reverse();
    Ok(events)
}

/// Reads up to `limit` events of a session after `since`, in the order of the whole store.
///
/// There is no index for this query. The session's row bounds the range, so events of other sessions before its first
/// and after its last event are not scanned.
pub(super) fn of_session(
    conn: &Connection,
    id: &SessionId,
    since: u64,
    limit: i64,
) -> rusqlite::Result<Vec<EventRecord>> {
    let mut query = conn.prepare_cached(
        "SELECT session_key, first_lsn, last_lsn FROM session
             WHERE session_id = ?1 AND removal IS NULL",
    )?;
    let found = query.query_row([id.as_str()], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.next::<i64>()?, columns.count()?, columns.count()?))
    });
    let Some((key, first, last)) = found.optional()? else { return Ok(Vec::new()) };
    let from = since.saturating_add(1).max(first);
    let mut query =
        conn.prepare_cached(select!("WHERE lsn BETWEEN ?2 AND ?3 AND event.session_key = ?1 ORDER BY lsn LIMIT ?4"))?;
    collect_rows(query.query_map((key, clamp_to_i64(from), clamp_to_i64(last), limit), read)?)
}

/// Returns the lsn immediately before the session's first event with a number above `seen`; the session's last lsn if
/// there is no such event.
///
/// There is no index for this query, but both numbers ascend together. Because each event of the session takes at
/// least one lsn, the numbers of the first and the last event bound the lsn of the wanted one. The remaining range is
/// searched by bisection. If the session was the only one in the store, the range has one element and nothing is
/// searched; otherwise only few events are read, without their payloads.
pub(super) fn lsn_of(conn: &Connection, id: &SessionId, seen: u64) -> rusqlite::Result<u64> {
    let mut query = conn.prepare_cached(
        "SELECT session_key, first_lsn, last_lsn, last_session_seq FROM session
         WHERE session_id = ?1 AND removal IS NULL",
    )?;
    let found = query.query_row([id.as_str()], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.next::<i64>()?, columns.count()?, columns.count()?, columns.count()?))
    });
    let Some((key, first, last, last_seq)) = found.optional()? else { return Ok(0) };
    if seen >= last_seq {
        return Ok(last);
    }
    let wanted = seen + 1;
    // The wanted lsn is between these two, inclusive.
    let (mut low, mut high) = (first + seen, last.saturating_sub(last_seq - wanted));
    let mut probe = conn.prepare_cached(
        "SELECT lsn, session_seq FROM event WHERE lsn BETWEEN ?2 AND ?3 AND session_key = ?1 ORDER BY lsn LIMIT 1",
    )?;
    while low < high {
        let middle = low + (high - low) / 2;
        let next = probe.query_row((key, clamp_to_i64(middle), clamp_to_i64(high)), |row| {
            let mut columns = Columns::of(row);
            Ok((columns.count()?, columns.count()?))
        });
        match next.optional()? {
            Some((lsn, seq)) if seq == wanted => return Ok(lsn.saturating_sub(1)),
            Some((lsn, seq)) if seq < wanted => low = lsn + (wanted - seq),
            Some((lsn, seq)) => high = (middle - 1).min(lsn.saturating_sub(seq - wanted)),
            None => high = middle - 1,
        }
    }
    Ok(low.saturating_sub(1))
}
