//! Colors the source code of code blocks: comments, strings, numbers, keywords and keys, and the
//! lines of diffs.
//!
//! Pure. A scanner, not a parser: it knows how comments and strings of a language look (`language`)
//! and takes the rest as words and numbers. A library such as syntect would add its grammars to the
//! binary. Invariant: the pieces of a line, put together, are the line.

mod language;
#[cfg(test)]
mod tests;

use self::language::{ColoredNames, Language, Quote};
use crate::{styled_line::StyledLine, terminal::TextStyle};

/// Colors code, which must be safe for a terminal. `info` is the info string of the code block.
/// Returns one line for each line of the code.
pub(super) fn colored(code: &str, info: &str) -> Vec<StyledLine> {
    if matches!(language::name(info).as_deref(), Some("diff" | "patch")) {
        let mut has_hunk = false;
        let colored_line = |line: &str| {
            has_hunk |= line.starts_with("@@");
            StyledLine::of(diff_style(line, has_hunk), line)
        };
        return code.lines().map(colored_line).collect();
    }
    match Language::of(info) {
        Some(language) => {
            let mut scanner = Scanner {
                language,
                open: None,
                unclosed: None,
                line: StyledLine::default(),
            };
            code.lines().map(|line| scanner.scan(line)).collect()
        }
        None => code
            .lines()
            .map(|line| StyledLine::of(TextStyle::Cyan, line))
            .collect(),
    }
}

/// Returns the style of a line of a unified diff. `has_hunk`: whether the names of the files are
/// above it.
fn diff_style(line: &str, has_hunk: bool) -> TextStyle {
    match line.as_bytes().first() {
        _ if !has_hunk && (line.starts_with("+++") || line.starts_with("---")) => TextStyle::Bold,
        Some(b'+') => TextStyle::Green,
        Some(b'-') => TextStyle::Red,
        Some(b'@') => TextStyle::Cyan,
        _ => TextStyle::Plain,
    }
}

/// A comment or string that continues on the next line.
#[derive(Debug, Clone, Copy)]
enum Open {
    /// A comment that ends with this text.
    Comment(&'static str),
    String(&'static Quote),
}

/// Scans the lines of a text one after the other.
struct Scanner {
    language: &'static Language,
    open: Option<Open>,
    /// A quote that the current line does not close. Looking for it again at each quote would take
    /// quadratic time.
    unclosed: Option<&'static str>,
    line: StyledLine,
}

impl Scanner {
    fn scan(&mut self, line: &str) -> StyledLine {
        let mut at = match self.open.take() {
            Some(Open::Comment(end)) => self.comment(line, 0, end),
            Some(Open::String(quote)) => self.multi_line_string(line, 0, quote),
            None => self.key(line),
        };
        self.unclosed = None;
        while at < line.len() {
            at = self.token(line, at);
        }
        std::mem::take(&mut self.line)
    }

    /// Scans the token at a position; returns its end.
    fn token(&mut self, line: &str, at: usize) -> usize {
        let (before, rest) = line.split_at(at);
        let Some(first) = rest.chars().next() else {
            return line.len();
        };
        if let Some((start, end)) = self
            .language
            .block_comment
            .filter(|(start, _)| rest.starts_with(start))
        {
            self.line.push(TextStyle::Dim, start);
            return self.comment(line, at + start.len(), end);
        }
        if self.starts_line_comment(before, rest) {
            self.line.push(TextStyle::Dim, rest);
            return line.len();
        }
        let quote = self
            .language
            .quotes
            .iter()
            .find(|quote| rest.starts_with(quote.open));
        if let Some(end) = quote.and_then(|quote| self.string(line, at, quote)) {
            return end;
        }
        let (style, length) = match first {
            // Outside of strings, shells use it for quotes that start none.
            '\\' if rest[1..].starts_with(['"', '\'', '`', '#']) => (TextStyle::Plain, 2),
            '0'..='9' => (TextStyle::Yellow, number_length(rest)),
            c if is_word_char(c) => {
                let word = &rest[..rest.find(|c| !is_word_char(c)).unwrap_or(rest.len())];
                (
                    if self.is_name(before, word) {
                        TextStyle::Blue
                    } else {
                        TextStyle::Plain
                    },
                    word.len(),
                )
            }
            c => (TextStyle::Plain, c.len_utf8()),
        };
        self.line.push(style, &rest[..length]);
        at + length
    }

    /// Returns whether a word is a keyword or the name of a tag.
    fn is_name(&self, before: &str, word: &str) -> bool {
        match self.language.colored_names {
            ColoredNames::Tags => before.ends_with('<') || before.ends_with("</"),
            _ => self.language.has_keyword(word),
        }
    }

    /// Returns whether `rest` starts with a line comment. `#` and `;` start one only at the start
    /// of a word, as in shells.
    fn starts_line_comment(&self, before: &str, rest: &str) -> bool {
        self.language.line_comments.iter().any(|start| {
            let may_start = before.is_empty() || before.ends_with(char::is_whitespace);
            rest.starts_with(start) && (start.len() > 1 || may_start)
        })
    }

    /// Scans a comment up to its end or the end of the line; returns that position.
    fn comment(&mut self, line: &str, at: usize, end: &'static str) -> usize {
        let stop = line[at..].find(end).map(|found| at + found + end.len());
        if stop.is_none() {
            self.open = Some(Open::Comment(end));
        }
        let stop = stop.unwrap_or(line.len());
        self.line.push(TextStyle::Dim, &line[at..stop]);
        stop
    }

    /// Scans a string with its quotes; returns its end. Returns `None` if the string must end on
    /// its line and does not; the quote is then plain text.
    fn string(&mut self, line: &str, at: usize, quote: &'static Quote) -> Option<usize> {
        let content = at + quote.open.len();
        if quote.spans_lines {
            self.line.push(TextStyle::Green, quote.open);
            return Some(self.multi_line_string(line, content, quote));
        }
        if self.unclosed == Some(quote.open) {
            return None;
        }
        let Some(end) = string_end(line, content, quote) else {
            self.unclosed = Some(quote.open);
            return None;
        };
        let is_key = self.language.colored_names == ColoredNames::QuotedKeys
            && line[end..].trim_start().starts_with(':');
        self.line.push(
            if is_key {
                TextStyle::Blue
            } else {
                TextStyle::Green
            },
            &line[at..end],
        );
        Some(end)
    }

    /// Scans the rest of a string up to its end or the end of the line; returns that position.
    fn multi_line_string(&mut self, line: &str, at: usize, quote: &'static Quote) -> usize {
        let end = string_end(line, at, quote);
        if end.is_none() {
            self.open = Some(Open::String(quote));
        }
        let end = end.unwrap_or(line.len());
        self.line.push(TextStyle::Green, &line[at..end]);
        end
    }

    /// Scans the key at the start of a line of YAML or TOML; returns its end, 0 if there is none.
    fn key(&mut self, line: &str) -> usize {
        let start = line.len() - line.trim_start_matches([' ', '-']).len();
        let content = line[start..]
            .split(" #")
            .next()
            .unwrap_or_default()
            .trim_end();
        let end = match self.language.colored_names {
            ColoredNames::KeysBeforeColon => content
                .find(": ")
                .or_else(|| content.strip_suffix(':').map(str::len)),
            ColoredNames::KeysBeforeEquals
                if content.starts_with('[') && content.ends_with(']') =>
            {
                Some(content.len())
            }
            ColoredNames::KeysBeforeEquals => content.find('='),
            ColoredNames::None | ColoredNames::QuotedKeys | ColoredNames::Tags => None,
        };
        let is_key =
            |key: &str| !key.is_empty() && !key.contains(['"', '\'', '#', ';', '{', '(', ',']);
        let Some(key) = end.map(|end| &content[..end]).filter(|key| is_key(key)) else {
            return 0;
        };
        self.line.push(TextStyle::Plain, &line[..start]);
        self.line.push(TextStyle::Blue, key);
        start + key.len()
    }
}

/// Returns the end of a string whose content starts at `at`, after the closing quote. `None` if the
/// line does not have it.
fn string_end(line: &str, at: usize, quote: &Quote) -> Option<usize> {
    let mut rest = &line[at..];
    loop {
        let close = rest.find(quote.close)?;
        let escape = quote
            .has_escapes
            .then(|| rest[..close].find('\\'))
            .flatten();
        let Some(escape) = escape else {
            return Some(line.len() - rest.len() + close + quote.close.len());
        };
        // The character after the backslash is skipped.
        rest = rest[escape + 1..].get(rest[escape + 1..].chars().next()?.len_utf8()..)?;
    }
}

/// Returns the length of the number at the start of a text.
fn number_length(text: &str) -> usize {
    let is_part = |(at, c): &(usize, char)| {
        let is_point = *c == '.' && text[at + 1..].starts_with(|next: char| next.is_ascii_digit());
        c.is_ascii_alphanumeric() || *c == '_' || is_point
    };
    text.char_indices()
        .take_while(is_part)
        .last()
        .map_or(0, |(at, c)| at + c.len_utf8())
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
