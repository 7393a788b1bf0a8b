//! Parts of configuration error messages: an excerpt of the file, and expected types in plain
//! words.

use std::ops::Range;

/// Maximum length of a line of the excerpt, in characters.
const MAX_CHARS: usize = 120;
/// Maximum length of a number that is shown, in characters.
const MAX_NUMBER_CHARS: usize = 6;
/// Maximum length of a word that is shown in a message, in characters.
const MAX_WORD_CHARS: usize = 24;

/// Returns two lines: the line in which a span starts, and `^` characters below the part of it that
/// the span covers. Returns an empty string if the span is outside of the text or the line is
/// blank.
///
/// Values and comments are masked, because a user may have entered a secret: see [`masked`].
pub(super) fn excerpt(text: &str, span: Range<usize>) -> String {
    let Some(before) = text.get(..span.start) else {
        return String::new();
    };
    let begin = before.rfind('\n').map_or(0, |at| at + 1);
    let line = text[begin..].lines().next().unwrap_or_default();
    if line.trim().is_empty() {
        return String::new();
    }
    let end = span.end.clamp(span.start, begin + line.len()) - begin;
    let masked_line = masked(line);
    let mut excerpt = String::new();
    let mut mark = String::new();
    for ((at, _), hidden) in line.char_indices().zip(masked_line.chars()).take(MAX_CHARS) {
        excerpt.push(hidden);
        let is_marked = at >= span.start - begin && (at < end || at == span.start - begin);
        mark.push(if is_marked { '^' } else { ' ' });
    }
    if span.start - begin == line.len() && line.chars().count() < MAX_CHARS {
        mark.push('^');
    }
    format!("{}\n{}", excerpt.trim_end(), mark.trim_end())
}

/// Replaces each character of values and comments by `*`, except booleans, short numbers and the
/// keys of inline tables. The result has as many characters as the line.
fn masked(line: &str) -> String {
    let mut masked_text = String::with_capacity(line.len());
    let is_header = line.trim_start().starts_with('[') && !line.contains(['"', '\'', '=']);
    // A line without a key is part of a longer value, or was pasted.
    let has_key = line
        .split_once('=')
        .is_some_and(|(_, value)| !value.starts_with('='));
    // A key stands at the beginning of a line, and in an inline table after `{` or `,`.
    let mut may_be_key = has_key;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let mut length = c.len_utf8();
        match c {
            '#' => length = rest.len(),
            '"' | '\'' => length = quoted_length(rest, c),
            _ if is_word(c) => length = rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => {}
        }
        let (part, after) = rest.split_at(length);
        let is_key = may_be_key && after.trim_start().starts_with('=');
        let is_shown = is_key || is_harmless(part) || (is_header && is_plain_name(part));
        match c {
            '#' => masked_text.extend(part.chars().map(|_| '*')),
            '"' | '\'' => {
                let last = part.chars().count() - 1;
                let is_closed = part.len() > 1 && part.ends_with(c);
                for (index, _) in part.chars().enumerate() {
                    masked_text.push(if index == 0 || (is_closed && index == last) {
                        c
                    } else {
                        '*'
                    });
                }
            }
            '\t' => masked_text.push(' '),
            _ if is_word(c) && !is_shown => masked_text.extend(part.chars().map(|_| '*')),
            _ => masked_text.push_str(part),
        }
        may_be_key = matches!(c, '{' | ',') || (may_be_key && c.is_whitespace());
        rest = after;
    }
    masked_text
}

/// Returns whether the name of a table may be shown. One with both upper-case letters and digits
/// may be a secret in the wrong place.
fn is_plain_name(name: &str) -> bool {
    let has_upper_case = name.chars().any(|c| c.is_ascii_uppercase());
    let has_digit = name.chars().any(|c| c.is_ascii_digit());
    !(has_upper_case && has_digit) && name.len() <= MAX_CHARS / 2
}

/// Returns the length of the quoted text at the beginning of a text, with its quotes.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + c.len_utf8();
        }
        is_escaped = c == '\\' && quote == '"' && !is_escaped;
    }
    text.len()
}

fn is_word(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, '"' | '\'' | '#' | '=' | ',' | '[' | ']' | '{' | '}')
}

/// Returns whether a value is a boolean or a short number, which is no secret.
fn is_harmless(value: &str) -> bool {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '+');
    matches!(value, "true" | "false")
        || (value.len() <= MAX_NUMBER_CHARS && value.chars().all(is_number))
}

/// Removes the value from the message of a parser, unless it is a boolean, a short number or a
/// plain word: it may be a secret in the wrong place.
pub(super) fn without_value(message: &str) -> String {
    let is_shown = |value: &str| {
        let is_plain_word = |c: char| c.is_ascii_lowercase() || matches!(c, '_' | '-' | ' ');
        is_harmless(value) || (value.len() <= MAX_WORD_CHARS && value.chars().all(is_plain_word))
    };
    let Some((start, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    for prefix in ["invalid type: ", "invalid value: ", "unknown variant "] {
        let Some(found) = start.strip_prefix(prefix) else {
            continue;
        };
        let (kind, value) = match found.find(['"', '`']) {
            Some(at) => found.split_at(at),
            None => (found, ""),
        };
        if value.is_empty() || is_shown(value.trim_matches(['"', '`'])) {
            break;
        }
        return format!("{prefix}{kind}[hidden], expected {expected}");
    }
    message.to_owned()
}

/// Replaces the expected type at the end of a parser message, such as `u64`, by words that users
/// understand.
pub(super) fn plain_type_names(message: &str) -> String {
    const WORDS: [(&[&str], &str); 4] = [
        (
            &["u8", "u16", "u32", "u64", "usize"],
            "a non-negative whole number",
        ),
        (&["i8", "i16", "i32", "i64", "isize"], "a whole number"),
        (&["f32", "f64"], "a number"),
        (&["a boolean"], "true or false"),
    ];
    let Some((before, expected)) = message.rsplit_once("expected ") else {
        return message.to_owned();
    };
    let words = WORDS
        .iter()
        .find(|(types, _)| types.contains(&expected))
        .map(|(_, words)| *words);
    words.map_or_else(
        || message.to_owned(),
        |words| format!("{before}expected {words}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn error_excerpt_masks_possible_secrets() {
        for (text, want) in [
            (
                "[model]\ntimeout_ms = \"soon\"\n",
                "timeout_ms = \"****\"\n             ^^^^^^",
            ),
            ("[model]\nnam = 1\n", "nam = 1\n^^^"),
            ("[model\n", "[model\n      ^"),
            (
                "[model]\napi_key_env = \"sk-1\"\n",
                "api_key_env = \"****\"\n^^^^^^^^^^^^^^^^^^^^",
            ),
            ("[runtime]\nmax_turns = 0", "max_turns = 0\n^^^^^^^^^^^^^"),
            (
                "[runtime]\nmax_turns = 0 # sk-1",
                "max_turns = 0 ******\n^^^^^^^^^^^^^^^^^^^^",
            ),
            (
                "[model]\napi_key_env = sk-1\n",
                "api_key_env = ****\n              ^^^^",
            ),
            (
                "[model]\napi_key_env = \"a\\\"sk\" x\n",
                "api_key_env = \"*****\" *\n                      ^",
            ),
            (
                "[model]\napi_key_env = 123456789\n",
                "api_key_env = *********\n              ^^^^^^^^^",
            ),
            (
                "[model]\nretry = { max_attempts = -1 }\n",
                "retry = { max_attempts = -1 }\n                         ^^",
            ),
            ("[model]\nsk-1A\n", "*****\n     ^"),
        ] {
            let error = Config::parse("c", text).unwrap_err();
            assert_eq!(error.excerpt, want, "{text:?}: {error}");
        }
    }

    #[test]
    fn messages_do_not_repeat_values_that_may_be_secrets() {
        for (text, secret) in [
            ("[model]\napi_key_env = 12345678901\n", "12345678901"),
            ("[runtime]\nmax_turns = \"sk-Abc123\"\n", "sk-Abc123"),
            ("[model]\nprovider = \"sk-Abc123\"\n", "sk-Abc123"),
            ("[runtime]\nrecovery = \"sk-Abc123\"\n", "sk-Abc123"),
            ("[model]\napi_key_env = sk-Abc123\n", "sk-Abc123"),
            ("[model.headers]\nx = 12345678901\n", "12345678901"),
            ("[model]\napi_key_env = c2VjcmV0==\n", "c2VjcmV0"),
            ("[model]\nc2VjcmV0==\n", "c2VjcmV0"),
            ("[model]\nbase_url = x://b:pw@h?k=a\n", "b:pw"),
            ("[sk-Abc123]\nx = \n", "sk-Abc123"),
        ] {
            let error = Config::parse("c", text).unwrap_err();
            assert!(!error.to_string().contains(secret), "{text:?}: {error}");
            assert!(
                !error.excerpt.contains(secret),
                "{text:?}: {}",
                error.excerpt
            );
        }
        let shown = without_value("unknown variant `resum`, expected one of `resume`, `fail`");
        assert!(shown.contains("`resum`"), "{shown}");
        let shown = without_value("invalid type: integer `5`, expected a string");
        assert!(shown.contains("`5`"), "{shown}");
    }

    #[test]
    fn type_names_are_spelled_out() {
        for (message, want) in [
            (
                "invalid type: string \"x\", expected u64",
                "invalid type: string \"x\", expected a non-negative whole number",
            ),
            (
                "invalid type: integer `5`, expected a string",
                "invalid type: integer `5`, expected a string",
            ),
            (
                "invalid type: integer `5`, expected a boolean",
                "invalid type: integer `5`, expected true or false",
            ),
            ("unclosed table", "unclosed table"),
        ] {
            assert_eq!(plain_type_names(message), want);
        }
    }
}
