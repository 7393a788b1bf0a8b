//! The documents and artifacts that a run has written.

use std::collections::{BTreeMap, HashMap};

use soong_protocol::ArtifactRef;
use soong_tool::ToolOutput;

/// The documents that a run has edited, and whether the edits are stored.
#[derive(Default)]
pub(in crate::run::machine) struct DocumentState {
    /// Whether a tool that writes was started: then the run may have edits to flush when it ends
    /// (ART-4).
    pub(in crate::run::machine) wrote: bool,
    pub(in crate::run::machine) flushed: bool,
    /// Whether this incarnation has requested the flush.
    pub(in crate::run::machine) flushing: bool,
    /// Documents that were edited before a crash, with the version that the run has stored of them;
    /// 0: none.
    pub(in crate::run::machine) versions: BTreeMap<String, u64>,
    /// Outcomes of open calls that were recorded together with their effects before a crash, by
    /// tool call (ART-5).
    pub(in crate::run::machine) recorded: HashMap<String, ToolOutput>,
    /// Artifacts that tool calls of the run have produced.
    pub(in crate::run::machine) artifacts: Vec<ArtifactRef>,
}
