//! Why a run ends.

use soong_protocol::{EndReason, ErrorInfo, RunStatus};

/// Why the run is about to end. The run ends when none of its children is open.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ending {
    pub(crate) status: RunStatus,
    pub(crate) reason: EndReason,
    pub(crate) error: Option<ErrorInfo>,
}
