//! Front matter of an experience: keys and values, at most one level deep, with the position of
//! each value.
//!
//! Pure. It is the same small subset of YAML as other front matter, except that a key may contain
//! further keys, in indented lines or in braces. Values are found by dotted keys, such as
//! `metrics.helpful`.

use std::ops::Range;

use crate::front_matter::value::{self, Value};

/// Parsed front matter.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    entries: Vec<MetadataEntry>,
    /// Byte offset after the last line, where lines can be inserted.
    pub(super) end: usize,
}

/// A key with its value.
#[derive(Debug)]
pub(super) struct MetadataEntry {
    key: String,
    pub(super) value: Value,
    /// Byte range of the value in the file.
    pub(super) range: Range<usize>,
    /// Whether the value is in braces, together with other keys.
    pub(super) is_inline: bool,
    pub(super) line: usize,
}

/// A line: its number, its byte offset in the file, and its text.
pub(super) type NumberedLine<'a> = (usize, usize, &'a str);

/// A problem: the line number and the message.
pub(super) type LineFault = (usize, String);

impl Metadata {
    /// Parses the lines between the two fences.
    pub(super) fn read<'a>(
        lines: impl IntoIterator<Item = NumberedLine<'a>>,
        end: usize,
    ) -> Result<Self, LineFault> {
        let metadata = Self {
            entries: Vec::new(),
            end,
        };
        let mut parser = MetadataParser {
            metadata,
            open_map: None,
            open_list: None,
        };
        for (number, start, raw) in lines {
            let line = raw.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match value::item(line) {
                Some(item) => parser.list_item(number, start, item)?,
                None => parser.key_line((number, start, raw))?,
            }
        }
        parser.close_list()?;
        Ok(parser.metadata)
    }

    /// Returns the entry of a key.
    pub(super) fn get(&self, key: &str) -> Option<&MetadataEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Returns a one-line text, or `None` if the key is missing.
    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, LineFault> {
        let Some(entry) = self.get(key) else {
            return Ok(None);
        };
        let invalid = || {
            (
                entry.line,
                format!("`{key}` must be a single text on one line"),
            )
        };
        entry.value.text().map(Some).ok_or_else(invalid)
    }

    /// Returns a list of texts. A single text counts as a list of one.
    pub(super) fn list(&self, key: &str) -> Vec<String> {
        match self.get(key).map(|entry| &entry.value) {
            Some(Value::List(items)) => items.clone(),
            Some(Value::Plain(text) | Value::Quoted(text)) => vec![text.clone()],
            Some(Value::Empty | Value::Nested) | None => Vec::new(),
        }
    }

    /// Returns a number, or `None` if the key is missing.
    pub(super) fn number(&self, key: &str) -> Result<Option<u32>, LineFault> {
        let Some(entry) = self.get(key) else {
            return Ok(None);
        };
        let invalid = || {
            (
                entry.line,
                format!("`{key}` must be a whole number, 0 or greater"),
            )
        };
        entry
            .value
            .plain()
            .and_then(|text| text.parse().ok())
            .map(Some)
            .ok_or_else(invalid)
    }

    fn add(&mut self, entry: MetadataEntry) -> Result<(), LineFault> {
        if let Some(earlier) = self.get(&entry.key) {
            let message = format!(
                "`{}` is already set in line {}: remove one of the two",
                entry.key, earlier.line
            );
            return Err((entry.line, message));
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Parses the keys in braces. `inner` is the text after the opening brace.
    fn add_inline(
        &mut self,
        outer: &str,
        inner: &str,
        start: usize,
        line: usize,
    ) -> Result<(), LineFault> {
        let invalid = |message: &str| (line, format!("`{outer}` {message}"));
        let Some((inner, _)) = inner.rsplit_once('}') else {
            return Err(invalid("has no closing } on its line"));
        };
        let mut at = 0;
        for part in split_at_commas(inner) {
            let from = start + at;
            at += part.len() + 1;
            if part.trim().is_empty() {
                continue;
            }
            let (key, text) = part
                .split_once(':')
                .ok_or_else(|| invalid("must have `key: value` between its commas"))?;
            if !is_key(key.trim()) {
                return Err(invalid("must have `key: value` between its commas"));
            }
            let key = format!("{outer}.{}", key.trim());
            let value = value::parse(text.trim())
                .map_err(|message| (line, format!("`{key}` {message}")))?;
            let begin = from + part.len() - text.trim_start().len();
            self.add(MetadataEntry {
                key,
                value,
                range: begin..begin + text.trim().len(),
                is_inline: true,
                line,
            })?;
        }
        Ok(())
    }
}

/// Parser of front matter, line by line.
struct MetadataParser {
    metadata: Metadata,
    /// A top-level key whose values follow in lines of their own, and its line number.
    open_map: Option<(usize, String)>,
    /// The list that is being read.
    open_list: Option<MetadataEntry>,
}

impl MetadataParser {
    fn list_item(&mut self, number: usize, start: usize, item: &str) -> Result<(), LineFault> {
        let at = |message: String| (number, message);
        let entry = match &mut self.open_list {
            Some(entry) => entry,
            None => {
                let (line, key) = self
                    .open_map
                    .take()
                    .ok_or_else(|| at("a list item `- …` without a key above it".into()))?;
                self.open_list.insert(MetadataEntry {
                    key,
                    value: Value::Empty,
                    range: start..start,
                    is_inline: false,
                    line,
                })
            }
        };
        entry
            .value
            .push(item)
            .map_err(|message| at(format!("`{}` {message}", entry.key)))
    }

    fn key_line(&mut self, (number, start, raw): NumberedLine<'_>) -> Result<(), LineFault> {
        self.close_list()?;
        let line = raw.trim();
        let at = |message: String| (number, message);
        let is_below = raw.starts_with([' ', '\t']);
        let (key, text) = line
            .split_once(':')
            .filter(|(key, _)| is_key(key))
            .ok_or_else(|| {
                at("expected `key: value`, a list item `- …`, or a comment".to_owned())
            })?;
        let key = match (is_below, &self.open_map) {
            (false, _) => key.to_owned(),
            (true, Some((_, outer))) => format!("{outer}.{key}"),
            (true, None) => {
                return Err(at(format!(
                    "`{key}` is indented, but there is no key above it"
                )));
            }
        };
        let from = start + raw.len() - raw.trim_start().len() + line.len() - text.len();
        let from = from + text.len() - text.trim_start().len();
        if let Some(inner) = text.trim().strip_prefix('{') {
            self.metadata.add_inline(&key, inner, from + 1, number)?;
            self.open_map = None;
            return Ok(());
        }
        let range = from..from + value_length(text.trim());
        match value::parse(text.trim()).map_err(|message| at(format!("`{key}` {message}")))? {
            Value::Empty if is_below => {
                self.open_list = Some(MetadataEntry {
                    key,
                    value: Value::Empty,
                    range,
                    is_inline: false,
                    line: number,
                });
            }
            Value::Empty => self.open_map = Some((number, key)),
            value => {
                if !is_below {
                    self.open_map = None;
                }
                self.metadata.add(MetadataEntry {
                    key,
                    value,
                    range,
                    is_inline: false,
                    line: number,
                })?;
            }
        }
        Ok(())
    }

    fn close_list(&mut self) -> Result<(), LineFault> {
        self.open_list
            .take()
            .map_or(Ok(()), |entry| self.metadata.add(entry))
    }
}

/// Returns the length of the value in a line. A quoted value may be followed by a comment.
fn value_length(text: &str) -> usize {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    quote
        .and_then(|quote| Some(text[1..].find(quote)? + 2))
        .unwrap_or(text.len())
}

/// Splits a text at commas that are not within brackets or quotes.
fn split_at_commas(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut begin = 0;
    let mut depth = 0_i32;
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => depth -= 1,
            (None, ',') if depth <= 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            (None, _) => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// Returns whether a line can be part of front matter.
pub(super) fn is_metadata_line(line: &str) -> bool {
    let trimmed = line.trim();
    trimmed.is_empty()
        || trimmed.starts_with('#')
        || value::item(trimmed).is_some()
        || trimmed.split_once(':').is_some_and(|(key, rest)| {
            is_key(key) && (rest.is_empty() || rest.starts_with([' ', '\t']))
        })
}

fn is_key(key: &str) -> bool {
    !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}
