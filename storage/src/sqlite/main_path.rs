//! Path from a trace's first message to its head, as ranges of sequences, and the summaries that
//! replace parts of it (MSG-1, MSG-5).
//!
//! - The *lineage* of a message is the chain of its parents up to the first message. That of the
//!   head is stored as ranges in ascending order.
//! - The *main path* is the lineage of the head, in which the last summary replaces the messages
//!   that it covers.
//!
//! Invariants:
//! - A parent precedes its child, so the ranges are disjoint and ascending.
//! - Links to parents never change.

use rusqlite::{Connection, OptionalExtension, Row};
use soong_protocol::Covers;

use super::columns::{Columns, clamp_to_i64, collect_rows};

/// First and last sequence of a range, both inclusive.
pub(super) type Range = (u64, u64);

/// Begins a range with a new head whose sequence does not follow that of its parent.
pub(super) fn begin_range(
    conn: &Connection,
    key: i64,
    head: u64,
    sequence: u64,
) -> rusqlite::Result<()> {
    // The first message of a trace has no range before it.
    if head > 0 {
        conn.prepare_cached(
            "UPDATE path_range SET last = ?2 WHERE trace_key = ?1 AND last IS NULL",
        )?
        .execute((key, clamp_to_i64(head)))?;
    }
    conn.prepare_cached("INSERT INTO path_range (trace_key, first, last) VALUES (?1, ?2, NULL)")?
        .execute((key, clamp_to_i64(sequence)))?;
    Ok(())
}

/// Returns whether a message is on the path to the head.
pub(super) fn is_on_path(
    conn: &Connection,
    key: i64,
    head: u64,
    sequence: u64,
) -> rusqlite::Result<bool> {
    if sequence > head {
        return Ok(false);
    }
    let mut query = conn.prepare_cached(
        "SELECT last FROM path_range WHERE trace_key = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1",
    )?;
    let last: Option<Option<i64>> = query
        .query_row((key, clamp_to_i64(sequence)), |row| row.get(0))
        .optional()?;
    Ok(last.is_some_and(|last| last.is_none_or(|last| last >= clamp_to_i64(sequence))))
}

/// Makes a message on the path the head. Messages after it are no longer on the path.
fn truncate_path(conn: &Connection, key: i64, sequence: u64) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM path_range WHERE trace_key = ?1 AND first > ?2")?
        .execute((key, clamp_to_i64(sequence)))?;
    conn.prepare_cached(
        "UPDATE path_range SET last = NULL
         WHERE trace_key = ?1 AND first = (SELECT max(first) FROM path_range WHERE trace_key = ?1)",
    )?
    .execute([key])?;
    Ok(())
}

/// Makes any message the head. If it is on the path, the path is cut after it. Otherwise its
/// parents are followed up to the path.
pub(super) fn make_head(
    conn: &Connection,
    key: i64,
    head: u64,
    sequence: u64,
) -> rusqlite::Result<()> {
    if is_on_path(conn, key, head, sequence)? {
        return truncate_path(conn, key, sequence);
    }
    let ranges = lineage(conn, key, head, sequence)?;
    conn.prepare_cached("DELETE FROM path_range WHERE trace_key = ?1")?
        .execute([key])?;
    insert_ranges(conn, key, sequence, &ranges)
}

/// Returns the lineage of a message: from the first message up to it.
pub(super) fn lineage(
    conn: &Connection,
    key: i64,
    head: u64,
    sequence: u64,
) -> rusqlite::Result<Vec<Range>> {
    let mut parent = conn.prepare_cached(
        "SELECT parent_sequence FROM message WHERE trace_key = ?1 AND sequence = ?2",
    )?;
    // Messages that are not on the path, last one first; found by the links to their parents.
    let mut off_path: Vec<u64> = Vec::new();
    let mut at = Some(sequence);
    while let Some(here) = at.filter(|current| *current > 0)
        && !is_on_path(conn, key, head, here)?
    {
        let Some(above) = parent
            .query_row((key, clamp_to_i64(here)), |row| {
                Columns::of(row).maybe_count()
            })
            .optional()?
        else {
            break;
        };
        off_path.push(here);
        at = above.filter(|above| *above < here);
    }
    let mut query = conn.prepare_cached(
        "SELECT first, coalesce(last, ?2) FROM path_range WHERE trace_key = ?1 AND first <= ?3 ORDER BY first",
    )?;
    let joined = at.unwrap_or(0);
    let mut ranges: Vec<Range> = collect_rows(query.query_map(
        (key, clamp_to_i64(head), clamp_to_i64(joined)),
        |row| {
            let mut columns = Columns::of(row);
            Ok((columns.count()?, columns.count()?.min(joined)))
        },
    )?)?;
    for sequence in off_path.into_iter().rev() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == sequence => *last = sequence,
            _ => ranges.push((sequence, sequence)),
        }
    }
    Ok(ranges)
}

/// Records which messages a summary replaces.
pub(super) fn add_boundary(
    conn: &Connection,
    key: i64,
    summary: u64,
    covers: &Covers,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO boundary (trace_key, next, summary, first, last, system, request)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute((
        key,
        clamp_to_i64(covers.next),
        clamp_to_i64(summary),
        clamp_to_i64(covers.first),
        clamp_to_i64(covers.last),
        covers.system.map(clamp_to_i64),
        covers.request.map(clamp_to_i64),
    ))?;
    Ok(())
}

fn read_boundary(row: &Row<'_>) -> rusqlite::Result<(u64, Covers)> {
    let mut columns = Columns::of(row);
    let summary = columns.count()?;
    let covers = Covers {
        next: columns.count()?,
        first: columns.count()?,
        last: columns.count()?,
        system: columns.maybe_count()?,
        request: columns.maybe_count()?,
    };
    Ok((summary, covers))
}

/// Lists the summaries on a lineage: their sequences, and the messages that each one replaces.
pub(super) fn boundaries(
    conn: &Connection,
    key: i64,
    ranges: &[Range],
) -> rusqlite::Result<Vec<(u64, Covers)>> {
    let mut query = conn.prepare_cached(
        "SELECT summary, next, first, last, system, request FROM boundary WHERE trace_key = ?1 ORDER BY next, summary",
    )?;
    let all: Vec<(u64, Covers)> = collect_rows(query.query_map([key], read_boundary)?)?;
    Ok(all
        .into_iter()
        .filter(|(_, covers)| contains(ranges, covers.next))
        .collect())
}

/// Returns whether one of the ascending ranges contains a sequence.
pub(super) fn contains(ranges: &[Range], sequence: u64) -> bool {
    let index = ranges.partition_point(|(_, last)| *last < sequence);
    ranges
        .get(index)
        .is_some_and(|(first, _)| *first <= sequence)
}

/// Stores the lineage of the head of a trace that has none yet.
pub(super) fn insert_ranges(
    conn: &Connection,
    key: i64,
    head: u64,
    ranges: &[Range],
) -> rusqlite::Result<()> {
    let mut add =
        conn.prepare_cached("INSERT INTO path_range (trace_key, first, last) VALUES (?1, ?2, ?3)")?;
    for (first, last) in ranges {
        add.execute((
            key,
            clamp_to_i64(*first),
            (*last != head).then(|| clamp_to_i64(*last)),
        ))?;
    }
    Ok(())
}

/// Finds the last summary on a lineage: its sequence, and the messages that it replaces.
fn last_boundary(
    conn: &Connection,
    key: i64,
    ranges: &[Range],
) -> rusqlite::Result<Option<(u64, Covers)>> {
    let mut query = conn.prepare_cached(
        "SELECT summary, next, first, last, system, request FROM boundary WHERE trace_key = ?1
         ORDER BY next DESC, summary DESC",
    )?;
    let mut rows = query.query([key])?;
    while let Some(row) = rows.next()? {
        let (summary, covers) = read_boundary(row)?;
        if contains(ranges, covers.next) {
            return Ok(Some((summary, covers)));
        }
    }
    Ok(None)
}

/// Returns the main path that ends in a message, in reading order.
pub(super) fn main_path(
    conn: &Connection,
    key: i64,
    head: u64,
    sequence: u64,
) -> rusqlite::Result<Vec<Range>> {
    let ranges = lineage(conn, key, head, sequence)?;
    let Some((summary, covers)) = last_boundary(conn, key, &ranges)? else {
        return Ok(ranges);
    };
    let after_summary = ranges.into_iter().filter(|(_, last)| *last >= covers.next);
    let behind: Vec<Range> = after_summary
        .map(|(first, last)| (first.max(covers.next), last))
        .collect();
    // The covered request is part of the path only if no other request lies between the cut and the
    // summary. A request after the summary does not count, because it must not change the path
    // before it.
    let mut has_request = conn.prepare_cached(
        "SELECT 1 FROM message WHERE trace_key = ?1 AND sequence BETWEEN ?2 AND ?3 AND role = 'user'
         AND coalesce(origin, 'request') = 'request' LIMIT 1",
    )?;
    let mut request = covers.request;
    for (first, last) in &behind {
        let last = (*last).min(summary);
        if request.is_some()
            && has_request.exists((key, clamp_to_i64(*first), clamp_to_i64(last)))?
        {
            request = None;
        }
    }
    let single = |sequence: u64| (sequence, sequence);
    let prefix = covers
        .system
        .map(single)
        .into_iter()
        .chain([single(summary)])
        .chain(request.map(single));
    Ok(prefix.chain(behind).collect())
}

/// Returns the messages that a summary replaces; `None` if the message is not a summary.
pub(super) fn covered_by_summary(
    conn: &Connection,
    key: i64,
    summary: u64,
) -> rusqlite::Result<Option<Covers>> {
    let mut query = conn.prepare_cached(
        "SELECT summary, next, first, last, system, request FROM boundary WHERE trace_key = ?1 AND summary = ?2",
    )?;
    Ok(query
        .query_row((key, clamp_to_i64(summary)), read_boundary)
        .optional()?
        .map(|(_, covers)| covers))
}

/// Returns the end of the turn that a message belongs to: the last result of the tool calls that it
/// makes or answers (MSG-3), else the message itself. Returns `None` if the conversation cannot be
/// resumed there, because the message does not exist, was cut off, is a summary, or is on a side
/// branch.
pub(super) fn turn_end(
    conn: &Connection,
    key: i64,
    sequence: u64,
) -> rusqlite::Result<Option<u64>> {
    let mut message_query = conn.prepare_cached(
        "SELECT role, parent_sequence, partial, json_array_length(tool_calls) FROM message
         WHERE trace_key = ?1 AND sequence = ?2 AND NOT side_branch",
    )?;
    let mut load_message = |sequence: u64| {
        let row = message_query.query_row((key, clamp_to_i64(sequence)), |row| {
            let mut columns = Columns::of(row);
            let role = columns.next::<String>()?;
            let parent = columns.maybe_count()?;
            Ok((
                role,
                parent,
                columns.next::<bool>()?,
                columns.maybe_count()?.unwrap_or(0),
            ))
        });
        row.optional()
    };
    let Some((role, _, partial, calls)) = load_message(sequence)? else {
        return Ok(None);
    };
    if partial || covered_by_summary(conn, key, sequence)?.is_some() {
        return Ok(None);
    }
    // The results of a message's tool calls follow it, each one the child of the one before.
    let (mut open, mut at) = match (role.as_str(), calls) {
        ("assistant", calls) => (calls, sequence),
        ("tool", _) => {
            let mut answered = 0;
            let mut parent_sequence = sequence;
            let call_count = loop {
                match load_message(parent_sequence)? {
                    Some((role, Some(parent), ..)) if role == "tool" => {
                        answered += 1;
                        parent_sequence = parent;
                    }
                    Some((role, _, _, calls)) if role == "assistant" => break calls,
                    _ => break answered,
                }
            };
            (call_count.saturating_sub(answered), sequence)
        }
        _ => (0, sequence),
    };
    let mut result = conn.prepare_cached(
        "SELECT sequence FROM message WHERE trace_key = ?1 AND sequence > ?2 AND parent_sequence = ?2
         AND role = 'tool' AND NOT partial ORDER BY sequence LIMIT 1",
    )?;
    while open > 0 {
        let next = result
            .query_row((key, clamp_to_i64(at)), |row| Columns::of(row).count())
            .optional()?;
        let Some(next) = next else { break };
        open -= 1;
        at = next;
    }
    Ok(Some(at))
}
