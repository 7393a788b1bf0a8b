//! Parts of configuration error messages: an excerpt of the file, and expected types in plain words.

use std::ops::Range;

/// Maximum length of a line of the excerpt, in characters.
const MAX_CHARS: usize = 120;

/// Returns two lines: the line in which a span starts, and `^` characters below the part of it that the span covers.
/// Returns an empty string if the span is outside of the text or the line is blank.
///
/// Each character inside quotes is replaced by `*`: a user may have entered a secret instead of the name of an
/// environment variable.
pub(super) fn excerpt(text: &str, span: Range<usize>) -> String {
    let Some(before) = text.get(..span.start) else { return String::new() };
    let begin = before.rfind('\n').map_or(0, |at| at + 1);
    let line = text[begin..].lines().next().unwrap_or_default();
    if line.trim().is_empty() {
        return String::new();
    }
    let end = span.end.clamp(span.start, begin + line.len()) - begin;
    let (mut shown, mut mark, mut quote) = (String::new(), String::new(), None);
    for (at, c) in line.char_indices().take(MAX_CHARS) {
        let is_quote = matches!(c, '"' | '\'');
        let hidden = match quote {
            Some(open) if c == open => {
                quote = None;
                c
            }
            Some(_) => '*',
            None if is_quote => {
                quote = Some(c);
                c
            }
            None if c == '\t' => ' ',
            None => c,
        };
        shown.push(hidden);
        let is_marked = at >= span.start - begin && (at < end || at == span.start - begin);
        mark.push(if is_marked { '^' } else { ' ' });
    }
    if span.start - begin == line.len() && line.chars().count() < MAX_CHARS {
        mark.push('^');
    }
    format!("{}\n{}", shown.trim_end(), mark.trim_end())
}

/// Replaces the expected type at the end of a parser message, such as `u64`, by words that users understand.
pub(super) fn plain_type_names(message: &str) -> String {
    const WORDS: [(&[&str], &str); 4] = [
        (&["u8", "u16", "u32", "u64", "usize"], "a non-negative whole number"),
        (&["i8", "i16", "i32", "i64", "isize"], "a whole number"),
        (&["f32", "f64"], "a number"),
        (&["a boolean"], "true or false"),
    ];
    let Some((before, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let words = WORDS.iter().find(|(types, _)| types.contains(&expected)).map(|(_, words)| *words);
    words.map_or_else(|| message.to_owned(), |words| format!("{before}expected {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn error_excerpt_masks_possible_secrets() {
        for (text, want) in [
            ("[model]\ntimeout_ms = \"soon\"\n", "timeout_ms = \"****\"\n             ^^^^^^"),
            ("[model]\nnam = 1\n", "nam = 1\n^^^"),
            ("[model\n", "[model\n      ^"),
            ("[model]\napi_key_env = \"sk-1\"\n", "api_key_env = \"****\"\n^^^^^^^^^^^^^^^^^^^^"),
            ("[runtime]\nmax_turns = 0", "max_turns = 0\n^^^^^^^^^^^^^"),
        ] {
            let error = Config::parse("c", text).unwrap_err();
            assert_eq!(error.excerpt, want, "{text:?}: {error}");
        }
    }

    #[test]
    fn type_names_are_spelled_out() {
        for (message, want) in [
            (
                "invalid type: string \"x\", expected u64",
                "invalid type: string \"x\", expected a non-negative whole number",
            ),
            ("invalid type: integer `5`, expected a string", "invalid type: integer `5`, expected a string"),
            ("invalid type: integer `5`, expected a boolean", "invalid type: integer `5`, expected true or false"),
            ("unclosed table", "unclosed table"),
        ] {
            assert_eq!(plain_type_names(message), want);
        }
    }
}
