//! Rows of traces.

use rusqlite::{Connection, OptionalExtension, Row, ToSql};
use serde::Deserialize;
use serde_json::{Map, Value};
use soong_protocol::{
    EndReason, GoalId, GoalTree, NewTrace, RunMode, SessionId, Stats, Timestamp, Trace,
    TraceContext, TraceId, TraceMode, TraceStatus,
};

use super::{
    collaborators,
    columns::{Columns, clamp_to_i64, collect_rows, stats_columns, word},
    goals,
    hot_row::HotRow,
    sessions::SessionRow,
};
use crate::store::TraceFilter;

/// Columns of a trace that change while its runs are live.
pub(super) struct TraceRow {
    pub(super) key: i64,
    pub(super) session_id: SessionId,
    pub(super) status: TraceStatus,
    pub(super) end_reason: Option<EndReason>,
    /// Number of its runs that have not ended.
    pub(super) live_runs: u64,
    pub(super) last_sequence: u64,
    pub(super) head_sequence: u64,
    pub(super) last_event_id: u64,
    pub(super) stats: Stats,
    pub(super) completed_at: Option<Timestamp>,
    pub(super) result_summary: Option<String>,
    pub(super) error_message: Option<String>,
    /// Mode, preset and model of the last run that started, until they are written.
    pub(super) last_run: Option<LastRunInfo>,
    /// The goal tree; `None` until an event has touched it.
    pub(super) goals: Option<Box<GoalTree>>,
    /// Whether the goal tree differs from the stored one.
    pub(super) goals_changed: bool,
}

/// Values that a trace shows of its last run. They change seldom, and are stored in the `trace`
/// table with the long texts.
pub(super) struct LastRunInfo {
    pub(super) run_mode: RunMode,
    pub(super) agent_type: String,
    pub(super) model: String,
}

impl HotRow for TraceRow {
    type Id = TraceId;

    fn load(conn: &Connection, id: &TraceId) -> rusqlite::Result<Option<Self>> {
        conn.prepare_cached(concat!(
            "SELECT trace_key, session_id, status, end_reason, live_runs, last_sequence, head_sequence,
                    last_event_id, ",
            stats_columns!(),
            ", completed_at, result_summary, error_message
             FROM trace JOIN trace_state USING (trace_key) JOIN session USING (session_key)
             WHERE trace_id = ?1 AND removal IS NULL"
        ))?
        .query_row([id.as_str()], |row| {
            let mut columns = Columns::of(row);
            Ok(Self {
                key: columns.next()?,
                session_id: columns.id(SessionId::new)?,
                status: columns.enum_value()?,
                end_reason: columns.maybe_enum()?,
                live_runs: columns.count()?,
                last_sequence: columns.count()?,
                head_sequence: columns.count()?,
                last_event_id: columns.count()?,
                stats: columns.stats()?,
                completed_at: columns.maybe_time()?,
                result_summary: columns.next()?,
                error_message: columns.next()?,
                last_run: None,
                goals: None,
                goals_changed: false,
            })
        })
        .optional()
    }

    fn save(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        conn.prepare_cached(
            "UPDATE trace_state SET status = ?2, end_reason = ?3, live_runs = ?4, last_sequence = ?5,
                    head_sequence = ?6, last_event_id = ?7, messages = ?8, prompt_tokens = ?9,
                    completion_tokens = ?10, cached_tokens = ?11, reasoning_tokens = ?12, estimated = ?13,
                    cost_nanos = ?14, duration_ms = ?15, completed_at = ?16, result_summary = ?17,
                    error_message = ?18, model_calls = ?19, tool_calls = ?20,
                    cache_write_tokens = ?21
             WHERE trace_key = ?1",
        )?
        .execute(rusqlite::params![
            self.key,
            self.status.as_str(),
            self.end_reason.map(word),
            clamp_to_i64(self.live_runs),
            clamp_to_i64(self.last_sequence),
            clamp_to_i64(self.head_sequence),
            clamp_to_i64(self.last_event_id),
            clamp_to_i64(self.stats.messages),
            clamp_to_i64(self.stats.prompt_tokens),
            clamp_to_i64(self.stats.completion_tokens),
            clamp_to_i64(self.stats.cached_tokens),
            clamp_to_i64(self.stats.reasoning_tokens),
            self.stats.estimated,
            self.stats.cost.map(|cost| clamp_to_i64(cost.as_nanos())),
            clamp_to_i64(self.stats.duration_ms),
            self.completed_at.map(Timestamp::as_millis),
            self.result_summary,
            self.error_message,
            clamp_to_i64(self.stats.model_calls),
            clamp_to_i64(self.stats.tool_calls),
            clamp_to_i64(self.stats.cache_write_tokens),
        ])?;
        if let Some(label) = self.last_run.take() {
            conn.prepare_cached(
                "UPDATE trace SET run_mode = ?2, agent_type = ?3, model = ?4 WHERE trace_key = ?1",
            )?
            .execute((
                self.key,
                label.run_mode.as_str(),
                label.agent_type,
                label.model,
            ))?;
        }
        if self.goals_changed
            && let Some(goals) = &self.goals
        {
            goals::save(conn, self.key, goals)?;
            self.goals_changed = false;
        }
        Ok(())
    }

    fn is_evictable(&self) -> bool {
        self.live_runs == 0
    }
}

/// Sets the name of a trace, and of its session if that has the same name so far.
pub(super) fn rename(
    conn: &Connection,
    key: i64,
    session_key: i64,
    name: &str,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "UPDATE session SET name = ?3 WHERE session_key = ?2
         AND name = (SELECT trace.name FROM trace WHERE trace.trace_key = ?1)",
    )?
    .execute((key, session_key, name))?;
    conn.prepare_cached("UPDATE trace SET name = ?2 WHERE trace_key = ?1")?
        .execute((key, name))?;
    Ok(())
}

/// Sets the mode, preset, model, name and task of a trace that was created before its first run.
pub(super) fn set_first_task(conn: &Connection, key: i64, new: &NewTrace) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "UPDATE trace SET run_mode = ?2, agent_type = ?3, model = ?4, name = ?5, task = ?6 WHERE trace_key = ?1",
    )?
    .execute((key, new.run_mode.as_str(), &new.agent_type, &new.model, &new.name, &new.task))?;
    Ok(())
}

/// Inserts a trace of a session. Its state row holds placeholders until the row is saved.
pub(super) fn insert(
    conn: &Connection,
    new: &NewTrace,
    session: &SessionRow,
    parent_key: Option<i64>,
) -> rusqlite::Result<TraceRow> {
    conn.prepare_cached(
        "INSERT INTO trace (trace_id, session_key, parent_trace_key, parent_goal_id, run_mode, agent_type, model, name,
                            uid, task, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(rusqlite::params![
        new.trace_id.as_str(),
        session.key,
        parent_key,
        new.parent_goal_id.as_ref().map(GoalId::as_str),
        new.run_mode.as_str(),
        new.agent_type,
        new.model,
        new.name,
        new.uid,
        new.task,
        new.created_at.as_millis(),
    ])?;
    let key = conn.last_insert_rowid();
    conn.prepare_cached(
        "INSERT INTO trace_state (trace_key, status, live_runs, last_sequence, head_sequence, last_event_id, messages,
                                  prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, estimated,
                                  cost_nanos, duration_ms)
         VALUES (?1, 'running', 0, 0, 0, ?2, 0, 0, 0, 0, 0, 0, 0, 0)",
    )?
    .execute((key, clamp_to_i64(session.event_base)))?;
    Ok(TraceRow {
        key,
        session_id: new.session_id.clone(),
        status: TraceStatus::Running,
        end_reason: None,
        live_runs: 0,
        last_sequence: 0,
        head_sequence: 0,
        last_event_id: session.event_base,
        stats: Stats::zero(),
        completed_at: None,
        result_summary: None,
        error_message: None,
        last_run: None,
        goals: None,
        goals_changed: false,
    })
}

macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT trace.trace_key, trace.trace_id, session.session_id, trace.run_mode, trace.task, trace.name,
                    trace.agent_type, parent.trace_id, trace.parent_goal_id, state.status, state.end_reason, ",
            stats_columns!(),
            ", state.last_sequence, state.head_sequence, session.event_base, state.last_event_id, trace.uid, trace.model,
                    goal_tree.current_id, state.result_summary, state.error_message, trace.created_at,
                    state.completed_at,
                    (SELECT json_object('tools', json(coalesce((SELECT content FROM prompt WHERE prompt_key = tools_key),
                                                               json_extract(settings, '$.tools'))),
                                        'temperature', json_extract(settings, '$.temperature'),
                                        'llm_params', json_extract(settings, '$.llm_params'),
                                        'system_prompt', json_extract(settings, '$.system_prompt') IS NOT NULL)
                     FROM run JOIN run_state USING (run_key)
                     WHERE run.trace_key = trace.trace_key AND json_extract(settings, '$.reflects') IS NULL
                     ORDER BY run_key DESC LIMIT 1)
             FROM trace
             JOIN trace_state AS state ON state.trace_key = trace.trace_key
             JOIN session ON session.session_key = trace.session_key AND session.removal IS NULL
             LEFT JOIN trace AS parent ON parent.trace_key = trace.parent_trace_key
             LEFT JOIN goal_tree ON goal_tree.trace_key = trace.trace_key ",
            $tail
        )
    };
}

fn read(row: &Row<'_>) -> rusqlite::Result<(i64, Trace)> {
    let mut columns = Columns::of(row);
    let key = columns.next()?;
    let trace_id = columns.id(TraceId::new)?;
    let session_id = columns.id(SessionId::new)?;
    let run_mode = columns.enum_value()?;
    let task = columns.next()?;
    let name = columns.next()?;
    let agent_type = columns.next()?;
    let parent_trace_id = columns.maybe_id(TraceId::new)?;
    let parent_goal_id = columns.maybe_id(GoalId::new)?;
    let status = columns.enum_value()?;
    let end_reason = columns.maybe_enum()?;
    let stats = columns.stats()?;
    let mut trace = Trace {
        trace_id,
        session_id,
        mode: if run_mode == RunMode::Call {
            TraceMode::Call
        } else {
            TraceMode::Agent
        },
        run_mode,
        task,
        name,
        agent_type,
        parent_trace_id,
        parent_goal_id,
        status,
        end_reason,
        total_messages: stats.messages,
        total_tokens: stats.total_tokens,
        total_prompt_tokens: stats.prompt_tokens,
        total_completion_tokens: stats.completion_tokens,
        total_cost: stats.cost,
        estimated: stats.estimated,
        total_duration_ms: stats.duration_ms,
        last_sequence: columns.count()?,
        head_sequence: columns.count()?,
        first_event_id: columns.count()? + 1,
        last_event_id: columns.count()?,
        uid: columns.next()?,
        model: columns.next()?,
        tools: None,
        llm_params: Map::new(),
        prompt_name: None,
        context: TraceContext::default(),
        current_goal_id: columns.maybe_id(GoalId::new)?,
        result_summary: columns.next()?,
        error_message: columns.next()?,
        created_at: columns.time()?,
        completed_at: columns.maybe_time()?,
    };
    let run: LastRun = columns.maybe_json()?.unwrap_or_default();
    trace.tools = run.tools;
    trace.llm_params = run.llm_params.unwrap_or_default();
    trace.llm_params.extend(
        run.temperature
            .map(|temperature| ("temperature".to_owned(), temperature)),
    );
    trace.prompt_name = (run.system_prompt == 0).then(|| trace.agent_type.clone());
    Ok((key, trace))
}

/// Settings of a trace's last run that the trace's record shows.
#[derive(Default, Deserialize)]
struct LastRun {
    tools: Option<Vec<String>>,
    temperature: Option<Value>,
    llm_params: Option<Map<String, Value>>,
    /// 1 if the system prompt was given as text, else 0.
    system_prompt: u8,
}

fn with_collaborators(
    conn: &Connection,
    mut found: Vec<(i64, Trace)>,
) -> rusqlite::Result<Vec<(i64, Trace)>> {
    for (key, trace) in &mut found {
        trace.context.collaborators = collaborators::of(conn, *key)?;
    }
    Ok(found)
}

/// Reads a trace.
pub(super) fn trace(conn: &Connection, id: &TraceId) -> rusqlite::Result<Option<Trace>> {
    let mut query = conn.prepare_cached(select!("WHERE trace.trace_id = ?1"))?;
    let found = query.query_row([id.as_str()], read).optional()?;
    Ok(with_collaborators(conn, found.into_iter().collect())?
        .pop()
        .map(|(_, trace)| trace))
}

/// Lists up to `limit` traces older than the one with key `before`, newest first.
pub(super) fn list(
    conn: &Connection,
    filter: &TraceFilter,
    limit: i64,
    before: i64,
) -> rusqlite::Result<Vec<(i64, Trace)>> {
    // Only the conditions of the filter: a general statement would prevent the use of indexes.
    let mut sql = select!("WHERE trace.trace_key < ?").to_owned();
    // As text instead of a bound value: SQLite uses a partial index only if the text implies its
    // condition.
    sql.push_str(match filter.status {
        None => "",
        Some(TraceStatus::Running) => " AND state.status = 'running'",
        Some(TraceStatus::Interrupted) => " AND state.status = 'interrupted'",
        Some(TraceStatus::Completed) => " AND state.status = 'completed'",
        Some(TraceStatus::Failed) => " AND state.status = 'failed'",
        Some(TraceStatus::Stopped) => " AND state.status = 'stopped'",
    });
    let run_mode = filter.run_mode.map(RunMode::as_str);
    let agent_type = filter.agent_type.as_deref();
    let session = filter.session_id.as_ref().map(SessionId::as_str);
    let parent = filter.parent_trace_id.as_ref().map(TraceId::as_str);
    let uid = filter.uid.as_deref();
    let mut values: Vec<&dyn ToSql> = vec![&before];
    // The conditions on session and parent are more selective than the one on the user.
    let by_user = match uid {
        _ if session.is_some() || parent.is_some() => " AND +trace.uid = ?",
        // Most rows belong to this user, so the partial index omits them.
        Some("local") | None => " AND trace.uid = ?",
        Some(_) => " AND trace.uid = ? AND trace.uid <> 'local'",
    };
    for (value, condition) in [
        (&run_mode, " AND trace.run_mode = ?"),
        (&agent_type, " AND trace.agent_type = ?"),
        (
            &session,
            " AND trace.session_key = (SELECT session_key FROM session WHERE session_id = ?)",
        ),
        (&uid, by_user),
        (
            &parent,
            " AND trace.parent_trace_key = (SELECT trace_key FROM trace WHERE trace_id = ?)",
        ),
    ] {
        if value.is_some() {
            sql.push_str(condition);
            values.push(value);
        }
    }
    if filter.hides_calls {
        sql.push_str(" AND trace.run_mode <> 'call'");
    }
    if filter.is_live {
        // Only few traces have a live run, so they are found through the runs.
        sql.push_str(
            " AND trace.trace_key IN (SELECT run.trace_key FROM run_state INDEXED BY run_live JOIN run USING (run_key)
              WHERE run_state.status = 'queued' OR run_state.status = 'running' OR run_state.status = 'waiting')",
        );
    }
    sql.push_str(" ORDER BY trace.trace_key DESC LIMIT ?");
    values.push(&limit);
    let found = collect_rows(
        conn.prepare_cached(&sql)?
            .query_map(values.as_slice(), read)?,
    )?;
    with_collaborators(conn, found)
}

/// Lists the children of a trace.
pub(super) fn children(conn: &Connection, parent: &TraceId) -> rusqlite::Result<Vec<Trace>> {
    let mut query = conn.prepare_cached(select!(
        "WHERE trace.parent_trace_key = (SELECT trace_key FROM trace WHERE trace_id = ?1) ORDER BY trace.trace_key"
    ))?;
    let found = collect_rows(query.query_map([parent.as_str()], read)?)?;
    Ok(with_collaborators(conn, found)?
        .into_iter()
        .map(|(_, trace)| trace)
        .collect())
}

/// Lists the traces that a copy links to.
pub(super) fn list_linked(conn: &Connection, id: &TraceId) -> rusqlite::Result<Vec<Trace>> {
    let mut query = conn.prepare_cached(select!(
        "JOIN linked_trace ON linked_trace.linked_key = trace.trace_key
         WHERE linked_trace.trace_key = (SELECT trace_key FROM trace WHERE trace_id = ?1) ORDER BY trace.trace_key"
    ))?;
    let found = collect_rows(query.query_map([id.as_str()], read)?)?;
    Ok(with_collaborators(conn, found)?
        .into_iter()
        .map(|(_, trace)| trace)
        .collect())
}

/// Looks up a trace's key.
pub(super) fn key(conn: &Connection, id: &TraceId) -> rusqlite::Result<Option<i64>> {
    let mut query = conn.prepare_cached(
        "SELECT trace_key FROM trace JOIN session USING (session_key) WHERE trace_id = ?1 AND removal IS NULL",
    )?;
    query.query_row([id.as_str()], |row| row.get(0)).optional()
}
