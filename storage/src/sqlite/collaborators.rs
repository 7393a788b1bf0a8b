//! Rows of collaborators: the agents that have worked for a trace, and their results.

use rusqlite::Connection;
use soong_protocol::{Collaborator, Event, MessageEvent, SubAgentEvent};

use super::{
    columns::{Columns, clamp_to_i64, collect_rows, json},
    event_rows,
};

/// Inserts or updates a collaborator of a trace. An update keeps its position.
pub(super) fn save(
    conn: &Connection,
    trace_key: i64,
    collaborator: &Collaborator,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO collaborator (trace_key, name, body) VALUES (?1, ?2, ?3)
         ON CONFLICT (trace_key, name) DO UPDATE SET body = excluded.body",
    )?
    .execute((trace_key, &collaborator.name, json(collaborator)))?;
    Ok(())
}

/// Replaces all collaborators of a trace.
pub(super) fn replace(
    conn: &Connection,
    trace_key: i64,
    by: &[Collaborator],
) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM collaborator WHERE trace_key = ?1")?
        .execute([trace_key])?;
    by.iter()
        .try_for_each(|collaborator| save(conn, trace_key, collaborator))
}

/// Reads the collaborators of a trace, in the order of their first appearance.
pub(super) fn of(conn: &Connection, trace_key: i64) -> rusqlite::Result<Vec<Collaborator>> {
    let mut query = conn.prepare_cached(
        "SELECT body FROM collaborator WHERE trace_key = ?1 ORDER BY collaborator_key",
    )?;
    collect_rows(query.query_map([trace_key], |row| Columns::of(row).json())?)
}

/// Reads the collaborators of a trace as they were at an lsn.
pub(super) fn at(
    conn: &Connection,
    trace_key: i64,
    lsn: u64,
) -> rusqlite::Result<Vec<Collaborator>> {
    let changes_collaborators =
        |kind: &str| matches!(kind, "collaborator_updated" | "rewind" | "head_switched");
    let mut query = conn.prepare_cached(
        "SELECT lsn, kind, data FROM event WHERE trace_key = ?1 AND lsn <= ?2
         AND (instr(kind, 'collaborator_updated') OR instr(kind, 'rewind') OR instr(kind, 'head_switched'))
         ORDER BY event_id",
    )?;
    let mut found: Vec<Collaborator> = Vec::new();
    let mut rows = query.query((trace_key, clamp_to_i64(lsn)))?;
    while let Some(row) = rows.next()? {
        let events = event_rows::split_until(row, lsn)?;
        for (kind, data) in events
            .into_iter()
            .filter(|(kind, _)| changes_collaborators(kind))
        {
            match Event::decode(kind, data) {
                Event::SubAgent(SubAgentEvent::CollaboratorUpdated { collaborator }) => match found
                    .iter_mut()
                    .find(|known| known.name == collaborator.name)
                {
                    Some(known) => *known = collaborator,
                    None => found.push(collaborator),
                },
                Event::Message(
                    MessageEvent::Rewind {
                        collaborators: Some(then),
                        ..
                    }
                    | MessageEvent::HeadSwitched {
                        collaborators: Some(then),
                        ..
                    },
                ) => found = then,
                _ => {}
            }
        }
    }
    Ok(found)
}
