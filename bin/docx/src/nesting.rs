//! Nesting of blocks in lists and quotes, and the marker that the next paragraph must begin with.

use docx_rs::{IndentLevel, NumberingId, Paragraph, SpecialIndentType};

use super::MAX_LEVEL;

/// Indentation of one list or quote level, in twentieths of a point.
const STEP: i32 = 400;

/// Id of the numbering that all unordered lists share. Ordered lists use higher ids.
pub(super) const BULLETS: usize = 10;

/// Marker at the start of a list item or footnote.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Marker {
    /// Bullet or number of a list item.
    Item,
    /// Check box of a task list item, which replaces its bullet. `true`: checked.
    Task(bool),
    /// Number of a footnote.
    Note,
}

/// Open lists and quotes at the current position, and the marker that was not written yet.
#[derive(Default)]
pub(super) struct Nesting {
    quotes: usize,
    /// Numbering ids of the open lists, outermost first.
    lists: Vec<usize>,
    mark: Option<Marker>,
    in_note: bool,
}

impl Nesting {
    /// Returns the nesting for the text of a footnote.
    pub(super) fn of_note() -> Self {
        Self {
            mark: Some(Marker::Note),
            in_note: true,
            ..Self::default()
        }
    }

    /// Returns whether this is the text of a footnote.
    pub(super) fn is_note(&self) -> bool {
        self.in_note
    }

    pub(super) fn begin_quote(&mut self) {
        self.quotes += 1;
    }

    pub(super) fn end_quote(&mut self) {
        self.quotes = self.quotes.saturating_sub(1);
    }

    pub(super) fn begin_list(&mut self, numbering: usize) {
        self.lists.push(numbering);
    }

    pub(super) fn end_list(&mut self) {
        self.lists.pop();
    }

    pub(super) fn begin_item(&mut self) {
        self.mark = Some(Marker::Item);
    }

    /// Returns the marker that was not written yet, if any.
    pub(super) fn pending(&self) -> Option<Marker> {
        self.mark
    }

    /// Replaces the pending bullet with a check box and returns `true`. Returns `false` if no
    /// bullet is pending, for example in a numbered item.
    pub(super) fn begin_task(&mut self, done: bool) -> bool {
        let replaces = self.lists.last() == Some(&BULLETS) && self.mark == Some(Marker::Item);
        if replaces {
            self.mark = Some(Marker::Task(done));
        }
        replaces
    }

    /// Returns the level of a list that starts at the current position, from 0 to [`MAX_LEVEL`].
    pub(super) fn next_level(&self) -> usize {
        self.lists.len().min(MAX_LEVEL)
    }

    /// Returns the current indentation, in twentieths of a point.
    pub(super) fn indent(&self) -> i32 {
        let levels = self.lists.len().min(MAX_LEVEL + 1) + self.quotes.min(MAX_LEVEL + 1);
        i32::try_from(levels).unwrap_or(0) * STEP
    }

    /// Sets the indentation and style of a paragraph. If `style` is `None`, the surrounding blocks
    /// determine the style. Clears the pending marker: an item marker becomes the paragraph's
    /// numbering, and the caller writes other markers.
    pub(super) fn apply(&mut self, paragraph: Paragraph, style: Option<&str>) -> Paragraph {
        let around = match () {
            () if self.quotes > 0 => Some("Quote"),
            () if self.in_note => Some("FootnoteText"),
            () if !self.lists.is_empty() => Some("ListParagraph"),
            () => None,
        };
        let mut paragraph = match style.or(around) {
            Some(style) => paragraph.style(style),
            None => paragraph,
        };
        let hanging = match (self.mark.take(), self.lists.last()) {
            (Some(Marker::Item), Some(&numbering)) => {
                paragraph = paragraph.numbering(
                    NumberingId::new(numbering),
                    IndentLevel::new(self.lists.len().saturating_sub(1).min(MAX_LEVEL)),
                );
                Some(SpecialIndentType::Hanging(STEP))
            }
            (Some(Marker::Task(_)), _) => Some(SpecialIndentType::Hanging(STEP)),
            _ => None,
        };
        match self.indent() {
            0 => paragraph,
            left => paragraph.indent(Some(left), hanging, None, None),
        }
    }
}
