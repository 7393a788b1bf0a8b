//! Redacts the first part of a secret whose end was cut off before redaction.
//!
//! Tools and providers shorten long lines, pages and errors. If the cut is inside a secret, its
//! first part is at the end of the text or directly before a truncation marker. Pure. Elsewhere:
//! whole secrets (`redaction.rs`). Not redacted: the last part of a secret whose start was cut off.

use aho_corasick::{AhoCorasick, MatchKind};

use super::{Redactor, SecretIndex};

/// Minimum length of a first part, in bytes. Shorter ones occur in ordinary words.
const MIN_PARTIAL_BYTES: usize = 12;
/// Truncation markers.
const TRUNCATION_MARKERS: [&str; 3] = ["…", "\n[cut", "\n[left out"];

/// Returns a matcher for the first bytes of these forms; `None` if it cannot be built.
pub(super) fn partial_matcher(forms: &[String]) -> Option<AhoCorasick> {
    let beginnings = forms
        .iter()
        .filter(|form| form.len() > MIN_PARTIAL_BYTES)
        .map(|form| first_part(form));
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostFirst)
        .build(beginnings)
        .ok()
}

/// Returns the shortest first part of a form that is redacted.
fn first_part(form: &str) -> &str {
    &form[..form.ceil_char_boundary(MIN_PARTIAL_BYTES)]
}

impl Redactor {
    /// Removes the first parts of secrets that were cut off. Whole secrets must already be removed.
    pub fn redact_partial(&self, text: &mut String) {
        let Some(known) = &self.index else { return };
        let Some(finder) = &known.partial_forms else {
            return;
        };
        let mut clean = String::new();
        let mut done = 0;
        for found in finder.find_iter(text.as_str()) {
            if found.start() < done {
                continue;
            }
            let rest = &text[found.start()..];
            if let Some((length, mark)) = known.truncated_match(rest) {
                clean.push_str(&text[done..found.start()]);
                clean.push_str(mark);
                done = found.start() + length;
            }
        }
        if done > 0 {
            clean.push_str(&text[done..]);
            *text = clean;
        }
    }
}

impl SecretIndex {
    /// Returns the length of the secret's part at the start of a text, and its replacement; `None`
    /// if the part is not followed by a cut.
    fn truncated_match(&self, text: &str) -> Option<(usize, &str)> {
        let alike = |form: &String| {
            text.bytes()
                .zip(form.bytes())
                .take_while(|(a, b)| a == b)
                .count()
        };
        let lengths = self
            .forms
            .iter()
            .zip(&self.replacements)
            .map(|(form, mark)| (alike(form), mark.as_str()));
        let (length, mark) = lengths.max_by_key(|(length, _)| *length)?;
        let length = text.floor_char_boundary(length);
        let rest = &text[length..];
        (rest.is_empty() || TRUNCATION_MARKERS.iter().any(|cut| rest.starts_with(cut)))
            .then_some((length, mark))
    }
}
