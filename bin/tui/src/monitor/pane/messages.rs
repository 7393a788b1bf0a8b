//! The Messages pane: the conversation of the run's trace with its branches.

use soong_protocol::{Message, Role};

use super::{PaneContext, paragraph};
use crate::{format, styled_line::StyledLine, terminal::TextStyle, text};

/// Maximum number of lines shown of a message: by default, of a system message, and in full.
const MOST_LINES: usize = 12;
const SYSTEM_LINES: usize = 3;
const FULL_LINES: usize = 400;

pub(super) fn lines(messages: &[(Message, String)], page: &PaneContext<'_>) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    let mut before: Option<u64> = None;
    for (message, mark) in messages {
        // A message that does not follow the previous one begins a branch.
        let branch = match (message.parent_sequence, before) {
            (Some(parent), Some(before)) if parent != before => {
                format!(" branches off after #{parent}")
            }
            (None, Some(_)) if message.covers.is_none() => " starts a new branch".to_owned(),
            _ => String::new(),
        };
        before = Some(message.sequence);
        let is_off = mark.contains("off the path")
            || mark.contains("reflection")
            || mark.contains("summarized");
        let (style, body) = match message.role {
            _ if is_off => (TextStyle::Dim, TextStyle::Dim),
            Role::System => (TextStyle::Dim, TextStyle::Dim),
            Role::User => (TextStyle::Green, TextStyle::Plain),
            Role::Assistant => (TextStyle::Cyan, TextStyle::Plain),
            Role::Tool => (TextStyle::Yellow, TextStyle::Plain),
        };
        let mut head = StyledLine::of(
            style,
            format!("#{} {}", message.sequence, message.role.as_str()),
        );
        if let Some(call) = &message.tool_call_id {
            head.push(
                TextStyle::Dim,
                &format!(" answers {}", text::safe_line(call)),
            );
        }
        if message.partial {
            head.push(TextStyle::Yellow, " (cut off)");
        }
        head.push(TextStyle::Dim, mark);
        head.push(TextStyle::Yellow, &branch);
        if let (Some(prompt), Some(completion)) = (message.prompt_tokens, message.completion_tokens)
        {
            head.push(
                TextStyle::Dim,
                &format!(
                    "  {} + {} tokens",
                    format::count(prompt),
                    format::count(completion)
                ),
            );
        }
        lines.push(head);
        let (room, rows) = match message.role {
            _ if page.show_full => (FULL_LINES, 20),
            Role::System => (SYSTEM_LINES, 1),
            _ => (MOST_LINES, 3),
        };
        let all = message
            .content
            .trim_end()
            .lines()
            .filter(|line| !line.trim().is_empty());
        let shown = all
            .clone()
            .take(room)
            .flat_map(|line| paragraph(body, line, 2, page, rows));
        lines.extend(shown);
        let more = all.count().saturating_sub(room);
        if more > 0 {
            let more = format::plural(more, "line", "lines");
            lines.push(StyledLine::of(
                TextStyle::Dim,
                format!("  ({more} more: Tab, Enter to show all)"),
            ));
        }
        for file in message.content.files() {
            let line = format!("  [{}]", text::safe_line(&file.description()));
            lines.push(StyledLine::of(TextStyle::Dim, line));
        }
        for call in &message.tool_calls {
            let line = format!(
                "  -> {} {}",
                text::safe_line(&call.name),
                text::safe_line(&call.arguments)
            );
            lines.push(StyledLine::of(
                if is_off {
                    TextStyle::Dim
                } else {
                    TextStyle::Yellow
                },
                line,
            ));
        }
    }
    if lines.is_empty() {
        lines.push(StyledLine::of(TextStyle::Dim, "no messages yet"));
    }
    lines
}
