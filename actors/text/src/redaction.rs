//! Redaction of known secrets in texts that are stored or shown (SAFE-1).
//!
//! Known secrets are the values of environment variables whose names indicate a secret (KEY, TOKEN,
//! SECRET, PASSWORD, …) or are given in the configuration. They are replaced in their literal form,
//! and as JSON and URLs encode them. A word that starts with the first part of a secret is replaced
//! too. That part must have at least 8 bytes (16 if it looks like a word) after the public prefix
//! of the service (`prefix.rs`).
//!
//! In addition, any text after `Bearer` that looks like a token is replaced.
//!
//! Invariants:
//! - Text without a secret is not copied.
//! - Redacting a redacted text does not change it.
//!
//! Elsewhere: the callers (the run state machine for what a model reads, the journal for everything
//! that is written, the artifact store for texts).

mod appends;
mod partial;
mod permission;
mod prefix;
mod stream;

use std::{
    borrow::Cow,
    cmp::Reverse,
    fmt::{self, Write as _},
    ops::Range,
    sync::{Arc, LazyLock},
};

use aho_corasick::{AhoCorasick, MatchKind};
use regex::{Captures, Regex};
use soong_protocol::{Config, ErrorInfo};
pub use stream::{ByteRedactor, StreamRedactor};

use crate::environment::Environment;

/// Minimum length of a secret, in bytes. Shorter values occur in ordinary words.
const MIN_SECRET_BYTES: usize = 8;
/// Minimum length of a line of a multi-line value that is redacted separately, in bytes.
const MIN_LINE_BYTES: usize = 16;
/// Suffixes that mark a variable as secret. Each alphanumeric part of its name is checked.
const SECRET_SUFFIXES: [&str; 9] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "CREDENTIALS",
    "PWD",
];
/// Variables that have such a suffix but contain a working directory, not a secret.
const EXCLUDED_NAMES: [&str; 2] = ["PWD", "OLDPWD"];
/// Replacement of a token after `Bearer`.
const BEARER_MARK: &str = "[redacted]";
/// Minimum length of a word after `Bearer` to be treated as a token even if it looks like prose, in
/// characters.
const MIN_LONG_TOKEN_CHARS: usize = 20;

/// Matches `Bearer` and the word after it, with the header name if there is one.
static BEARER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?i)(authorization["']?\s*[:=]\s*["']?)?(bearer[ \t]+)([A-Za-z0-9._~+/-]{8,}=*)"#)
        .ok()
});

/// Finds the texts that [`BEARER`] can match: the search for a word is much faster than the regular
/// expression.
static BEARER_WORD: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(["bearer"])
        .ok()
});

/// Removes secrets from texts. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor {
    index: Option<Arc<SecretIndex>>,
}

/// Known secrets, in every form that is searched for.
struct SecretIndex {
    finder: AhoCorasick,
    /// Finds words that start with the first part of a secret. `None` if the matcher could not be
    /// built.
    prefixes: Option<AhoCorasick>,
    /// Replacement of each pattern of `prefixes`.
    prefix_replacements: Vec<String>,
    /// Finds the first bytes of secrets whose end was cut off. `None` if the matcher could not be
    /// built.
    partial_forms: Option<AhoCorasick>,
    /// Replacement of each form, in the order of `forms`.
    replacements: Vec<String>,
    /// The forms themselves, to find secrets that are cut off or split between the pieces of a
    /// stream.
    forms: Vec<String>,
}

impl fmt::Debug for Redactor {
    /// Shows the number of forms that are searched for, but no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field(
                "secrets",
                &self
                    .index
                    .as_ref()
                    .map_or(0, |known| known.replacements.len()),
            )
            .finish()
    }
}

impl Redactor {
    /// Creates a redactor for the secrets of an environment. A variable is secret according to its
    /// name or the configuration.
    pub fn new(environment: &Environment, config: &Config) -> Self {
        Self::from_secrets(
            secrets(environment, config).map(|(name, value)| (value, format!("[redacted:{name}]"))),
        )
    }

    /// Returns the names of the variables whose secrets are not redacted, because they are shorter
    /// than 8 bytes and would match ordinary words.
    pub fn too_short_names<'a>(
        environment: &'a Environment,
        config: &'a Config,
    ) -> impl Iterator<Item = &'a str> {
        let is_too_short = |value: &str| (1..MIN_SECRET_BYTES).contains(&value.trim().len());
        secrets(environment, config)
            .filter(move |(_, value)| is_too_short(value))
            .map(|(name, _)| name)
    }

    /// Creates a redactor that replaces each of the keys with `[key]`.
    pub fn from_keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self::from_secrets(keys.into_iter().map(|key| (key, "[key]".to_owned())))
    }

    /// Creates a redactor from secrets, each with its replacement.
    fn from_secrets<'a>(secrets: impl Iterator<Item = (&'a str, String)>) -> Self {
        let mut forms: Vec<(String, String)> = Vec::new();
        let mut prefixes: Vec<String> = Vec::new();
        let mut prefix_marks: Vec<String> = Vec::new();
        for (value, mark) in secrets {
            let shortest = prefix::min_prefix_length(value.trim());
            for form in forms_of(value) {
                if let Some(prefix) = shortest.and_then(|length| form.get(..length)) {
                    prefixes.push(prefix.to_owned());
                    prefix_marks.push(mark.clone());
                }
                forms.push((form, mark.clone()));
            }
        }
        forms.extend(marks_with_secrets(&forms, &prefixes));
        // Longest form first. If forms are equal, a mark is kept, else the one with the smallest
        // replacement.
        let rank = |(form, mark): &(String, String)| {
            (
                Reverse(form.len()),
                form.clone(),
                form != mark,
                mark.clone(),
            )
        };
        forms.sort_by_cached_key(rank);
        forms.dedup_by(|a, b| a.0 == b.0);
        let (forms, marks): (Vec<String>, Vec<String>) = forms.into_iter().unzip();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&forms);
        match finder {
            Ok(finder) if !forms.is_empty() => {
                let beginnings = partial::partial_matcher(&forms);
                let prefixes = AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostFirst)
                    .build(prefixes)
                    .ok();
                Self {
                    index: Some(Arc::new(SecretIndex {
                        finder,
                        prefixes,
                        prefix_replacements: prefix_marks,
                        partial_forms: beginnings,
                        replacements: marks,
                        forms,
                    })),
                }
            }
            _ => Self::default(),
        }
    }

    /// Returns the text with its secrets replaced. Borrows the text if it contains none.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let known = self
            .index
            .as_ref()
            .map_or(Cow::Borrowed(text), |known| known.redacted(text));
        match known {
            Cow::Borrowed(text) => redact_bearer(text),
            Cow::Owned(text) => match redact_bearer(&text) {
                Cow::Borrowed(_) => Cow::Owned(text),
                Cow::Owned(text) => Cow::Owned(text),
            },
        }
    }

    /// Removes the secrets from a text in place.
    pub fn redact(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.text(text) {
            *text = clean;
        }
    }

    /// Removes the secrets from an optional text in place.
    pub fn redact_optional(&self, text: &mut Option<String>) {
        if let Some(text) = text {
            self.redact(text);
        }
    }

    /// Redacts the message and the details of an error. In the message, also secrets that were cut
    /// off.
    pub fn redact_error(&self, mut error: ErrorInfo) -> ErrorInfo {
        self.redact(&mut error.message);
        self.redact_partial(&mut error.message);
        self.redact_json(&mut error.details);
        error
    }

    /// Removes the secrets from all strings of a JSON value, including field names.
    pub fn redact_json(&self, value: &mut serde_json::Value) {
        use serde_json::Value;
        match value {
            Value::String(text) => self.redact(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_json(item)),
            Value::Object(fields) => {
                if fields
                    .keys()
                    .any(|name| matches!(self.text(name), Cow::Owned(_)))
                {
                    let old_fields = std::mem::take(fields);
                    fields.extend(
                        old_fields
                            .into_iter()
                            .map(|(name, value)| (self.text(&name).into_owned(), value)),
                    );
                }
                fields
                    .values_mut()
                    .for_each(|value| self.redact_json(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Returns the names and values of the variables that contain secrets.
fn secrets<'a>(
    environment: &'a Environment,
    config: &Config,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let named: Vec<String> = config
        .secret_variables()
        .into_iter()
        .map(str::to_owned)
        .collect();
    environment
        .variables()
        .filter(move |(name, _)| is_secret(name) || named.iter().any(|other| other == name))
}

impl SecretIndex {
    fn redacted<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut spans = self.spans(text);
        // Text that stays the same is not copied.
        spans.retain(|(span, mark)| text[span.clone()] != **mark);
        if spans.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut clean = String::with_capacity(text.len());
        let mut copied_to = 0;
        for (span, mark) in spans {
            clean.push_str(&text[copied_to..span.start]);
            clean.push_str(mark);
            copied_to = span.end;
        }
        clean.push_str(&text[copied_to..]);
        Cow::Owned(clean)
    }

    /// Returns the ranges to redact in a text, in order, each with its replacement. They include
    /// marks that contain a secret, each replaced by itself.
    fn spans(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let mut spans = Vec::new();
        let mut copied_to = 0;
        for found in self.finder.find_iter(text) {
            self.find_prefixes(text, copied_to..found.start(), &mut spans);
            spans.push((found.range(), self.replacements[found.pattern()].as_str()));
            copied_to = found.end();
        }
        self.find_prefixes(text, copied_to..text.len(), &mut spans);
        spans
    }

    /// Adds the ranges of words that start with the first part of a secret, in one part of a text.
    fn find_prefixes<'a>(
        &'a self,
        text: &str,
        part: Range<usize>,
        spans: &mut Vec<(Range<usize>, &'a str)>,
    ) {
        let Some(finder) = &self.prefixes else { return };
        let mut copied_to = part.start;
        for found in finder.find_iter(&text[part.clone()]) {
            let start = part.start + found.start();
            if start < copied_to {
                continue;
            }
            let prefix_end = start + found.len();
            copied_to = prefix_end + prefix::word_length(&text[prefix_end..part.end]);
            spans.push((
                start..copied_to,
                self.prefix_replacements[found.pattern()].as_str(),
            ));
        }
    }
}

/// Returns the marks that contain a secret, as "[redacted:A_TOKEN]" does if a secret is "redacted".
/// Each replaces itself: a text that is redacted again stays the same. Other marks need no search.
fn marks_with_secrets(forms: &[(String, String)], prefixes: &[String]) -> Vec<(String, String)> {
    let mut marks: Vec<&str> = forms.iter().map(|(_, mark)| mark.as_str()).collect();
    marks.push(BEARER_MARK);
    marks.sort_unstable();
    marks.dedup();
    let contains_secret = |mark: &str| {
        forms.iter().any(|(form, _)| mark.contains(form.as_str()))
            || prefixes.iter().any(|prefix| mark.contains(prefix.as_str()))
    };
    marks.retain(|mark| contains_secret(mark));
    marks
        .into_iter()
        .map(|mark| (mark.to_owned(), mark.to_owned()))
        .collect()
}

/// Returns whether the name of a variable indicates that its value is a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    !EXCLUDED_NAMES.contains(&name.as_str())
        && name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|part| SECRET_SUFFIXES.iter().any(|known| part.ends_with(known)))
}

/// Returns the forms in which a secret is searched for: literal, JSON-escaped once and twice, and
/// percent-encoded. For a multi-line secret, also the forms of its long lines.
fn forms_of(value: &str) -> Vec<String> {
    let value = value.trim();
    let mut texts: Vec<&str> = vec![value];
    if value.contains('\n') {
        texts.extend(
            value
                .lines()
                .map(str::trim)
                .filter(|line| line.len() >= MIN_LINE_BYTES),
        );
    }
    let mut forms = Vec::new();
    for text in texts
        .into_iter()
        .filter(|text| text.len() >= MIN_SECRET_BYTES)
    {
        let once = json_escaped(text);
        // Some JSON encoders escape more characters than `serde_json`.
        for json in [ascii_escaped(&once), once.replace('/', "\\/"), once] {
            forms.push(json_escaped(&json));
            forms.push(json);
        }
        let address = percent_encoded(text);
        forms.push(address.replace("%20", "+"));
        forms.push(lowercase_percent_escapes(&address));
        forms.push(address);
        forms.push(text.to_owned());
    }
    forms
}

/// Escapes a text as the content of a JSON string, without the quotes.
fn json_escaped(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap_or_default();
    json[1..json.len() - 1].to_owned()
}

/// Replaces the non-ASCII characters of a JSON text with `\u` escapes.
fn ascii_escaped(json: &str) -> String {
    json.chars()
        .fold(String::with_capacity(json.len()), |mut ascii, c| {
            if c.is_ascii() {
                ascii.push(c)
            } else {
                ascii.extend(
                    c.encode_utf16(&mut [0; 2])
                        .iter()
                        .map(|unit| format!("\\u{unit:04x}")),
                )
            }
            ascii
        })
}

/// Returns a percent-encoded text with its percent-escapes in lower case.
fn lowercase_percent_escapes(address: &str) -> String {
    let mut parts = address.split('%');
    let plain = parts.next().unwrap_or_default().to_owned();
    parts.fold(plain, |text, part| {
        let (code, rest) = part.split_at(part.len().min(2));
        text + "%" + &code.to_ascii_lowercase() + rest
    })
}

/// Percent-encodes a text. All characters except the unreserved ones of URLs are encoded.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .fold(String::with_capacity(text.len()), |mut address, byte| {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    address.push(char::from(byte))
                }
                byte => drop(write!(address, "%{byte:02X}")),
            }
            address
        })
}

/// Replaces the tokens after `Bearer` in a text.
fn redact_bearer(text: &str) -> Cow<'_, str> {
    let Some(pattern) = BEARER.as_ref() else {
        return Cow::Borrowed(text);
    };
    if BEARER_WORD
        .as_ref()
        .is_some_and(|word| !word.is_match(text))
        || !pattern.is_match(text)
    {
        return Cow::Borrowed(text);
    }
    pattern.replace_all(text, |found: &Captures<'_>| {
        let part = |at: usize| found.get(at).map_or("", |part| part.as_str());
        let header = part(1);
        let scheme = part(2);
        let token = part(3);
        // Outside a header, a short word of letters is prose, as in "Bearer certificates", and is
        // kept.
        let is_token = !header.is_empty()
            || token.len() >= MIN_LONG_TOKEN_CHARS
            || token
                .bytes()
                .any(|byte| byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'='));
        let replacement = if is_token { BEARER_MARK } else { token };
        format!("{header}{scheme}{replacement}")
    })
}

#[cfg(test)]
#[path = "redaction/tests.rs"]
mod tests;
