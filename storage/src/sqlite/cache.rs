//! Cache of the session, trace and run rows that the writer thread reads and changes.
//!
//! A row is loaded when an append first refers to it. Changes are made in memory. A changed row is
//! normally written once per batch, immediately before the commit.
//!
//! Invariants:
//! - Between batches, no cached row has changes that are missing in the database file.
//! - After a rollback the cache is empty.

use std::collections::hash_map::Entry;

use foldhash::HashMap;
use rusqlite::Connection;

use super::{
    hot_row::HotRow, runs::RunRow, sessions::SessionRow, traces::TraceRow, usage_sums::UsageSums,
};

/// Maximum number of rows of one kind that are kept between batches. If there are more, all rows of
/// that kind are dropped, and read again on demand.
const MAX_CACHED_ROWS: usize = 16_384;

/// Cached rows of one kind, each with whether it was changed in the current batch.
pub(super) struct RowCache<R: HotRow> {
    rows: HashMap<R::Id, (R, bool)>,
    changed: Vec<R::Id>,
}

impl<R: HotRow> Default for RowCache<R> {
    fn default() -> Self {
        Self {
            rows: HashMap::default(),
            changed: Vec::new(),
        }
    }
}

impl<R: HotRow> RowCache<R> {
    fn load(&mut self, conn: &Connection, id: &R::Id) -> rusqlite::Result<Option<&mut (R, bool)>> {
        if !self.rows.contains_key(id) {
            let Some(row) = R::load(conn, id)? else {
                return Ok(None);
            };
            self.rows.insert(id.clone(), (row, false));
        }
        Ok(self.rows.get_mut(id))
    }

    /// Returns a row, and reads it from the database if it is not cached. Returns `None` if it does
    /// not exist.
    pub(super) fn get(&mut self, conn: &Connection, id: &R::Id) -> rusqlite::Result<Option<&R>> {
        Ok(self.load(conn, id)?.map(|(row, _)| &*row))
    }

    /// Returns a row like [`get`](Self::get), and marks it as changed.
    pub(super) fn get_mut(
        &mut self,
        conn: &Connection,
        id: &R::Id,
    ) -> rusqlite::Result<Option<&mut R>> {
        // `load` cannot be used, because its result would borrow `self` during the push to
        // `changed`.
        if let Entry::Vacant(free) = self.rows.entry(id.clone()) {
            let Some(row) = R::load(conn, id)? else {
                return Ok(None);
            };
            free.insert((row, false));
        }
        let Some((row, is_changed)) = self.rows.get_mut(id) else {
            return Ok(None);
        };
        if !std::mem::replace(is_changed, true) {
            self.changed.push(id.clone());
        }
        Ok(Some(row))
    }

    /// Adds a row that was just inserted into the database, and marks it as changed.
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
            if let Entry::Occupied(mut occupied) = self.rows.entry(id) {
                occupied.get_mut().1 = false;
                if occupied.get().0.is_evictable() {
                    occupied.remove();
                }
            }
        }
        if self.rows.len() > MAX_CACHED_ROWS {
            self.rows.clear();
        }
    }
}

/// Data that the writer thread keeps in memory.
#[derive(Default)]
pub(super) struct Cache {
    /// Sessions.
    pub(super) sessions: RowCache<SessionRow>,
    /// Traces. A trace without live runs is evicted after the commit.
    pub(super) traces: RowCache<TraceRow>,
    /// Runs. An ended run is evicted after the commit.
    pub(super) runs: RowCache<RunRow>,
    /// Usage sums.
    pub(super) usage: UsageSums,
    /// Log sequence number of the next event; `None` until the first batch.
    pub(super) next_lsn: Option<u64>,
}

impl Cache {
    /// Writes the changed rows and the changed usage sums.
    pub(super) fn save(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.sessions.save(conn)?;
        self.traces.save(conn)?;
        self.save_runs(conn)?;
        self.usage.save(conn)
    }

    /// Writes the changed runs. Adds the usage of each run to its sum first, because the row of the
    /// run refers to the row of the sum.
    pub(super) fn save_runs(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        for id in &self.runs.changed {
            if let Some((run, _)) = self.runs.rows.get_mut(id) {
                self.usage.record_usage(conn, run)?;
                run.save(conn)?;
            }
        }
        Ok(())
    }

    /// Drops all sessions, traces and runs. Can be called within a batch, but changes must have
    /// been saved.
    ///
    /// Called when the deletion of a session makes its rows invisible to appends, so that they are
    /// not found in memory.
    pub(super) fn forget(&mut self) {
        self.sessions.clear();
        self.traces.clear();
        self.runs.clear();
    }

    /// Drops changed rows that are evictable, and limits the size of the cache. Must be called
    /// after a commit.
    pub(super) fn settle(&mut self) {
        self.sessions.evict_settled();
        self.traces.evict_settled();
        self.runs.evict_settled();
        self.usage.limit_size();
    }
}
