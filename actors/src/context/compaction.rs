//! Level 2, planning: which prefix of a path a summary covers (CTX-3).
//!
//! The end of the path is kept: the most recent messages, in whole units, at most half of the
//! budget, and at least the last unit. The user request being worked on is never replaced by a
//! summary alone: if it is in the covered prefix, the plan pins it, and it is shown in full after
//! the summary.

use super::{SizedMessage, message_group::message_groups, summary::is_summary};

/// The part covered by a summary: `entries[..covered]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompactionPlan {
    /// Number of covered entries. The kept entries start here, at the beginning of a unit.
    pub(crate) covered: usize,
    /// Index of the last user request if it is covered; it is shown in full nevertheless.
    pub(crate) pinned: Option<usize>,
}

/// Plans what a summary covers. Returns `None` if nothing would be gained.
///
/// `budget_tokens` is the maximum for all messages together.
pub(crate) fn plan_compaction(
    entries: &[SizedMessage],
    keep_recent: usize,
    budget_tokens: u64,
) -> Option<CompactionPlan> {
    let recent = entries.len().saturating_sub(keep_recent);
    let mut covered = entries.len();
    let mut kept_tokens = 0;
    for unit in message_groups(entries).into_iter().rev() {
        let is_last = covered == entries.len();
        kept_tokens += entries[unit.range.clone()]
            .iter()
            .map(|entry| entry.tokens)
            .sum::<u64>();
        if !is_last && (unit.range.end <= recent || kept_tokens > budget_tokens / 2) {
            break;
        }
        covered = unit.range.start;
    }
    let pinned = entries
        .iter()
        .rposition(|entry| entry.message.is_request())
        .filter(|index| *index < covered);
    let is_uncovered_message = |(index, entry): (usize, &SizedMessage)| {
        Some(index) != pinned && !is_summary(&entry.message)
    };
    entries[..covered]
        .iter()
        .enumerate()
        .any(is_uncovered_message)
        .then_some(CompactionPlan { covered, pinned })
}
