//! Rows of live sessions, traces and runs that the writer keeps in memory.
//!
//! A row is read when an append first names it, is changed here, and is written once per batch right before the
//! commit.
//!
//! Invariants:
//! - Between batches no row here is newer than the file.
//! - After a rollback the cache is empty.

use std::collections::{HashMap, hash_map::Entry};

use rusqlite::Connection;

use super::{hot_row::HotRow, runs::RunRow, sessions::SessionRow, traces::TraceRow, usage_sums::UsageSums};

/// Maximum number of rows of one kind kept between batches. Above it, all of them are dropped and read again on
/// demand.
const MAX_CACHED_ROWS: usize = 16_384;

/// The rows of one kind that are in memory.
pub(super) struct RowCache<R: HotRow> {
    rows: HashMap<R::Id, (R, bool)>,
    changed: Vec<R::Id>,
}

impl<R: HotRow> Default for RowCache<R> {
    fn default() -> Self {
        Self { rows: HashMap::new(), changed: Vec::new() }
    }
}

impl<R: HotRow> RowCache<R> {
    fn load(&mut self, conn: &Connection, id: &R::Id) -> rusqlite::Result<Option<&mut (R, bool)>> {
        if !self.rows.contains_key(id) {
            let Some(row) = R::load(conn, id)? else { return Ok(None) };
            self.rows.insert(id.clone(), (row, false));
        }
        Ok(self.rows.get_mut(id))
    }

    /// Looks up a row; reads it if necessary.
    pub(super) fn get(&mut self, conn: &Connection, id: &R::Id) -> rusqlite::Result<Option<&R>> {
        Ok(self.load(conn, id)?.map(|(row, _)| &*row))
    }

    /// Looks up a row to change it.
    pub(super) fn get_mut(&mut self, conn: &Connection, id: &R::Id) -> rusqlite::Result<Option<&mut R>> {
        // `slot` cannot be used, because its borrow would outlive the push to `changed`.
        if let Entry::Vacant(free) = self.rows.entry(id.clone()) {
            let Some(row) = R::load(conn, id)? else { return Ok(None) };
            free.insert((row, false));
        }
        let Some((row, is_changed)) = self.rows.get_mut(id) else { return Ok(None) };
        if !std::mem::replace(is_changed, true) {
            self.changed.push(id.clone());
        }
        Ok(Some(row))
    }

    /// Adds a row that was just inserted; its changes are written with the batch.
    pub(super) fn add(&mut self, id: R::Id, row: R) {
        self.rows.insert(id.clone(), (row, true));
        self.changed.push(id);
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.changed.clear();
    }

    /// Writes the changed rows.
    pub(super) fn save(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        for id in &self.changed {
            if let Some((row, _)) = self.rows.get_mut(id) {
                row.save(conn)?;
            }
        }
        Ok(())
    }

    fn evict_settled(&mut self) {
        for id in self.changed.drain(..) {
            if let Entry::Occupied(mut held) = self.rows.entry(id) {
                held.get_mut().1 = false;
                if held.get().0.is_evictable() {
                    held.remove();
                }
            }
        }
        if self.rows.len() > MAX_CACHED_ROWS {
            self.rows.clear();
        }
    }
}

/// Everything that the writer keeps in memory.
#[derive(Default)]
pub(super) struct Cache {
    /// Live sessions.
    pub(super) sessions: RowCache<SessionRow>,
    /// Live traces.
    pub(super) traces: RowCache<TraceRow>,
    /// Live runs.
    pub(super) runs: RowCache<RunRow>,
    /// Usage sums.
    pub(super) usage: UsageSums,
    /// The lsn of the next event; `None` until the first batch.
    pub(super) next_lsn: Option<u64>,
}

impl Cache {
    /// Writes the changed rows, each of them once.
    pub(super) fn save(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.sessions.save(conn)?;
        self.traces.save(conn)?;
        self.save_runs(conn)?;
        self.usage.save(conn)
    }

    /// Writes the changed runs. Each is counted first, because its row refers to the sum that counts it.
    pub(super) fn save_runs(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        for id in &self.runs.changed {
            if let Some((run, _)) = self.runs.rows.get_mut(id) {
                self.usage.record_usage(conn, run)?;
                run.save(conn)?;
            }
        }
        Ok(())
    }

    /// Drops all sessions, traces and runs, even within a batch. Changes must have been saved.
    ///
    /// Needed when rows become invisible to appends, because a session is being deleted.
    pub(super) fn forget(&mut self) {
        self.sessions.clear();
        self.traces.clear();
        self.runs.clear();
    }

    /// Drops the rows that have ended; call after a commit.
    pub(super) fn settle(&mut self) {
        self.sessions.evict_settled();
        self.traces.evict_settled();
        self.runs.evict_settled();
        self.usage.limit_size();
    }
}
