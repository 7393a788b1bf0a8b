//! Reading of events, and the cursors by which they are read (EVT-1).
//!
//! Elsewhere: the format of a row (`event_rows.rs`).

use rusqlite::{Connection, OptionalExtension, Row};
use soong_protocol::{Event, EventRecord, RunId, SessionId, Timestamp, TraceId};

use super::{
    columns::{Columns, clamp_to_i64},
    event_rows, traces,
};

/// Returns the next lsn: above those of all existing and all deleted events.
pub(super) fn next_lsn(conn: &Connection) -> rusqlite::Result<u64> {
    let mut query = conn
        .prepare_cached("SELECT lsn, kind FROM event WHERE lsn = (SELECT max(lsn) FROM event)")?;
    let last_row = query.query_row([], |row| {
        let mut columns = Columns::of(row);
        Ok(columns.count()? + event_rows::event_count(&columns.next::<String>()?))
    });
    let deleted: Option<i64> =
        conn.query_row("SELECT max(lsn) FROM deleted_lsn", [], |row| row.get(0))?;
    let above_deleted = deleted.map_or(1, |lsn| lsn.unsigned_abs() + 1);
    Ok(last_row.optional()?.unwrap_or(1).max(above_deleted))
}

/// A row of events, as it is stored.
struct EventRow {
    trace_key: i64,
    trace_id: TraceId,
    session_id: SessionId,
    run_id: Option<RunId>,
    ts: Timestamp,
    /// Numbers of the first event.
    lsn: u64,
    event_id: u64,
    run_seq: u64,
    session_seq: u64,
    kinds: String,
    data: String,
}

macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT event.trace_key, trace.trace_id, session.session_id, run.run_id, ts, lsn, event_id, run_seq,
                    session_seq, kind, data
             FROM event
             JOIN trace ON trace.trace_key = event.trace_key
             JOIN session ON session.session_key = event.session_key AND session.removal IS NULL
             LEFT JOIN run ON run.run_key = event.run_key ",
            $tail
        )
    };
}

impl EventRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let mut columns = Columns::of(row);
        Ok(Self {
            trace_key: columns.next()?,
            trace_id: columns.id(TraceId::new)?,
            session_id: columns.id(SessionId::new)?,
            run_id: columns.maybe_id(RunId::new)?,
            ts: columns.time()?,
            lsn: columns.count()?,
            event_id: columns.count()?,
            run_seq: columns.count()?,
            session_seq: columns.count()?,
            kinds: columns.next()?,
            data: columns.next()?,
        })
    }

    /// Adds the events of the row to `events`, without the first `skipped` ones, until `events` has
    /// `limit` elements.
    fn unpack(
        &self,
        conn: &Connection,
        skipped: u64,
        limit: usize,
        events: &mut Vec<EventRecord>,
    ) -> rusqlite::Result<()> {
        let all = (0..).zip(event_rows::split(&self.kinds, &self.data)?);
        let wanted = all
            .skip_while(|(index, _)| *index < skipped)
            .take(limit.saturating_sub(events.len()));
        for (index, (kind, stored)) in wanted {
            let data = event_rows::resolve(conn, self.trace_key, &self.trace_id, kind, stored)?;
            events.push(EventRecord {
                lsn: self.lsn + index,
                event_id: self.event_id + index,
                trace_id: self.trace_id.clone(),
                session_id: self.session_id.clone(),
                run_seq: self.run_id.is_some().then_some(self.run_seq + index),
                run_id: self.run_id.clone(),
                session_seq: self.session_seq + index,
                ts: self.ts,
                event: Event::decode(kind, &data),
                data,
            });
        }
        Ok(())
    }
}

/// Reads up to `limit` events of a trace after `since`.
pub(super) fn of_trace(
    conn: &Connection,
    id: &TraceId,
    since: u64,
    limit: usize,
) -> rusqlite::Result<Vec<EventRecord>> {
    let Some(key) = traces::key(conn, id)? else {
        return Ok(Vec::new());
    };
    let from = since.saturating_add(1);
    let mut query = conn.prepare_cached(select!(
        "WHERE event.trace_key = ?1 AND event_id >= coalesce(
             (SELECT max(row.event_id) FROM event AS row WHERE row.trace_key = ?1 AND row.event_id <= ?2), 0)
         ORDER BY event_id"
    ))?;
    let mut rows = query.query((key, clamp_to_i64(from)))?;
    let mut events = Vec::new();
    while events.len() < limit
        && let Some(row) = rows.next()?
    {
        let row = EventRow::read(row)?;
        row.unpack(conn, from.saturating_sub(row.event_id), limit, &mut events)?;
    }
    Ok(events)
}

/// Reads all events of a run. They are all on the timeline of its own trace.
///
/// There is no index for this query. It scans backwards until it has as many events as the run
/// counts. So a live run, or the last one that ended, costs only its own events and not those of
/// earlier runs.
pub(super) fn of_run(conn: &Connection, id: &RunId) -> rusqlite::Result<Vec<EventRecord>> {
    let mut query = conn.prepare_cached(
        "SELECT run_key, trace_key, last_run_seq FROM run JOIN run_state USING (run_key) WHERE run_id = ?1",
    )?;
    let found = query.query_row([id.as_str()], |row| {
        let mut columns = Columns::of(row);
        Ok((
            columns.next::<i64>()?,
            columns.next::<i64>()?,
            columns.count()?,
        ))
    });
    let Some((run_key, trace_key, count)) = found.optional()? else {
        return Ok(Vec::new());
    };
    let mut query = conn.prepare_cached(select!(
        "WHERE event.trace_key = ?1 AND event.run_key = ?2 ORDER BY event_id DESC"
    ))?;
    let mut rows = query.query((trace_key, run_key))?;
    let mut backwards = Vec::new();
    let mut read = 0;
    while read < count
        && let Some(row) = rows.next()?
    {
        let row = EventRow::read(row)?;
        read += event_rows::event_count(&row.kinds);
        backwards.push(row);
    }
    let mut events = Vec::new();
    for row in backwards.iter().rev() {
        row.unpack(conn, 0, usize::MAX, &mut events)?;
    }
    Ok(events)
}

/// Reads up to `limit` events of a session after `since`, in the order of the whole store.
///
/// There is no index for this query. The session's row bounds the range, so events of other
/// sessions before its first and after its last event are not scanned.
pub(super) fn of_session(
    conn: &Connection,
    id: &SessionId,
    since: u64,
    limit: usize,
) -> rusqlite::Result<Vec<EventRecord>> {
    let mut query = conn.prepare_cached(
        "SELECT session_key, first_lsn, last_lsn FROM session
             WHERE session_id = ?1 AND removal IS NULL",
    )?;
    let found = query.query_row([id.as_str()], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.next::<i64>()?, columns.count()?, columns.count()?))
    });
    let Some((key, first, last)) = found.optional()? else {
        return Ok(Vec::new());
    };
    let from = since.saturating_add(1).max(first);
    let mut query = conn.prepare_cached(select!(
        "WHERE lsn >= coalesce((SELECT max(row.lsn) FROM event AS row WHERE row.lsn <= ?2), 0) AND lsn <= ?3
         AND event.session_key = ?1 ORDER BY lsn"
    ))?;
    let mut rows = query.query((key, clamp_to_i64(from), clamp_to_i64(last)))?;
    let mut events = Vec::new();
    while events.len() < limit
        && let Some(row) = rows.next()?
    {
        let row = EventRow::read(row)?;
        row.unpack(conn, from.saturating_sub(row.lsn), limit, &mut events)?;
    }
    Ok(events)
}

/// Returns the lsn immediately before the session's first event with a number above `seen`; the
/// session's last lsn if there is no such event.
///
/// There is no index for this query, but both numbers ascend together. Because each event of the
/// session takes at least one lsn, the numbers of the first and the last event bound the lsn of the
/// wanted one. The remaining range is searched by bisection. If the session was the only one in the
/// store, the range has one element and nothing is searched; otherwise the rows of other sessions
/// in the range are scanned, without their data.
pub(super) fn lsn_of(conn: &Connection, id: &SessionId, seen: u64) -> rusqlite::Result<u64> {
    let mut query = conn.prepare_cached(
        "SELECT session_key, first_lsn, last_lsn, event_base, last_session_seq FROM session
         WHERE session_id = ?1 AND removal IS NULL",
    )?;
    let found = query.query_row([id.as_str()], |row| {
        let mut columns = Columns::of(row);
        Ok((
            columns.next::<i64>()?,
            columns.count()?,
            columns.count()?,
            columns.count()?,
            columns.count()?,
        ))
    });
    let Some((key, first, last, event_base, last_seq)) = found.optional()? else {
        return Ok(0);
    };
    // The numbers begin after the base.
    let seen = seen.max(event_base);
    if seen >= last_seq {
        return Ok(last);
    }
    let wanted = seen + 1;
    // The wanted lsn is between these two, inclusive.
    let mut low = first + (seen - event_base);
    let mut high = last.saturating_sub(last_seq - wanted);
    // The row with the wanted event begins here or later, so no row is scanned twice.
    let mut from = first;
    let mut last_row_to = conn.prepare_cached(
        "SELECT lsn, session_seq, kind FROM event WHERE lsn BETWEEN ?2 AND ?3 AND session_key = ?1
         ORDER BY lsn DESC LIMIT 1",
    )?;
    while low < high {
        let middle = low + (high - low) / 2;
        let row = last_row_to.query_row((key, clamp_to_i64(from), clamp_to_i64(middle)), |row| {
            let mut columns = Columns::of(row);
            Ok((
                columns.count()?,
                columns.count()?,
                event_rows::event_count(&columns.next::<String>()?),
            ))
        });
        match row.optional()? {
            // The row begins after the wanted event.
            Some((lsn, seq, _)) if seq > wanted => high = lsn.saturating_sub(seq - wanted),
            Some((lsn, seq, count)) if wanted < seq + count => {
                return Ok((lsn + (wanted - seq)).saturating_sub(1));
            }
            // The wanted event is in a later row, which begins after `middle`.
            Some((lsn, seq, _)) => {
                low = (lsn + (wanted - seq)).max(middle + 1);
                from = middle + 1;
            }
            None => {
                low = middle + 1;
                from = middle + 1;
            }
        }
    }
    Ok(low.saturating_sub(1))
}

/// Finds the event of a trace with that lsn. Returns its event id, and the run that caused it.
pub(super) fn at_lsn(
    conn: &Connection,
    trace_key: i64,
    lsn: u64,
) -> rusqlite::Result<Option<(u64, Option<RunId>)>> {
    let mut query = conn.prepare_cached(
        "SELECT lsn, event_id, kind, run_id FROM event LEFT JOIN run USING (run_key)
         WHERE lsn = (SELECT max(lsn) FROM event WHERE lsn <= ?2) AND event.trace_key = ?1",
    )?;
    let row = query.query_row((trace_key, clamp_to_i64(lsn)), |row| {
        let mut columns = Columns::of(row);
        let first = columns.count()?;
        let event_id = columns.count()?;
        let kinds = columns.next::<String>()?;
        Ok((
            first,
            event_id,
            event_rows::event_count(&kinds),
            columns.maybe_id(RunId::new)?,
        ))
    });
    let row = row
        .optional()?
        .filter(|(first, _, count, _)| lsn < first + count);
    Ok(row.map(|(first, event_id, _, run_id)| (event_id + (lsn - first), run_id)))
}

/// Returns the lsn of the first event of a trace after `event_id` that adds a message, moves the
/// head or starts a run.
pub(super) fn next_step(
    conn: &Connection,
    trace_key: i64,
    event_id: u64,
) -> rusqlite::Result<Option<u64>> {
    let is_step = |kind: &str| {
        matches!(
            kind,
            "message_added" | "rewind" | "head_switched" | "loop_started"
        )
    };
    let mut query = conn.prepare_cached(
        "SELECT lsn, event_id, kind FROM event WHERE trace_key = ?1 AND event_id >= coalesce(
             (SELECT max(row.event_id) FROM event AS row WHERE row.trace_key = ?1 AND row.event_id <= ?2), 0)
         ORDER BY event_id",
    )?;
    let mut rows = query.query((trace_key, clamp_to_i64(event_id)))?;
    while let Some(row) = rows.next()? {
        let mut columns = Columns::of(row);
        let lsn = columns.count()?;
        let first = columns.count()?;
        let kinds = (0..).zip(row.get_ref(2)?.as_str()?.split(','));
        let mut later_steps =
            kinds.filter(|(index, kind)| first + index > event_id && is_step(kind));
        if let Some((index, _)) = later_steps.next() {
            return Ok(Some(lsn + index));
        }
    }
    Ok(None)
}
