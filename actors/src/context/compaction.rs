//! Level 2, the plan: which prefix of a path a summary is to cover (CTX-3).
//!
//! What stays is the end of the path: the last messages, whole units of them, never more than half of
//! the budget, at least the last unit. The request that the work is for is never covered by a summary
//! alone: where it stands in the prefix, the plan says so, and it is shown whole behind the summary.

use soong_protocol::Role;

use super::{Entry, summary::is_summary, unit::units};

/// What a summary covers: `entries[..covered]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// How many entries it covers, from the first; what stays begins here, at the start of a unit.
    pub(crate) covered: usize,
    /// The last request of a person, where it is among the covered ones: to be shown whole all the same.
    pub(crate) pinned: Option<usize>,
}

/// Plans what a summary covers; `None` = there is nothing to gain.
///
/// `budget_tokens` is what messages may use together.
pub(crate) fn plan_compaction(entries: &[Entry], keep_recent: usize, budget_tokens: u64) -> Option<Cut> {
    let recent = entries.len().saturating_sub(keep_recent);
    let mut covered = entries.len();
    let mut kept_tokens = 0;
    for unit in units(entries).into_iter().rev() {
        let is_last = covered == entries.len();
        kept_tokens += entries[unit.range.clone()].iter().map(|entry| entry.tokens).sum::<u64>();
        if !is_last && (unit.range.end <= recent || kept_tokens > budget_tokens / 2) {
            break;
        }
        covered = unit.range.start;
    }
    let is_request = |entry: &Entry| entry.message.role == Role::User && !is_summary(&entry.message);
    let pinned = entries.iter().rposition(is_request).filter(|place| *place < covered);
    let is_news = |(place, entry): (usize, &Entry)| Some(place) != pinned && !is_summary(&entry.message);
    entries[..covered].iter().enumerate().any(is_news).then_some(Cut { covered, pinned })
}
