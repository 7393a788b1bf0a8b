//! Formats the output of a command for models and users (TOOL-5).
//!
//! Any bytes are converted to text that does not affect a terminal. Sequences that move the cursor
//! or set colors are removed, other control characters are shown as `\x1b`, and invalid UTF-8 as
//! `�`.

use std::fmt::Write as _;

use soong_sandbox::HeadTailBuffer;

/// Maximum size of each end of the output that is shown, in bytes of text.
pub(super) const MAX_END_BYTES: usize = 2 * 1024 * 1024;
/// Maximum length of a terminal sequence that is removed. A longer one is not treated as a
/// sequence.
const MAX_SEQUENCE_CHARS: usize = 4096;
const ESCAPE: char = '\u{1b}';

/// Returns the whole output, or its first and last `end_bytes` with the size of the part between
/// them.
pub(super) fn format_output(printed: &HeadTailBuffer, end_bytes: usize) -> String {
    if printed.dropped_bytes() == 0 {
        let whole = [printed.head(), &printed.tail()].concat();
        let text = sanitize(&whole);
        if text.len() <= 2 * end_bytes {
            return text;
        }
        return head_and_tail(&whole, &whole, printed.total(), end_bytes);
    }
    head_and_tail(printed.head(), &printed.tail(), printed.total(), end_bytes)
}

fn head_and_tail(head: &[u8], tail: &[u8], total: u64, end_bytes: usize) -> String {
    let (first, from_head) = sanitize_within(head, end_bytes, |bytes, count| {
        trim_partial_end(&bytes[..count])
    });
    let (last, from_tail) = sanitize_within(tail, end_bytes, |bytes, count| {
        trim_partial_start(&bytes[bytes.len() - count..])
    });
    let left_out = total.saturating_sub((from_head + from_tail) as u64);
    let gap = if first.ends_with('\n') || first.is_empty() {
        ""
    } else {
        "\n"
    };
    format!("{first}{gap}[left out: {left_out} of {total} bytes]\n{last}")
}

/// Cleans as much as fits. Returns the text and the number of bytes that it represents.
fn sanitize_within(
    bytes: &[u8],
    max_bytes: usize,
    part: impl Fn(&[u8], usize) -> &[u8],
) -> (String, usize) {
    let mut count = bytes.len().min(max_bytes);
    loop {
        let candidate = part(bytes, count);
        let text = sanitize(candidate);
        if text.len() <= max_bytes {
            return (text, candidate.len());
        }
        // Escapes take more space: try fewer bytes, in proportion, and always fewer than before.
        count = (count * max_bytes / text.len()).min(count - 1);
    }
}

/// Returns the bytes without an incomplete character at their end.
fn trim_partial_end(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        // `error_len` is `None` if the character is incomplete.
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// Returns the bytes without an incomplete character at their start.
fn trim_partial_start(bytes: &[u8]) -> &[u8] {
    let rest = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xc0 == 0x80)
        .count();
    &bytes[rest..]
}

/// Converts bytes to text that does not affect a terminal.
pub(super) fn sanitize(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(c) = rest.chars().next() {
        let plain = rest
            .find(|c: char| c.is_control() && c != '\n' && c != '\t')
            .unwrap_or(rest.len());
        out.push_str(&rest[..plain]);
        rest = &rest[plain..];
        if plain > 0 {
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            ESCAPE => match skip_escape_sequence(rest) {
                Some(after) => rest = after,
                None => out.push_str("\\x1b"),
            },
            // A line end in CR LF.
            '\r' if rest.starts_with('\n') => {}
            '\r' => out.push_str("\\r"),
            c if u32::from(c) < 0x80 => drop(write!(out, "\\x{:02x}", u32::from(c))),
            c => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
        }
    }
    out
}

/// Returns the text after a terminal sequence whose escape character was already consumed; `None`
/// if it is not a sequence.
fn skip_escape_sequence(rest: &str) -> Option<&str> {
    let mut chars = rest.char_indices().take(MAX_SEQUENCE_CHARS);
    let (_, kind) = chars.next()?;
    let after = |(at, c): (usize, char)| &rest[at + c.len_utf8()..];
    match kind {
        // CSI: parameters, then one final character.
        '[' => chars
            .find(|(_, c)| !matches!(c, ' '..='?'))
            .filter(|(_, c)| matches!(c, '@'..='~'))
            .map(after),
        // String for the terminal, up to BEL, or the escape character and a backslash.
        ']' | 'P' | 'X' | '^' | '_' => loop {
            match chars.next()? {
                end @ (_, '\u{7}') => return Some(after(end)),
                (_, ESCAPE) => {
                    let next = chars.next()?;
                    return (next.1 == '\\').then(|| after(next));
                }
                _ => {}
            }
        },
        // Character sets and similar: intermediate characters, then one final character.
        ' '..='/' => chars
            .find(|(_, c)| !matches!(c, ' '..='/'))
            .filter(|(_, c)| matches!(c, '0'..='~'))
            .map(after),
        '0'..='~' => Some(&rest[kind.len_utf8()..]),
        _ => None,
    }
}

#[cfg(test)]
#[path = "format_output/tests.rs"]
mod tests;
