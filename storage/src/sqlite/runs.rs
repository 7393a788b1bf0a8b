//! Rows of runs, and the results of ended child runs.

use rusqlite::{Connection, OptionalExtension, Row};
use soong_protocol::{
    ChildResult, EndReason, ErrorInfo, GoalId, OpenModelCall, PermissionMode, Run, RunId,
    RunStatus, SessionId, Stats, Timestamp, TraceId,
};

use super::{
    columns::{Columns, clamp_to_i64, collect_rows, json, stats_columns, word},
    hot_row::HotRow,
    prompts,
    sums::Sums,
};

/// Columns of a run that change while it is live.
pub(super) struct RunRow {
    pub(super) key: i64,
    pub(super) trace_key: i64,
    pub(super) session_key: i64,
    pub(super) status: RunStatus,
    /// Whether the run only reflects on its trace, and so does not change the trace's status.
    pub(super) is_reflection: bool,
    /// Whether cancellation was requested.
    pub(super) cancel_requested: bool,
    pub(super) end_reason: Option<EndReason>,
    pub(super) turn: u32,
    pub(super) stats: Stats,
    pub(super) started_at: Option<Timestamp>,
    pub(super) completed_at: Option<Timestamp>,
    pub(super) error: Option<ErrorInfo>,
    pub(super) counted_usage: CountedUsage,
    pub(super) position: JournalPosition,
    /// The values in the database.
    saved: StatusColumns,
}

/// How a run is counted in `usage_sum`.
pub(super) struct CountedUsage {
    /// The model that the run starts with, until the run is counted.
    pub(super) start_model: Option<String>,
    /// Key of the row that counts the run; `None` before it has started.
    pub(super) key: Option<i64>,
    /// Amounts of the run that are included in that row.
    pub(super) sums: Option<Sums>,
}

/// The last append and the last event of a run.
#[derive(Default)]
pub(super) struct JournalPosition {
    pub(super) epoch: u64,
    /// The last append of that epoch.
    pub(super) append_number: u64,
    pub(super) last_seq: u64,
}

/// Columns whose change causes the status of a run to be written.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StatusColumns {
    status: RunStatus,
    cancel_requested: bool,
    started_at: Option<Timestamp>,
}

impl HotRow for RunRow {
    type Id = RunId;

    fn load(conn: &Connection, id: &RunId) -> rusqlite::Result<Option<Self>> {
        conn.prepare_cached(concat!(
            "SELECT run_key, trace_key, run.session_key, status, end_reason, turn, ",
            stats_columns!(),
            ", started_at, usage_key, completed_at, epoch, append_number, last_run_seq, error, cancel_requested,
                    json_extract(settings, '$.reflects') IS NOT NULL
             FROM run JOIN run_state USING (run_key) JOIN session ON session.session_key = run.session_key
             WHERE run_id = ?1 AND removal IS NULL"
        ))?
        .query_row([id.as_str()], |row| {
            let mut columns = Columns::of(row);
            let key = columns.next()?;
let trace_key = columns.next()?;
let session_key = columns.next()?;
            let status = columns.enum_value()?;
            let end_reason = columns.maybe_enum()?;
let turn = columns.next()?;
let stats = columns.stats()?;
            let started_at = columns.maybe_time()?;
let usage_key = columns.next()?;
let completed_at = columns.maybe_time()?;
            let position = JournalPosition {
                epoch: columns.count()?,
                append_number: columns.count()?,
                last_seq: columns.count()?,
            };
            let error = columns.maybe_json()?;
let cancel_requested = columns.next()?;
let is_reflection = columns.next()?;
            Ok(Self {
                key,
                trace_key,
                session_key,
                status,
                is_reflection,
                cancel_requested,
                end_reason,
                turn,
                stats,
                started_at,
                completed_at,
                error,
                counted_usage: CountedUsage {
                    start_model: None,
                    key: usage_key,
                    sums: usage_key.map(|_| Sums::of_run(&stats)),
                },
                position,
                saved: StatusColumns { status, cancel_requested, started_at },
            })
        })
        .optional()
    }

    fn save(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        // An update that names the status makes SQLite remove the row from the index of live runs
        // and insert it again, even if the value is the same. Most batches do not change the
        // status.
        let Self {
            status,
            cancel_requested,
            started_at,
            ..
        } = *self;
        let current = StatusColumns {
            status,
            cancel_requested,
            started_at,
        };
        if current != self.saved {
            self.save_status(conn)?;
            self.saved = current;
        }
        conn.prepare_cached(
            "UPDATE run_state SET turn = ?2, messages = ?3, prompt_tokens = ?4, completion_tokens = ?5,
                    cached_tokens = ?6, reasoning_tokens = ?7, estimated = ?8, cost_nanos = ?9, duration_ms = ?10,
                    epoch = ?11, append_number = ?12, last_run_seq = ?13, model_calls = ?14, tool_calls = ?15,
                    cache_write_tokens = ?16
             WHERE run_key = ?1",
        )?
        .execute(rusqlite::params![
            self.key,
            self.turn,
            clamp_to_i64(self.stats.messages),
            clamp_to_i64(self.stats.prompt_tokens),
            clamp_to_i64(self.stats.completion_tokens),
            clamp_to_i64(self.stats.cached_tokens),
            clamp_to_i64(self.stats.reasoning_tokens),
            self.stats.estimated,
            self.stats.cost.map(|cost| clamp_to_i64(cost.as_nanos())),
            clamp_to_i64(self.stats.duration_ms),
            clamp_to_i64(self.position.epoch),
            clamp_to_i64(self.position.append_number),
            clamp_to_i64(self.position.last_seq),
            clamp_to_i64(self.stats.model_calls),
            clamp_to_i64(self.stats.tool_calls),
            clamp_to_i64(self.stats.cache_write_tokens),
        ])?;
        Ok(())
    }

    fn is_evictable(&self) -> bool {
        self.status.is_terminal()
    }
}

impl RunRow {
    /// Writes the status, and the columns that change only together with it.
    fn save_status(&self, conn: &Connection) -> rusqlite::Result<()> {
        let values = (
            self.key,
            self.status.as_str(),
            self.end_reason.map(word),
            self.completed_at.map(Timestamp::as_millis),
            self.error.as_ref().map(json),
            self.cancel_requested,
        );
        // The start time is written only if it has changed, because it is indexed too.
        if self.started_at == self.saved.started_at {
            conn.prepare_cached(
                "UPDATE run_state SET status = ?2, end_reason = ?3, completed_at = ?4, error = ?5, cancel_requested = ?6
                 WHERE run_key = ?1",
            )?
            .execute(values)?;
            return Ok(());
        }
        let (key, status, end_reason, completed_at, error, cancel_requested) = values;
        conn.prepare_cached(
            "UPDATE run_state SET status = ?2, end_reason = ?3, completed_at = ?4, error = ?5, cancel_requested = ?6,
                    started_at = ?7, usage_key = ?8
             WHERE run_key = ?1",
        )?
        .execute((
            key,
            status,
            end_reason,
            completed_at,
            error,
            cancel_requested,
            self.started_at.map(Timestamp::as_millis),
            self.counted_usage.key,
        ))?;
        Ok(())
    }
}

/// Inserts a run of a trace. Its state row holds placeholders until the row is saved.
pub(super) fn insert(
    conn: &Connection,
    run: &Run,
    trace_key: i64,
    session_key: i64,
    parent_key: Option<i64>,
) -> rusqlite::Result<RunRow> {
    conn.prepare_cached(
        "INSERT INTO run (run_id, trace_key, session_key, parent_run_key, parent_goal_id, depth, mode, uid, task,
                          settings, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(rusqlite::params![
        run.run_id.as_str(),
        trace_key,
        session_key,
        parent_key,
        run.parent_goal_id.as_ref().map(GoalId::as_str),
        run.depth,
        run.mode.as_str(),
        run.uid,
        run.task,
        json(&run.settings),
        run.created_at.as_millis(),
    ])?;
    let row = RunRow {
        key: conn.last_insert_rowid(),
        trace_key,
        session_key,
        status: run.status,
        is_reflection: run.settings.reflects.is_some(),
        cancel_requested: false,
        end_reason: run.end_reason,
        turn: run.turn,
        stats: run.usage,
        // Set by the event that starts the run.
        started_at: None,
        completed_at: run.completed_at,
        error: run.error.clone(),
        counted_usage: CountedUsage {
            start_model: None,
            key: None,
            sums: None,
        },
        position: JournalPosition::default(),
        saved: StatusColumns {
            status: RunStatus::Queued,
            cancel_requested: false,
            started_at: None,
        },
    };
    conn.prepare_cached(
        "INSERT INTO run_state (run_key, session_key, status, turn, messages, prompt_tokens, completion_tokens,
                                cached_tokens, reasoning_tokens, estimated, duration_ms, epoch, append_number,
                                last_run_seq)
         VALUES (?1, ?2, 'queued', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)",
    )?
    .execute((row.key, session_key))?;
    Ok(row)
}

/// Sets the model calls of a run that have no outcome yet.
pub(super) fn set_open_model_calls(
    conn: &Connection,
    key: i64,
    calls: &[OpenModelCall],
) -> rusqlite::Result<()> {
    let calls = (!calls.is_empty()).then(|| json(calls));
    conn.prepare_cached("UPDATE run_state SET open_model_calls = ?2 WHERE run_key = ?1")?
        .execute((key, calls))?;
    Ok(())
}

/// Sets the tools that a run offers to its model. Runs of a session that offer the same tools share
/// one row.
pub(super) fn set_offered_tools(
    conn: &Connection,
    run: &RunRow,
    tools: &[String],
) -> rusqlite::Result<()> {
    let tools_key = prompts::key(conn, run.session_key, &json(tools))?;
    conn.prepare_cached("UPDATE run_state SET tools_key = ?2 WHERE run_key = ?1")?
        .execute((run.key, tools_key))?;
    Ok(())
}

/// Reads the model calls of a run that have no outcome yet.
pub(super) fn open_model_calls(
    conn: &Connection,
    id: &RunId,
) -> rusqlite::Result<Vec<OpenModelCall>> {
    let mut query = conn.prepare_cached(
        "SELECT open_model_calls FROM run JOIN run_state USING (run_key) WHERE run_id = ?1",
    )?;
    let calls = query
        .query_row([id.as_str()], |row| Columns::of(row).maybe_json())
        .optional()?;
    Ok(calls.flatten().unwrap_or_default())
}

macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT run.run_id, trace.trace_id, session.session_id, session.incarnation, parent.run_id, run.parent_goal_id, run.depth,
                    run.mode, run.task, run.settings, run.uid, state.status, state.cancel_requested, state.end_reason,
                    state.turn, ",
            stats_columns!(),
            ", state.error, run.created_at, state.started_at, state.completed_at,
                    (SELECT model FROM usage_sum WHERE usage_sum.usage_key = state.usage_key)
             FROM run_state AS state
             JOIN run ON run.run_key = state.run_key
             JOIN trace ON trace.trace_key = run.trace_key
             JOIN session ON session.session_key = run.session_key AND session.removal IS NULL
             LEFT JOIN run AS parent ON parent.run_key = run.parent_run_key ",
            $tail
        )
    };
}

fn read(row: &Row<'_>) -> rusqlite::Result<Run> {
    let mut columns = Columns::of(row);
    let mut run = Run {
        run_id: columns.id(RunId::new)?,
        trace_id: columns.id(TraceId::new)?,
        session_id: columns.id(SessionId::new)?,
        session_incarnation: columns.count()?,
        parent_run_id: columns.maybe_id(RunId::new)?,
        parent_goal_id: columns.maybe_id(GoalId::new)?,
        depth: columns.next()?,
        mode: columns.enum_value()?,
        task: columns.next()?,
        settings: columns.json()?,
        uid: columns.next()?,
        status: columns.enum_value()?,
        cancel_requested: columns.next()?,
        end_reason: columns.maybe_enum()?,
        turn: columns.next()?,
        usage: columns.stats()?,
        cost: None,
        error: columns.maybe_json()?,
        created_at: columns.time()?,
        started_at: columns.maybe_time()?,
        completed_at: columns.maybe_time()?,
        model_name: columns.next()?,
    };
    run.cost = run.usage.cost;
    run.cancel_requested &= !run.status.is_terminal();
    Ok(run)
}

/// Reads a run.
pub(super) fn run(conn: &Connection, id: &RunId) -> rusqlite::Result<Option<Run>> {
    conn.prepare_cached(select!("WHERE run.run_id = ?1"))?
        .query_row([id.as_str()], read)
        .optional()
}

/// Reads the last run of a trace, except runs that only reflect.
pub(super) fn last_of(conn: &Connection, id: &TraceId) -> rusqlite::Result<Option<Run>> {
    let mut query = conn.prepare_cached(select!(
        "WHERE trace.trace_id = ?1 AND json_extract(run.settings, '$.reflects') IS NULL
         ORDER BY run.run_key DESC LIMIT 1"
    ))?;
    query.query_row([id.as_str()], read).optional()
}

/// Returns the id of the last run of the trace with that key, except runs that only reflect.
pub(super) fn last_id_of(conn: &Connection, trace_key: i64) -> rusqlite::Result<Option<RunId>> {
    let mut query = conn.prepare_cached(
        "SELECT run_id FROM run WHERE trace_key = ?1 AND json_extract(settings, '$.reflects') IS NULL
         ORDER BY run_key DESC LIMIT 1",
    )?;
    query
        .query_row([trace_key], |row| Columns::of(row).id(RunId::new))
        .optional()
}

/// Reads the permission rules that deny of all user runs of a session that have started or not
/// ended, except runs that only reflect. Runs may be those of a sub-agent's trace.
pub(super) fn deny_rules(conn: &Connection, session_key: i64) -> rusqlite::Result<Vec<String>> {
    let mut query = conn.prepare_cached(
        "SELECT DISTINCT rule.value
         FROM trace JOIN run USING (trace_key) JOIN run_state AS state USING (run_key)
         JOIN json_each(run.settings, '$.deny') AS rule
         WHERE trace.session_key = ?1 AND run.parent_run_key IS NULL
         AND json_extract(run.settings, '$.reflects') IS NULL
         AND (state.started_at IS NOT NULL OR state.status IN ('queued', 'running', 'waiting'))
         ORDER BY run.run_key, rule.key",
    )?;
    collect_rows(query.query_map([session_key], |row| row.get(0))?)
}

/// Reads the last run of a trace that has started, except runs that only reflect.
pub(super) fn last_started_of(conn: &Connection, id: &TraceId) -> rusqlite::Result<Option<Run>> {
    let mut query = conn.prepare_cached(select!(
        "WHERE trace.trace_id = ?1 AND state.started_at IS NOT NULL
         AND json_extract(run.settings, '$.reflects') IS NULL ORDER BY run.run_key DESC LIMIT 1"
    ))?;
    query.query_row([id.as_str()], read).optional()
}

/// Lists the runs that have not ended.
///
/// Forces the index of live runs: otherwise the planner scans all runs to avoid sorting.
pub(super) fn list_live(
    conn: &Connection,
    session: Option<&SessionId>,
) -> rusqlite::Result<Vec<Run>> {
    let Some(id) = session else {
        let mut query = conn.prepare_cached(select!(
            "WHERE run.run_key IN (SELECT run_key FROM run_state INDEXED BY run_live
                                   WHERE status = 'queued' OR status = 'running' OR status = 'waiting')
             ORDER BY run.run_key"
        ))?;
        return collect_rows(query.query_map([], read)?);
    };
    let mut query = conn.prepare_cached(select!(
        "WHERE run.run_key IN (SELECT run_key FROM run_state INDEXED BY run_live
                               WHERE (status = 'queued' OR status = 'running' OR status = 'waiting')
                               AND session_key = (SELECT session_key FROM session WHERE session_id = ?1))
         ORDER BY run.run_key"
    ))?;
    collect_rows(query.query_map([id.as_str()], read)?)
}

/// Lists the runs whose task journals are not known to be complete.
pub(super) fn with_task_journal(conn: &Connection) -> rusqlite::Result<Vec<Run>> {
    let mut query = conn.prepare_cached(select!(
        "WHERE run.run_key IN (SELECT run_key FROM task_journal) ORDER BY run.run_key"
    ))?;
    collect_rows(query.query_map([], read)?)
}

/// Lists the children of a run.
pub(super) fn children(conn: &Connection, id: &RunId) -> rusqlite::Result<Vec<Run>> {
    let mut query = conn.prepare_cached(select!(
        "WHERE run.parent_run_key = (SELECT run_key FROM run WHERE run_id = ?1) ORDER BY run.run_key"
    ))?;
    collect_rows(query.query_map([id.as_str()], read)?)
}

/// Sets the permission mode of a run.
pub(super) fn set_permission_mode(
    conn: &Connection,
    run_key: i64,
    mode: PermissionMode,
) -> rusqlite::Result<()> {
    let sql =
        "UPDATE run SET settings = json_set(settings, '$.permission_mode', ?2) WHERE run_key = ?1";
    conn.prepare_cached(sql)?
        .execute((run_key, mode.as_str()))?;
    Ok(())
}

/// Inserts the result of a child run.
pub(super) fn insert_result(
    conn: &Connection,
    run_key: i64,
    result: &ChildResult,
) -> rusqlite::Result<()> {
    conn.prepare_cached("INSERT INTO child_result (run_key, body) VALUES (?1, ?2)")?
        .execute((run_key, json(result)))?;
    Ok(())
}

/// Returns whether a child run's result is stored.
pub(super) fn has_result(conn: &Connection, run_key: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM child_result WHERE run_key = ?1")?
        .exists([run_key])
}

/// Reads the result of a child run; `None` if it has not ended.
pub(super) fn result(conn: &Connection, id: &RunId) -> rusqlite::Result<Option<ChildResult>> {
    let mut query = conn.prepare_cached(
        "SELECT body FROM child_result WHERE run_key = (SELECT run_key FROM run WHERE run_id = ?1)",
    )?;
    query
        .query_row([id.as_str()], |row| Columns::of(row).json())
        .optional()
}

/// Reads the results of the ended children of a run, in the order of their start.
pub(super) fn results(conn: &Connection, id: &RunId) -> rusqlite::Result<Vec<ChildResult>> {
    let mut query = conn.prepare_cached(
        "SELECT body FROM run JOIN child_result USING (run_key) JOIN session USING (session_key)
         WHERE removal IS NULL AND parent_run_key = (SELECT run_key FROM run WHERE run_id = ?1) ORDER BY run_key",
    )?;
    collect_rows(query.query_map([id.as_str()], |row| Columns::of(row).json())?)
}

/// Returns whether the trace with that key has ever had a run.
pub(super) fn has_any(conn: &Connection, trace_key: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM run WHERE trace_key = ?1)")?
        .query_row([trace_key], |row| row.get(0))
}
