//! Fault points: named places where a hook may make a run's actor crash.
//!
//! For drills and for tests of whoever embeds the runtime. Without a hook they cost a branch.

use std::sync::Arc;

use soong_protocol::RunId;

/// A place in the life of a run's actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultPoint {
    /// News was decided upon; nothing is handed to the journal yet.
    BeforeAppend,
    /// An append is durable; nothing that follows from it has been done yet.
    AfterAppend,
    /// A model call is about to be made.
    CallModel,
    /// A tool is about to be run.
    RunTool,
    /// Children are about to be started.
    StartChildren,
    /// What the run edited is about to be stored as versions.
    Flush,
    /// The run has ended and is recorded; nobody has been told.
    Ended,
}

impl FaultPoint {
    /// Every point, in the order in which a run meets them first.
    pub const ALL: [Self; 7] = [
        Self::BeforeAppend,
        Self::AfterAppend,
        Self::CallModel,
        Self::RunTool,
        Self::StartChildren,
        Self::Flush,
        Self::Ended,
    ];
}

/// Called at each fault point with the run it belongs to; it may panic to crash the run's actor.
pub type FaultHook = Arc<dyn Fn(&RunId, FaultPoint) + Send + Sync>;

/// The hook of a runtime, if any.
#[derive(Clone, Default)]
pub(crate) struct Faults(pub(crate) Option<FaultHook>);

impl Faults {
    pub(crate) fn hit(&self, run: &RunId, point: FaultPoint) {
        if let Some(hook) = &self.0 {
            hook(run, point);
        }
    }
}
