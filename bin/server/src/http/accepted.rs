//! The answer to a start: the run that was accepted.

use serde::{Deserialize, Serialize};
use soong::{
    RunHandle,
    protocol::{RunId, SessionId, TraceId},
};
use utoipa::ToSchema;

/// A run that was taken in.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    /// Its trace.
    pub trace_id: TraceId,
    /// Its id.
    pub run_id: RunId,
    /// Its session.
    pub session_id: SessionId,
    /// `started`, `queued`, or `cancelling` where its end was asked for.
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
