//! Rows of messages (MSG-1).

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};
use soong_protocol::{ContentPart, GoalId, Message, MessageContent, Timestamp, ToolCall, TraceId};

use super::{
    columns::{Columns, clamp_to_i64, collect_rows, json, word},
    main_path,
};
use crate::store::MessagePath;

/// Statement that inserts a message; kept prepared during a batch.
pub(super) const INSERT: &str = "INSERT INTO message (trace_key, sequence, parent_sequence, role, goal_id, partial,
        prompt_tokens, completion_tokens, cost_nanos, duration_ms, created_at, tool_call_id, finish_reason,
        description, content, reasoning, tool_calls, long_term_memory, output_once, lsn, side_branch,
        prompt_key, parts, provider_data, context_update, origin,
        prompt_changes)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25,
        ?26, ?27)";

/// Inserts a message of the trace with that key. `lsn` is that of the event that follows it.
/// `prompt_key` is the key of the prompt with its content; `None` if the content is stored in the
/// row.
pub(super) fn insert(
    statement: &mut CachedStatement<'_>,
    trace_key: i64,
    message: &Message,
    lsn: u64,
    prompt_key: Option<i64>,
) -> rusqlite::Result<()> {
    let parts = message.content.parts();
    statement.execute(rusqlite::params![
        trace_key,
        clamp_to_i64(message.sequence),
        message.parent_sequence.map(clamp_to_i64),
        message.role.as_str(),
        message.goal_id.as_ref().map(GoalId::as_str),
        message.partial,
        message.prompt_tokens.map(clamp_to_i64),
        message.completion_tokens.map(clamp_to_i64),
        message.cost.map(|cost| clamp_to_i64(cost.as_nanos())),
        message.duration_ms.map(clamp_to_i64),
        message.created_at.as_millis(),
        message.tool_call_id,
        message.finish_reason,
        message.description,
        if prompt_key.is_some() || !parts.is_empty() {
            ""
        } else {
            message.content.as_str()
        },
        message.reasoning,
        (!message.tool_calls.is_empty()).then(|| json(&message.tool_calls)),
        message.long_term_memory,
        message.include_output_only_once,
        clamp_to_i64(lsn),
        message.side_branch,
        prompt_key,
        (!parts.is_empty()).then(|| json(parts)),
        message.provider_data.as_ref().map(json),
        message.context_update,
        message.origin.map(word),
        message.prompt_changes.as_ref().map(json),
    ])?;
    Ok(())
}

macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT sequence, parent_sequence, role, goal_id, partial, prompt_tokens, completion_tokens, cost_nanos,
                    duration_ms, created_at, tool_call_id, finish_reason, description,
                    coalesce(prompt.content, message.content), reasoning, tool_calls, long_term_memory, output_once,
                    side_branch, parts, provider_data, context_update, origin, prompt_changes
             FROM message LEFT JOIN prompt USING (prompt_key) WHERE trace_key = ?1 AND ",
            $tail
        )
    };
}

fn read(row: &Row<'_>, trace_id: &TraceId) -> rusqlite::Result<Message> {
    let mut columns = Columns::of(row);
    let mut message = Message {
        trace_id: trace_id.clone(),
        sequence: columns.count()?,
        parent_sequence: columns.maybe_count()?,
        role: columns.enum_value()?,
        goal_id: columns.maybe_id(GoalId::new)?,
        partial: columns.next()?,
        covers: None,
        prompt_tokens: columns.maybe_count()?,
        completion_tokens: columns.maybe_count()?,
        cost: columns.maybe_usd()?,
        duration_ms: columns.maybe_count()?,
        created_at: columns.next().map(Timestamp::from_millis)?,
        tool_call_id: columns.next()?,
        finish_reason: columns.next()?,
        description: columns.next()?,
        content: columns.next::<String>()?.into(),
        reasoning: columns.next()?,
        tool_calls: columns.maybe_json::<Vec<ToolCall>>()?.unwrap_or_default(),
        long_term_memory: columns.next()?,
        include_output_only_once: columns.next()?,
        side_branch: columns.next()?,
        provider_data: None,
        context_update: None,
        prompt_changes: None,
        origin: None,
    };
    if let Some(parts) = columns.maybe_json::<Vec<ContentPart>>()? {
        message.content = MessageContent::from_parts(parts);
    }
    message.provider_data = columns.maybe_json()?;
    message.context_update = columns.next()?;
    message.origin = columns.maybe_enum()?;
    message.prompt_changes = columns.maybe_json()?;
    Ok(message)
}

/// Fills in the messages that a summary replaces. Only messages without a parent can be summaries.
fn with_covers(
    conn: &Connection,
    key: i64,
    messages: Vec<Message>,
) -> rusqlite::Result<Vec<Message>> {
    let complete = |mut message: Message| {
        // The first message of a trace has no parent either.
        if message.parent_sequence.is_none() && message.sequence > 1 {
            message.covers = main_path::covered_by_summary(conn, key, message.sequence)?;
        }
        Ok(message)
    };
    messages.into_iter().map(complete).collect()
}

/// Reads the messages of the trace with that key.
pub(super) fn of_trace(
    conn: &Connection,
    key: i64,
    id: &TraceId,
    path: MessagePath,
) -> rusqlite::Result<Vec<Message>> {
    let head = || {
        let mut query =
            conn.prepare_cached("SELECT head_sequence FROM trace_state WHERE trace_key = ?1")?;
        query.query_row([key], |row| Columns::of(row).count())
    };
    let found = match path {
        MessagePath::All => {
            let mut query = conn.prepare_cached(select!("true ORDER BY sequence"))?;
            collect_rows(query.query_map([key], |row| read(row, id))?)?
        }
        MessagePath::Main => {
            let head = head()?;
            in_ranges(conn, key, id, &main_path::main_path(conn, key, head, head)?)?
        }
        MessagePath::To(sequence) => in_ranges(
            conn,
            key,
            id,
            &main_path::main_path(conn, key, head()?, sequence)?,
        )?,
    };
    with_covers(conn, key, found)
}

fn in_ranges(
    conn: &Connection,
    key: i64,
    id: &TraceId,
    ranges: &[main_path::Range],
) -> rusqlite::Result<Vec<Message>> {
    let mut query = conn.prepare_cached(select!("sequence BETWEEN ?2 AND ?3 ORDER BY sequence"))?;
    let mut found = Vec::new();
    for (first, last) in ranges {
        let mut rows = query.query((key, clamp_to_i64(*first), clamp_to_i64(*last)))?;
        while let Some(row) = rows.next()? {
            found.push(read(row, id)?);
        }
    }
    Ok(found)
}

/// Reads the messages of the trace with that key that have these sequences, by one index lookup
/// each.
pub(super) fn by_sequence(
    conn: &Connection,
    key: i64,
    id: &TraceId,
    sequences: &[u64],
) -> rusqlite::Result<Vec<Message>> {
    let mut query = conn.prepare_cached(select!("sequence = ?2"))?;
    let found = sequences.iter().map(|sequence| {
        query
            .query_row((key, clamp_to_i64(*sequence)), |row| read(row, id))
            .optional()
    });
    let found: rusqlite::Result<Vec<Message>> = found.filter_map(Result::transpose).collect();
    with_covers(conn, key, found?)
}
