//! Events of the message tree.

use crate::{Collaborator, Covers, GoalId, GoalTree, Message, Role, event_macro::events};

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
            /// What it stands for, where it is a summary.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            covers: Option<Covers>,
        },
        /// The conversation went back to an earlier message of its main path, and goals and documents with it
        /// (MSG-4).
        Rewind = "rewind" {
            /// Where it was asked to go back to.
            after_sequence: u64,
            /// The head now: behind the results of the calls that were cut into (MSG-3).
            head_sequence: u64,
            /// The head before.
            from_sequence: u64,
            /// The goals as they were before.
            goal_tree_snapshot: Box<GoalTree>,
            /// The goals as they are now: those of that time, with nothing in progress.
            goal_tree: Box<GoalTree>,
            /// Documents that went back to their text at that message.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            restored: Vec<String>,
            /// Documents that stay as they are, because somebody else has written to them since.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            left: Vec<String>,
            /// The collaborators as they were then, which are those now; absent in events before 0.2: they stayed.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            collaborators: Option<Vec<Collaborator>>,
        },
        /// The conversation goes on from another message, on its main path or off it (MSG-2).
        HeadSwitched = "head_switched" {
            /// The head now.
            sequence: u64,
            /// The head before.
            from_sequence: u64,
            /// The goals as they were before.
            goal_tree_snapshot: Box<GoalTree>,
            /// The goals as they are now.
            goal_tree: Box<GoalTree>,
            /// Documents that have their text at that message again.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            restored: Vec<String>,
            /// Documents that stay as they are, because somebody else has written to them since.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            left: Vec<String>,
            /// The collaborators as they were then, which are those now; absent in events before 0.2: they stayed.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            collaborators: Option<Vec<Collaborator>>,
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
            covers: message.covers,
        }
    }
}
