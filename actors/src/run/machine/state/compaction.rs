//! A summary that is being made.

use soong_protocol::Covers;

use crate::run::machine::effect::SummaryCall;

/// What a summary that is being made will stand for.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(in crate::run::machine) covers: Covers,
    pub(in crate::run::machine) tokens_before: u64,
    /// The request; absent once it was repeated.
    pub(in crate::run::machine) call: Option<SummaryCall>,
}
