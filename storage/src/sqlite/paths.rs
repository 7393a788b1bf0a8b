//! Which messages lead to a trace's head: ranges of sequences, and the summaries that stand for parts (MSG-1,
//! MSG-5).
//!
//! The *lineage* of a message is what the links to parents lead through; that of the head is kept as ranges, in
//! ascending order. The *main path* is the lineage, where the last summary on it stands for what it covers.
//! Invariants: a parent precedes its child, so ranges are disjoint and ascend; links are never rewritten.

use rusqlite::{Connection, OptionalExtension, Row};
use soong_protocol::Covers;

use super::columns::{Columns, all, int};

/// Sequences from a first one to a last one.
pub(super) type Range = (u64, u64);

/// Notes that a message which does not follow its parent's number became the head.
pub(super) fn begin_range(conn: &Connection, key: i64, head: u64, sequence: u64) -> rusqlite::Result<()> {
    // The first message of a trace follows nothing.
    if head > 0 {
        conn.prepare_cached("UPDATE path_range SET last = ?2 WHERE trace_key = ?1 AND last IS NULL")?
            .execute((key, int(head)))?;
    }
    conn.prepare_cached("INSERT INTO path_range (trace_key, first, last) VALUES (?1, ?2, NULL)")?
        .execute((key, int(sequence)))?;
    Ok(())
}

/// Returns whether a message leads to the head.
pub(super) fn leads_to(conn: &Connection, key: i64, head: u64, sequence: u64) -> rusqlite::Result<bool> {
    if sequence > head {
        return Ok(false);
    }
    let mut query = conn.prepare_cached(
        "SELECT last FROM path_range WHERE trace_key = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1",
    )?;
    let last: Option<Option<i64>> = query.query_row((key, int(sequence)), |row| row.get(0)).optional()?;
    Ok(last.is_some_and(|last| last.is_none_or(|last| last >= int(sequence))))
}

/// Makes a message the head that leads to the present one; what came behind it leaves the path.
fn cut(conn: &Connection, key: i64, sequence: u64) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM path_range WHERE trace_key = ?1 AND first > ?2")?.execute((key, int(sequence)))?;
    conn.prepare_cached(
        "UPDATE path_range SET last = NULL
         WHERE trace_key = ?1 AND first = (SELECT max(first) FROM path_range WHERE trace_key = ?1)",
    )?
    .execute([key])?;
    Ok(())
}

/// Makes any message the head: one on the path at no cost, another by the links to where it left the path.
pub(super) fn make_head(conn: &Connection, key: i64, head: u64, sequence: u64) -> rusqlite::Result<()> {
    if leads_to(conn, key, head, sequence)? {
        return cut(conn, key, sequence);
    }
    let ranges = lineage(conn, key, head, sequence)?;
    conn.prepare_cached("DELETE FROM path_range WHERE trace_key = ?1")?.execute([key])?;
    keep(conn, key, sequence, &ranges)
}

/// Returns the lineage of a message: from the first message to it.
pub(super) fn lineage(conn: &Connection, key: i64, head: u64, sequence: u64) -> rusqlite::Result<Vec<Range>> {
    let mut parent =
        conn.prepare_cached("SELECT parent_sequence FROM message WHERE trace_key = ?1 AND sequence = ?2")?;
    // Off the path, from the end: by the links.
    let mut off_path: Vec<u64> = Vec::new();
    let mut at = Some(sequence);
    while let Some(here) = at.filter(|here| *here > 0)
        && !leads_to(conn, key, head, here)?
    {
        let Some(above) = parent.query_row((key, int(here)), |row| Columns::of(row).maybe_count()).optional()? else {
            break;
        };
        off_path.push(here);
        at = above.filter(|above| *above < here);
    }
    let mut query = conn.prepare_cached(
        "SELECT first, coalesce(last, ?2) FROM path_range WHERE trace_key = ?1 AND first <= ?3 ORDER BY first",
    )?;
    let joined = at.unwrap_or(0);
    let mut ranges: Vec<Range> = all(query.query_map((key, int(head), int(joined)), |row| {
        let mut columns = Columns::of(row);
        Ok((columns.count()?, columns.count()?.min(joined)))
    })?)?;
    for sequence in off_path.into_iter().rev() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == sequence => *last = sequence,
            _ => ranges.push((sequence, sequence)),
        }
    }
    Ok(ranges)
}

/// Notes what a summary stands for.
pub(super) fn add_boundary(conn: &Connection, key: i64, summary: u64, covers: &Covers) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO boundary (trace_key, next, summary, first, last, system, request)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute((
        key,
        int(covers.next),
        int(summary),
        int(covers.first),
        int(covers.last),
        covers.system.map(int),
        covers.request.map(int),
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

/// Lists the summaries on a lineage: their sequences, and what each stands for.
pub(super) fn boundaries(conn: &Connection, key: i64, ranges: &[Range]) -> rusqlite::Result<Vec<(u64, Covers)>> {
    let mut query = conn.prepare_cached(
        "SELECT summary, next, first, last, system, request FROM boundary WHERE trace_key = ?1 ORDER BY next, summary",
    )?;
    let all: Vec<(u64, Covers)> = all(query.query_map([key], read_boundary)?)?;
    Ok(all.into_iter().filter(|(_, covers)| holds(ranges, covers.next)).collect())
}

/// Returns whether one of the ranges, which ascend, holds a sequence.
pub(super) fn holds(ranges: &[Range], sequence: u64) -> bool {
    let place = ranges.partition_point(|(_, last)| *last < sequence);
    ranges.get(place).is_some_and(|(first, _)| *first <= sequence)
}

/// Keeps ranges as the lineage of the head of a trace that has none yet.
pub(super) fn keep(conn: &Connection, key: i64, head: u64, ranges: &[Range]) -> rusqlite::Result<()> {
    let mut add = conn.prepare_cached("INSERT INTO path_range (trace_key, first, last) VALUES (?1, ?2, ?3)")?;
    for (first, last) in ranges {
        add.execute((key, int(*first), (*last != head).then(|| int(*last))))?;
    }
    Ok(())
}

/// Finds the last summary on a lineage: its sequence, and what it stands for.
fn last_boundary(conn: &Connection, key: i64, ranges: &[Range]) -> rusqlite::Result<Option<(u64, Covers)>> {
    let mut query = conn.prepare_cached(
        "SELECT summary, next, first, last, system, request FROM boundary WHERE trace_key = ?1
         ORDER BY next DESC, summary DESC",
    )?;
    let mut rows = query.query([key])?;
    while let Some(row) = rows.next()? {
        let (summary, covers) = read_boundary(row)?;
        if holds(ranges, covers.next) {
            return Ok(Some((summary, covers)));
        }
    }
    Ok(None)
}

/// Returns the main path with a message as its head, in the order in which it is read.
pub(super) fn main_path(conn: &Connection, key: i64, head: u64, sequence: u64) -> rusqlite::Result<Vec<Range>> {
    let ranges = lineage(conn, key, head, sequence)?;
    let Some((summary, covers)) = last_boundary(conn, key, &ranges)? else { return Ok(ranges) };
    let behind = ranges.into_iter().filter(|(_, last)| *last >= covers.next);
    let behind: Vec<Range> = behind.map(|(first, last)| (first.max(covers.next), last)).collect();
    // Whoever asked last is heard; an earlier request is in the summary.
    let mut asks = conn.prepare_cached(
        "SELECT 1 FROM message WHERE trace_key = ?1 AND sequence BETWEEN ?2 AND ?3 AND role = 'user' LIMIT 1",
    )?;
    let mut request = covers.request;
    for (first, last) in &behind {
        if request.is_some() && asks.exists((key, int(*first), int(*last)))? {
            request = None;
        }
    }
    let single = |sequence: u64| (sequence, sequence);
    let front = covers.system.map(single).into_iter().chain([single(summary)]).chain(request.map(single));
    Ok(front.chain(behind).collect())
}

/// Finds what a summary stands for.
pub(super) fn covers(conn: &Connection, key: i64, summary: u64) -> rusqlite::Result<Option<Covers>> {
    let mut query = conn.prepare_cached(
        "SELECT summary, next, first, last, system, request FROM boundary WHERE trace_key = ?1 AND summary = ?2",
    )?;
    Ok(query.query_row((key, int(summary)), read_boundary).optional()?.map(|(_, covers)| covers))
}

/// Finds the end of the turn that a message stands in: behind the last result of the calls that it makes or
/// answers (MSG-3); itself, where it does neither. `None` = nobody can go on from there: there is no such
/// message, or it was cut off, or is a summary.
pub(super) fn safe_cut(conn: &Connection, key: i64, sequence: u64) -> rusqlite::Result<Option<u64>> {
    let mut look = conn.prepare_cached(
        "SELECT role, parent_sequence, partial, json_array_length(tool_calls) FROM message
         WHERE trace_key = ?1 AND sequence = ?2 AND NOT side_branch",
    )?;
    let mut looked_at = |sequence: u64| {
        let row = look.query_row((key, int(sequence)), |row| {
            let mut columns = Columns::of(row);
            let (role, parent) = (columns.next::<String>()?, columns.maybe_count()?);
            Ok((role, parent, columns.next::<bool>()?, columns.maybe_count()?.unwrap_or(0)))
        });
        row.optional()
    };
    let Some((role, _, partial, calls)) = looked_at(sequence)? else { return Ok(None) };
    if partial || covers(conn, key, sequence)?.is_some() {
        return Ok(None);
    }
    // Results follow the message that asks for them, one after the other.
    let (mut open, mut at) = match (role.as_str(), calls) {
        ("assistant", calls) => (calls, sequence),
        ("tool", _) => {
            let (mut answered, mut asked_in) = (0, sequence);
            let asked = loop {
                match looked_at(asked_in)? {
                    Some((role, Some(parent), ..)) if role == "tool" => (answered, asked_in) = (answered + 1, parent),
                    Some((role, _, _, calls)) if role == "assistant" => break calls,
                    _ => break answered,
                }
            };
            (asked.saturating_sub(answered), sequence)
        }
        _ => (0, sequence),
    };
    let mut result = conn.prepare_cached(
        "SELECT sequence FROM message WHERE trace_key = ?1 AND sequence > ?2 AND parent_sequence = ?2
         AND role = 'tool' AND NOT partial ORDER BY sequence LIMIT 1",
    )?;
    while open > 0 {
        let next = result.query_row((key, int(at)), |row| Columns::of(row).count()).optional()?;
        let Some(next) = next else { break };
        (open, at) = (open - 1, next);
    }
    Ok(Some(at))
}
