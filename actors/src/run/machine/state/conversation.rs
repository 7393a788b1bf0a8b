//! The conversation of a run, and its current turn.

use std::sync::Arc;

use crate::{context::SizedMessage, run::machine::state::cut_calls::TruncatedCalls};

/// The messages that the model is sent, and how large they are.
#[derive(Default)]
pub(in crate::run::machine) struct Conversation {
    /// Largest sequence number of a message of the trace (R3).
    pub(in crate::run::machine) last_sequence: u64,
    /// Sequence number of the last message of the main path.
    pub(in crate::run::machine) head: Option<u64>,
    /// The main path without the system message.
    pub(in crate::run::machine) transcript: Vec<SizedMessage>,
    /// Last message whose omitted files were reported.
    pub(in crate::run::machine) files_omitted_to: u64,
    /// Text of the system message.
    pub(in crate::run::machine) system: Option<Arc<str>>,
    pub(in crate::run::machine) system_sequence: Option<u64>,
    /// Size of the last prompt in tokens, by our own count.
    pub(in crate::run::machine) prompt_tokens: u64,
    /// Context window in tokens: as configured, or smaller after the model has refused a prompt that should have
    /// fitted.
    pub(in crate::run::machine) window: u64,
}

/// The current turn: one answer of the model and its tool calls.
#[derive(Default)]
pub(in crate::run::machine) struct TurnState {
    /// Number of the turn, from 1; 0 before the first model call (R2).
    pub(in crate::run::machine) number: u32,
    /// Whether the model was called in this turn and has not answered.
    pub(in crate::run::machine) is_open: bool,
    /// Attempt of the last model call, from 1.
    pub(in crate::run::machine) attempt: u32,
    /// Whether partial text of the current model call was stored.
    pub(in crate::run::machine) kept_partial: bool,
    /// Number of consecutive answers that exceeded the size limit.
    pub(in crate::run::machine) answers_too_large: u32,
    /// Tool calls whose arguments were cut at the token limit.
    pub(in crate::run::machine) cut_calls: TruncatedCalls,
}
