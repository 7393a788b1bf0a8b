//! Events of the message tree.

use crate::{GoalId, Message, Role, event::events};

/// Longest content that an event carries, in bytes; longer ones are read from the message.
const MAX_CONTENT_BYTES: usize = 64 * 1024;

events! {
    /// What happened to a trace's messages.
    MessageEvent {
        /// A message was added; it is stored whole before anybody hears of it.
        Added = "message_added" {
            /// Its number.
            sequence: u64,
            /// What it follows.
            parent_sequence: Option<u64>,
            /// Who speaks.
            role: Role,
            /// The goal that was current.
            goal_id: Option<GoalId>,
            /// Which call it answers.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            tool_call_id: Option<String>,
            /// Whether its text was cut off.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            partial: bool,
            /// Its text; absent above 64 KiB.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            content: Option<String>,
            /// A short line about it.
            preview: String,
        },
    }
}

impl MessageEvent {
    /// Says that `message` was added.
    pub fn added(message: &Message) -> Self {
        Self::Added {
            sequence: message.sequence,
            parent_sequence: message.parent_sequence,
            role: message.role,
            goal_id: message.goal_id.clone(),
            tool_call_id: message.tool_call_id.clone(),
            partial: message.partial,
            content: (message.content.len() <= MAX_CONTENT_BYTES).then(|| message.content.clone()),
            preview: message.description.clone(),
        }
    }
}
