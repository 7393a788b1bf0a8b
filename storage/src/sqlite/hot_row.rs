//! Rows that change with events.

use std::hash::Hash;

use rusqlite::Connection;

/// The columns of a row that change with events.
pub(super) trait HotRow: Sized {
    /// Public id of the record.
    type Id: Clone + Eq + Hash;
    /// Reads the row.
    fn load(conn: &Connection, id: &Self::Id) -> rusqlite::Result<Option<Self>>;
    /// Writes the row.
    fn save(&mut self, conn: &Connection) -> rusqlite::Result<()>;
    /// Returns whether the row is not expected to change soon, so it need not stay in memory.
    fn is_evictable(&self) -> bool;
}
