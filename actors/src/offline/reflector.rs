//! The reflector: by rules, keeps the first error, or the tools that were used (MEM-4).
//!
//! Elsewhere: the request (`memory/reflect.rs`), and how the conversation is written (`context/`).

use serde_json::{Value, json};

use super::{NOTICE, Turn, conversation::Conversation, summary, tagger};
use crate::memory::REFLECTION_PROMPT_START;

/// Returns whether the request asks for a reflection.
pub(super) fn is_asked(conversation: &Conversation<'_>) -> bool {
    conversation.system_contains(REFLECTION_PROMPT_START)
}

/// Answers with the experiences to keep.
pub(super) fn next(conversation: &Conversation<'_>) -> Turn {
    let seen = summary::ConversationFacts::read(conversation.task);
    let tags = tagger::tags("", &seen.request);
    let failed = !seen.errors.is_empty();
    let (category, text) = match seen.errors.first() {
        Some(error) => (
            "tool_usage",
            format!("A call failed here, and will again in the same way: {error}"),
        ),
        None if seen.tools.is_empty() => ("other", String::new()),
        None => (
            "logic_flow",
            format!("Tools that led to an answer: {}", seen.tools.join(", ")),
        ),
    };
    let new: Vec<Value> = if text.is_empty() {
        Vec::new()
    } else {
        vec![json!({"category": category, "tags": tags, "text": format!("{text} ({NOTICE})")})]
    };
    let used: Vec<Value> = seen
        .experience_ids
        .iter()
        .map(|id| json!({"id": id, "helped": !failed}))
        .collect();
    Turn::answer(json!({"experiences": new, "used": used}).to_string())
}
