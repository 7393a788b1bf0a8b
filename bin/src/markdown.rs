//! Markdown on a terminal: what a model writes becomes coloured lines.
//!
//! Pure. The text is foreign: whatever it holds, the lines are harmless (`text`) and no wider than
//! the page. Blocks at the top are drawn independently of each other, with one blank line between
//! them; that is what lets a text be shown while it still comes (`streamed`). So definitions of link
//! references are shown where they stand. Not here: blocks (`blocks`), inline text (`inline`),
//! line breaking (`flow`), tables (`table`).

mod blocks;
mod flow;
mod inline;
pub(crate) mod streamed;
mod table;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, ops::Range};

use pulldown_cmark::{Event, Options, Parser};

use self::blocks::Writer;
use crate::{line::Line, terminal::Terminal};

/// Longest line of a text that is drawn for people, in columns.
const MAX_COLUMNS: usize = 100;

/// What the lines have to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    /// Columns; none counts as one.
    pub(crate) width: usize,
    /// Whether marks beyond ASCII are drawn; the text itself keeps its characters.
    pub(crate) unicode: bool,
}

impl Page {
    /// Takes the terminal's width as it is now, up to what is pleasant to read.
    pub(crate) fn of(terminal: &Terminal) -> Self {
        let (columns, _) = crossterm::terminal::size().unwrap_or_default();
        let columns = if columns == 0 { MAX_COLUMNS } else { usize::from(columns) };
        Self { width: columns.saturating_sub(1).clamp(1, MAX_COLUMNS), unicode: terminal.unicode }
    }

    /// Returns the page with so many columns less.
    pub(crate) fn without(self, columns: usize) -> Self {
        Self { width: self.width.saturating_sub(columns).max(1), ..self }
    }

    const fn ellipsis(&self) -> &'static str {
        if self.unicode { "…" } else { "..." }
    }
}

/// Draws a whole text.
pub(crate) fn render(text: &str, page: &Page) -> Vec<Line> {
    let text = &with_plain_breaks(text);
    let mut writer = Writer::new(*page);
    let (mut depth, mut end) = (0_usize, 0);
    for (event, range) in events(text) {
        if depth == 0 {
            writer.between(text.get(end..range.start).unwrap_or_default());
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            end = range.end;
        }
        writer.take(event);
    }
    writer.between(text.get(end..).unwrap_or_default());
    writer.finish()
}

/// Reads the text's structure: what comes, and where it stands.
fn events(text: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    Parser::new_ext(text, options).into_offset_iter()
}

/// Writes all line breaks as `\n`; a carriage return by itself is one.
fn with_plain_breaks(text: &str) -> Cow<'_, str> {
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n").into() } else { text.into() }
}
