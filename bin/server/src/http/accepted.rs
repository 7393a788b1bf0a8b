//! Response to a start: the accepted run.

use soong::{
    RunHandle,
    protocol::{Run, api::Accepted},
};

/// Describes an accepted run. `status` is `started`, `queued` or `cancelling`.
pub(super) fn accepted(run: &RunHandle, status: &str) -> Accepted {
    Accepted {
        trace_id: run.trace_id().clone(),
        run_id: run.run_id().clone(),
        session_id: run.session_id().clone(),
        status: status.to_owned(),
    }
}

/// Same as [`accepted`] for the record of a run.
pub(super) fn accepted_record(run: &Run, status: &str) -> Accepted {
    Accepted {
        trace_id: run.trace_id.clone(),
        run_id: run.run_id.clone(),
        session_id: run.session_id.clone(),
        status: status.to_owned(),
    }
}
