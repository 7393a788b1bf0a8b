//! Limits on texts that a model reads whole, and how a longer text is cut.

use soong_protocol::ArtifactRef;

use crate::{model::tokens::estimate_tokens, text::shorten};

/// Longest preview of arguments and outputs in events, in characters.
const PREVIEW_CHARS: usize = 200;
/// How much of a stored output a model sees of its beginning and of its end, in characters each, if the limits allow it.
const SHOWN_CHARS: usize = 2_000;

/// What is read whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    /// In bytes.
    pub(crate) bytes: usize,
    /// In tokens, as they are estimated.
    pub(crate) tokens: u64,
    /// Largest text that is stored, in bytes.
    pub(crate) stored_bytes: u64,
}

impl Limits {
    /// Returns whether a text is too much to be read whole.
    pub(crate) fn are_passed_by(self, text: &str) -> bool {
        // A token is at least a byte: most texts need no counting.
        text.len() > self.bytes || (text.len() as u64 > self.tokens && estimate_tokens(text) > self.tokens)
    }
}

/// Returns at most so many bytes of the beginning, between characters.
pub(crate) fn head(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// Returns what stands in the message instead of a text: what it is, how it begins and ends, and where the whole is.
///
/// If the text is over the limits, the result is within them and shorter than the text; at least its first line is kept.
pub(crate) fn reference_text(
    reference: &ArtifactRef,
    title: &str,
    text: &str,
    limits: Limits,
    is_cut: bool,
    can_read_artifacts: bool,
) -> String {
    let lines = text.lines().count();
    let id = reference.label();
    let cut = if is_cut { ", cut to what artifacts.max_text_bytes allows" } else { "" };
    let how = if can_read_artifacts {
        format!("read it by lines with read_artifact(name=\"{id}\", offset=…)")
    } else {
        "ask for less at once to see more of it".to_owned()
    };
    let what = if title.is_empty() { "the output".to_owned() } else { preview(title) };
    let first = format!("[{what}: {} bytes in {lines} lines, stored as artifact {id}{cut}; {how}]\n", text.len());
    let (chars, is_large) = (text.chars().count(), limits.are_passed_by(text));
    if chars <= 2 * SHOWN_CHARS && !is_large {
        return first + text;
    }
    let mut shown = SHOWN_CHARS.min(chars / 2);
    while shown > 0 {
        let from = text.char_indices().nth(chars - shown).map_or(0, |(at, _)| at);
        let ends = format!("--- its beginning\n{}\n--- its end\n…{}", shorten(text, shown), &text[from..]);
        let out = format!("{first}{ends}");
        if !is_large || out.len() < text.len() && !limits.are_passed_by(&out) {
            return out;
        }
        shown = shown * 3 / 4;
    }
    first
}

pub(crate) fn preview(text: &str) -> String {
    shorten(text, PREVIEW_CHARS)
}
