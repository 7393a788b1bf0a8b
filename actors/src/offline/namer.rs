//! The namer: names a conversation after the first words of its first message (RUN-6a).
//!
//! Elsewhere: the request (`context/naming_request.rs`).

use super::{Turn, conversation::Conversation};
use crate::context::{AGENT_HEADING, NAMING_PROMPT, USER_HEADING};

/// Maximum number of words of a name.
const MAX_WORDS: usize = 6;

/// Returns whether the request asks for a name.
pub(super) fn is_asked(conversation: &Conversation<'_>) -> bool {
    conversation.system_contains(NAMING_PROMPT)
}

/// Answers with the name.
pub(super) fn next(conversation: &Conversation<'_>) -> Turn {
    let request = conversation
        .task
        .strip_prefix(USER_HEADING)
        .unwrap_or(conversation.task);
    let message = request.split(AGENT_HEADING).next().unwrap_or_default();
    let words: Vec<&str> = message.split_whitespace().take(MAX_WORDS).collect();
    Turn::answer(
        words
            .join(" ")
            .trim_end_matches([',', '.', ';', ':', '?', '!']),
    )
}
