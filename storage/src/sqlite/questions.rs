//! Rows of questions to users, and their answers (SUB-9).
//!
//! A row is derived from the event that asks. Invariant: a question is decided once, by the first
//! answer or by the end of its run. Not in this module: whether an answer may be written
//! (`admit.rs`), and who is notified of it.

use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use soong_protocol::{Question, QuestionId, RunId, SessionId, Timestamp, TraceId};

use super::columns::{Columns, collect_rows};
use crate::store::QuestionFilter;

/// A question that a run asks.
pub(super) struct NewQuestion<'a> {
    pub(super) id: &'a QuestionId,
    pub(super) question: &'a str,
    pub(super) to: Option<&'a str>,
    pub(super) at: Timestamp,
}

/// Inserts a question of a run; does nothing if it already exists.
pub(super) fn insert(
    conn: &Connection,
    run_key: i64,
    session_key: i64,
    new_question: &NewQuestion<'_>,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT OR IGNORE INTO question (question_id, run_key, session_key, question, recipient, status, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, 'pending', ?6)",
    )?
    .execute((new_question.id.as_str(), run_key, session_key, new_question.question, new_question.to, new_question.at.as_millis()))?;
    Ok(())
}

/// Writes the answer to a pending question.
pub(super) fn answer(
    conn: &Connection,
    id: &QuestionId,
    answer: &str,
    at: Timestamp,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "UPDATE question SET status = 'answered', answer = ?2, decided_at = ?3
         WHERE question_id = ?1 AND status = 'pending'",
    )?
    .execute((id.as_str(), answer, at.as_millis()))?;
    Ok(())
}

/// Withdraws the pending questions of an ended run.
pub(super) fn withdraw(conn: &Connection, run_key: i64, at: Timestamp) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "UPDATE question SET status = 'withdrawn', decided_at = ?2 WHERE run_key = ?1 AND status = 'pending'",
    )?
    .execute((run_key, at.as_millis()))?;
    Ok(())
}

macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT question_id, run_id, trace_id, session_id, question, recipient, status, answer, question.created_at,
                    decided_at
             FROM question JOIN run USING (run_key) JOIN trace USING (trace_key)
             JOIN session ON session.session_key = question.session_key AND session.removal IS NULL ",
            $tail
        )
    };
}

fn read(row: &Row<'_>) -> rusqlite::Result<Question> {
    let mut columns = Columns::of(row);
    Ok(Question {
        question_id: columns.id(QuestionId::new)?,
        run_id: columns.id(RunId::new)?,
        trace_id: columns.id(TraceId::new)?,
        session_id: columns.id(SessionId::new)?,
        question: columns.next()?,
        to: columns.next()?,
        status: columns.enum_value()?,
        answer: columns.next()?,
        created_at: columns.time()?,
        decided_at: columns.maybe_time()?,
    })
}

/// Reads a question.
pub(super) fn question(conn: &Connection, id: &QuestionId) -> rusqlite::Result<Option<Question>> {
    conn.prepare_cached(select!("WHERE question_id = ?1"))?
        .query_row([id.as_str()], read)
        .optional()
}

/// Lists questions, oldest first.
pub(super) fn list(conn: &Connection, filter: &QuestionFilter) -> rusqlite::Result<Vec<Question>> {
    let mut sql = select!("WHERE TRUE").to_owned();
    let mut values = Vec::new();
    if let Some(status) = filter.status {
        // As text instead of a bound value, so that the index of pending questions is used.
        sql.push_str(&format!(" AND status = '{}'", status.as_str()));
    }
    if let Some(session) = &filter.session_id {
        sql.push_str(
            " AND question.session_key = (SELECT session_key FROM session WHERE session_id = ?)",
        );
        values.push(session.as_str());
    }
    if let Some(run) = &filter.run_id {
        sql.push_str(" AND question.run_key = (SELECT run_key FROM run WHERE run_id = ?)");
        values.push(run.as_str());
    }
    if let Some(uid) = &filter.uid {
        sql.push_str(" AND session.uid = ?");
        values.push(uid);
    }
    sql.push_str(" ORDER BY question_key");
    collect_rows(
        conn.prepare_cached(&sql)?
            .query_map(params_from_iter(values), read)?,
    )
}
