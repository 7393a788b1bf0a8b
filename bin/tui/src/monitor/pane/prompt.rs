//! The Prompt pane: the system messages of the run's trace in full: its instructions, and what was added to them later.

use soong_protocol::{Message, Role};

use super::PaneContext;
use crate::{format, styled_line::StyledLine, terminal::TextStyle, text};

pub(super) fn lines(messages: &[(Message, String)], page: &PaneContext<'_>) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    for (message, mark) in messages.iter().filter(|(message, _)| message.role == Role::System) {
        if !lines.is_empty() {
            lines.push(StyledLine::default());
        }
        let content = text::safe_block(message.content.trim_end());
        let size = format!("  {}{mark}", format::bytes(content.len() as u64));
        lines.push(
            StyledLine::of(TextStyle::Bold, format!("#{} {}", message.sequence, message.role.as_str()))
                .and(TextStyle::Dim, size),
        );
        let rows = content.lines().flat_map(|line| text::wrap(line, page.columns));
        lines.extend(rows.map(|row| StyledLine::of(TextStyle::Plain, row)));
    }
    if lines.is_empty() {
        lines.push(StyledLine::of(TextStyle::Dim, "no system prompt"));
    }
    lines
}
