//! A text that still comes: what of it can no longer change, and what is there beyond that.
//!
//! Pure. Pieces may get lost on their way (streamed text is live only), so the whole text has the
//! last word. Invariant: the settled lines and then the finishing ones are those of the whole text
//! drawn at once. A block is settled when another one has begun after it, on a line that is
//! complete. Definitions of link references are not resolved across that border.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use pulldown_cmark::{Event, Tag};

use super::{Page, events, render, with_plain_breaks};
use crate::{line::Line, terminal::Hue};

/// From this length on the rest is only looked at again when it has grown by an eighth, in bytes:
/// a long code block would otherwise be read as often as it has lines.
const LOOK_BYTES: usize = 8 * 1024;
/// How much of the rest a tail is drawn from, in bytes.
const TAIL_BYTES: usize = 16 * 1024;

/// A text that comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Streamed {
    /// What was drawn for good.
    settled: String,
    /// What came after that.
    rest: String,
    /// How much of the rest is in complete lines, in bytes.
    complete: usize,
    /// How much that has to be before it is looked at again, in bytes.
    next_look: usize,
    /// Whether lines were drawn for good.
    has_lines: bool,
    /// Whether the last piece ended between the two characters of a line break, perhaps.
    is_in_break: bool,
}

impl Streamed {
    /// Takes the next piece.
    pub(crate) fn push(&mut self, delta: &str) {
        if delta.is_empty() {
            return;
        }
        let held_back = if std::mem::take(&mut self.is_in_break) { "\r" } else { "" };
        let mut piece = format!("{held_back}{delta}");
        if piece.ends_with('\r') {
            piece.pop();
            self.is_in_break = true;
        }
        let piece = with_plain_breaks(&piece);
        if let Some(at) = piece.rfind('\n') {
            self.complete = self.rest.len() + at + 1;
        }
        self.rest.push_str(&piece);
    }

    /// Draws what can no longer change and was not drawn before.
    pub(crate) fn settled(&mut self, page: &Page) -> Vec<Line> {
        if self.complete == 0 || self.complete < self.next_look {
            return Vec::new();
        }
        let cut = last_block(&self.rest[..self.complete]);
        let after = self.rest.split_off(cut);
        let done = std::mem::replace(&mut self.rest, after);
        self.complete -= cut;
        self.next_look = self.complete + 1 + if self.complete < LOOK_BYTES { 0 } else { self.complete / 8 };
        let lines = self.draw(&done, page);
        self.settled.push_str(&done);
        lines
    }

    /// Draws the last `max_lines` of what is not settled, with the blank line above it that it will have.
    ///
    /// Of a very long block only the end is looked at: it may be drawn without what it stands in.
    pub(crate) fn tail(&self, page: &Page, max_lines: usize) -> Vec<Line> {
        let mut lines = render(&last_part(&self.rest), page);
        if self.has_lines && !lines.is_empty() {
            lines.insert(0, Line::default());
        }
        lines.drain(..lines.len().saturating_sub(max_lines));
        lines
    }

    /// Draws what is still to be shown of the whole text, and is empty then.
    ///
    /// If something else was settled, a note says so, and the whole text follows.
    pub(crate) fn finish(&mut self, whole: &str, page: &Page) -> Vec<Line> {
        let mut before = std::mem::take(self);
        let whole = &with_plain_breaks(whole);
        // A provider may have trimmed the whole text.
        match whole.trim_start().strip_prefix(before.settled.trim_start()) {
            Some(_) if before.settled.is_empty() => render(whole, page),
            Some(rest) => before.draw(rest, page),
            None => {
                let note = "The text above was incomplete. The whole one:";
                let mut lines = vec![Line::default(), Line::of(Hue::Dim, note).cut(page.width, page.ellipsis())];
                lines.push(Line::default());
                lines.extend(render(whole, page));
                lines
            }
        }
    }

    /// Draws what is still to be shown where nothing but the pieces is known of the text.
    pub(crate) fn finish_as_is(mut self, page: &Page) -> Vec<Line> {
        let rest = std::mem::take(&mut self.rest);
        self.draw(&rest, page)
    }

    /// Draws blocks below those that were drawn before.
    fn draw(&mut self, text: &str, page: &Page) -> Vec<Line> {
        let mut lines = render(text, page);
        if self.has_lines && !lines.is_empty() {
            lines.insert(0, Line::default());
        }
        self.has_lines |= !lines.is_empty();
        lines
    }
}

/// Returns where the last block at the top begins, as it has to be cut to stay what it is; the
/// start of the text if there is no other one before it.
fn last_block(text: &str) -> usize {
    let (mut depth, mut blocks) = (0_usize, 0);
    let mut last = 0;
    for (event, range) in events(text) {
        if depth == 0 && !matches!(event, Event::End(_)) {
            blocks += 1;
            // Indentation means something to most blocks, but it would make code of these.
            let is_flush = matches!(event, Event::Start(Tag::Paragraph | Tag::Table(_)));
            last = if is_flush { range.start } else { text[..range.start].rfind('\n').map_or(0, |at| at + 1) };
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if blocks > 1 { last } else { 0 }
}

/// Returns the end of a long text from a line's start on; in a fenced block, with its fence.
fn last_part(text: &str) -> Cow<'_, str> {
    if text.len() <= TAIL_BYTES {
        return text.into();
    }
    let from = text.ceil_char_boundary(text.len() - TAIL_BYTES);
    let end = text[from..].find('\n').map_or(&text[from..], |at| &text[from + at + 1..]);
    let first = text.lines().next().unwrap_or_default();
    if first.trim_start().starts_with("```") || first.trim_start().starts_with("~~~") {
        // A line may be as long as the text.
        let fence: String = first.chars().take(100).collect();
        return format!("{fence}\n{end}").into();
    }
    end.into()
}
