//! Front matter: keys and values at the beginning of a Markdown file, between two lines `---`, and
//! the text below.
//!
//! Pure. The keys and values are YAML. A file that is no YAML because a text without quotes
//! contains a colon or brackets, as many published files do, is read as if the text had quotes.
//!
//! Elsewhere: the allowed keys (`preset.rs`, `skill.rs`), the location of the files
//! (`home_file.rs`).

pub(crate) mod value;

use std::{fmt::Display, str::FromStr};

use saphyr_parser::{Event, Parser, ScalarStyle};
use value::Value;

use crate::suggestion;

/// Maximum depth of a value.
const MAX_DEPTH: usize = 64;

/// Problem in a file and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrontMatterFault {
    /// Line of the problem, starting at 1.
    pub(crate) line: usize,
    pub(crate) key: Option<String>,
    pub(crate) message: String,
}

impl FrontMatterFault {
    fn at(line: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            key: None,
            message: message.into(),
        }
    }
}

/// Parsed front matter of a file, and the text below it.
#[derive(Debug, PartialEq)]
pub(crate) struct FrontMatter<'a> {
    entries: Vec<FrontMatterEntry>,
    /// Keys of other formats with their lines. Their values are not read.
    foreign: Vec<(String, usize)>,
    /// Text below the front matter, without surrounding whitespace.
    pub(crate) body: &'a str,
}

#[derive(Debug, PartialEq)]
struct FrontMatterEntry {
    key: String,
    line: usize,
    value: Value,
}

impl<'a> FrontMatter<'a> {
    /// Parses a file that begins with front matter.
    ///
    /// The values of `foreign` keys, which other programs use, are skipped and may be any YAML.
    pub(crate) fn read(text: &'a str, foreign: &[&str]) -> Result<Self, FrontMatterFault> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let is_fence = |line: &str| line.trim_end() == "---";
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        if !is_fence(first) {
            return Err(FrontMatterFault::at(
                1,
                "the file must begin with a line `---`, keys such as `name: …`, and another line `---`",
            ));
        }
        let mut yaml_bytes = 0;
        let mut is_closed = false;
        let mut body_start = rest.len();
        for line in rest.split_inclusive('\n') {
            if is_fence(line) {
                is_closed = true;
                body_start = yaml_bytes + line.len();
                break;
            }
            yaml_bytes += line.len();
        }
        if !is_closed {
            return Err(FrontMatterFault::at(
                1,
                "the front matter is not closed: add a line `---`",
            ));
        }
        let yaml = &rest[..yaml_bytes];
        let entries = match read_yaml(yaml) {
            Ok(entries) => entries,
            // Many published files have a colon or brackets in a text without quotes.
            Err(fault) => read_yaml(&with_quotes(yaml)).map_err(|_| fault)?,
        };
        let mut front_matter = Self {
            entries: Vec::new(),
            foreign: Vec::new(),
            body: rest[body_start..].trim(),
        };
        for entry in entries {
            if foreign.contains(&entry.key.as_str()) {
                front_matter.foreign.push((entry.key, entry.line));
                continue;
            }
            if entry.value == Value::Empty {
                return Err(fault_for_key(
                    entry.line,
                    &entry.key,
                    "has no value: set one, or remove the key",
                ));
            }
            if let Some(earlier) = front_matter.entry(&entry.key) {
                let message = format!(
                    "is already set in line {}: remove one of the two",
                    earlier.line
                );
                return Err(fault_for_key(entry.line, &entry.key, message));
            }
            front_matter.entries.push(entry);
        }
        Ok(front_matter)
    }

    /// Moves the keys that are not in `known` to those of other formats.
    pub(crate) fn ignore_unknown_keys(&mut self, known: &[&str]) {
        let unknown = self
            .entries
            .extract_if(.., |entry| !known.contains(&entry.key.as_str()));
        self.foreign
            .extend(unknown.map(|entry| (entry.key, entry.line)));
        self.foreign.sort_by_key(|(_, line)| *line);
    }

    /// Rejects keys that are not in `known`.
    pub(crate) fn reject_unknown_keys(&self, known: &[&str]) -> Result<(), FrontMatterFault> {
        match self
            .entries
            .iter()
            .find(|entry| !known.contains(&entry.key.as_str()))
        {
            None => Ok(()),
            Some(unknown) => {
                let suggestion = suggestion::nearest(&unknown.key, known.iter().copied())
                    .map(|key| format!(", did you mean `{key}`?"));
                let suggestion = suggestion.unwrap_or_default();
                let message = format!(
                    "is not a known key{suggestion}; known keys: {}",
                    known.join(", ")
                );
                Err(fault_for_key(unknown.line, &unknown.key, message))
            }
        }
    }

    /// Returns the keys of other formats with their lines.
    pub(crate) fn foreign(&self) -> &[(String, usize)] {
        &self.foreign
    }

    /// Returns a fault for the value of a key.
    pub(crate) fn fault(&self, key: &str, message: impl Into<String>) -> FrontMatterFault {
        fault_for_key(self.entry(key).map_or(1, |entry| entry.line), key, message)
    }

    /// Returns a text, or a fault if the key is missing.
    pub(crate) fn required(&self, key: &str) -> Result<&str, FrontMatterFault> {
        let missing = || {
            fault_for_key(
                1,
                key,
                format!("is missing: add a line `{key}: …` to the front matter"),
            )
        };
        self.text(key)?.ok_or_else(missing)
    }

    /// Returns a text.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, FrontMatterFault> {
        self.value(key, "a single text", Value::text)
    }

    /// Returns a list of texts. Also accepts a single text with commas, as other formats use.
    pub(crate) fn comma_list(&self, key: &str) -> Result<Option<Vec<String>>, FrontMatterFault> {
        match self.entry(key).map(|entry| &entry.value) {
            Some(Value::Plain(text)) if text.contains(',') => {
                let items = text
                    .split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty());
                Ok(Some(items.map(str::to_owned).collect()))
            }
            _ => self.list(key),
        }
    }

    /// Returns a list of texts.
    pub(crate) fn list(&self, key: &str) -> Result<Option<Vec<String>>, FrontMatterFault> {
        self.value(
            key,
            "a list: `[a, b]`, or one line `- a` per item",
            |value| value.list().map(<[String]>::to_vec),
        )
    }

    /// Returns a number accepted by `is_good`; `what` describes the allowed range for the error.
    pub(crate) fn number<T: FromStr>(
        &self,
        key: &str,
        what: &str,
        is_good: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, FrontMatterFault> {
        self.value(key, what, |value| {
            value.plain()?.parse().ok().filter(&is_good)
        })
    }

    /// Returns a boolean.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, FrontMatterFault> {
        self.value(key, "`true` or `false`, without quotes", |value| {
            value.plain()?.parse().ok()
        })
    }

    fn entry(&self, key: &str) -> Option<&FrontMatterEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn value<'b, T>(
        &'b self,
        key: &str,
        what: impl Display,
        read: impl FnOnce(&'b Value) -> Option<T>,
    ) -> Result<Option<T>, FrontMatterFault> {
        let Some(entry) = self.entry(key) else {
            return Ok(None);
        };
        read(&entry.value)
            .map(Some)
            .ok_or_else(|| fault_for_key(entry.line, key, format!("must be {what}")))
    }
}

fn fault_for_key(line: usize, key: &str, message: impl Into<String>) -> FrontMatterFault {
    FrontMatterFault {
        line,
        key: Some(key.to_owned()),
        message: message.into(),
    }
}

/// Reads the keys of the front matter with their values. Lines are those of the file, which has one
/// line before it.
fn read_yaml(yaml: &str) -> Result<Vec<FrontMatterEntry>, FrontMatterFault> {
    let mut events = Parser::new_from_str(yaml).map(|event| match event {
        Ok((event, span)) => Ok((event, span.start.line() + 1)),
        Err(error) => Err(FrontMatterFault::at(
            error.marker().line() + 1,
            format!("this is no YAML: {}", error.info()),
        )),
    });
    let mut next = || match events.next() {
        Some(event) => event,
        None => Err(FrontMatterFault::at(
            1,
            "the front matter ends within a value",
        )),
    };
    let no_keys = |line| FrontMatterFault::at(line, "expected keys such as `name: …`");
    loop {
        match next()? {
            (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
            (Event::MappingStart(..), _) => break,
            (Event::StreamEnd, _) => return Ok(Vec::new()),
            // Nothing but comments.
            (Event::Scalar(text, ScalarStyle::Plain, ..), _) if text.is_empty() || text == "~" => {
                return Ok(Vec::new());
            }
            (_, line) => return Err(no_keys(line)),
        }
    }
    let mut entries = Vec::new();
    loop {
        let (key, line) = match next()? {
            (Event::MappingEnd, _) => break,
            (Event::Scalar(key, ..), line) => (key.into_owned(), line),
            (_, line) => return Err(no_keys(line)),
        };
        let (event, _) = next()?;
        let value = read_value(event, &mut next, 0)?;
        entries.push(FrontMatterEntry { key, line, value });
    }
    // Another document may follow, or an error.
    loop {
        match next()? {
            (Event::StreamEnd, _) => return Ok(entries),
            (Event::DocumentEnd, _) => {}
            (_, line) => return Err(no_keys(line)),
        }
    }
}

/// Reads a value that begins with an event.
fn read_value<'e>(
    first: Event<'e>,
    next: &mut impl FnMut() -> Result<(Event<'e>, usize), FrontMatterFault>,
    depth: usize,
) -> Result<Value, FrontMatterFault> {
    if depth > MAX_DEPTH {
        return Err(FrontMatterFault::at(
            1,
            format!("a value is nested deeper than {MAX_DEPTH}"),
        ));
    }
    match first {
        Event::Scalar(text, ScalarStyle::Plain, ..)
            if text.is_empty() || text == "~" || text == "null" =>
        {
            Ok(Value::Empty)
        }
        Event::Scalar(text, ScalarStyle::Plain, ..) => Ok(Value::Plain(text.into_owned())),
        Event::Scalar(text, ..) => Ok(Value::Quoted(text.trim_end_matches('\n').to_owned())),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            let mut is_nested = false;
            loop {
                let (event, line) = next()?;
                if matches!(event, Event::SequenceEnd) {
                    return Ok(if is_nested {
                        Value::Nested
                    } else {
                        Value::List(items)
                    });
                }
                match read_value(event, next, depth + 1)? {
                    Value::Plain(item) | Value::Quoted(item) => items.push(item),
                    Value::Empty => {
                        let message = "has an item without a value: set one, or remove the line";
                        return Err(FrontMatterFault::at(line, message));
                    }
                    Value::List(_) | Value::Nested => is_nested = true,
                }
            }
        }
        Event::MappingStart(..) => loop {
            let (event, _) = next()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(Value::Nested);
            }
            read_value(event, next, depth + 1)?;
        },
        // References to other values are not followed.
        _ => Ok(Value::Nested),
    }
}

/// Returns YAML in which the values of single lines that are no YAML for themselves are in quotes.
fn with_quotes(yaml: &str) -> String {
    let mut quoted = String::with_capacity(yaml.len());
    for line in yaml.split_inclusive('\n') {
        let (content, end) = match line.strip_suffix('\n') {
            Some(content) => (content.trim_end_matches('\r'), "\n"),
            None => (line, ""),
        };
        let is_key = |key: &str| {
            !key.is_empty()
                && key
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        };
        let entry = content
            .split_once(": ")
            .filter(|(key, value)| is_key(key) && !value.trim().is_empty());
        match entry.filter(|_| read_yaml(content).is_err()) {
            Some((key, value)) => quoted.push_str(&format!(
                "{key}: '{}'{end}",
                value.trim().replace('\'', "''")
            )),
            None => quoted.push_str(line),
        }
    }
    quoted
}

#[cfg(test)]
mod tests;
