//! A conversation as plain text, for a model that summarizes it.
//!
//! Each message has a heading at the beginning of a line. Its text follows, indented, so that no
//! text can be mistaken for a heading. Long texts are truncated in the middle with a note; texts of
//! users are truncated least.

use std::{borrow::Cow, collections::HashMap};

use soong_protocol::{MessageContent, MessageOrigin, Role};

use super::{
    SizedMessage,
    summary::{is_summary, without_goals},
    truncate::truncate_middle,
};

/// Maximum lengths of texts of users, answers of the model, tool results, and tool arguments, in
/// characters.
const MAX_USER_CHARS: usize = 6_000;
const MAX_ANSWER_CHARS: usize = 2_500;
const MAX_OUTPUT_CHARS: usize = 1_200;
const MAX_ARGUMENTS_CHARS: usize = 600;

/// Role of a message for the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// Summary of earlier messages.
    Summary,
    /// Request of a user.
    Request,
    /// Any other message.
    Work,
}

/// A conversation whose messages are formatted on demand, because formatting all of a long one is
/// slow.
pub(super) struct Transcript<'a> {
    entries: &'a [SizedMessage],
    /// Name of the tool whose result the message is, by index.
    tools: Vec<Option<&'a str>>,
}

impl<'a> Transcript<'a> {
    pub(super) fn new(entries: &'a [SizedMessage]) -> Self {
        // Latest call with each id, because ids may be reused.
        let mut calls: HashMap<&str, &str> = HashMap::new();
        let mut tools = Vec::with_capacity(entries.len());
        for entry in entries {
            let message = entry.message.as_ref();
            calls.extend(
                message
                    .tool_calls
                    .iter()
                    .map(|call| (call.id.as_str(), call.name.as_str())),
            );
            tools.push(
                message
                    .tool_call_id
                    .as_deref()
                    .and_then(|id| calls.get(id))
                    .copied(),
            );
        }
        Self { entries, tools }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn kind(&self, index: usize) -> MessageKind {
        let message = self.entries[index].message.as_ref();
        match message.role {
            _ if is_summary(message) => MessageKind::Summary,
            _ if message.is_request() => MessageKind::Request,
            _ => MessageKind::Work,
        }
    }

    /// Formats a message. The text ends with a line feed.
    pub(super) fn text(&self, index: usize) -> String {
        let message = self.entries[index].message.as_ref();
        let number = message.sequence;
        let goal = message
            .goal_id
            .as_ref()
            .map(|goal| format!(" (goal id {goal})"))
            .unwrap_or_default();
        let content = &with_files(&message.content);
        let mut text = match (self.kind(index), message.role) {
            (MessageKind::Summary, _) => format!(
                "[{number}] earlier summary:\n{}",
                indent(without_goals(content))
            ),
            (MessageKind::Work, Role::User) => {
                let author = match message.origin {
                    Some(MessageOrigin::ChildResult) => "result of a sub-agent",
                    _ => "note of the runtime",
                };
                format_message(number, author, content, MAX_ANSWER_CHARS)
            }
            (_, Role::User | Role::System) => {
                format_message(number, message.role.as_str(), content, MAX_USER_CHARS)
            }
            (_, Role::Tool) => {
                let tool = self.tools[index].unwrap_or("a tool");
                format_message(
                    number,
                    &format!("result of {tool}{goal}"),
                    content,
                    MAX_OUTPUT_CHARS,
                )
            }
            (_, Role::Assistant) if content.is_empty() && !message.tool_calls.is_empty() => {
                String::new()
            }
            (_, Role::Assistant) => format_message(
                number,
                &format!("assistant{goal}"),
                content,
                MAX_ANSWER_CHARS,
            ),
        };
        for call in &message.tool_calls {
            let who = format!("assistant calls {}{goal}", call.name);
            text.push_str(&format_message(
                number,
                &who,
                &call.arguments,
                MAX_ARGUMENTS_CHARS,
            ));
        }
        text
    }
}

/// Returns the text of a content, followed by the descriptions of its images and files.
fn with_files(content: &MessageContent) -> Cow<'_, str> {
    let files: String = content
        .files()
        .map(|file| format!("\n[{}]", file.description()))
        .collect();
    if files.is_empty() {
        content.as_str().into()
    } else {
        format!("{content}{files}").into()
    }
}

fn format_message(number: u64, who: &str, text: &str, max_chars: usize) -> String {
    format!(
        "[{number}] {who}:\n{}",
        indent(&truncate_middle(text.trim(), max_chars))
    )
}

/// Indents each line. The result ends with a line feed.
pub(super) fn indent(text: &str) -> String {
    text.lines()
        .fold(String::with_capacity(text.len() + 32), |mut all, line| {
            all.push_str("  ");
            all.push_str(line);
            all.push('\n');
            all
        })
}
