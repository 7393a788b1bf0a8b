//! Messages as rows (MSG-1).

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};
use soong_protocol::{GoalId, Message, Timestamp, ToolCall, TraceId};

use super::columns::{Columns, all, int, json};
use crate::store::MessagePath;

/// Adds a message: the statement, kept ready during a batch.
pub(super) const INSERT: &str = "INSERT INTO message (trace_key, sequence, parent_sequence, role, goal_id, partial,
        prompt_tokens, completion_tokens, cost_nanos, duration_ms, created_at, tool_call_id, finish_reason,
        description, content, reasoning, tool_calls, long_term_memory, output_once)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";

/// Adds a message of the trace with that key.
pub(super) fn insert(statement: &mut CachedStatement<'_>, trace_key: i64, message: &Message) -> rusqlite::Result<()> {
    statement.execute(rusqlite::params![
        trace_key,
        int(message.sequence),
        message.parent_sequence.map(int),
        message.role.as_str(),
        message.goal_id.as_ref().map(GoalId::as_str),
        message.partial,
        message.prompt_tokens.map(int),
        message.completion_tokens.map(int),
        message.cost.map(|cost| int(cost.as_nanos())),
        message.duration_ms.map(int),
        message.created_at.as_millis(),
        message.tool_call_id,
        message.finish_reason,
        message.description,
        message.content,
        message.reasoning,
        (!message.tool_calls.is_empty()).then(|| json(&message.tool_calls)),
        message.long_term_memory,
        message.include_output_only_once,
    ])?;
    Ok(())
}

macro_rules! select {
    ($head:literal, $tail:literal) => {
        concat!(
            $head,
            " SELECT message.sequence, parent_sequence, role, goal_id, partial, prompt_tokens, completion_tokens,
                     cost_nanos, duration_ms, created_at, tool_call_id, finish_reason, description, content,
                     reasoning, tool_calls, long_term_memory, output_once ",
            $tail
        )
    };
}

fn read(row: &Row<'_>, trace_id: &TraceId) -> rusqlite::Result<Message> {
    let mut columns = Columns::of(row);
    Ok(Message {
        trace_id: trace_id.clone(),
        sequence: columns.count()?,
        parent_sequence: columns.maybe_count()?,
        role: columns.word()?,
        goal_id: columns.maybe_id(GoalId::new)?,
        partial: columns.next()?,
        prompt_tokens: columns.maybe_count()?,
        completion_tokens: columns.maybe_count()?,
        cost: columns.maybe_usd()?,
        duration_ms: columns.maybe_count()?,
        created_at: columns.next().map(Timestamp::from_millis)?,
        tool_call_id: columns.next()?,
        finish_reason: columns.next()?,
        description: columns.next()?,
        content: columns.next()?,
        reasoning: columns.next()?,
        tool_calls: columns.maybe_json::<Vec<ToolCall>>()?.unwrap_or_default(),
        long_term_memory: columns.next()?,
        include_output_only_once: columns.next()?,
    })
}

/// Reads the messages of the trace with that key.
///
/// The main path is walked from the head by links alone, so that texts off the path are not read.
/// A parent always precedes its child: the walk ends.
pub(super) fn of_trace(conn: &Connection, key: i64, id: &TraceId, path: MessagePath) -> rusqlite::Result<Vec<Message>> {
    let mut query = conn.prepare_cached(match path {
        MessagePath::All => select!("", "FROM message WHERE trace_key = ?1 ORDER BY sequence"),
        MessagePath::Main => select!(
            "WITH RECURSIVE path (place, at, parent) AS (
                 SELECT 0, sequence, parent_sequence FROM trace_state JOIN message USING (trace_key)
                 WHERE trace_key = ?1 AND sequence = head_sequence
                 UNION ALL
                 SELECT place + 1, sequence, parent_sequence FROM path JOIN message
                 ON message.trace_key = ?1 AND message.sequence = path.parent AND message.sequence < path.at
             )",
            "FROM path JOIN message ON message.trace_key = ?1 AND message.sequence = path.at ORDER BY place DESC"
        ),
    })?;
    all(query.query_map([key], |row| read(row, id))?)
}

/// Reads the messages of the trace with that key that have these sequences: one look into the index each.
pub(super) fn at(conn: &Connection, key: i64, id: &TraceId, sequences: &[u64]) -> rusqlite::Result<Vec<Message>> {
    let mut query = conn.prepare_cached(select!("", "FROM message WHERE trace_key = ?1 AND sequence = ?2"))?;
    let found = sequences.iter().map(|sequence| query.query_row((key, int(*sequence)), |row| read(row, id)).optional());
    found.filter_map(Result::transpose).collect()
}
