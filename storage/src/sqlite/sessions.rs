//! Rows of sessions.
//!
//! The id of a deleted session may be used again. Cursors and ids that were issued for the deleted
//! session must be invalid in the next one: each session knows its incarnation, and continues the
//! event numbers of the deleted session.

use rusqlite::{Connection, OptionalExtension, Row};
use sha2::{Digest, Sha256};
use soong_protocol::{NewSession, Session, SessionId, SessionKind, Timestamp};

use super::{
    columns::{Columns, clamp_to_i64, collect_rows},
    hot_row::HotRow,
};
use crate::store::SessionFilter;

/// Columns of a session that change with its events.
pub(super) struct SessionRow {
    pub(super) key: i64,
    pub(super) incarnation: u64,
    /// The events of the session, and those of each of its traces, are counted from the number
    /// after this one.
    pub(super) event_base: u64,
    pub(super) last_seq: u64,
    /// 0 if the session has no events.
    pub(super) first_lsn: u64,
    pub(super) last_lsn: u64,
    pub(super) updated_at: Timestamp,
}

impl HotRow for SessionRow {
    type Id = SessionId;

    fn load(conn: &Connection, id: &SessionId) -> rusqlite::Result<Option<Self>> {
        conn.prepare_cached(
            "SELECT session_key, incarnation, event_base, last_session_seq, first_lsn, last_lsn, updated_at FROM session
             WHERE session_id = ?1 AND removal IS NULL",
        )?
        .query_row([id.as_str()], |row| {
            let mut columns = Columns::of(row);
            Ok(Self {
                key: columns.next()?,
                incarnation: columns.count()?,
                event_base: columns.count()?,
                last_seq: columns.count()?,
                first_lsn: columns.count()?,
                last_lsn: columns.count()?,
                updated_at: columns.time()?,
            })
        })
        .optional()
    }

    fn save(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        conn.prepare_cached(
            "UPDATE session SET last_session_seq = ?2, first_lsn = ?3, last_lsn = ?4, updated_at = ?5
             WHERE session_key = ?1",
        )?
        .execute((
            self.key,
            clamp_to_i64(self.last_seq),
            clamp_to_i64(self.first_lsn),
            clamp_to_i64(self.last_lsn),
            self.updated_at.as_millis(),
        ))?;
        Ok(())
    }

    // Session rows are small and the next run of a conversation follows soon; the cache's limit
    // bounds them.
    fn is_evictable(&self) -> bool {
        false
    }
}

/// Inserts a session.
pub(super) fn insert(conn: &Connection, new: &NewSession) -> rusqlite::Result<SessionRow> {
    let NextIncarnation { number, event_base } = next_incarnation(conn, &new.session_id)?;
    conn.prepare_cached(
        "INSERT INTO session (session_id, name, uid, project_dir, last_session_seq, first_lsn, last_lsn, created_at,
                              updated_at, incarnation, event_base)
         VALUES (?1, ?2, ?3, ?4, ?7, 0, 0, ?5, ?5, ?6, ?7)",
    )?
    .execute((
        new.session_id.as_str(),
        &new.name,
        &new.uid,
        &new.project_dir,
        new.created_at.as_millis(),
        clamp_to_i64(number),
        clamp_to_i64(event_base),
    ))?;
    Ok(SessionRow {
        key: conn.last_insert_rowid(),
        incarnation: number,
        event_base,
        last_seq: event_base,
        first_lsn: 0,
        last_lsn: 0,
        updated_at: new.created_at,
    })
}

/// Numbers with which the next session with an id starts.
pub(super) struct NextIncarnation {
    /// Number of the incarnation, from 1.
    pub(super) number: u64,
    /// The number after which its events are counted.
    pub(super) event_base: u64,
}

/// Reads the numbers with which the next session with this id starts.
pub(super) fn next_incarnation(
    conn: &Connection,
    id: &SessionId,
) -> rusqlite::Result<NextIncarnation> {
    let mut query = conn.prepare_cached(
        "SELECT incarnation, last_session_seq FROM deleted_session WHERE hash = ?1",
    )?;
    let deleted = query.query_row([&id_hash(id)[..]], |row| {
        let mut columns = Columns::of(row);
        let incarnation: u64 = columns.count()?;
        let last_number: u64 = columns.count()?;
        // One number is left out, so that a reader at the end of the deleted session does not look
        // like one at the beginning of the next.
        Ok(NextIncarnation {
            number: incarnation + 1,
            event_base: last_number + 1,
        })
    });
    Ok(deleted.optional()?.unwrap_or(NextIncarnation {
        number: 1,
        event_base: 0,
    }))
}

/// Keeps the incarnation and the last event number of a session whose row is about to be deleted.
pub(super) fn remember_deleted(
    conn: &Connection,
    id: &SessionId,
    key: i64,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT OR REPLACE INTO deleted_session (hash, incarnation, last_session_seq)
         SELECT ?2, incarnation, last_session_seq FROM session WHERE session_key = ?1",
    )?
    .execute((key, &id_hash(id)[..]))?;
    Ok(())
}

/// Returns the key by which a deleted session is found without its id.
fn id_hash(id: &SessionId) -> [u8; 16] {
    let digest = Sha256::digest(id.as_str());
    let mut hash = [0; 16];
    hash.copy_from_slice(&digest[..16]);
    hash
}

macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT session_key, session_id, incarnation, slug, name, uid, project_dir, event_base, last_session_seq,
                    created_at, updated_at,
                    (SELECT created_at FROM run
                     WHERE trace_key = (SELECT trace_key FROM trace WHERE trace_id = session_id)
                     ORDER BY run_key DESC LIMIT 1),
                    (SELECT count(*) FROM run_state INDEXED BY run_live
                     WHERE run_state.session_key = session.session_key
                     AND (status = 'queued' OR status = 'running' OR status = 'waiting')),
                    EXISTS (SELECT 1 FROM trace WHERE trace_id = session_id AND run_mode = 'call')
             FROM session ",
            $tail
        )
    };
}

fn read(row: &Row<'_>) -> rusqlite::Result<(i64, Session)> {
    let mut columns = Columns::of(row);
    let key = columns.next()?;
    let session = Session {
        session_id: columns.id(SessionId::new)?,
        incarnation: columns.count()?,
        slug: columns.next()?,
        name: columns.next()?,
        uid: columns.next()?,
        project_dir: columns.next()?,
        first_session_seq: columns.count()? + 1,
        last_session_seq: columns.count()?,
        created_at: columns.time()?,
        updated_at: columns.time()?,
        last_run_at: columns.maybe_time()?,
        live_runs: columns.count()?,
        kind: if columns.next()? {
            SessionKind::Call
        } else {
            SessionKind::Conversation
        },
    };
    Ok((key, session))
}

/// Reads a session.
pub(super) fn session(conn: &Connection, id: &SessionId) -> rusqlite::Result<Option<Session>> {
    let mut query = conn.prepare_cached(select!("WHERE session_id = ?1 AND removal IS NULL"))?;
    query
        .query_row([id.as_str()], |row| Ok(read(row)?.1))
        .optional()
}

/// Reads the owners of sessions. Sessions that do not exist are omitted.
pub(super) fn owners(
    conn: &Connection,
    ids: &[SessionId],
) -> rusqlite::Result<Vec<(SessionId, String)>> {
    let mut query =
        conn.prepare_cached("SELECT uid FROM session WHERE session_id = ?1 AND removal IS NULL")?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        if let Some(uid) = query
            .query_row([id.as_str()], |row| row.get(0))
            .optional()?
        {
            found.push((id.clone(), uid));
        }
    }
    Ok(found)
}

/// Lists up to `limit` sessions older than the one with key `before`, newest first.
pub(super) fn list(
    conn: &Connection,
    filter: &SessionFilter,
    limit: i64,
    before: i64,
) -> rusqlite::Result<Vec<(i64, Session)>> {
    const IS_CALL: &str =
        "EXISTS (SELECT 1 FROM trace WHERE trace_id = session_id AND run_mode = 'call')";
    let mut sql = select!("WHERE session_key < ?1 AND removal IS NULL").to_owned();
    // Most sessions belong to `local`, so the partial index omits them.
    sql.push_str(match filter.uid.as_deref() {
        None => "",
        Some("local") => " AND uid = ?3",
        Some(_) => " AND uid = ?3 AND uid <> 'local'",
    });
    if filter.hides_calls {
        sql.push_str(&format!(" AND NOT {IS_CALL}"));
    }
    sql.push_str(" ORDER BY session_key DESC LIMIT ?2");
    let mut query = conn.prepare_cached(&sql)?;
    match &filter.uid {
        None => collect_rows(query.query_map((before, limit), read)?),
        Some(uid) => collect_rows(query.query_map((before, limit, uid), read)?),
    }
}

/// Looks up a session's key.
pub(super) fn key(conn: &Connection, id: &SessionId) -> rusqlite::Result<Option<i64>> {
    let mut query = conn.prepare_cached(
        "SELECT session_key FROM session WHERE session_id = ?1 AND removal IS NULL",
    )?;
    query.query_row([id.as_str()], |row| row.get(0)).optional()
}

/// Sets the name of a session that has none.
pub(super) fn set_name_if_missing(conn: &Connection, key: i64, name: &str) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE session SET name = coalesce(name, ?2) WHERE session_key = ?1")?
        .execute((key, name))?;
    Ok(())
}
