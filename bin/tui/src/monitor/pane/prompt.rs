//! The Prompt pane: the system messages of the run's trace in full: the instructions, and what was
//! added to them later.

use soong_protocol::{Message, Role};

use super::PaneContext;
use crate::{format, styled_line::StyledLine, terminal::TextStyle, text};

pub(super) fn lines(messages: &[(Message, String)], page: &PaneContext<'_>) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    for (message, mark) in messages
        .iter()
        .filter(|(message, _)| message.role == Role::System)
    {
        if !lines.is_empty() {
            lines.push(StyledLine::default());
        }
        let content = text::safe_block(message.content.trim_end());
        let size = format!("  {}{mark}", format::bytes(content.len() as u64));
        lines.push(
            StyledLine::of(
                TextStyle::Bold,
                format!("#{} {}", message.sequence, message.role.as_str()),
            )
            .and(TextStyle::Dim, size),
        );
        for mut line in content.lines() {
            // Indentation is kept, as that of lists and code.
            loop {
                let (row, rest) = text::first_row(line, page.columns.max(1));
                lines.push(StyledLine::of(TextStyle::Plain, row));
                line = rest;
                if line.is_empty() {
                    break;
                }
            }
        }
    }
    if lines.is_empty() {
        lines.push(StyledLine::of(TextStyle::Dim, "no system prompt"));
    }
    lines
}
