//! The documents and artifacts that a run has written.

use std::collections::HashMap;

use soong_protocol::ArtifactRef;
use soong_tool::ToolOutput;

/// The documents and artifacts that a run has written.
#[derive(Default)]
pub(in crate::run::machine) struct DocumentState {
    /// Outcomes of open calls that were recorded together with their effects before a crash, by
    /// tool call (ART-5).
    pub(in crate::run::machine) recorded: HashMap<String, ToolOutput>,
    /// Artifacts that tool calls of the run have produced.
    pub(in crate::run::machine) artifacts: Vec<ArtifactRef>,
}
