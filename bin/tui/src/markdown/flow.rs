//! Flowing text: sanitized text with colors, broken into lines at words.
//!
//! Pure. A line may end at a space, and before or after a wide character (Chinese and Japanese have
//! no spaces). Invariant: a line has at most the requested number of columns, and only the spaces
//! at a break are dropped.

use crate::{styled_line::StyledLine, terminal::TextStyle, text};

/// Wide and narrow punctuation that must not begin a line.
const CLOSING: &str = "、。，．！？；：）」』】》〉”’…";

/// Text in several colors; `\n` breaks the line.
#[derive(Debug, Clone, Default)]
pub(super) struct Flow {
    text: String,
    /// End of each piece, with its color.
    ends: Vec<(usize, TextStyle)>,
}

impl Flow {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the length in bytes, which is a position for `since`.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns the text after a position.
    pub(super) fn since(&self, start: usize) -> &str {
        &self.text[start..]
    }

    /// Appends foreign text on the current line.
    pub(super) fn push(&mut self, style: TextStyle, foreign: &str) {
        self.add(style, &text::safe_line_keep_spaces(foreign));
    }

    /// Begins a new line.
    pub(super) fn break_line(&mut self) {
        self.add(TextStyle::Plain, "\n");
    }

    fn add(&mut self, style: TextStyle, harmless: &str) {
        self.text.push_str(harmless);
        match self.ends.last_mut() {
            Some((end, last)) if *last == style => *end = self.text.len(),
            _ => self.ends.push((self.text.len(), style)),
        }
    }

    /// Returns the grapheme clusters with their colors and widths.
    fn clusters(&self) -> impl Iterator<Item = (TextStyle, &str, usize)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        let pieces = starts
            .zip(&self.ends)
            .map(|(start, (end, style))| (*style, &self.text[start..*end]));
        pieces.flat_map(|(style, piece)| {
            text::clusters(piece).map(move |(cluster, wide)| (style, cluster, wide))
        })
    }

    /// Returns the width of the text on one line, in columns.
    pub(super) fn width(&self) -> usize {
        self.clusters().map(|(_, _, wide)| wide).sum()
    }

    /// Returns the text as one line.
    pub(super) fn line(&self) -> StyledLine {
        let mut line = StyledLine::default();
        for (style, cluster, _) in self.clusters() {
            line.push(style, cluster);
        }
        line
    }

    /// Wraps the text into lines of at most `columns`.
    pub(super) fn wrapped(&self, columns: usize) -> Vec<StyledLine> {
        let mut breaker = LineBreaker {
            columns: columns.max(1),
            ..LineBreaker::default()
        };
        for (style, cluster, wide) in self.clusters() {
            match cluster {
                "\n" => breaker.end_line(),
                " " => {
                    breaker.end_word();
                    breaker.spaces.push(style);
                }
                _ => breaker.add(style, cluster, wide),
            }
        }
        breaker.end_line();
        breaker.lines
    }
}

/// Fills lines with words.
#[derive(Default)]
struct LineBreaker<'a> {
    columns: usize,
    lines: Vec<StyledLine>,
    line: StyledLine,
    used: usize,
    /// The word that is not yet on a line.
    word: Vec<(TextStyle, &'a str, usize)>,
    /// The spaces before the word.
    spaces: Vec<TextStyle>,
}

impl<'a> LineBreaker<'a> {
    fn add(&mut self, style: TextStyle, cluster: &'a str, wide: usize) {
        let beside_wide = wide > 1 || self.word.last().is_some_and(|(_, _, last)| *last > 1);
        if beside_wide && !cluster.chars().any(|c| CLOSING.contains(c)) {
            self.end_word();
        }
        self.word.push((style, cluster, wide));
    }

    /// Puts the word on the current line, or on one or more new lines.
    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let wide: usize = self.word.iter().map(|(_, _, wide)| wide).sum();
        if self.used > 0 && self.used + self.spaces.len() + wide > self.columns {
            self.next_line();
        }
        if self.used > 0 {
            self.used += self.spaces.len();
            self.spaces
                .iter()
                .for_each(|style| self.line.push(*style, " "));
        }
        self.spaces.clear();
        for (style, cluster, wide) in std::mem::take(&mut self.word) {
            let (cluster, wide) = text::fit_cluster(cluster, wide, self.columns);
            if self.used + wide > self.columns {
                self.next_line();
            }
            self.used += wide;
            self.line.push(style, cluster);
        }
    }

    fn next_line(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
        self.used = 0;
        self.spaces.clear();
    }

    fn end_line(&mut self) {
        self.end_word();
        self.next_line();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Paint;

    fn wrapped(text: &str, columns: usize) -> Vec<String> {
        let mut flow = Flow::default();
        for (at, part) in text.split('\n').enumerate() {
            if at > 0 {
                flow.break_line();
            }
            flow.push(TextStyle::Plain, part);
        }
        flow.wrapped(columns)
            .iter()
            .map(|line| line.to_ansi(Paint { on: false }))
            .collect()
    }

    #[test]
    fn lines_break_between_words_and_wide_characters() {
        for (text, columns, want) in [
            ("one two three", 7, vec!["one two", "three"]),
            ("one  two", 8, vec!["one  two"]), // spaces within a line stay
            ("one  two", 4, vec!["one", "two"]),
            ("a verylongword b", 5, vec!["a", "veryl", "ongwo", "rd b"]),
            ("你好世界", 5, vec!["你好", "世界"]),
            ("ab 你好，世界", 7, vec!["ab 你", "好，世", "界"]), // a comma begins no line
            ("one\ntwo\n\nthree", 9, vec!["one", "two", "", "three"]),
            ("nb\u{a0}sp x", 5, vec!["nb\u{a0}sp", "x"]),
            ("好", 1, vec!["\u{fffd}"]),
            ("", 5, vec![""]),
        ] {
            assert_eq!(wrapped(text, columns), want, "{text:?} to {columns}");
        }
    }

    #[test]
    fn word_of_two_styles_is_not_split() {
        let mut flow = Flow::default();
        flow.push(TextStyle::Plain, "see pre");
        flow.push(TextStyle::Bold, "fix");
        flow.push(TextStyle::Plain, ", ok");
        let lines = flow.wrapped(8);
        assert_eq!(lines[0], StyledLine::of(TextStyle::Plain, "see"));
        assert_eq!(
            lines[1],
            StyledLine::of(TextStyle::Plain, "pre")
                .and(TextStyle::Bold, "fix")
                .and(TextStyle::Plain, ",")
        );
        assert_eq!(
            (lines[2].clone(), flow.width()),
            (StyledLine::of(TextStyle::Plain, "ok"), 14)
        );
    }
}
