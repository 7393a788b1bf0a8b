//! Units: a message with tool calls and all messages with their results form one unit.
//!
//! Providers reject a call without its result and a result without its call. Omitting only whole
//! units keeps a valid conversation valid.

use std::ops::Range;

use soong_protocol::Role;

use super::SizedMessage;

/// Consecutive entries that are shown completely or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessageGroup {
    pub(super) range: Range<usize>,
    /// Whether it is a result without a call, which every provider rejects.
    pub(super) is_orphan: bool,
}

/// Splits a path into its units, in order and without gaps.
pub(super) fn message_groups(path: &[SizedMessage]) -> Vec<MessageGroup> {
    let mut units: Vec<MessageGroup> = Vec::with_capacity(path.len());
    let mut takes_results = false;
    for (index, entry) in path.iter().enumerate() {
        let message = &entry.message;
        let is_result = message.role == Role::Tool;
        match units.last_mut().filter(|_| is_result && takes_results) {
            Some(unit) => unit.range.end = index + 1,
            None => {
                takes_results = message.role == Role::Assistant && !message.tool_calls.is_empty();
                units.push(MessageGroup {
                    range: index..index + 1,
                    is_orphan: is_result,
                });
            }
        }
    }
    units
}
