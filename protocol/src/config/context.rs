//! `[context]`: what of a conversation a model is shown (CTX-1 … CTX-3).

use serde::{Deserialize, Serialize};

/// What of a conversation a model is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextConfig {
    /// From which share of the model's window on older messages give way to a summary; above 0, at most 1.
    pub threshold_ratio: f64,
    /// How many of the last messages are always shown whole.
    pub keep_recent_messages: usize,
    /// Every how many turns goals and collaborators are shown, beside the first.
    pub inject_every_turns: u32,
    /// The profile of the model that writes summaries; absent = the run's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_profile: Option<String>,
    /// The profile of the model for small questions: what a task is about, what was learned; absent = the run's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utility_profile: Option<String>,
}

impl Default for ContextConfig {
    fn default() -> Self {
        Self {
            threshold_ratio: 0.8,
            keep_recent_messages: 10,
            inject_every_turns: 10,
            compact_profile: None,
            utility_profile: None,
        }
    }
}

impl ContextConfig {
    /// Finds the first value that cannot be, with its key and why.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if !(self.threshold_ratio > 0.0 && self.threshold_ratio <= 1.0) {
            return Err(("context.threshold_ratio", "must be above 0 and at most 1"));
        }
        if self.keep_recent_messages == 0 {
            return Err(("context.keep_recent_messages", "must be at least 1"));
        }
        if self.inject_every_turns == 0 {
            return Err(("context.inject_every_turns", "must be at least 1"));
        }
        Ok(())
    }
}
