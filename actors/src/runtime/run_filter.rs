//! Selection of runs that a runtime executes.

use soong_protocol::{SessionId, TraceId};

use crate::run::RunEntry;

/// Selects runs that have not ended: see [`Runtime::runs`](crate::Runtime::runs).
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct RunFilter {
    session: Option<SessionId>,
    trace: Option<TraceId>,
    excludes_children: bool,
}

impl RunFilter {
    /// Selects all runs that have not ended, queued runs and children included.
    pub fn active() -> Self {
        Self::default()
    }

    /// Selects runs of this session only.
    pub fn session(mut self, id: &SessionId) -> Self {
        self.session = Some(id.clone());
        self
    }

    /// Selects runs of this trace only.
    pub fn trace(mut self, id: &TraceId) -> Self {
        self.trace = Some(id.clone());
        self
    }

    /// Excludes child runs.
    pub fn without_children(mut self) -> Self {
        self.excludes_children = true;
        self
    }

    pub(super) fn includes(&self, entry: &RunEntry) -> bool {
        self.session
            .as_ref()
            .is_none_or(|id| entry.identity.session_id == *id)
            && self
                .trace
                .as_ref()
                .is_none_or(|id| entry.identity.trace_id == *id)
            && !(self.excludes_children && entry.identity.parent.is_some())
    }
}
