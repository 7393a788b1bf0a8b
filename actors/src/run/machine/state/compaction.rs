//! The reflection that precedes a summary.

use crate::run::machine::jobs::summarize::Summarize;

/// The reflections on messages that summaries replace.
#[derive(Default)]
pub(in crate::run::machine) struct CompactionState {
    /// Last message that was reflected on before a summary.
    pub(in crate::run::machine) reflected_to: u64,
    /// First and last message of the reflection that has not ended, and the size of its request in
    /// tokens.
    pub(in crate::run::machine) open_reflection: Option<((u64, u64), u64)>,
    /// The summary that follows the reflection; only the incarnation that requested it knows.
    pub(in crate::run::machine) summary: Option<Summarize>,
}
