//! The goal tree of a trace as one row, and its usage as sums over messages and sub-traces.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension};
use soong_protocol::{
    Event, GoalId, GoalTree, MessageEvent, RunEvent, RunId, Stats, SubTraceMetadata, TraceId,
};

use super::{
    columns::{Columns, clamp_to_i64, json, stats_columns},
    event_rows,
};

/// Reads the goals of the trace with that key. If none are stored, returns an empty tree with the
/// trace's task as mission.
pub(super) fn load(conn: &Connection, trace_key: i64) -> rusqlite::Result<GoalTree> {
    let mut query = conn.prepare_cached("SELECT body FROM goal_tree WHERE trace_key = ?1")?;
    if let Some(tree) = query
        .query_row([trace_key], |row| Columns::of(row).json())
        .optional()?
    {
        return Ok(tree);
    }
    let mut query = conn.prepare_cached("SELECT task FROM trace WHERE trace_key = ?1")?;
    query
        .query_row([trace_key], |row| row.get::<_, String>(0))
        .map(GoalTree::new)
}

/// Writes the goals of the trace with that key.
pub(super) fn save(conn: &Connection, trace_key: i64, tree: &GoalTree) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO goal_tree (trace_key, current_id, body) VALUES (?1, ?2, ?3)
         ON CONFLICT (trace_key) DO UPDATE SET current_id = excluded.current_id, body = excluded.body",
    )?
    .execute((trace_key, tree.current_id.as_ref().map(GoalId::as_str), json(tree)))?;
    Ok(())
}

/// Reads the goals of the trace with that key as they were at an lsn, by replaying their events.
pub(super) fn at(conn: &Connection, trace_key: i64, lsn: u64) -> rusqlite::Result<GoalTree> {
    let mut query = conn.prepare_cached("SELECT task FROM trace WHERE trace_key = ?1")?;
    let mission: String = query.query_row([trace_key], |row| row.get(0))?;
    let mut query = conn.prepare_cached(
        "SELECT lsn, kind, data FROM event INDEXED BY event_of_goals WHERE trace_key = ?1 AND lsn <= ?2
         AND changes_goals ORDER BY event_id",
    )?;
    let mut tree = GoalTree::new(mission);
    let mut rows = query.query((trace_key, clamp_to_i64(lsn)))?;
    while let Some(row) = rows.next()? {
        let events = event_rows::split_until(row, lsn)?;
        for (kind, data) in events
            .into_iter()
            .filter(|(kind, _)| event_rows::changes_goals(kind))
        {
            match Event::decode(kind, data) {
                Event::Goal(event) => tree.apply(&event),
                Event::Message(
                    MessageEvent::Rewind { goal_tree, .. }
                    | MessageEvent::HeadSwitched { goal_tree, .. },
                )
                | Event::Run(RunEvent::SessionForked { goal_tree, .. }) => tree.restore(*goal_tree),
                _ => {}
            }
        }
    }
    Ok(tree)
}

/// Reads the goals of the trace with that key, with their sub-traces and stats.
pub(super) fn for_readers(conn: &Connection, trace_key: i64) -> rusqlite::Result<GoalTree> {
    let mut tree = load(conn, trace_key)?;
    if tree.goals.is_empty() {
        return Ok(tree);
    }
    let mut own = of_messages(conn, trace_key)?;
    let mut below: HashMap<GoalId, Stats> = HashMap::new();
    for (sub_trace_id, goal_id, metadata) in sub_traces(conn, trace_key)? {
        if let Some(goal) = tree.goals.iter_mut().find(|goal| goal.id == goal_id) {
            add(
                below.entry(goal_id).or_insert_with(Stats::zero),
                &metadata.cumulative_stats,
            );
            goal.sub_trace_ids.push(sub_trace_id.clone());
            goal.sub_trace_metadata.insert(sub_trace_id, metadata);
        }
    }
    // Parents precede their children, so in reverse order each goal is complete before it is added
    // to its parent.
    for goal in tree.goals.iter_mut().rev() {
        let own = own.remove(&goal.id).unwrap_or_else(Stats::zero);
        let mut cumulative = own;
        if let Some(stats) = below.get(&goal.id) {
            add(&mut cumulative, stats);
        }
        if let Some(parent) = &goal.parent_id {
            add(
                below.entry(parent.clone()).or_insert_with(Stats::zero),
                &cumulative,
            );
        }
        goal.self_stats = Some(own);
        goal.cumulative_stats = Some(cumulative);
    }
    Ok(tree)
}

/// Adds stats to a sum, including the duration.
fn add(sum: &mut Stats, part: &Stats) {
    sum.add_descendant(part);
    sum.duration_ms = sum.duration_ms.saturating_add(part.duration_ms);
}

/// Sums up the messages of a trace by the goal that was current.
fn of_messages(conn: &Connection, trace_key: i64) -> rusqlite::Result<HashMap<GoalId, Stats>> {
    let mut query = conn.prepare_cached(
        "SELECT goal_id, count(*), CAST(total(prompt_tokens) AS INTEGER), CAST(total(completion_tokens) AS INTEGER),
                CAST(total(cost_nanos) AS INTEGER), sum(completion_tokens IS NOT NULL AND cost_nanos IS NULL),
                sum(role = 'assistant' AND completion_tokens IS NOT NULL), sum(role = 'tool'),
                CAST(total(duration_ms) FILTER (WHERE role = 'assistant') AS INTEGER)
         FROM message WHERE trace_key = ?1 AND goal_id IS NOT NULL GROUP BY goal_id",
    )?;
    query
        .query_map([trace_key], |row| {
            let mut columns = Columns::of(row);
            let goal_id = columns.id(GoalId::new)?;
            let messages = columns.count()?;
            let prompt_tokens = columns.count()?;
            let completion_tokens = columns.count()?;
            let cost = columns.maybe_usd()?;
            let unknown = columns.count()?;
            let stats = Stats {
                messages,
                total_tokens: prompt_tokens.saturating_add(completion_tokens),
                prompt_tokens,
                completion_tokens,
                cost: cost.filter(|_| unknown == 0),
                model_calls: columns.count()?,
                tool_calls: columns.count()?,
                duration_ms: columns.count()?,
                ..Stats::zero()
            };
            Ok((goal_id, stats))
        })?
        .collect()
}

/// Lists the sub-traces that serve a goal of a trace, including those from before a fork, which
/// belong to the copied trace.
fn sub_traces(
    conn: &Connection,
    trace_key: i64,
) -> rusqlite::Result<Vec<(TraceId, GoalId, SubTraceMetadata)>> {
    let mut query = conn.prepare_cached(concat!(
        "WITH RECURSIVE below (top, trace_key) AS (
             SELECT trace_key, trace_key FROM trace WHERE parent_trace_key = ?1 AND parent_goal_id IS NOT NULL
             UNION ALL
             SELECT linked_key, linked_key FROM linked_trace JOIN trace ON trace.trace_key = linked_key
             JOIN session USING (session_key)
             WHERE linked_trace.trace_key = ?1 AND goal_id IS NOT NULL AND removal IS NULL
             UNION ALL
             SELECT top, trace.trace_key FROM below JOIN trace ON trace.parent_trace_key = below.trace_key
         )
         SELECT top, ",
        stats_columns!(),
        ", child.trace_id, child.parent_goal_id, child.agent_type, child.task, result_summary
         FROM below CROSS JOIN trace_state ON trace_state.trace_key = below.trace_key
         CROSS JOIN trace AS child ON child.trace_key = below.top ORDER BY top, below.trace_key <> top"
    ))?;
    let mut found: Vec<(i64, (TraceId, GoalId, SubTraceMetadata))> = Vec::new();
    let mut rows = query.query([trace_key])?;
    while let Some(row) = rows.next()? {
        let mut columns = Columns::of(row);
        let top = columns.next()?;
        let stats = columns.stats()?;
        match found.last_mut() {
            Some((last, (_, _, metadata))) if *last == top => {
                add(&mut metadata.cumulative_stats, &stats)
            }
            // The sub-trace itself is the first row of its group.
            _ => {
                let trace_id = columns.id(TraceId::new)?;
                let goal_id = columns.id(GoalId::new)?;
                let metadata = SubTraceMetadata {
                    mode: trace_id.child_mode(),
                    agent_type: columns.next()?,
                    task: columns.next()?,
                    run_ids: run_ids(conn, top)?,
                    summary: columns.next()?,
                    self_stats: stats,
                    cumulative_stats: stats,
                };
                found.push((top, (trace_id, goal_id, metadata)));
            }
        }
    }
    Ok(found.into_iter().map(|(_, found)| found).collect())
}

/// Lists the runs of the trace with that key.
fn run_ids(conn: &Connection, trace_key: i64) -> rusqlite::Result<Vec<RunId>> {
    let mut query =
        conn.prepare_cached("SELECT run_id FROM run WHERE trace_key = ?1 ORDER BY run_key")?;
    query
        .query_map([trace_key], |row| Columns::of(row).id(RunId::new))?
        .collect()
}
