//! Renders Markdown of a model as colored terminal lines.
//!
//! Pure. The text is not trusted: whatever it contains, the lines are sanitized (`text`) and no
//! wider than the page. Top-level blocks are rendered independently of each other, with one blank
//! line between them, so that a text can be shown while it is still being streamed (`streamed`).
//! Therefore definitions of link references are shown at their position. Elsewhere: blocks
//! (`blocks`), inline text (`inline`), line breaking (`flow`), tables (`table`), source code
//! (`code`).

mod blocks;
mod code;
mod flow;
mod inline;
pub mod streamed;
mod table;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, ops::Range};

use pulldown_cmark::{Event, Options, Parser};

use self::blocks::Writer;
use crate::{styled_line::StyledLine, terminal::Terminal};

/// Maximum width of rendered text, in columns.
const MAX_COLUMNS: usize = 100;

/// Width and character set of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFormat {
    /// Width in columns; 0 counts as 1.
    pub width: usize,
    /// Whether symbols outside ASCII are drawn; the text itself keeps its characters.
    pub unicode: bool,
}

impl PageFormat {
    /// Returns a page with the current width of the terminal, up to 100 columns.
    pub fn of(terminal: &Terminal) -> Self {
        let (columns, _) = crossterm::terminal::size().unwrap_or_default();
        let columns = if columns == 0 {
            MAX_COLUMNS
        } else {
            usize::from(columns)
        };
        Self {
            width: columns.saturating_sub(1).clamp(1, MAX_COLUMNS),
            unicode: terminal.unicode,
        }
    }

    /// Returns the page with fewer columns.
    pub fn narrower(self, columns: usize) -> Self {
        Self {
            width: self.width.saturating_sub(columns).max(1),
            ..self
        }
    }

    const fn ellipsis(&self) -> &'static str {
        if self.unicode { "…" } else { "..." }
    }
}

/// Renders a whole text.
pub fn render(text: &str, page: &PageFormat) -> Vec<StyledLine> {
    let text = &normalize_line_breaks(text);
    let mut writer = Writer::new(*page);
    let mut depth = 0_usize;
    let mut end = 0;
    for (event, range) in events(text) {
        if depth == 0 {
            writer.text_between_blocks(text.get(end..range.start).unwrap_or_default());
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            end = range.end;
        }
        writer.handle_event(event);
    }
    writer.text_between_blocks(text.get(end..).unwrap_or_default());
    writer.finish()
}

/// Parses the text into events with their ranges.
fn events(text: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    Parser::new_ext(text, options).into_offset_iter()
}

/// Converts all line breaks to `\n`; a single carriage return counts as one.
fn normalize_line_breaks(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        text.replace("\r\n", "\n").replace('\r', "\n").into()
    } else {
        text.into()
    }
}
