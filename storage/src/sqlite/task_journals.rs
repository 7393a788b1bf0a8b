//! Runs whose task journal is not known to be complete (TASK-1).
//!
//! The row is written in the same transaction as the event that starts a user's orchestrator run,
//! so no such run can start without one. Not in this module: the files and their content.

use rusqlite::{Connection, OptionalExtension};
use soong_protocol::{GoalTree, RunId};

use super::{
    columns::{Columns, clamp_to_i64, json},
    runs, sessions,
};
use crate::store::PendingTaskJournal;

/// Records that the journal of the run with that key begins at `event_id`, with these goals.
///
/// Does nothing for child runs, and for runs that a program drives (`driven`).
pub(super) fn begin(
    conn: &Connection,
    run_key: i64,
    event_id: u64,
    goals: &GoalTree,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT OR IGNORE INTO task_journal (run_key, event_id, goals)
         SELECT run_key, ?2, ?3 FROM run
         WHERE run_key = ?1 AND parent_run_key IS NULL AND json_extract(settings, '$.driven') IS NOT 1",
    )?
    .execute((run_key, clamp_to_i64(event_id), json(goals)))?;
    Ok(())
}

/// Deletes the record of a run's journal, which is complete. Does nothing if there is none.
pub(super) fn end(conn: &Connection, id: &RunId) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "DELETE FROM task_journal WHERE run_key = (SELECT run_key FROM run WHERE run_id = ?1)",
    )?
    .execute([id.as_str()])?;
    Ok(())
}

/// Reads the start of a run's journal; `None` if the run has none, or if the journal is complete.
pub(super) fn of_run(
    conn: &Connection,
    id: &RunId,
) -> rusqlite::Result<Option<PendingTaskJournal>> {
    let mut query = conn.prepare_cached(
        "SELECT event_id, goals FROM task_journal WHERE run_key = (SELECT run_key FROM run WHERE run_id = ?1)",
    )?;
    let found = query.query_row([id.as_str()], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.count()?, columns.json()?))
    });
    let Some((first_event, goals)) = found.optional()? else {
        return Ok(None);
    };
    // The runs of a session that is being deleted are invisible.
    let Some(run) = runs::run(conn, id)? else {
        return Ok(None);
    };
    let Some(session) = sessions::session(conn, &run.session_id)? else {
        return Ok(None);
    };
    Ok(Some(PendingTaskJournal {
        run,
        project_dir: session.project_dir,
        first_event_id: first_event,
        goals,
    }))
}
