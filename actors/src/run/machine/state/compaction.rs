//! A summary that is being made.

use soong_protocol::Covers;

use crate::run::machine::effect::SummaryCall;

/// What a summary that is being made will stand for.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) covers: Covers,
    pub(crate) tokens_before: u64,
    /// The request; absent once it was repeated.
    pub(crate) call: Option<SummaryCall>,
}
