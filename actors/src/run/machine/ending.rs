//! Why a run ends.

use soong_protocol::{EndReason, ErrorInfo, RunStatus};

/// Why the run is about to end; it ends when nothing below it is open.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ending {
    pub(crate) status: RunStatus,
    pub(crate) reason: EndReason,
    pub(crate) error: Option<ErrorInfo>,
}
