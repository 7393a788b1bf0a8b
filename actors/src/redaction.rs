//! Redaction: secrets that the process knows are taken out of all that is stored or shown (SAFE-1).
//!
//! Known are the values of environment variables whose names say so (KEY, TOKEN, SECRET, PASSWORD, …) or that the
//! configuration names as one, and what stands behind `Bearer` in a header. They are replaced where they are found as
//! they are, as they stand in JSON, and as they stand in an address; so are their
//! beginnings, from 8 bytes (16 of word-like values) behind the public prefix of a service (`prefix.rs`).
//! Invariants: text without a secret is not copied; what was redacted once stays as it is. Not here: who asks for it
//! (the run machine for what a model reads, the journal for all that is written, the artifact store for texts).

mod beginning;
mod permission;
mod prefix;
mod stream;
mod writes;

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    ops::Range,
    sync::{Arc, LazyLock},
};

use aho_corasick::{AhoCorasick, MatchKind};
use regex::{Captures, Regex};
use soong_protocol::{Config, ErrorInfo};
pub(crate) use stream::{ByteRedactor, StreamRedactor};

use crate::environment::Environment;

/// Shortest value that counts as a secret, in bytes: shorter ones stand in ordinary words.
const MIN_BYTES: usize = 8;
/// Shortest line of a value of many lines that counts by itself, in bytes.
const MIN_LINE_BYTES: usize = 16;
/// How the parts of a name end that names a secret; a part is what stands between underscores.
const NAMES: [&str; 9] =
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "PWD"];
/// A name that ends like one and names the working directory.
const NOT_SECRET: [&str; 2] = ["PWD", "OLDPWD"];
/// From how many characters on a word behind `Bearer` is a token whatever it looks like.
const LONG_TOKEN: usize = 20;

/// What is found behind `Bearer`, in a header or in prose.
static BEARER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?i)(authorization["']?\s*[:=]\s*["']?)?(bearer[ \t]+)([A-Za-z0-9._~+/-]{8,}=*)"#).ok()
});

/// Takes secrets out of texts. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Option<Arc<Known>>,
}

/// The secrets, in every form in which they are looked for.
struct Known {
    finder: AhoCorasick,
    /// Finds beginnings that are redacted wherever they stand.
    prefixes: Option<AhoCorasick>,
    /// Replacement of each of these beginnings.
    prefix_marks: Vec<String>,
    /// Finds beginnings right before the mark of a cut.
    beginnings: Option<AhoCorasick>,
    /// What stands for each.
    marks: Vec<String>,
    /// The forms themselves, for texts that come in pieces.
    forms: Vec<String>,
}

impl fmt::Debug for Redactor {
    /// Says how many secrets are known, and none of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("secrets", &self.known.as_ref().map_or(0, |known| known.marks.len())).finish()
    }
}

impl Redactor {
    /// Learns the secrets of an environment, by the names that tell and by those that the configuration gives.
    pub fn new(environment: &Environment, config: &Config) -> Self {
        Self::of(secrets(environment, config).map(|(name, value)| (value, format!("[redacted:{name}]"))))
    }

    /// Returns the names of variables whose secrets are too short to be redacted: under 8 bytes, they stand in ordinary
    /// words.
    pub fn too_short<'a>(environment: &'a Environment, config: &'a Config) -> impl Iterator<Item = &'a str> {
        let is_too_short = |value: &str| (1..MIN_BYTES).contains(&value.trim().len());
        secrets(environment, config).filter(move |(_, value)| is_too_short(value)).map(|(name, _)| name)
    }

    /// Makes a redactor that replaces each of these keys by `[key]`.
    #[cfg(any(feature = "openai", feature = "web-tools"))]
    pub(crate) fn of_keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of(keys.into_iter().map(|key| (key, "[key]".to_owned())))
    }

    /// Makes a redactor of secrets, each with its replacement.
    fn of<'a>(secrets: impl Iterator<Item = (&'a str, String)>) -> Self {
        let mut forms: Vec<(String, String)> = Vec::new();
        let (mut prefixes, mut prefix_marks): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for (value, mark) in secrets {
            let shortest = prefix::shortest(value.trim());
            for form in forms_of(value) {
                if let Some(prefix) = shortest.and_then(|length| form.get(..length)) {
                    prefixes.push(prefix.to_owned());
                    prefix_marks.push(mark.clone());
                }
                forms.push((form, mark.clone()));
            }
        }
        // The longest first: a secret that is a part of another one must not win.
        forms.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
        forms.dedup_by(|a, b| a.0 == b.0);
        let (forms, marks): (Vec<String>, Vec<String>) = forms.into_iter().unzip();
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&forms);
        match finder {
            Ok(finder) if !forms.is_empty() => {
                let beginnings = beginning::finder(&forms);
                let prefixes = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(prefixes).ok();
                Self { known: Some(Arc::new(Known { finder, prefixes, prefix_marks, beginnings, marks, forms })) }
            }
            _ => Self::default(),
        }
    }

    /// Returns the text without its secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let known = self.known.as_ref().map_or(Cow::Borrowed(text), |known| known.redacted(text));
        match known {
            Cow::Borrowed(text) => bearer(text),
            Cow::Owned(text) => match bearer(&text) {
                Cow::Borrowed(_) => Cow::Owned(text),
                Cow::Owned(text) => Cow::Owned(text),
            },
        }
    }

    /// Takes the secrets out of a text.
    pub fn redact(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.text(text) {
            *text = clean;
        }
    }

    /// Takes the secrets out of a text that may be absent.
    pub(crate) fn redact_some(&self, text: &mut Option<String>) {
        if let Some(text) = text {
            self.redact(text);
        }
    }

    /// Takes the secrets out of an error.
    pub fn error(&self, mut error: ErrorInfo) -> ErrorInfo {
        self.redact(&mut error.message);
        self.redact_beginnings(&mut error.message);
        self.value(&mut error.details);
        error
    }

    /// Takes the secrets out of all texts of a value, names of fields included.
    pub(crate) fn value(&self, value: &mut serde_json::Value) {
        use serde_json::Value;
        match value {
            Value::String(text) => self.redact(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                if fields.keys().any(|name| matches!(self.text(name), Cow::Owned(_))) {
                    let taken = std::mem::take(fields);
                    fields.extend(taken.into_iter().map(|(name, value)| (self.text(&name).into_owned(), value)));
                }
                fields.values_mut().for_each(|value| self.value(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Returns the variables that hold secrets, each with its value.
fn secrets<'a>(environment: &'a Environment, config: &Config) -> impl Iterator<Item = (&'a str, &'a str)> {
    let named: Vec<String> = config.variables().into_iter().map(str::to_owned).collect();
    environment.variables().filter(move |(name, _)| is_secret(name) || named.iter().any(|other| other == name))
}

impl Known {
    fn redacted<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let spans = self.spans(text);
        if spans.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut clean, mut done) = (String::with_capacity(text.len()), 0);
        for (span, mark) in spans {
            clean.push_str(&text[done..span.start]);
            clean.push_str(mark);
            done = span.end;
        }
        clean.push_str(&text[done..]);
        Cow::Owned(clean)
    }

    /// Returns the secret spans of a text in order, each with its replacement.
    fn spans(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let mut spans = Vec::new();
        let mut done = 0;
        for found in self.finder.find_iter(text) {
            self.find_prefixes(text, done..found.start(), &mut spans);
            spans.push((found.range(), self.marks[found.pattern()].as_str()));
            done = found.end();
        }
        self.find_prefixes(text, done..text.len(), &mut spans);
        spans
    }

    /// Adds the words in a part of a text that begin like a secret.
    fn find_prefixes<'a>(&'a self, text: &str, part: Range<usize>, spans: &mut Vec<(Range<usize>, &'a str)>) {
        let Some(finder) = &self.prefixes else { return };
        let mut done = part.start;
        for found in finder.find_iter(&text[part.clone()]) {
            let start = part.start + found.start();
            if start < done {
                continue;
            }
            let behind = start + found.len();
            done = behind + prefix::word_length(&text[behind..part.end]);
            spans.push((start..done, self.prefix_marks[found.pattern()].as_str()));
        }
    }
}

/// Returns whether a variable's name says that its value is a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    !NOT_SECRET.contains(&name.as_str())
        && name.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| NAMES.iter().any(|known| part.ends_with(known)))
}

/// Returns the forms in which a value is looked for.
fn forms_of(value: &str) -> Vec<String> {
    let value = value.trim();
    let mut texts: Vec<&str> = vec![value];
    if value.contains('\n') {
        texts.extend(value.lines().map(str::trim).filter(|line| line.len() >= MIN_LINE_BYTES));
    }
    let mut forms = Vec::new();
    for text in texts.into_iter().filter(|text| text.len() >= MIN_BYTES) {
        let once = in_json(text);
        // Other writers of JSON escape more than ours.
        for json in [in_ascii(&once), once.replace('/', "\\/"), once] {
            forms.push(in_json(&json));
            forms.push(json);
        }
        let address = in_address(text);
        forms.push(address.replace("%20", "+"));
        forms.push(in_lower_case(&address));
        forms.push(address);
        forms.push(text.to_owned());
    }
    forms
}

/// Writes a text as it stands between the quotes of a JSON text.
fn in_json(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap_or_default();
    json[1..json.len() - 1].to_owned()
}

/// Writes JSON with nothing but ASCII in it.
fn in_ascii(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut ascii, c| {
        match c.is_ascii() {
            true => ascii.push(c),
            false => ascii.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
        }
        ascii
    })
}

/// Writes what is escaped in an address in lower case.
fn in_lower_case(address: &str) -> String {
    let mut parts = address.split('%');
    let plain = parts.next().unwrap_or_default().to_owned();
    parts.fold(plain, |text, part| {
        let (code, rest) = part.split_at(part.len().min(2));
        text + "%" + &code.to_ascii_lowercase() + rest
    })
}

/// Writes a text as it stands in the query of an address.
fn in_address(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut address, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => address.push(char::from(byte)),
            byte => drop(write!(address, "%{byte:02X}")),
        }
        address
    })
}

/// Returns the text without what stands behind `Bearer`.
fn bearer(text: &str) -> Cow<'_, str> {
    let Some(pattern) = BEARER.as_ref() else { return Cow::Borrowed(text) };
    if !pattern.is_match(text) {
        return Cow::Borrowed(text);
    }
    pattern.replace_all(text, |found: &Captures<'_>| {
        let part = |at: usize| found.get(at).map_or("", |part| part.as_str());
        let (header, scheme, token) = (part(1), part(2), part(3));
        // "Bearer certificates" is prose.
        let is_token = !header.is_empty()
            || token.len() >= LONG_TOKEN
            || token.bytes().any(|byte| byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'='));
        let shown = if is_token { "[redacted]" } else { token };
        format!("{header}{scheme}{shown}")
    })
}

#[cfg(test)]
#[path = "redaction/tests.rs"]
mod tests;
