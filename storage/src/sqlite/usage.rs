//! Usage reports, by day, model or session.

use rusqlite::{Connection, Row, named_params};
use soong_protocol::{SessionId, Timestamp, UsageBy, UsageOf, UsageRow, UsageSum};

use super::{
    columns::{Columns, collect_rows},
    sums::sum_columns,
    usage_sums::DAY_MS,
};
use crate::store::UsageFilter;

/// The columns of a report. They use `total`, because `sum` fails on overflow, and a provider may
/// report any number. `total` is exact up to 2^53.
const TOTALS: &str = "CAST(total(runs) AS INTEGER), CAST(total(prompt_tokens) AS INTEGER),
    CAST(total(completion_tokens) AS INTEGER), CAST(total(cached_tokens) AS INTEGER),
    CAST(total(reasoning_tokens) AS INTEGER), CAST(total(cost_nanos) AS INTEGER),
    CAST(total(runs_without_price) AS INTEGER), max(estimated_runs > 0), CAST(total(model_calls) AS INTEGER),
    CAST(total(tool_calls) AS INTEGER), CAST(total(cache_write_tokens) AS INTEGER)";

/// The columns of [`sum_columns`] for a single run.
const RUN_COLUMNS: &str =
    "1 AS runs, state.prompt_tokens, state.completion_tokens, state.cached_tokens, state.reasoning_tokens,
    coalesce(state.cost_nanos, 0) AS cost_nanos,
    state.cost_nanos IS NULL AND (state.prompt_tokens > 0 OR state.completion_tokens > 0) AS runs_without_price,
    state.estimated AS estimated_runs, state.model_calls, state.tool_calls,
    state.cache_write_tokens";

const ORDER_BY_TOKENS: &str = "total(prompt_tokens) + total(completion_tokens) DESC, sum_of";

/// Sums up the usage of the runs that have started. By session it reads every run. Otherwise it
/// reads the daily sums, and the single runs of the first day if that day is only partly included.
pub(super) fn sums(
    conn: &Connection,
    by: UsageBy,
    filter: &UsageFilter,
) -> rusqlite::Result<Vec<UsageRow>> {
    let since = filter.since.map_or(i64::MIN, Timestamp::as_millis);
    // Rounded up: the day that contains `since` is complete only if `since` is its beginning.
    let first_day = -(-i128::from(since)).div_euclid(i128::from(DAY_MS));
    let first_day = i64::try_from(first_day).unwrap_or(i64::MAX);
    let of_user = if filter.uid.is_some() {
        "AND uid = :uid"
    } else {
        "AND :uid IS NULL"
    };
    let (group_column, order) = match by {
        UsageBy::Day => ("day", "sum_of"),
        UsageBy::Model => ("model", ORDER_BY_TOKENS),
        UsageBy::Session => ("session_id", ORDER_BY_TOKENS),
    };
    let rows = match by {
        UsageBy::Day | UsageBy::Model => format!(
            "SELECT {group_column}, {columns} FROM usage_sum WHERE day >= :first_day AND runs > 0 {of_user}
             UNION ALL
             SELECT {group_column}, {RUN_COLUMNS} FROM run_state AS state INDEXED BY run_started
             CROSS JOIN usage_sum ON usage_sum.usage_key = state.usage_key
             WHERE state.started_at >= :since AND state.started_at < :first_day * {DAY_MS} {of_user}
             AND state.session_key NOT IN (SELECT session_key FROM session WHERE removal IS NOT NULL)",
            columns = sum_columns!()
        ),
        // Without the index of start times: most rows are needed, and the index has another order
        // than the rows.
        UsageBy::Session => format!(
            "SELECT session_id, {RUN_COLUMNS} FROM run_state AS state
             CROSS JOIN session ON session.session_key = state.session_key
             WHERE +state.started_at >= :since AND :first_day IS NOT NULL AND removal IS NULL {of_user}"
        ),
    };
    let mut query = conn.prepare_cached(&format!(
        "SELECT {group_column} AS sum_of, {TOTALS} FROM ({rows}) GROUP BY sum_of ORDER BY {order}"
    ))?;
    let values = named_params! { ":since": since, ":first_day": first_day, ":uid": filter.uid };
    collect_rows(query.query_map(values, |row| read(by, row))?)
}

fn read(by: UsageBy, row: &Row<'_>) -> rusqlite::Result<UsageRow> {
    let mut columns = Columns::of(row);
    let group_column = match by {
        UsageBy::Day => UsageOf::Day(format_day(columns.next()?)),
        UsageBy::Model => UsageOf::Model(columns.next()?),
        UsageBy::Session => UsageOf::SessionId(columns.id(SessionId::new)?),
    };
    let runs = columns.count()?;
    let prompt_tokens = columns.count()?;
    let completion_tokens = columns.count()?;
    let sum = UsageSum {
        runs,
        total_tokens: prompt_tokens.saturating_add(completion_tokens),
        prompt_tokens,
        completion_tokens,
        cached_tokens: columns.count()?,
        reasoning_tokens: columns.count()?,
        cost: None,
        known_cost: columns.maybe_usd()?.unwrap_or_default(),
        runs_without_price: columns.count()?,
        estimated: columns.next()?,
        model_calls: columns.count()?,
        tool_calls: columns.count()?,
        cache_write_tokens: columns.count()?,
    };
    Ok(UsageRow {
        of: group_column,
        sum: sum.with_cost(),
    })
}

/// Formats a day, counted from 1970-01-01, as `YYYY-MM-DD`.
fn format_day(number: i64) -> String {
    Timestamp::from_millis(number.saturating_mul(DAY_MS))
        .to_string()
        .chars()
        .take_while(|c| *c != 'T')
        .collect()
}
