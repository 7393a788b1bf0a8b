//! Sums of the usage of runs, by user, day and model. They are updated with the runs of each batch.
//!
//! Invariant: after a commit each row is the sum over the runs that refer to it and whose session
//! is not being deleted.
//!
//! Elsewhere: reports (`usage.rs`).

use std::collections::{HashMap, hash_map::Entry};

use rusqlite::{Connection, OptionalExtension, params_from_iter};
use soong_protocol::Timestamp;

use super::{
    columns::{Columns, stats_columns},
    runs::RunRow,
    sums::{Sums, sum_columns},
};

/// Milliseconds of a day.
pub(super) const DAY_MS: i64 = 86_400_000;
/// Maximum number of rows, and of keys, kept in memory between batches.
const MAX_CACHED: usize = 4_096;

/// Rows in memory. Only the writer changes the table, so after the commit they equal the file.
#[derive(Default)]
pub(super) struct UsageSums {
    /// Row keys by session key, day and model.
    keys: HashMap<(i64, i64, String), i64>,
    /// Sums by row key, each with whether they differ from the file.
    rows: HashMap<i64, (Sums, bool)>,
}

impl UsageSums {
    /// Adds the usage of a run since it was last counted.
    pub(super) fn record_usage(
        &mut self,
        conn: &Connection,
        run: &mut RunRow,
    ) -> rusqlite::Result<()> {
        if let (Some(model), Some(started_at)) =
            (run.counted_usage.start_model.take(), run.started_at)
        {
            run.counted_usage.key = Some(self.key(conn, run.session_key, started_at, model)?);
        }
        let Some(key) = run.counted_usage.key else {
            return Ok(());
        };
        let current = Sums::of_run(&run.stats);
        if run.counted_usage.sums == Some(current) {
            return Ok(());
        }
        let sums = self.sums_mut(conn, key)?;
        if let Some(counted) = &run.counted_usage.sums {
            sums.subtract(counted);
        }
        sums.add(&current);
        run.counted_usage.sums = Some(current);
        Ok(())
    }

    /// Subtracts the usage of the runs of a session that is about to be deleted. All run rows must
    /// have been saved.
    pub(super) fn subtract_session(
        &mut self,
        conn: &Connection,
        session_key: i64,
    ) -> rusqlite::Result<()> {
        // SQLite may assign the key to another session later.
        self.keys.retain(|(session, ..), _| *session != session_key);
        for (key, sums) in of_session(conn, session_key)? {
            let row = self.sums_mut(conn, key)?;
            if row.is_limited() {
                // The row was limited, so subtracting from it would give too little.
                *row = of_other_sessions(conn, key, session_key)?;
            } else {
                row.subtract(&sums);
            }
        }
        Ok(())
    }

    /// Adds the sums that [`UsageSums::subtract_session`] subtracted again, because the session is
    /// not deleted.
    pub(super) fn add_session(
        &mut self,
        conn: &Connection,
        session_key: i64,
    ) -> rusqlite::Result<()> {
        for (key, sums) in of_session(conn, session_key)? {
            self.sums_mut(conn, key)?.add(&sums);
        }
        Ok(())
    }

    /// Writes the changed rows.
    pub(super) fn save(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        for (key, (sums, is_changed)) in self
            .rows
            .iter_mut()
            .filter(|(_, (_, is_changed))| *is_changed)
        {
            conn.prepare_cached(concat!(
                "UPDATE usage_sum SET (",
                sum_columns!(),
                ") = (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) WHERE usage_key = ?12"
            ))?
            .execute(params_from_iter(sums.0.iter().chain([key])))?;
            *is_changed = false;
        }
        Ok(())
    }

    /// Clears the memory if it is too large; call after a commit.
    pub(super) fn limit_size(&mut self) {
        if self.keys.len() > MAX_CACHED || self.rows.len() > MAX_CACHED {
            *self = Self::default();
        }
    }

    /// Returns the key of the row for a run of that session; inserts the row if necessary.
    fn key(
        &mut self,
        conn: &Connection,
        session: i64,
        started_at: Timestamp,
        model: String,
    ) -> rusqlite::Result<i64> {
        let day = started_at.as_millis().div_euclid(DAY_MS);
        let row_id = (session, day, model);
        if let Some(key) = self.keys.get(&row_id) {
            return Ok(*key);
        }
        let find = "SELECT usage_key FROM session JOIN usage_sum USING (uid)
                    WHERE session_key = ?1 AND day = ?2 AND model = ?3";
        let find = || {
            conn.prepare_cached(find)?
                .query_row((row_id.0, row_id.1, &row_id.2), |row| row.get(0))
                .optional()
        };
        let key = match find()? {
            Some(key) => key,
            None => {
                conn.prepare_cached(concat!(
                    "INSERT INTO usage_sum (uid, day, model, ",
                    sum_columns!(),
                    ") SELECT uid, ?2, ?3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM session WHERE session_key = ?1"
                ))?
                .execute((row_id.0, row_id.1, &row_id.2))?;
                conn.last_insert_rowid()
            }
        };
        self.keys.insert(row_id, key);
        Ok(key)
    }

    fn sums_mut(&mut self, conn: &Connection, key: i64) -> rusqlite::Result<&mut Sums> {
        let (sums, is_changed) = match self.rows.entry(key) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(row) => {
                let mut query = conn.prepare_cached(concat!(
                    "SELECT ",
                    sum_columns!(),
                    " FROM usage_sum WHERE usage_key = ?1"
                ))?;
                let sums = query.query_row([key], |columns| {
                    let mut sums = Sums::default();
                    for (at, sum) in sums.0.iter_mut().enumerate() {
                        *sum = columns.get(at)?;
                    }
                    Ok(sums)
                })?;
                row.insert((sums, false))
            }
        };
        *is_changed = true;
        Ok(sums)
    }
}

/// Sums up the usage of the runs that are counted in a row, without those of a session and of
/// sessions that are being deleted.
fn of_other_sessions(conn: &Connection, key: i64, session_key: i64) -> rusqlite::Result<Sums> {
    let mut query = conn.prepare_cached(concat!(
        "SELECT ",
        stats_columns!(),
        " FROM run_state JOIN session USING (session_key)
         WHERE usage_key = ?1 AND session_key <> ?2 AND removal IS NULL"
    ))?;
    let mut sums = Sums::default();
    let mut rows = query.query([key, session_key])?;
    while let Some(row) = rows.next()? {
        sums.add(&Sums::of_run(&Columns::of(row).stats()?));
    }
    Ok(sums)
}

/// Sums up the usage of a session's runs, by the rows in which they are counted.
fn of_session(conn: &Connection, session_key: i64) -> rusqlite::Result<HashMap<i64, Sums>> {
    let mut query = conn.prepare_cached(concat!(
        "SELECT usage_key, ",
        stats_columns!(),
        " FROM trace JOIN run USING (trace_key) JOIN run_state USING (run_key)
         WHERE trace.session_key = ?1 AND usage_key IS NOT NULL"
    ))?;
    let mut found: HashMap<i64, Sums> = HashMap::new();
    let mut rows = query.query([session_key])?;
    while let Some(row) = rows.next()? {
        let mut columns = Columns::of(row);
        found
            .entry(columns.next()?)
            .or_default()
            .add(&Sums::of_run(&columns.stats()?));
    }
    Ok(found)
}
