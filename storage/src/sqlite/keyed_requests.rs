//! Rows of requests with an `Idempotency-Key`.

use rusqlite::{Connection, OptionalExtension};
use soong_protocol::{
    KeyedRequest, RequestAnswer, RequestKey, RequestSubject, RequestWrite, RunId, SessionId,
    Timestamp,
};

use super::{
    columns::{Columns, clamp_to_i64},
    sessions,
};

/// Maximum number of old requests that are deleted with one write.
const MAX_DELETED: i64 = 100;

/// Records a request or its answer, and deletes requests whose lifetime has ended.
pub(super) fn write(conn: &Connection, write: &RequestWrite) -> rusqlite::Result<()> {
    match write {
        RequestWrite::Claim { key, subject, at } => {
            delete_old(conn, *at)?;
            insert(conn, key, Some(subject), *at)
        }
        RequestWrite::Begin { key, at } => {
            delete_old(conn, *at)?;
            insert(conn, key, None, *at)
        }
        RequestWrite::Withdraw { key, at } => {
            delete_old(conn, *at)?;
            withdraw(conn, key)
        }
        RequestWrite::Answer {
            key,
            answer: given,
            session_id,
            at,
        } => {
            delete_old(conn, *at)?;
            answer(conn, key, given, session_id.as_ref(), *at)
        }
    }
}

fn insert(
    conn: &Connection,
    key: &RequestKey,
    subject: Option<&RequestSubject>,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let run_id = if let Some(RequestSubject::Run(id)) = subject {
        Some(id.as_str())
    } else {
        None
    };
    let session_id = if let Some(RequestSubject::Session(id)) = subject {
        Some(id.as_str())
    } else {
        None
    };
    conn.prepare_cached(
        "INSERT INTO keyed_request (uid, key_hash, fingerprint, at, run_id, session_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (uid, key_hash) DO UPDATE SET
         fingerprint = excluded.fingerprint, at = excluded.at, run_id = excluded.run_id,
         session_id = excluded.session_id, session_key = NULL, status = NULL, body = NULL",
    )?
    .execute((&key.uid, &key.key_hash, &key.fingerprint, at.as_millis(), run_id, session_id))?;
    Ok(())
}

fn withdraw(conn: &Connection, key: &RequestKey) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "DELETE FROM keyed_request WHERE uid = ?1 AND key_hash = ?2 AND status IS NULL",
    )?
    .execute((&key.uid, &key.key_hash))?;
    Ok(())
}

fn answer(
    conn: &Connection,
    key: &RequestKey,
    answer: &RequestAnswer,
    session_id: Option<&SessionId>,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let session_key = match session_id {
        Some(id) => sessions::key(conn, id)?,
        None => None,
    };
    conn.prepare_cached(
        "INSERT INTO keyed_request (uid, key_hash, fingerprint, at, session_key, status, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (uid, key_hash) DO UPDATE SET
         run_id = CASE fingerprint WHEN excluded.fingerprint THEN run_id END,
         session_id = CASE fingerprint WHEN excluded.fingerprint THEN session_id END,
         fingerprint = excluded.fingerprint, at = excluded.at, session_key = excluded.session_key,
         status = excluded.status, body = excluded.body",
    )?
    .execute((
        &key.uid,
        &key.key_hash,
        &key.fingerprint,
        at.as_millis(),
        session_key,
        answer.status,
        &answer.body,
    ))?;
    Ok(())
}

fn delete_old(conn: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let oldest = now
        .as_millis()
        .saturating_sub(clamp_to_i64(KeyedRequest::LIFETIME_MS));
    conn.prepare_cached(
        "DELETE FROM keyed_request WHERE request_key IN (SELECT request_key FROM keyed_request WHERE at < ?1 LIMIT ?2)",
    )?
    .execute((oldest, MAX_DELETED))?;
    Ok(())
}

/// Reads a request; `None` if the user has sent none with this key.
pub(super) fn find(
    conn: &Connection,
    uid: &str,
    key_hash: &str,
) -> rusqlite::Result<Option<KeyedRequest>> {
    let mut query = conn.prepare_cached(
        "SELECT fingerprint, at, run_id, session_id, status, body FROM keyed_request WHERE uid = ?1 AND key_hash = ?2",
    )?;
    query
        .query_row((uid, key_hash), |row| {
            let mut columns = Columns::of(row);
            let fingerprint = columns.next()?;
            let at = columns.time()?;
            let run_id = columns.maybe_id(RunId::new)?;
            let session_id = columns.maybe_id(SessionId::new)?;
            let status: Option<u16> = columns.next()?;
            let body: Option<String> = columns.next()?;
            Ok(KeyedRequest {
                fingerprint,
                subject: run_id
                    .map(RequestSubject::Run)
                    .or(session_id.map(RequestSubject::Session)),
                answer: status
                    .zip(body)
                    .map(|(status, body)| RequestAnswer { status, body }),
                at,
            })
        })
        .optional()
}
