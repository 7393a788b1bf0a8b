//! Response to a start: the accepted run.

use serde::{Deserialize, Serialize};
use soong::{
    RunHandle,
    protocol::{RunId, SessionId, TraceId},
};
use utoipa::ToSchema;

/// An accepted run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    /// Trace of the run.
    pub trace_id: TraceId,
    /// Id of the run.
    pub run_id: RunId,
    /// Session of the run.
    pub session_id: SessionId,
    /// `started`, `queued`, or `cancelling` after a request to cancel.
    pub status: String,
}

impl Accepted {
    pub(super) fn of(run: &RunHandle, status: &str) -> Self {
        Self {
            trace_id: run.trace_id().clone(),
            run_id: run.run_id().clone(),
            session_id: run.session_id().clone(),
            status: status.to_owned(),
        }
    }
}
