//! Halves of characters in JSON: an escape such as `\ud83d` without its other half, which no JSON
//! parser in Rust accepts.
//!
//! Models write them, and streams cut characters in two. Pure.

use std::borrow::Cow;

/// Escape of `U+FFFD`, which replaces a half.
const REPLACEMENT: &str = "\\ufffd";

/// Returns JSON in which each escaped half of a character is replaced by `U+FFFD`.
pub(crate) fn without_lone_surrogates(json: &str) -> Cow<'_, str> {
    let mut repaired = String::new();
    let mut copied_to = 0;
    let mut at = 0;
    while let Some(found) = json[at..].find('\\') {
        at += found;
        let Some(unit) = escaped_unit(&json[at..]) else {
            // Another escape, such as that of a backslash.
            let escaped = json[at + 1..].chars().next().map_or(0, char::len_utf8);
            at += 1 + escaped;
            continue;
        };
        let is_high = (0xd800..0xdc00).contains(&unit);
        let is_low = (0xdc00..0xe000).contains(&unit);
        let has_low =
            escaped_unit(&json[at + 6..]).is_some_and(|next| (0xdc00..0xe000).contains(&next));
        if is_high && has_low {
            at += 12;
            continue;
        }
        if is_high || is_low {
            repaired.push_str(&json[copied_to..at]);
            repaired.push_str(REPLACEMENT);
            copied_to = at + 6;
        }
        at += 6;
    }
    if copied_to == 0 {
        return Cow::Borrowed(json);
    }
    repaired.push_str(&json[copied_to..]);
    Cow::Owned(repaired)
}

/// Returns the UTF-16 unit of the escape that a text begins with, such as `\u00e9`.
fn escaped_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    // `from_str_radix` accepts a sign.
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u16::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_halves_of_characters_are_replaced() {
        for (json, expected) in [
            (r#"{"a":"\ud83d\ude00"}"#, None),
            (r#"{"a":"\uD83D"}"#, Some(r#"{"a":"\ufffd"}"#)),
            (r#"{"a":"\ude00!"}"#, Some(r#"{"a":"\ufffd!"}"#)),
            (
                r#"{"a":"\ud83d\ud83d\ude00"}"#,
                Some(r#"{"a":"\ufffd\ud83d\ude00"}"#),
            ),
            (r#"{"a":"\ud83dx\ude00"}"#, Some(r#"{"a":"\ufffdx\ufffd"}"#)),
            // The backslash itself is escaped.
            (r#"{"a":"\\ud83d"}"#, None),
            (r#"{"a":"\\\ud83d"}"#, Some(r#"{"a":"\\\ufffd"}"#)),
            (r#"{"a":"\u00e9 \n \ü"}"#, None),
            (r#"{"a":"\u+83d"}"#, None),
            (r#"{"a":"\u"#, None),
            ("\\", None),
            ("", None),
        ] {
            assert_eq!(
                without_lone_surrogates(json),
                expected.unwrap_or(json),
                "{json}"
            );
        }
    }
}
