//! What runs have used, summed: one pass over the small rows of runs, whose long texts are left alone.

use rusqlite::{Connection, Row};
use soong_protocol::{SessionId, Timestamp, UsageBy, UsageOf, UsageRow, UsageSum};

use super::columns::{Columns, all};
use crate::store::UsageFilter;

const DAY_MS: i64 = 86_400_000;

/// Sums over the runs that began since a time, and whose session is there. Flat: SQLite takes twice as long where it
/// sums up sums. `total`, since a `sum` that overflows is an error, and a provider may report anything; it is exact up to
/// 2^53.
macro_rules! sums {
    ($of:literal, $from:literal, $order:literal) => {
        concat!(
            "SELECT ",
            $of,
            " AS sum_of, count(*), CAST(total(prompt_tokens) AS INTEGER), CAST(total(completion_tokens) AS INTEGER),
                    CAST(total(cached_tokens) AS INTEGER), CAST(total(reasoning_tokens) AS INTEGER),
                    CAST(total(cost_nanos) AS INTEGER),
                    sum(cost_nanos IS NULL AND (prompt_tokens > 0 OR completion_tokens > 0)), max(estimated),
                    CAST(total(model_calls) AS INTEGER), CAST(total(tool_calls) AS INTEGER)
             FROM ",
            $from,
            " WHERE state.started_at >= ?1
              AND (?2 IS NULL OR state.session_key IN (SELECT session_key FROM session WHERE uid = ?2))
              AND state.session_key NOT IN (SELECT session_key FROM session WHERE removal IS NOT NULL)
              GROUP BY sum_of ORDER BY ",
            $order
        )
    };
}

const BY_DAY: &str = sums!("started_at / 86400000", "run_state AS state", "sum_of");

const BY_SESSION: &str = sums!(
    "session.session_id",
    "run_state AS state CROSS JOIN session ON session.session_key = state.session_key",
    "total(prompt_tokens) + total(completion_tokens) DESC, sum_of"
);

// The index holds all that is wanted of a run; its row may be long.
const BY_MODEL: &str = sums!(
    "trace.model",
    "run INDEXED BY run_of_trace CROSS JOIN run_state AS state ON state.run_key = run.run_key
     CROSS JOIN trace ON trace.trace_key = run.trace_key",
    "total(prompt_tokens) + total(completion_tokens) DESC, sum_of"
);

/// Sums up what the runs that began have used; those that never began used nothing.
pub(super) fn sums(conn: &Connection, by: UsageBy, filter: &UsageFilter) -> rusqlite::Result<Vec<UsageRow>> {
    let mut query = conn.prepare_cached(match by {
        UsageBy::Day => BY_DAY,
        UsageBy::Model => BY_MODEL,
        UsageBy::Session => BY_SESSION,
    })?;
    let since = filter.since.map_or(i64::MIN, Timestamp::as_millis);
    all(query.query_map((since, &filter.uid), |row| read(by, row))?)
}

fn read(by: UsageBy, row: &Row<'_>) -> rusqlite::Result<UsageRow> {
    let mut columns = Columns::of(row);
    let of = match by {
        UsageBy::Day => UsageOf::Day(day(columns.next()?)),
        UsageBy::Model => UsageOf::Model(columns.next()?),
        UsageBy::Session => UsageOf::SessionId(columns.id(SessionId::new)?),
    };
    let runs = columns.count()?;
    let (prompt_tokens, completion_tokens) = (columns.count()?, columns.count()?);
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
    };
    Ok(UsageRow { of, sum: sum.priced() })
}

/// Writes a day as `YYYY-MM-DD`, counted from the first of 1970.
fn day(number: i64) -> String {
    Timestamp::from_millis(number.saturating_mul(DAY_MS)).to_string().chars().take_while(|c| *c != 'T').collect()
}
