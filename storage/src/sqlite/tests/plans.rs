//! Query plans of all statements: rows are found by a key or an index, unless a scan is intended.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
};

use rusqlite::{
    Connection,
    config::DbConfig,
    trace::{TraceEvent, TraceEventCodes},
};
use soong_protocol::{ArtifactScope, Durability, SessionId, TraceId, UsageBy};

use super::super::{SqliteReader, SqliteStore};
use crate::store::{Reader, UsageFilter};

thread_local! {
    /// Statements that were run on this thread.
    static EXECUTED_STATEMENTS: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Scans that are allowed: a part of the plan step, and the reason.
const ALLOWED_SCANS: &[(&str, &str)] = &[
    ("CONSTANT ROW", "no table"),
    ("deleted_lsn", "one row"),
    (
        "blob_intent",
        "bytes that are being written, or were when the process ended",
    ),
    ("INDEX permission_pending", "what waits for people"),
    ("INDEX question_pending", "what waits for people"),
    ("INDEX run_live", "runs that have not ended"),
    ("INDEX session_removal", "sessions that are being deleted"),
    (
        "SCAN task_journal",
        "runs whose task journal is not complete",
    ),
    ("SCAN usage_sum", "a row for each user, day and model"),
    ("SCAN (subquery", "what a part of the query has found"),
    ("SCAN below", "what a recursive query has found"),
];

/// Statements that may scan: a part of their text, and the reason.
const ALLOWED_SCAN_STATEMENTS: &[(&str, &str)] = &[
    (
        "GROUP BY artifact_key",
        "cleaning up artifacts looks at all of them",
    ),
    (
        "count(*) FROM session WHERE removal IS NULL",
        "a backup counts what it holds",
    ),
    (
        "FROM permission JOIN run",
        "lists all, or all of a user: a list without pages",
    ),
    (
        "FROM question JOIN run",
        "lists all, or all of a user: a list without pages",
    ),
    (
        "WHERE usage_key = ?1 AND session_key",
        "corrects a sum that has reached its limit, which hardly ever happens",
    ),
    (
        "session_id AS sum_of",
        "sums up all runs by their sessions, which are many as well",
    ),
];

/// Records the statements of a connection.
pub(in crate::sqlite) fn record_statements(mut conn: Connection) -> rusqlite::Result<Connection> {
    let note = |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(_, sql) = event {
            let words: Vec<&str> = sql.split_whitespace().collect();
            EXECUTED_STATEMENTS.with_borrow_mut(|run| run.insert(words.join(" ")));
        }
    };
    conn.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note))?;
    Ok(conn)
}

fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut plan = conn
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let columns = vec![rusqlite::types::Value::Null; plan.parameter_count()];
    let steps = plan
        .query_map(rusqlite::params_from_iter(columns), |row| {
            row.get::<_, String>(3)
        })
        .unwrap();
    steps.map(Result::unwrap).collect()
}

#[test]
fn no_statement_scans_a_table_without_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sessions.sqlite");
    let _store = SqliteStore::open(&path, Durability::Normal).unwrap();
    let made = Cell::new(0);
    crate::contract::check(|| {
        made.set(made.get() + 1);
        let path = dir.path().join(format!("{}.sqlite", made.get()));
        let store = SqliteStore::open(&path, Durability::Normal).unwrap();
        (
            Box::new(store),
            Box::new(SqliteReader::open(&path).unwrap()),
        )
    });
    let reader = SqliteReader::open(&path).unwrap();
    for by in [UsageBy::Day, UsageBy::Session, UsageBy::Model] {
        for uid in [None, Some("x".to_owned())] {
            reader.usage(by, &UsageFilter { uid, since: None }).unwrap();
        }
    }
    // Queries that the contract does not run.
    let trace = TraceId::new("x");
    let session = SessionId::new("x");
    reader.goal_tree_at(&trace, 1).unwrap();
    reader.collaborators_at(&trace, 1).unwrap();
    reader
        .recent_artifacts(
            &ArtifactScope::Session {
                session_id: session.clone(),
            },
            1,
        )
        .unwrap();
    reader.live_runs(Some(&session)).unwrap();
    reader.live_runs(None).unwrap();
    reader.session_count().unwrap();
    reader.stored_blobs(1, None).unwrap();
    let conn = Connection::open(&path).unwrap();
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .unwrap();
    let mut scans = Vec::new();
    let mut used = BTreeSet::new();
    for sql in &EXECUTED_STATEMENTS.take() {
        let is_query = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"]
            .iter()
            .any(|word| sql.starts_with(word));
        if !is_query {
            continue;
        }
        let is_scan = |step: &String| {
            step.starts_with("SCAN") && !ALLOWED_SCANS.iter().any(|(part, _)| step.contains(part))
        };
        let found: Vec<String> = plan(&conn, sql).into_iter().filter(is_scan).collect();
        if found.is_empty() {
            continue;
        }
        match ALLOWED_SCAN_STATEMENTS
            .iter()
            .find(|(part, _)| sql.contains(part))
        {
            Some((part, _)) => drop(used.insert(*part)),
            None => scans.push(format!("{sql}\n    {}", found.join("\n    "))),
        }
    }
    assert!(
        scans.is_empty(),
        "{} statements scan:\n{}",
        scans.len(),
        scans.join("\n")
    );
    let unused: Vec<&str> = ALLOWED_SCAN_STATEMENTS
        .iter()
        .map(|(part, _)| *part)
        .filter(|part| !used.contains(part))
        .collect();
    assert!(unused.is_empty(), "these do not scan: {unused:?}");
}
