//! Redaction of secrets from printed text.
//!
//! The program never prints a key intentionally. This module is for text of other origin, such as a
//! panic message or an address, which may contain one.

use std::{
    borrow::Cow,
    io::{self, Write},
    sync::{LazyLock, PoisonError, RwLock},
};

use soong::{Config, Environment, Redactor};

/// Replacement for a secret.
pub(crate) const HIDDEN: &str = "[hidden]";

/// Minimum length in characters of a word without a known prefix that is taken for a secret.
const MIN_SECRET_CHARS: usize = 20;
/// Prefixes of the API keys of well-known services.
const KEY_PREFIXES: [&str; 10] = [
    "sk-",
    "sk_",
    "pk-",
    "gsk_",
    "xai-",
    "AIza",
    "ghp_",
    "github_pat_",
    "hf_",
    "eyJ",
];

/// The secrets in the environment, for texts that do not come from the library (SAFE-1).
static KNOWN_SECRETS: LazyLock<RwLock<Redactor>> = LazyLock::new(|| {
    RwLock::new(Redactor::new(
        &Environment::from_process(),
        &Config::default(),
    ))
});

/// Sets the known secrets to the ones that the environment and the configuration name.
pub(crate) fn set_known(environment: &Environment, config: &Config) {
    *KNOWN_SECRETS
        .write()
        .unwrap_or_else(PoisonError::into_inner) = Redactor::new(environment, config);
}

/// Returns a text with all known secrets redacted.
pub(crate) fn redacted(text: &str) -> Cow<'_, str> {
    KNOWN_SECRETS
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .text(text)
}

/// Writer that redacts known secrets. Each call of `write` is redacted separately.
pub(crate) struct Redacted<W>(pub(crate) W);

impl<W: Write> Write for Redacted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes).map(redacted) {
            Ok(Cow::Owned(clean)) => self.0.write_all(clean.as_bytes())?,
            _ => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Hides each word of a text that may be a secret, and user names and passwords in addresses.
pub(crate) fn hide_likely_secrets(text: &str) -> String {
    let is_break = |c: char| {
        !(c.is_ascii_alphanumeric()
            || matches!(c, '-' | '_' | '.' | '+' | '~' | '/' | ':' | '@' | '%'))
    };
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_break).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        safe.push_str(&hide_word(word));
        let next = after.chars().next().map_or(0, char::len_utf8);
        safe.push_str(&after[..next]);
        rest = &after[next..];
    }
    safe
}

/// Hides the user name and password of an address, and its query, since some services take keys
/// there.
pub(crate) fn hide_in_address(address: &str) -> String {
    let bare = address.split(['?', '#']).next().unwrap_or_default();
    let cut = if bare.len() < address.len() {
        format!("{bare}?{HIDDEN}")
    } else {
        bare.to_owned()
    };
    let Some((scheme, rest)) = cut.split_once("://") else {
        return cut;
    };
    let host_end = rest.find('/').unwrap_or(rest.len());
    match rest[..host_end].rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}{}", &rest[host_end..]),
        None => cut,
    }
}

fn hide_word(word: &str) -> String {
    if word.contains("://") {
        return hide_in_address(word);
    }
    let parts: Vec<&str> = word
        .split_inclusive(['/', ':', '@'])
        .map(|part| {
            if looks_like_key(part.trim_end_matches(['/', ':', '@', '.'])) {
                HIDDEN
            } else {
                part
            }
        })
        .collect();
    parts.concat()
}

/// Returns whether a word looks like a key: it has a known prefix, is a long hexadecimal number, or
/// is long and mixes digits, lower and upper case.
fn looks_like_key(word: &str) -> bool {
    if KEY_PREFIXES
        .iter()
        .any(|beginning| word.starts_with(beginning) && word.len() >= beginning.len() + 8)
    {
        return true;
    }
    let has = |test: fn(&u8) -> bool| word.bytes().any(|byte| test(&byte));
    let is_jumble =
        has(u8::is_ascii_digit) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    let is_hex = word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex || (word.len() >= MIN_SECRET_CHARS && is_jumble)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_like_text_is_hidden_and_ordinary_text_is_kept() {
        for (text, want) in [
            ("key sk-proj-abcdefgh1234 refused", "key [hidden] refused"),
            ("Bearer gsk_0123456789", "Bearer [hidden]"),
            ("token=aB3dE5gH7jK9mN1pQ3sT", "token=[hidden]"),
            ("\"0123456789abcdef0123456789abcdef\"", "\"[hidden]\""),
            ("https://me:pass@host/v1", "https://[hidden]@host/v1"),
            (
                "called `Option::unwrap()` on a `None` value",
                "called `Option::unwrap()` on a `None` value",
            ),
            (
                "index out of bounds: the len is 3 but the index is 7",
                "index out of bounds: the len is 3 but the index is 7",
            ),
            (
                "/home/me/src/project/actors/src/run/actor.rs:165:9",
                "/home/me/src/project/actors/src/run/actor.rs:165:9",
            ),
            (
                "trace 0197c1f0-aaaa-7bbb-8ccc-0123456789ab",
                "trace 0197c1f0-aaaa-7bbb-8ccc-0123456789ab",
            ),
            ("Schlüssel ü", "Schlüssel ü"),
            ("", ""),
        ] {
            assert_eq!(hide_likely_secrets(text), want);
        }
    }

    #[test]
    fn url_is_shown_without_credentials_and_query() {
        for (address, want) in [
            ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
            ("https://me:p@ss@host/v1", "https://[hidden]@host/v1"),
            ("https://key@host", "https://[hidden]@host"),
            ("https://host/v1?key=abc", "https://host/v1?[hidden]"),
            ("no address", "no address"),
            ("https://host/a@b", "https://host/a@b"),
        ] {
            assert_eq!(hide_in_address(address), want);
        }
    }
}
