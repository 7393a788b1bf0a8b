//! Rows that change with events.

use std::hash::Hash;

use rusqlite::Connection;

/// The part of a noun's row that changes with events.
pub(super) trait HotRow: Sized {
    /// How the outside names it.
    type Id: Clone + Eq + Hash;
    /// Reads it.
    fn load(conn: &Connection, id: &Self::Id) -> rusqlite::Result<Option<Self>>;
    /// Writes it.
    fn save(&mut self, conn: &Connection) -> rusqlite::Result<()>;
    /// Returns whether it is not expected to change soon, so that it need not stay in memory.
    fn is_settled(&self) -> bool;
}
