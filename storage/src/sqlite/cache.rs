//! What the writer keeps in memory of live sessions, traces and runs.
//!
//! A row is read when an append first names it, changed here, and written once per batch just
//! before the commit. Invariants: between batches nothing here is newer than the file; after a
//! rollback everything is forgotten.

use std::collections::{HashMap, hash_map::Entry};

use rusqlite::Connection;

use super::{hot_row::HotRow, runs::RunRow, sessions::SessionRow, traces::TraceRow, usage_sums::UsageSums};

/// How many rows of one noun are kept at most between batches; above, all are read anew on demand.
const KEPT_ROWS: usize = 16_384;

/// The rows of one noun that are in memory.
pub(super) struct Held<R: HotRow> {
    rows: HashMap<R::Id, (R, bool)>,
    changed: Vec<R::Id>,
}

impl<R: HotRow> Default for Held<R> {
    fn default() -> Self {
        Self { rows: HashMap::new(), changed: Vec::new() }
    }
}

impl<R: HotRow> Held<R> {
    fn slot(&mut self, conn: &Connection, id: &R::Id) -> rusqlite::Result<Option<&mut (R, bool)>> {
        if !self.rows.contains_key(id) {
            let Some(row) = R::load(conn, id)? else { return Ok(None) };
            self.rows.insert(id.clone(), (row, false));
        }
        Ok(self.rows.get_mut(id))
    }

    /// Looks a row up, reading it if need be.
    pub(super) fn get(&mut self, conn: &Connection, id: &R::Id) -> rusqlite::Result<Option<&R>> {
        Ok(self.slot(conn, id)?.map(|(row, _)| &*row))
    }

    /// Looks a row up for a change.
    pub(super) fn change(&mut self, conn: &Connection, id: &R::Id) -> rusqlite::Result<Option<&mut R>> {
        // Not by `slot`: its borrow would outlive the note in `changed`.
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

    /// Takes in a row that was just inserted; what changes of it is written with the batch.
    pub(super) fn add(&mut self, id: R::Id, row: R) {
        self.rows.insert(id.clone(), (row, true));
        self.changed.push(id);
    }

    fn forget(&mut self) {
        self.rows.clear();
        self.changed.clear();
    }

    /// Writes what has changed of them.
    pub(super) fn save(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        for id in &self.changed {
            if let Some((row, _)) = self.rows.get_mut(id) {
                row.save(conn)?;
            }
        }
        Ok(())
    }

    fn settle(&mut self) {
        for id in self.changed.drain(..) {
            if let Entry::Occupied(mut held) = self.rows.entry(id) {
                held.get_mut().1 = false;
                if held.get().0.is_settled() {
                    held.remove();
                }
            }
        }
        if self.rows.len() > KEPT_ROWS {
            self.rows.clear();
        }
    }
}

/// Everything the writer keeps in memory.
#[derive(Default)]
pub(super) struct Cache {
    /// Live sessions.
    pub(super) sessions: Held<SessionRow>,
    /// Live traces.
    pub(super) traces: Held<TraceRow>,
    /// Live runs.
    pub(super) runs: Held<RunRow>,
    /// What runs used.
    pub(super) usage: UsageSums,
    /// The lsn of the next event; absent until a batch asks.
    pub(super) next_lsn: Option<u64>,
}

impl Cache {
    /// Writes what has changed, each row once.
    pub(super) fn save(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.sessions.save(conn)?;
        self.traces.save(conn)?;
        self.save_runs(conn)?;
        self.usage.save(conn)
    }

    /// Writes the runs that have changed. Each is counted first, since its row refers to the sum that counts it.
    pub(super) fn save_runs(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        for id in &self.runs.changed {
            if let Some((run, _)) = self.runs.rows.get_mut(id) {
                self.usage.count(conn, run)?;
                run.save(conn)?;
            }
        }
        Ok(())
    }

    /// Lets go of all sessions, traces and runs, also within a batch; what has changed must have been saved.
    ///
    /// For when rows stop being what an append may name: a session that is being removed is found no more.
    pub(super) fn forget(&mut self) {
        self.sessions.forget();
        self.traces.forget();
        self.runs.forget();
    }

    /// Lets go of what has ended; call after a commit.
    pub(super) fn settle(&mut self) {
        self.sessions.settle();
        self.traces.settle();
        self.runs.settle();
        self.usage.settle();
    }
}
