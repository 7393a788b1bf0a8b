//! A rewind that a run starts with.

use soong_protocol::{Collaborator, GoalTree, Write};

/// A way back to an earlier message, as it was found before the run begins.
#[derive(Debug)]
pub(crate) struct WayBack {
    /// Where it was asked to go back to.
    pub(crate) after_sequence: u64,
    /// Where that leads: behind the results of calls that would be cut into (MSG-3).
    pub(crate) head_sequence: u64,
    /// Where that one stands among all events.
    pub(crate) lsn: u64,
    pub(crate) from_sequence: u64,
    /// The goals as they were then.
    pub(crate) goals: GoalTree,
    /// The collaborators as they were then.
    pub(crate) collaborators: Vec<Collaborator>,
    /// What restores the documents that go back too, events included (MSG-4).
    pub(crate) edits: Vec<Write>,
    /// Documents that go back, and those that stay.
    pub(crate) restored: Vec<String>,
    pub(crate) left: Vec<String>,
}
