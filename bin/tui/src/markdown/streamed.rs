//! Rendering of a text that is still being streamed: the settled part, which cannot change any
//! more, and the rest.
//!
//! Pure. Pieces may be lost (streamed text is sent live only), so the complete text is
//! authoritative. Invariant: the settled lines followed by the final ones equal the lines of the
//! complete text. A block is settled once another block has begun after it, on a complete line.
//! Definitions of link references are not resolved across this boundary.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use pulldown_cmark::{Event, Tag};

use super::{PageFormat, events, normalize_line_breaks, render};
use crate::{styled_line::StyledLine, terminal::TextStyle};

/// Length of the rest, in bytes, above which it is parsed again only after it has grown by an
/// eighth. Otherwise a long code block would be parsed once per line.
const REPARSE_BYTES: usize = 8 * 1024;
/// Maximum number of bytes of the rest from which a tail is rendered.
const TAIL_BYTES: usize = 16 * 1024;

/// A text that arrives in pieces.
#[derive(Debug, Default)]
pub struct Streamed {
    /// Settled text, whose lines were returned.
    settled: String,
    /// Text after the settled part.
    rest: String,
    /// Length of the complete lines of the rest, in bytes.
    complete: usize,
    /// Length of the complete lines at which the rest is parsed again, in bytes.
    next_parse_at: usize,
    /// Whether settled lines were returned.
    has_lines: bool,
    /// Whether the last piece ended with `\r`, which may be the first half of a line break.
    ends_with_cr: bool,
}

impl Streamed {
    /// Appends the next piece.
    pub fn push(&mut self, delta: &str) {
        if delta.is_empty() {
            return;
        }
        let held_back = if std::mem::take(&mut self.ends_with_cr) {
            "\r"
        } else {
            ""
        };
        let mut piece = format!("{held_back}{delta}");
        if piece.ends_with('\r') {
            piece.pop();
            self.ends_with_cr = true;
        }
        let piece = normalize_line_breaks(&piece);
        if let Some(at) = piece.rfind('\n') {
            self.complete = self.rest.len() + at + 1;
        }
        self.rest.push_str(&piece);
    }

    /// Returns the lines that have become settled since the last call.
    pub fn settled(&mut self, page: &PageFormat) -> Vec<StyledLine> {
        if self.complete == 0 || self.complete < self.next_parse_at {
            return Vec::new();
        }
        let cut = last_block_start(&self.rest[..self.complete]);
        let after = self.rest.split_off(cut);
        let done = std::mem::replace(&mut self.rest, after);
        self.complete -= cut;
        self.next_parse_at = self.complete
            + 1
            + if self.complete < REPARSE_BYTES {
                0
            } else {
                self.complete / 8
            };
        let lines = self.draw(&done, page);
        self.settled.push_str(&done);
        lines
    }

    /// Returns whether a part of the text has become settled.
    pub fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    /// Renders the last `max_lines` of the unsettled text, including a blank line above it if it
    /// will have one.
    ///
    /// Of a very long block only the end is parsed, so it may be rendered without its surrounding
    /// structure.
    pub fn tail(&self, page: &PageFormat, max_lines: usize) -> Vec<StyledLine> {
        let mut lines = render(&tail_source(&self.rest), page);
        if self.has_lines && !lines.is_empty() {
            lines.insert(0, StyledLine::default());
        }
        lines.drain(..lines.len().saturating_sub(max_lines));
        lines
    }

    /// Returns the remaining lines of the complete text, and resets this value.
    ///
    /// If the complete text does not start with the settled text, the result is a note followed by
    /// the whole text.
    pub fn finish(&mut self, whole: &str, page: &PageFormat) -> Vec<StyledLine> {
        let mut before = std::mem::take(self);
        let whole = &normalize_line_breaks(whole);
        // A provider may have trimmed the complete text.
        match whole.trim_start().strip_prefix(before.settled.trim_start()) {
            Some(_) if before.settled.is_empty() => render(whole, page),
            Some(rest) => before.draw(rest, page),
            None => {
                let note = "The text above was incomplete. Full text:";
                let mut lines = vec![
                    StyledLine::default(),
                    StyledLine::of(TextStyle::Dim, note).cut(page.width, page.ellipsis()),
                ];
                lines.push(StyledLine::default());
                lines.extend(render(whole, page));
                lines
            }
        }
    }

    /// Returns the remaining lines if the complete text is unknown.
    pub fn finish_unchecked(mut self, page: &PageFormat) -> Vec<StyledLine> {
        let rest = std::mem::take(&mut self.rest);
        self.draw(&rest, page)
    }

    /// Renders blocks that follow the settled ones.
    fn draw(&mut self, text: &str, page: &PageFormat) -> Vec<StyledLine> {
        let mut lines = render(text, page);
        if self.has_lines && !lines.is_empty() {
            lines.insert(0, StyledLine::default());
        }
        self.has_lines |= !lines.is_empty();
        lines
    }
}

/// Returns the position of the last top-level block, including the indentation that it needs; 0 if
/// there is only one block.
fn last_block_start(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut blocks = 0;
    let mut last = 0;
    for (event, range) in events(text) {
        if depth == 0 && !matches!(event, Event::End(_)) {
            blocks += 1;
            // Most blocks need their indentation, but it could turn a paragraph or a table into a
            // code block.
            let is_flush = matches!(event, Event::Start(Tag::Paragraph | Tag::Table(_)));
            last = if is_flush {
                range.start
            } else {
                text[..range.start].rfind('\n').map_or(0, |at| at + 1)
            };
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if blocks > 1 { last } else { 0 }
}

/// Returns the end of a long text, from the start of a line. If the text is a fenced block, its
/// fence is added in front.
fn tail_source(text: &str) -> Cow<'_, str> {
    if text.len() <= TAIL_BYTES {
        return text.into();
    }
    let from = text.ceil_char_boundary(text.len() - TAIL_BYTES);
    let end = text[from..]
        .find('\n')
        .map_or(&text[from..], |at| &text[from + at + 1..]);
    let first = text.lines().next().unwrap_or_default();
    if first.trim_start().starts_with("```") || first.trim_start().starts_with("~~~") {
        // Cut, since a line may be as long as the text.
        let fence: String = first.chars().take(100).collect();
        return format!("{fence}\n{end}").into();
    }
    end.into()
}
