//! What of a conversation a model is shown: the pure half of context building (CTX-1 to CTX-3).
//!
//! Level 1 leaves out the work of goals that are over, each turn, without a model (`level_one.rs`).
//! Level 2 plans what a summary is to cover (`compaction.rs`), asks for it (`request.rs`,
//! `transcript.rs`), and judges and words what came back (`summary.rs`). All of it keeps calls and
//! their results together (`unit.rs`).
//! Pure: no clock, no I/O, no actor; how tokens are counted arrives as a function.
//! Not here: when any of it happens and what is written down (`run/`), counting itself
//! (`model/tokens.rs`), the system prompt.

mod clip;
mod compaction;
mod level_one;
mod request;
mod summary;
mod transcript;
mod unit;

use std::sync::Arc;

use soong_protocol::Message;

pub(crate) use self::{
    compaction::plan_compaction,
    level_one::{is_stand_in, level_one},
    request::{CONVERSATION_HEAD, GOALS_HEAD, SUMMARISER, ask_again, conversation_text, summary_request},
    summary::{SECTIONS, accept_summary, is_summary, plain_summary, saves_too_little, summary_message},
};

/// Counts a text where no counter is at hand.
pub(crate) fn count_estimate(text: &str) -> u64 {
    crate::model::tokens::estimate_tokens(text)
}

/// A message of the main path with its size.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) message: Arc<Message>,
    pub(crate) tokens: u64,
}

#[cfg(test)]
mod tests;
