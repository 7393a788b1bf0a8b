//! Compaction of the conversation: the summary that is being made, and the attempts that failed.

use soong_protocol::Covers;

use crate::run::machine::auxiliary_call::AuxiliaryCall;

/// The messages that a requested summary will replace.
#[derive(Debug)]
pub(crate) struct PendingCompaction {
    pub(in crate::run::machine) covers: Covers,
    pub(in crate::run::machine) tokens_before: u64,
    /// The request; absent once it was repeated.
    pub(in crate::run::machine) request: Option<AuxiliaryCall>,
}

/// Attempts to shorten the conversation by a summary.
#[derive(Default)]
pub(in crate::run::machine) struct CompactionState {
    /// Number of summaries that replaced messages in this turn.
    pub(in crate::run::machine) completed: u32,
    /// Number of summaries of this turn that failed.
    pub(in crate::run::machine) failed: u32,
    /// Number of summaries in a row that failed, over all turns.
    pub(in crate::run::machine) consecutive_failures: u32,
    /// Size of the prompt, in tokens, for which the last summary was requested.
    pub(in crate::run::machine) tokens_before: u64,
    /// Prompts up to this size, in tokens, are not summarised: a summary at this size has failed.
    pub(in crate::run::machine) retry_above_tokens: u64,
    /// Number of summaries in a row that gained less than a tenth of the prompt.
    pub(in crate::run::machine) small_gains: u32,
    /// Prompts up to this size, in tokens, are not summarised, even if they exceed the window:
    /// summaries gain too little.
    pub(in crate::run::machine) stopped_below_tokens: u64,
    /// Whether a summary was attempted because a service has rejected a nearly full prompt for an
    /// unknown reason.
    pub(in crate::run::machine) follows_rejection: bool,
    /// Last message that was reflected on before a summary.
    pub(in crate::run::machine) reflected_to: u64,
    /// First and last message of the reflection that has not ended, and the size of its request in
    /// tokens.
    pub(in crate::run::machine) open_reflection: Option<((u64, u64), u64)>,
    /// The range that the pending summary will replace; only the incarnation that requested it
    /// knows.
    pub(in crate::run::machine) plan: Option<PendingCompaction>,
}
