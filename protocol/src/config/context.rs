//! `[context]`: settings that determine which part of a conversation is sent to the model (CTX-1 …
//! CTX-3).

use serde::{Deserialize, Serialize};

/// Settings that determine which part of a conversation is sent to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextConfig {
    /// Share of the model's context window from which a summary replaces older messages. Above 0,
    /// at most 1. Default: 0.8.
    pub threshold_ratio: f64,
    /// Number of recent messages that are always sent in full. Default: 10.
    pub keep_recent_messages: usize,
    /// Interval at which goals and collaborators are repeated in the prompt, in turns. The first
    /// turn always contains them. Default: 10.
    pub inject_every_turns: u32,
    /// Profile of the model that writes summaries. Default: the run's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_profile: Option<String>,
    /// Profile of the model for auxiliary requests: tagging a task and reviewing a trace. Default:
    /// the run's own.
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
    /// Returns the first invalid key and the reason.
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
