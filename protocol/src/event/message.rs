//! Events of the message tree.

use crate::{
    Collaborator, Covers, GoalId, GoalTree, Message, MessageContent, Role, event_macro::events,
};

/// Maximum size of the content in an event, in bytes. Read longer content from the message.
///
/// Stores rebuild events from their messages, so a change also changes events that were delivered
/// before.
const MAX_CONTENT_BYTES: usize = 64 * 1024;

events! {
    /// A change of the message tree of a trace.
    MessageEvent {
        /// A message was added. It is stored completely before the event is published.
        Added = "message_added" {
            /// Number of the message.
            sequence: u64,
            /// Preceding message. `null` for the first message and for a summary.
            parent_sequence: Option<u64>,
            /// Author of the message.
            role: Role,
            /// Goal that was focused. `null` if none was.
            goal_id: Option<GoalId>,
            /// For a tool message, the id of the call.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            tool_call_id: Option<String>,
            /// Whether the text was cut off.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            partial: bool,
            /// Content of the message. Absent if its text is longer than 64 KiB.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            content: Option<MessageContent>,
            /// One-line description.
            preview: String,
            /// For a summary, the messages that it replaces.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            covers: Option<Covers>,
            /// The head that the message replaces: an answer whose place a callback's answer takes.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            replaces: Option<u64>,
        },
        /// The conversation was rewound to an earlier message of its main path, together with goals
        /// and documents (MSG-4).
        Rewind = "rewind" {
            /// Requested message.
            after_sequence: u64,
            /// New head: the requested message, or the last tool result of the turn if the cut
            /// would separate tool calls from their results (MSG-3).
            head_sequence: u64,
            /// Previous head.
            from_sequence: u64,
            /// Goal tree before the rewind.
            goal_tree_snapshot: Box<GoalTree>,
            /// Goal tree after the rewind: the state at the requested message, with no goal in
            /// progress.
            goal_tree: Box<GoalTree>,
            /// Documents that were restored to their text at the requested message.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            restored: Vec<String>,
            /// Documents that were not changed, because another writer has changed them since.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            left: Vec<String>,
            /// Collaborators at the requested message, which are now the current ones. Absent in
            /// events of versions before 0.2, which did not change the collaborators.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            collaborators: Option<Vec<Collaborator>>,
        },
        /// The conversation was switched to another message, on or off its main path (MSG-2).
        HeadSwitched = "head_switched" {
            /// New head.
            sequence: u64,
            /// Previous head.
            from_sequence: u64,
            /// Goal tree before the switch.
            goal_tree_snapshot: Box<GoalTree>,
            /// Goal tree after the switch.
            goal_tree: Box<GoalTree>,
            /// Documents that were restored to their text at the new head.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            restored: Vec<String>,
            /// Documents that were not changed, because another writer has changed them since.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            left: Vec<String>,
            /// Collaborators at the new head, which are now the current ones. Absent in events of
            /// versions before 0.2, which did not change the collaborators.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            collaborators: Option<Vec<Collaborator>>,
        },
    }
}

impl MessageEvent {
    /// Returns the event that reports the addition of `message`.
    pub fn added(message: &Message) -> Self {
        Self::Added {
            sequence: message.sequence,
            parent_sequence: message.parent_sequence,
            role: message.role,
            goal_id: message.goal_id.clone(),
            tool_call_id: message.tool_call_id.clone(),
            partial: message.partial,
            content: event_content(message).cloned(),
            preview: message.description.clone(),
            covers: message.covers,
            replaces: None,
        }
    }

    /// Returns the event that reports the addition of `message`, which takes the place of the head
    /// `replaced`.
    pub fn replacing(message: &Message, replaced: Option<u64>) -> Self {
        let mut event = Self::added(message);
        if let Self::Added { replaces, .. } = &mut event {
            *replaces = replaced;
        }
        event
    }

    /// Returns whether this is the event that [`added`](Self::added) returns for `message`.
    pub fn is_addition_of(&self, message: &Message) -> bool {
        let Self::Added {
            sequence,
            parent_sequence,
            role,
            goal_id,
            tool_call_id,
            partial,
            content,
            preview,
            covers,
            replaces,
        } = self
        else {
            return false;
        };
        *sequence == message.sequence
            && *parent_sequence == message.parent_sequence
            && *role == message.role
            && *goal_id == message.goal_id
            && *tool_call_id == message.tool_call_id
            && *partial == message.partial
            && content.as_ref() == event_content(message)
            && *preview == message.description
            && *covers == message.covers
            && replaces.is_none()
    }
}

/// Returns the content of a message that its event contains; `None` if its text is too long.
fn event_content(message: &Message) -> Option<&MessageContent> {
    (message.content.len() <= MAX_CONTENT_BYTES).then_some(&message.content)
}
