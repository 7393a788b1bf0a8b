//! Cuts texts in the middle, and says how much is gone.

use crate::model::tokens::estimate_tokens;

/// Cuts a text to about `max` characters: three quarters from its beginning, the rest from its end.
pub(super) fn clip(text: &str, max: usize) -> String {
    // A text of so many bytes has no more characters: no need to count them.
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
    let gone = length - head - tail;
    format!("{} [… {gone} characters left out …] {}", &text[..at(head)], &text[at(length - tail)..])
}

/// Cuts a text so that it is estimated at no more than `max_tokens`.
pub(super) fn clip_tokens(text: &str, max_tokens: u64) -> String {
    let mut chars = text.chars().count();
    let mut cut = text.to_owned();
    loop {
        let tokens = estimate_tokens(&cut);
        if tokens <= max_tokens {
            return cut;
        }
        if chars == 0 {
            return String::new(); // not even the note about the cut has room
        }
        // At least an eighth less each time, so that it ends soon, and not much more than needed.
        let wanted = u128::from(max_tokens) * chars as u128 / u128::from(tokens);
        chars = usize::try_from(wanted).unwrap_or(chars).min(chars - chars.div_ceil(8));
        cut = clip(text, chars);
    }
}
