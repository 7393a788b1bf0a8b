//! Context building, pure part: selects what a model sees of a conversation (CTX-1 to CTX-3).
//!
//! Level 1 omits the messages of finished goals in each turn, without calling a model (`prune.rs`).
//! Level 2 plans what a summary covers (`compaction.rs`), builds the request for it
//! (`summary_request.rs`, `transcript.rs`), and checks and formats the answer (`summary.rs`). Both
//! keep calls and their results together (`message_group.rs`). `naming_request.rs` builds the
//! request for the name of a conversation.
//!
//! Pure: no clock, no I/O, no actor. The function that counts tokens is an argument.
//!
//! Elsewhere: when context is built and what is recorded (`run/`), the counting of tokens
//! (`soong_model::tokens`), the system prompt.

mod compaction;
mod message_group;
mod naming_request;
mod prune;
mod summary;
mod summary_request;
mod transcript;
mod truncate;

use std::sync::Arc;

use soong_protocol::Message;

pub(crate) use self::{
    compaction::plan_compaction,
    naming_request::{AGENT_HEADING, NAMING_PROMPT, USER_HEADING, naming_request},
    prune::{goals_to_omit, is_replacement, prune},
    summary::{
        SECTIONS, accept_summary, is_summary, omitted_message, plain_summary, saves_too_little,
        summary_message,
    },
    summary_request::{
        CONVERSATION_HEADING, GOALS_HEADING, SUMMARY_PROMPT_START, conversation_text,
        correction_request, summary_request,
    },
};

/// Estimates the tokens of a text, for use without a tokenizer.
pub(crate) fn count_estimate(text: &str) -> u64 {
    soong_model::tokens::estimate_tokens(text)
}

/// A message of the main path with its number of tokens.
#[derive(Debug, Clone)]
pub(crate) struct SizedMessage {
    pub(crate) message: Arc<Message>,
    pub(crate) tokens: u64,
}

#[cfg(test)]
mod tests;
