//! Front matter: keys and values at the beginning of a Markdown file, between two lines `---`, and the text below.
//!
//! Pure. It reads a small subset of YAML: `key: value`, lists as `[a, b]` or as lines `- a`, quotes, and comment
//! lines. Values that YAML interprets differently from how they look, or that span several lines, are rejected with
//! line and key. So a file means the same here as for other YAML readers, or is rejected.
//!
//! Elsewhere: the allowed keys (`preset.rs`, `skill.rs`), the location of the files (`home_file.rs`).

pub(crate) mod value;

use std::{fmt::Display, str::FromStr};

use value::Value;

use crate::suggestion;

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
        Self { line, key: None, message: message.into() }
    }
}

/// Parsed front matter of a file, and the text below it.
#[derive(Debug, PartialEq)]
pub(crate) struct FrontMatter<'a> {
    entries: Vec<FrontMatterEntry<'a>>,
    /// Keys of other formats with their lines. Their values are not parsed.
    foreign: Vec<(&'a str, usize)>,
    /// Text below the front matter, without surrounding whitespace.
    pub(crate) body: &'a str,
}

#[derive(Debug, PartialEq)]
struct FrontMatterEntry<'a> {
    key: &'a str,
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
        let mut lines = NumberedLines::of(text);
        if !lines.next().is_some_and(|(_, line)| is_fence(line)) {
            return Err(FrontMatterFault::at(
                1,
                "the file must begin with a line `---`, keys such as `name: …`, and another line `---`",
            ));
        }
        let mut entries: Vec<FrontMatterEntry<'a>> = Vec::new();
        // Key whose list items follow on separate lines.
        let mut open_entry: Option<FrontMatterEntry<'a>> = None;
        let mut skipped: Vec<(&'a str, usize)> = Vec::new();
        let mut is_skipping = false;
        loop {
            let Some((number, line)) = lines.next() else {
                return Err(FrontMatterFault::at(1, "the front matter is not closed: add a line `---`"));
            };
            if is_fence(line) {
                entries.extend(open_entry.map(require_value).transpose()?);
                return Ok(Self { entries, foreign: skipped, body: lines.rest.trim() });
            }
            if is_skipping && (line.starts_with([' ', '\t', '-', ']', '}']) || line.trim().is_empty()) {
                continue;
            }
            is_skipping = false;
            if let Some((key, _)) = line.split_once(':').filter(|(key, _)| foreign.contains(key)) {
                entries.extend(open_entry.take().map(require_value).transpose()?);
                skipped.push((key, number));
                is_skipping = true;
                continue;
            }
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            if let (Some(item), Some(entry)) = (value::item(trimmed), &mut open_entry) {
                entry.value.push(item).map_err(|message| fault_for_key(number, entry.key, message))?;
                continue;
            }
            entries.extend(open_entry.take().map(require_value).transpose()?);
            let entry = parse_entry(number, line)?;
            if let Some(earlier) = entries.iter().find(|earlier| earlier.key == entry.key) {
                let message = format!("is already set in line {}: remove one of the two", earlier.line);
                return Err(fault_for_key(number, entry.key, message));
            }
            match entry.value {
                Value::Empty => open_entry = Some(entry),
                _ => entries.push(entry),
            }
        }
    }

    /// Rejects keys that are not in `known`.
    pub(crate) fn reject_unknown_keys(&self, known: &[&str]) -> Result<(), FrontMatterFault> {
        match self.entries.iter().find(|entry| !known.contains(&entry.key)) {
            None => Ok(()),
            Some(unknown) => {
                let suggestion = suggestion::nearest(unknown.key, known.iter().copied())
                    .map(|key| format!(", did you mean `{key}`?"));
                let suggestion = suggestion.unwrap_or_default();
                let message = format!("is not a known key{suggestion}; known keys: {}", known.join(", "));
                Err(fault_for_key(unknown.line, unknown.key, message))
            }
        }
    }

    /// Returns the keys of other formats with their lines.
    pub(crate) fn foreign(&self) -> &[(&'a str, usize)] {
        &self.foreign
    }

    /// Returns a fault for the value of a key.
    pub(crate) fn fault(&self, key: &str, message: impl Into<String>) -> FrontMatterFault {
        fault_for_key(self.entry(key).map_or(1, |entry| entry.line), key, message)
    }

    /// Returns a text, or a fault if the key is missing.
    pub(crate) fn required(&self, key: &str) -> Result<&str, FrontMatterFault> {
        let missing = || fault_for_key(1, key, format!("is missing: add a line `{key}: …` to the front matter"));
        self.text(key)?.ok_or_else(missing)
    }

    /// Returns a text.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, FrontMatterFault> {
        self.value(key, "a single text on one line", Value::text)
    }

    /// Returns a list of texts. Also accepts a single text with commas, as other formats use.
    pub(crate) fn comma_list(&self, key: &str) -> Result<Option<Vec<String>>, FrontMatterFault> {
        match self.entry(key).map(|entry| &entry.value) {
            Some(Value::Plain(text)) if text.contains(',') => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Ok(Some(items.map(str::to_owned).collect()))
            }
            _ => self.list(key),
        }
    }

    /// Returns a list of texts.
    pub(crate) fn list(&self, key: &str) -> Result<Option<Vec<String>>, FrontMatterFault> {
        self.value(key, "a list: `[a, b]`, or one line `- a` per item", |value| value.list().map(<[String]>::to_vec))
    }

    /// Returns a number accepted by `is_good`; `what` describes the allowed range for the error.
    pub(crate) fn number<T: FromStr>(
        &self,
        key: &str,
        what: &str,
        is_good: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, FrontMatterFault> {
        self.value(key, what, |value| value.plain()?.parse().ok().filter(&is_good))
    }

    /// Returns a boolean.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, FrontMatterFault> {
        self.value(key, "`true` or `false`, without quotes", |value| value.plain()?.parse().ok())
    }

    fn entry(&self, key: &str) -> Option<&FrontMatterEntry<'a>> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn value<'b, T>(
        &'b self,
        key: &str,
        what: impl Display,
        read: impl FnOnce(&'b Value) -> Option<T>,
    ) -> Result<Option<T>, FrontMatterFault> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        read(&entry.value).map(Some).ok_or_else(|| fault_for_key(entry.line, key, format!("must be {what}")))
    }
}

/// Iterator over the lines of a text with their numbers; `rest` is the text after the current line.
struct NumberedLines<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> NumberedLines<'a> {
    fn of(text: &'a str) -> Self {
        Self { rest: text, number: 0 }
    }
}

impl<'a> Iterator for NumberedLines<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        (self.rest, self.number) = (rest, self.number + 1);
        Some((self.number, line))
    }
}

fn fault_for_key(line: usize, key: &str, message: impl Into<String>) -> FrontMatterFault {
    FrontMatterFault { line, key: Some(key.to_owned()), message: message.into() }
}

/// Parses a line with a key.
fn parse_entry(number: usize, line: &str) -> Result<FrontMatterEntry<'_>, FrontMatterFault> {
    let is_key = |key: &str| {
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let Some((key, value)) = line.split_once(':').filter(|(key, _)| is_key(key)) else {
        let message = "expected `key: value` at the beginning of a line, a list item `- …`, or a comment";
        return Err(FrontMatterFault::at(number, message));
    };
    if !value.is_empty() && !value.starts_with([' ', '\t', '\r']) {
        return Err(fault_for_key(number, key, "needs a space after its colon"));
    }
    let value = value::parse(value.trim()).map_err(|message| fault_for_key(number, key, message))?;
    Ok(FrontMatterEntry { key, line: number, value })
}

/// Rejects a key whose value was expected on the following lines but is missing.
fn require_value(entry: FrontMatterEntry<'_>) -> Result<FrontMatterEntry<'_>, FrontMatterFault> {
    match entry.value {
        Value::Empty => Err(fault_for_key(entry.line, entry.key, "has no value: set one, or remove the key")),
        _ => Ok(entry),
    }
}

#[cfg(test)]
mod tests;
