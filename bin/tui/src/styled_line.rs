//! A line for a terminal: pieces of text, each with a style.
//!
//! Pure. The callers make the texts safe for a terminal (`text`). Elsewhere: the escape codes of
//! the styles (`terminal`), the content of the lines (`screen`, `markdown`, the monitor).

use crate::{
    terminal::{Paint, TextStyle},
    text,
};

/// A line of styled pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StyledLine {
    pieces: Vec<(TextStyle, String)>,
}

impl StyledLine {
    /// Creates a line of one piece.
    pub fn of(style: TextStyle, text: impl Into<String>) -> Self {
        Self {
            pieces: vec![(style, text.into())],
        }
    }

    /// Appends a piece.
    pub fn and(mut self, style: TextStyle, text: impl Into<String>) -> Self {
        self.pieces.push((style, text.into()));
        self
    }

    /// Returns the pieces with their styles.
    pub fn pieces(&self) -> impl Iterator<Item = (TextStyle, &str)> {
        self.pieces
            .iter()
            .map(|(style, text)| (*style, text.as_str()))
    }

    /// Appends text. Adjacent pieces of the same style are merged.
    pub fn push(&mut self, style: TextStyle, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some((last, piece)) if *last == style => piece.push_str(text),
            _ => self.pieces.push((style, text.to_owned())),
        }
    }

    /// Appends the pieces of another line.
    pub fn append(&mut self, other: &StyledLine) {
        for (style, text) in &other.pieces {
            self.push(*style, text);
        }
    }

    /// Removes white space at the end.
    pub fn trim_end(&mut self) {
        while let Some((_, last)) = self.pieces.last_mut() {
            last.truncate(last.trim_end().len());
            if !last.is_empty() {
                break;
            }
            self.pieces.pop();
        }
    }

    /// Cuts the line to at most `columns`. `ellipsis` replaces the rest if it fits.
    pub fn cut(&self, columns: usize, ellipsis: &str) -> Self {
        if self.width() <= columns {
            return self.clone();
        }
        let ellipsis = if text::width(ellipsis) <= columns {
            ellipsis
        } else {
            ""
        };
        let room = columns - text::width(ellipsis);
        let mut cut_line = Self::default();
        let mut used = 0;
        for (style, (cluster, wide)) in self.clusters() {
            if used + wide > room {
                cut_line.push(style, ellipsis);
                break;
            }
            used += wide;
            cut_line.push(style, cluster);
        }
        cut_line
    }

    /// Splits the line into one or more lines of at most `columns`.
    pub fn split(&self, columns: usize) -> Vec<Self> {
        let mut lines = vec![Self::default()];
        let mut used = 0;
        for (style, (cluster, wide)) in self.clusters() {
            let (cluster, wide) = text::fit_cluster(cluster, wide, columns);
            if used + wide > columns.max(1) {
                lines.push(Self::default());
                used = 0;
            }
            used += wide;
            if let Some(line) = lines.last_mut() {
                line.push(style, cluster);
            }
        }
        lines
    }

    /// Returns the clusters of the text with their styles and widths.
    fn clusters(&self) -> impl Iterator<Item = (TextStyle, (&str, usize))> {
        self.pieces
            .iter()
            .flat_map(|(style, text)| text::clusters(text).map(|cluster| (*style, cluster)))
    }

    /// Returns the text with escape sequences for its styles.
    pub fn to_ansi(&self, paint: Paint) -> String {
        self.pieces
            .iter()
            .map(|(style, text)| paint.paint(*style, text))
            .collect()
    }

    /// Returns the number of columns that the line takes.
    pub fn width(&self) -> usize {
        self.pieces.iter().map(|(_, text)| text::width(text)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(line: &StyledLine) -> String {
        line.to_ansi(Paint { on: false })
    }

    #[test]
    fn adjacent_pieces_of_one_style_merge_and_end_is_trimmed() {
        let mut line = StyledLine::default();
        for (style, text) in [
            (TextStyle::Bold, "a"),
            (TextStyle::Bold, "b "),
            (TextStyle::Dim, ""),
            (TextStyle::Dim, "  "),
            (TextStyle::Plain, " "),
        ] {
            line.push(style, text);
        }
        line.trim_end();
        assert_eq!(line, StyledLine::of(TextStyle::Bold, "ab"));
    }

    #[test]
    fn cut_counts_columns_over_all_pieces() {
        let line = StyledLine::of(TextStyle::Bold, "ab好").and(TextStyle::Dim, "cd");
        for (columns, want) in [(6, "ab好cd"), (5, "ab好…"), (4, "ab…"), (1, "…"), (0, "")]
        {
            assert_eq!(plain(&line.cut(columns, "…")), want, "{columns}");
        }
        assert_eq!(plain(&line.cut(2, "...")), "ab");
    }
}
