//! Truncates texts in the middle, with a note about the omitted length.

use soong_model::tokens::estimate_tokens;

/// Truncates a text to about `max` characters: three quarters from its beginning, the rest from its
/// end.
pub(super) fn truncate_middle(text: &str, max: usize) -> String {
    // A text has at most as many characters as bytes, so they need not be counted.
    if text.len() <= max {
        return text.to_owned();
    }
    let length = text.chars().count();
    if length <= max {
        return text.to_owned();
    }
    let head = max - max / 4;
    let tail = max / 4;
    let at = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let omitted = length - head - tail;
    format!(
        "{} [… {omitted} characters left out …] {}",
        &text[..at(head)],
        &text[at(length - tail)..]
    )
}

/// Truncates a text so that its estimate is at most `max_tokens`.
pub(super) fn truncate_tokens(text: &str, max_tokens: u64) -> String {
    let mut chars = text.chars().count();
    let mut cut = text.to_owned();
    loop {
        let tokens = estimate_tokens(&cut);
        if tokens <= max_tokens {
            return cut;
        }
        if chars == 0 {
            return String::new(); // not even the note about the omission fits
        }
        // Reduce by at least an eighth each time, so that the loop ends soon, but not by much more
        // than needed.
        let wanted = u128::from(max_tokens) * chars as u128 / u128::from(tokens);
        chars = usize::try_from(wanted)
            .unwrap_or(chars)
            .min(chars - chars.div_ceil(8));
        cut = truncate_middle(text, chars);
    }
}
