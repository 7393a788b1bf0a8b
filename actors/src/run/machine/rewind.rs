//! The rewind with which a run starts.

use soong_protocol::{Collaborator, GoalTree, Write};

/// A rewind to an earlier message, prepared before the run starts.
#[derive(Debug)]
pub(crate) struct RewindPlan {
    /// Sequence of the requested message.
    pub(crate) after_sequence: u64,
    /// Sequence of the new head: the requested message, or the last result of its tool calls
    /// (MSG-3).
    pub(crate) head_sequence: u64,
    /// Position of the new head in the log of all events.
    pub(crate) lsn: u64,
    pub(crate) from_sequence: u64,
    /// The goals at that time.
    pub(crate) goals: GoalTree,
    /// The collaborators at that time.
    pub(crate) collaborators: Vec<Collaborator>,
    /// Writes that restore the documents, including their events (MSG-4).
    pub(crate) document_writes: Vec<Write>,
    /// Names of the documents that are restored (`restored`), and of documents that keep their
    /// content (`left`).
    pub(crate) restored: Vec<String>,
    pub(crate) unchanged: Vec<String>,
}
