//! Rows of permissions: whether a tool call may run, and who decided (PERM-1).
//!
//! Invariant: a permission is decided once, by the first decision or by the end of its run. Not in
//! this module: whether a decision may be written (`admit.rs`), and its consequences.

use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use serde::{Deserialize, Serialize};
use soong_protocol::{
    AccessRequest, Permission, PermissionDecision, PermissionId, PermissionStatus, RunId,
    SessionId, Timestamp, TraceId,
};

use super::columns::{Columns, collect_rows, json};
use crate::store::PermissionFilter;

/// Content of the column `demand`.
#[derive(Serialize, Deserialize)]
struct DemandColumn<D> {
    #[serde(flatten)]
    demand: D,
    /// Stored with the demand, because a separate column would change the database format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

/// Inserts the permission that a run requests; does nothing if it already exists.
pub(super) fn insert(
    conn: &Connection,
    run_key: i64,
    session_key: i64,
    permission: &Permission,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT OR IGNORE INTO permission (permission_id, run_key, session_key, tool_call_id, tool, arguments, fingerprint,
                                           demand, chain, status, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'pending', ?10)",
    )?
    .execute(params![
        permission.permission_id.as_str(),
        run_key,
        session_key,
        permission.tool_call_id,
        permission.tool,
        permission.arguments,
        permission.fingerprint,
        json(&DemandColumn { demand: &permission.demand, diff: permission.diff.clone() }),
        json(&permission.chain),
        permission.created_at.as_millis(),
    ])?;
    Ok(())
}

/// Writes the decision about a pending permission.
pub(super) fn decide(conn: &Connection, answer: &PermissionDecision) -> rusqlite::Result<()> {
    let status = if answer.decision.allows() {
        PermissionStatus::Allowed
    } else {
        PermissionStatus::Denied
    };
    conn.prepare_cached(
        "UPDATE permission SET status = ?2, decision = ?3, decided_by = ?4, reason = ?5, decided_at = ?6
         WHERE permission_id = ?1 AND status = 'pending'",
    )?
    .execute(params![
        answer.permission_id.as_str(),
        status.as_str(),
        answer.decision.as_str(),
        answer.decided_by,
        answer.reason,
        answer.at.as_millis(),
    ])?;
    Ok(())
}

/// Withdraws the pending permissions of an ended run.
pub(super) fn withdraw(conn: &Connection, run_key: i64, at: Timestamp) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "UPDATE permission SET status = 'withdrawn', decided_at = ?2 WHERE run_key = ?1 AND status = 'pending'",
    )?
    .execute((run_key, at.as_millis()))?;
    Ok(())
}

macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT permission_id, run_id, trace_id, session_id, tool_call_id, tool, arguments, fingerprint, demand,
                    chain, permission.status, decision, decided_by, reason, permission.created_at, decided_at
             FROM permission JOIN run USING (run_key) JOIN trace USING (trace_key)
             JOIN session ON session.session_key = permission.session_key AND session.removal IS NULL ",
            $tail
        )
    };
}

fn read(row: &Row<'_>) -> rusqlite::Result<Permission> {
    let mut columns = Columns::of(row);
    let diff;
    Ok(Permission {
        permission_id: columns.id(PermissionId::new)?,
        run_id: columns.id(RunId::new)?,
        trace_id: columns.id(TraceId::new)?,
        session_id: columns.id(SessionId::new)?,
        tool_call_id: columns.next()?,
        tool: columns.next()?,
        arguments: columns.next()?,
        fingerprint: columns.next()?,
        demand: {
            let permission: DemandColumn<AccessRequest> = columns.json()?;
            diff = permission.diff;
            permission.demand
        },
        diff,
        chain: columns.json()?,
        status: columns.enum_value()?,
        decision: columns.maybe_enum()?,
        by: columns.next()?,
        reason: columns.next()?,
        created_at: columns.time()?,
        decided_at: columns.maybe_time()?,
    })
}

/// Reads a permission.
pub(super) fn permission(
    conn: &Connection,
    id: &PermissionId,
) -> rusqlite::Result<Option<Permission>> {
    conn.prepare_cached(select!("WHERE permission_id = ?1"))?
        .query_row([id.as_str()], read)
        .optional()
}

/// Lists permissions, oldest first.
pub(super) fn list(
    conn: &Connection,
    filter: &PermissionFilter,
) -> rusqlite::Result<Vec<Permission>> {
    let mut sql = select!("WHERE TRUE").to_owned();
    let mut values = Vec::new();
    if let Some(status) = filter.status {
        // As text instead of a bound value, so that the index of pending permissions is used.
        sql.push_str(&format!(" AND permission.status = '{}'", status.as_str()));
    }
    if let Some(session) = &filter.session_id {
        sql.push_str(
            " AND permission.session_key = (SELECT session_key FROM session WHERE session_id = ?)",
        );
        values.push(session.as_str());
    }
    if let Some(run) = &filter.run_id {
        sql.push_str(" AND permission.run_key = (SELECT run_key FROM run WHERE run_id = ?)");
        values.push(run.as_str());
    }
    if let Some(uid) = &filter.uid {
        sql.push_str(" AND session.uid = ?");
        values.push(uid);
    }
    sql.push_str(" ORDER BY permission_key");
    collect_rows(
        conn.prepare_cached(&sql)?
            .query_map(params_from_iter(values), read)?,
    )
}
