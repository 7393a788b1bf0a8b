//! The monitor: a live view of the actor tree on a terminal, with actions on it (MON-1).
//!
//! [`Monitor`] computes the reaction to input and [`draw`](draw::draw) the screen, both without
//! I/O. Its environment waits for keys, input and the clock, and executes the requests
//! (`monitor.rs` and `monitor/feed.rs` of the binary).

mod actor;
mod actor_index;
mod cells;
mod command;
mod detail;
mod dialog;
mod draw;
mod keys;
mod list;
mod pane;
mod pending_requests;
mod prompt;
mod record_reads;
mod rows;
#[cfg(test)]
pub(crate) mod sample;
mod state;
#[cfg(test)]
mod tests;
mod tree_lines;
mod usage_history;

pub use self::{
    cells::CellWriter,
    command::Command,
    detail::{ReadContent, ReadRequest},
    draw::draw,
    pane::{Preview, RecordKind, RunFacts},
    state::{Connection, Monitor, MonitorInput, MonitorRequest},
    tree_lines::tree_lines,
};
