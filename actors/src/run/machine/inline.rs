//! Limits of texts that a model reads in full, and how a longer text is shortened.

use soong_model::tokens::estimate_tokens;
use soong_protocol::ArtifactRef;
use soong_text::shorten;

/// Maximum length of previews of arguments and outputs in events, in characters.
const MAX_PREVIEW_CHARS: usize = 200;
/// Maximum length of the head and of the tail of a stored output that a model sees, in characters
/// each.
const EXCERPT_CHARS: usize = 2_000;

/// Limits up to which a text is read in full.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct InlineLimits {
    /// Maximum size in bytes.
    pub(crate) bytes: usize,
    /// Maximum size in estimated tokens.
    pub(crate) tokens: u64,
    /// Maximum size of a stored text, in bytes.
    pub(crate) stored_bytes: u64,
}

/// Minimum size of a shown output, in tokens, however small the context window is.
const MIN_SHOWN_TOKENS: u64 = 512;
/// Number of bytes of a token, for tools that only count bytes. Code has fewer bytes per token than
/// prose.
const BYTES_PER_TOKEN: u64 = 3;

impl InlineLimits {
    /// Returns the limits of an output for which the context window has this room.
    pub(crate) fn within(self, room_tokens: u64) -> Self {
        let tokens = room_tokens.max(MIN_SHOWN_TOKENS);
        if tokens >= self.tokens {
            return self;
        }
        let bytes = usize::try_from(tokens * BYTES_PER_TOKEN).unwrap_or(usize::MAX);
        Self {
            tokens,
            bytes: self.bytes.min(bytes),
            ..self
        }
    }

    /// Returns whether a text exceeds the limits.
    pub(crate) fn are_exceeded_by(self, text: &str) -> bool {
        // A token has at least one byte, so most texts need no counting.
        text.len() > self.bytes
            || (text.len() as u64 > self.tokens && estimate_tokens(text) > self.tokens)
    }
}

/// Returns the beginning of a text: at most `bytes` bytes, cut between characters.
pub(crate) fn head(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    &text[..end]
}

/// Returns the text that replaces a stored output in its message: size, reference, head and tail.
///
/// If the text is over the limits, the result is within them and shorter than the text; at least
/// its first line is kept.
pub(crate) fn reference_text(
    reference: &ArtifactRef,
    title: &str,
    text: &str,
    limits: InlineLimits,
    is_cut: bool,
    can_read_artifacts: bool,
) -> String {
    let lines = text.lines().count();
    let id = reference.label();
    let cut = if is_cut {
        ", cut to what artifacts.max_text_bytes allows"
    } else {
        ""
    };
    let hint = if can_read_artifacts {
        format!("read it by lines with read_artifact(name=\"{id}\", offset=…)")
    } else {
        "ask for less at once to see more of it".to_owned()
    };
    let label = if title.is_empty() {
        "the output".to_owned()
    } else {
        preview(title)
    };
    let first = format!(
        "[{label}: {} bytes in {lines} lines, stored as artifact {id}{cut}; {hint}]\n",
        text.len()
    );
    let chars = text.chars().count();
    let is_large = limits.are_exceeded_by(text);
    if chars <= 2 * EXCERPT_CHARS && !is_large {
        return first + text;
    }
    let mut excerpt_chars = EXCERPT_CHARS.min(chars / 2);
    while excerpt_chars > 0 {
        let from = text
            .char_indices()
            .nth(chars - excerpt_chars)
            .map_or(0, |(at, _)| at);
        let excerpt = format!(
            "--- its beginning\n{}\n--- its end\n…{}",
            shorten(text, excerpt_chars),
            &text[from..]
        );
        let out = format!("{first}{excerpt}");
        if !is_large || out.len() < text.len() && !limits.are_exceeded_by(&out) {
            return out;
        }
        excerpt_chars = excerpt_chars * 3 / 4;
    }
    first
}

pub(crate) fn preview(text: &str) -> String {
    shorten(text, MAX_PREVIEW_CHARS)
}
