//! Where a block lies: lists, quotes, and the mark that the next block has to bear.

use docx_rs::{IndentLevel, NumberingId, Paragraph, SpecialIndentType};

use super::MAX_LEVEL;

/// Indent of one level of lists or quotes, in twentieths of a point.
const STEP: i32 = 400;

/// The numbering that all unordered lists share; those of ordered ones follow.
pub(super) const BULLETS: usize = 10;

/// What stands before the first block of an item or note.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Mark {
    /// The bullet or number of an item.
    Item,
    /// A box of a task list, instead of a bullet.
    Task(bool),
    /// The number of a footnote.
    Note,
}

/// The blocks around what is being read.
#[derive(Default)]
pub(super) struct Nest {
    quotes: usize,
    /// The numberings of the lists that are open.
    lists: Vec<usize>,
    mark: Option<Mark>,
    in_note: bool,
}

impl Nest {
    /// Returns what lies around the text of a footnote.
    pub(super) fn of_note() -> Self {
        Self { mark: Some(Mark::Note), in_note: true, ..Self::default() }
    }

    /// Whether this is a footnote.
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
        self.mark = Some(Mark::Item);
    }

    /// Returns the mark that no block has borne yet.
    pub(super) fn pending(&self) -> Option<Mark> {
        self.mark
    }

    /// Turns a bullet into a box; a number stays before it.
    pub(super) fn begin_task(&mut self, done: bool) -> bool {
        let replaces = self.lists.last() == Some(&BULLETS) && self.mark == Some(Mark::Item);
        if replaces {
            self.mark = Some(Mark::Task(done));
        }
        replaces
    }

    /// Returns the level that a list begun here has, from 0.
    pub(super) fn next_level(&self) -> usize {
        self.lists.len().min(MAX_LEVEL)
    }

    /// Returns the indent of what is being read.
    pub(super) fn indent(&self) -> i32 {
        let levels = self.lists.len().min(MAX_LEVEL + 1) + self.quotes.min(MAX_LEVEL + 1);
        i32::try_from(levels).unwrap_or(0) * STEP
    }

    /// Puts a paragraph where it lies, in `style` or in that of what lies around it. The first one bears the mark.
    pub(super) fn place(&mut self, paragraph: Paragraph, style: Option<&str>) -> Paragraph {
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
            (Some(Mark::Item), Some(&numbering)) => {
                paragraph = paragraph.numbering(
                    NumberingId::new(numbering),
                    IndentLevel::new(self.lists.len().saturating_sub(1).min(MAX_LEVEL)),
                );
                Some(SpecialIndentType::Hanging(STEP))
            }
            (Some(Mark::Task(_)), _) => Some(SpecialIndentType::Hanging(STEP)),
            _ => None,
        };
        match self.indent() {
            0 => paragraph,
            left => paragraph.indent(Some(left), hanging, None, None),
        }
    }
}
