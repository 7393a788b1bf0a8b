//! A line for a terminal: pieces of text, each with its hue.
//!
//! Pure. Texts are harmless already (`text`). Not here: how a hue is written (`terminal`), what
//! lines there are (`screen`, `markdown`).

use crate::{
    terminal::{Hue, Paint},
    text,
};

/// One line: pieces with their colours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Line {
    pieces: Vec<(Hue, String)>,
}

impl Line {
    pub(crate) fn of(hue: Hue, text: impl Into<String>) -> Self {
        Self { pieces: vec![(hue, text.into())] }
    }

    pub(crate) fn and(mut self, hue: Hue, text: impl Into<String>) -> Self {
        self.pieces.push((hue, text.into()));
        self
    }

    pub(crate) fn painted(&self, paint: Paint) -> String {
        self.pieces.iter().map(|(hue, text)| paint.paint(*hue, text)).collect()
    }

    pub(crate) fn width(&self) -> usize {
        self.pieces.iter().map(|(_, text)| text::width(text)).sum()
    }
}
