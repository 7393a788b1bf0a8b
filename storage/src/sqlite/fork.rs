//! Copy of a conversation, made within the database.
//!
//! The copy has the messages of a lineage with the same sequences, and the summaries on it, so
//! everything that refers to sequences stays valid. The messages have the lsn of the copying, so
//! the copied documents exist from the copy's first message on. The usage remains with the source.
//! Sub-traces remain there too, and the copy links to them. The runs remain as well, but the copy
//! keeps mode, task and settings of those that wrote its messages: a run that continues the copy
//! inherits them, whatever happens to the source later.
//!
//! Not in this module: goals, which follow from the event, and the bytes of artifacts.

use rusqlite::{Connection, OptionalExtension};
use soong_protocol::{Event, SubAgentEvent, TraceId, TraceStatus};

use super::{
    columns::{Columns, clamp_to_i64},
    event_rows,
    main_path::{self, Range},
    traces::TraceRow,
};

/// The trace that is copied.
pub(super) struct Source {
    pub(super) key: i64,
    pub(super) head: u64,
}

/// Copies a conversation up to a message, which becomes the head, into an empty trace. `lsn` is
/// that of the event that reports the copy.
pub(super) fn copy(
    conn: &Connection,
    source: &Source,
    at: u64,
    trace: &mut TraceRow,
    lsn: u64,
) -> rusqlite::Result<()> {
    let ranges = main_path::lineage(conn, source.key, source.head, at)?;
    let fork_lsn = message_lsn(conn, source.key, at)?;
    let mut copied = CopyCounters::default();
    for range in &ranges {
        copied.add(conn, source.key, trace.key, *range, lsn)?;
        keep_runs(conn, source.key, trace.key, *range)?;
    }
    main_path::insert_ranges(conn, trace.key, at, &ranges)?;
    for (summary, covers) in main_path::boundaries(conn, source.key, &ranges)? {
        main_path::add_boundary(conn, trace.key, summary, &covers)?;
        copied.add(conn, source.key, trace.key, (summary, summary), lsn)?;
    }
    link(conn, source.key, trace.key, fork_lsn)?;
    trace.head_sequence = at;
    trace.last_sequence = copied.last;
    trace.stats.messages = copied.messages;
    trace.status = if is_final_answer(conn, source.key, at)? {
        TraceStatus::Completed
    } else {
        TraceStatus::Stopped
    };
    Ok(())
}

/// Counters of the copied messages.
#[derive(Default)]
struct CopyCounters {
    messages: u64,
    last: u64,
}

impl CopyCounters {
    fn add(
        &mut self,
        conn: &Connection,
        source: i64,
        target: i64,
        (first, last): Range,
        lsn: u64,
    ) -> rusqlite::Result<()> {
        let added = conn
            .prepare_cached(
                "INSERT INTO message (trace_key, sequence, parent_sequence, role, goal_id, partial, prompt_tokens,
                     completion_tokens, cost_nanos, duration_ms, created_at, tool_call_id, finish_reason, description,
                     content, parts, provider_data, context_update, reasoning, tool_calls, long_term_memory, output_once, prompt_key,
                     origin, prompt_changes, lsn)
                 SELECT ?1, sequence, parent_sequence, role, goal_id, partial, prompt_tokens,
                     completion_tokens, cost_nanos, duration_ms, created_at, tool_call_id, finish_reason, description,
                     content, parts, provider_data, context_update, reasoning, tool_calls, long_term_memory, output_once, prompt_key,
                     origin, prompt_changes, ?5
                 FROM message WHERE trace_key = ?2 AND sequence BETWEEN ?3 AND ?4 ORDER BY sequence",
            )?
            .execute((target, source, clamp_to_i64(first), clamp_to_i64(last), clamp_to_i64(lsn)))?;
        self.messages += added as u64;
        self.last = self.last.max(last);
        Ok(())
    }
}

/// Keeps the runs that wrote a range of messages of the source, for a run that continues the copy.
fn keep_runs(
    conn: &Connection,
    source: i64,
    target: i64,
    (first, last): Range,
) -> rusqlite::Result<()> {
    let range = (target, source, clamp_to_i64(first), clamp_to_i64(last));
    conn.prepare_cached(
        "INSERT OR IGNORE INTO copied_run (trace_key, first, mode, task, settings)
         SELECT ?1, min(message.sequence), run.mode, run.task, run.settings
         FROM message JOIN event ON event.lsn = (SELECT max(lsn) FROM event WHERE lsn <= message.lsn)
         JOIN run ON run.run_key = event.run_key
         WHERE message.trace_key = ?2 AND message.sequence BETWEEN ?3 AND ?4 AND event.trace_key = message.trace_key
         GROUP BY run.run_key",
    )?
    .execute(range)?;
    // The source may be a copy itself.
    conn.prepare_cached(
        "INSERT OR IGNORE INTO copied_run (trace_key, first, mode, task, settings)
         SELECT ?1, first, mode, task, settings FROM copied_run WHERE trace_key = ?2 AND first BETWEEN ?3 AND ?4",
    )?
    .execute(range)?;
    Ok(())
}

/// Links the sub-traces of the source that had started before the message, and all traces that the
/// source itself links to.
fn link(conn: &Connection, source: i64, target: i64, fork_lsn: u64) -> rusqlite::Result<()> {
    let mut add_link = conn.prepare_cached(
        "INSERT OR IGNORE INTO linked_trace (trace_key, linked_key, goal_id)
         SELECT ?2, trace_key, parent_goal_id FROM trace WHERE parent_trace_key = ?1 AND trace_id = ?3",
    )?;
    for sub_trace in started_sub_traces(conn, source, fork_lsn)? {
        add_link.execute((source, target, sub_trace.as_str()))?;
    }
    conn.prepare_cached(
        "INSERT OR IGNORE INTO linked_trace (trace_key, linked_key, goal_id)
         SELECT ?2, linked_key, goal_id FROM linked_trace WHERE trace_key = ?1",
    )?
    .execute((source, target))?;
    Ok(())
}

/// Lists the sub-traces that a trace had started up to an lsn.
fn started_sub_traces(
    conn: &Connection,
    trace_key: i64,
    lsn: u64,
) -> rusqlite::Result<Vec<TraceId>> {
    let mut query = conn.prepare_cached(
        "SELECT lsn, kind, data FROM event
         WHERE trace_key = ?1 AND lsn <= ?2 AND instr(kind, 'sub_trace_started') ORDER BY event_id",
    )?;
    let mut rows = query.query((trace_key, clamp_to_i64(lsn)))?;
    let mut started = Vec::new();
    while let Some(row) = rows.next()? {
        let events = event_rows::split_until(row, lsn)?;
        for (kind, data) in events
            .into_iter()
            .filter(|(kind, _)| *kind == "sub_trace_started")
        {
            if let Event::SubAgent(SubAgentEvent::Started { sub_trace_id, .. }) =
                Event::decode(kind, data)
            {
                started.push(sub_trace_id);
            }
        }
    }
    Ok(started)
}

fn message_lsn(conn: &Connection, key: i64, sequence: u64) -> rusqlite::Result<u64> {
    conn.prepare_cached("SELECT lsn FROM message WHERE trace_key = ?1 AND sequence = ?2")?
        .query_row((key, clamp_to_i64(sequence)), |row| {
            Columns::of(row).count()
        })
}

/// Returns whether a message is an answer of the model without tool calls.
fn is_final_answer(conn: &Connection, key: i64, sequence: u64) -> rusqlite::Result<bool> {
    let found = conn
        .prepare_cached(
            "SELECT role, tool_calls IS NULL FROM message WHERE trace_key = ?1 AND sequence = ?2",
        )?
        .query_row((key, clamp_to_i64(sequence)), |row| {
            let mut columns = Columns::of(row);
            Ok((columns.next::<String>()?, columns.next::<bool>()?))
        })
        .optional()?;
    Ok(found.is_some_and(|(role, has_no_tool_calls)| role == "assistant" && has_no_tool_calls))
}
