//! The answer to a start: the run that was accepted.

use serde::{Deserialize, Serialize};
use soong::{
    RunHandle,
    protocol::{RunId, SessionId, TraceId},
};
use utoipa::ToSchema;

/// A run that was taken in.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Accepted {
    pub(crate) trace_id: TraceId,
    pub(crate) run_id: RunId,
    pub(crate) session_id: SessionId,
    /// `started`, `queued`, or `cancelling` where its end was asked for.
    pub(crate) status: String,
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
