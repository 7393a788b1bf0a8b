//! Text that enters or leaves the process: the environment variables, the redaction of secrets, and
//! functions that shorten, clean and fence a text or find JSON in it.

mod environment;
mod redaction;

use serde_json::Value;

pub use self::{
    environment::{Environment, PLATFORM},
    redaction::{ByteRedactor, Redactor, StreamRedactor},
};

/// Maximum size of JSON that is indented, in bytes.
const MAX_INDENTED_BYTES: usize = 64 * 1024;

/// Shortens `text` to `max` characters, and appends `…` if anything was removed.
pub fn shorten(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the text on one line: each sequence of whitespace becomes one space.
pub fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes control characters, bidirectional formatting characters and invisible tag characters,
/// which could hide or forge text. Line feeds and tabs are kept.
pub fn strip_invisible(text: &str) -> String {
    let is_dropped = |c: char| {
        // The last range contains the tag characters, which can encode invisible text.
        matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
            || c.is_control()
    };
    text.chars()
        .filter(|c| matches!(c, '\n' | '\t') || !is_dropped(*c))
        .collect()
}

/// Formats JSON with indentation. JSON of more than 64 KiB stays on one line, because the
/// indentation of deeply nested data may be many times larger than the data.
pub fn indented_json(value: &Value) -> String {
    let text = value.to_string();
    if text.len() > MAX_INDENTED_BYTES {
        text
    } else {
        format!("{value:#}")
    }
}

/// Returns a Markdown code fence of tildes that no line of the text can close.
pub fn fence_around(text: &str) -> String {
    let longest = text
        .lines()
        .map(|line| {
            line.trim_start()
                .bytes()
                .take_while(|byte| *byte == b'~')
                .count()
        })
        .max();
    "~".repeat(longest.unwrap_or(0).max(2) + 1)
}

/// Maximum number of JSON values that are found in an answer.
const MAX_JSON_VALUES: usize = 16;
/// Maximum number of places of an answer at which a JSON value is looked for.
const MAX_JSON_STARTS: usize = 256;

/// A JSON value in an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundJson<'a> {
    /// Its text.
    pub text: &'a str,
    /// The parsed value.
    pub value: Value,
    /// Whether it stands in other text, neither alone nor in a code fence.
    pub is_in_prose: bool,
}

/// Finds a JSON value in an answer, and returns its text and the parsed value: the first of
/// [`json_values`].
pub fn find_json(answer: &str) -> Option<(&str, Value)> {
    json_values(answer)
        .into_iter()
        .next()
        .map(|found| (found.text, found.value))
}

/// Finds the JSON values in an answer, the most likely one first: the whole answer, the code fences
/// from the last to the first, then the objects and lists in other text, from the last to the
/// first. Reasoning before `</think>` is skipped, unless there is no value behind it. At most 16
/// values are returned.
pub fn json_values(answer: &str) -> Vec<FoundJson<'_>> {
    if let Ok(value) = serde_json::from_str(answer.trim()) {
        return vec![FoundJson {
            text: answer.trim(),
            value,
            is_in_prose: false,
        }];
    }
    let answer_only = after_reasoning(answer);
    let values = values_in(answer_only.trim());
    if values.is_empty() && answer_only.len() < answer.len() {
        values_in(answer.trim())
    } else {
        values
    }
}

fn values_in(text: &str) -> Vec<FoundJson<'_>> {
    let read = |text: &'_ str| serde_json::from_str::<Value>(text).ok();
    if let Some(value) = read(text) {
        return vec![FoundJson {
            text,
            value,
            is_in_prose: false,
        }];
    }
    let mut values = Vec::new();
    // Every second piece is the content of a fence. Its first line may name a language.
    let blocks: Vec<&str> = text.split("```").skip(1).step_by(2).collect();
    for block in blocks.into_iter().rev() {
        let body = block
            .split_once('\n')
            .map_or(block, |(_, body)| body)
            .trim();
        let text = if read(body).is_some() {
            body
        } else {
            block.trim()
        };
        values.extend(read(text).map(|value| FoundJson {
            text,
            value,
            is_in_prose: false,
        }));
    }
    let in_fences: Vec<*const u8> = values.iter().map(|found| found.text.as_ptr()).collect();
    let mut embedded = embedded_json(text);
    embedded.retain(|found| !in_fences.contains(&found.text.as_ptr()));
    embedded.reverse();
    values.extend(embedded);
    values.truncate(MAX_JSON_VALUES);
    values
}

/// Returns the text after the reasoning that some models write before their answer.
pub fn after_reasoning(answer: &str) -> &str {
    answer
        .rsplit_once("</think>")
        .map_or(answer, |(_, answer)| answer)
}

/// Returns the objects and lists in a text, in order. Values inside of others are not returned.
fn embedded_json(text: &str) -> Vec<FoundJson<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    for _ in 0..MAX_JSON_STARTS {
        let Some(start) = rest.find(['{', '[']) else {
            break;
        };
        rest = &rest[start..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let value = values.next().and_then(Result::ok);
        let length = value.as_ref().map_or(1, |_| values.byte_offset());
        found.extend(value.map(|value| FoundJson {
            text: &rest[..length],
            value,
            is_in_prose: true,
        }));
        rest = &rest[length..];
    }
    found
}

/// Returns whether a text is one JSON object.
pub fn is_json_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Decodes a JSON string that contains a JSON object, and returns the text of the object. Some
/// models encode the arguments of a tool call twice.
pub fn unwrap_json_string(text: &str) -> Option<String> {
    // The usual text is not a JSON string, and need not be parsed.
    if !text.trim_start().starts_with('"') {
        return None;
    }
    serde_json::from_str::<String>(text)
        .ok()
        .filter(|inner| is_json_object(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_found_bare_in_fences_and_in_prose() {
        for (answer, found) in [
            ("{\"a\": 1}", Some("{\"a\": 1}")),
            ("  [1, 2]\n", Some("[1, 2]")),
            ("Sure:\n```json\n{\"a\": 1}\n```\nDone.", Some("{\"a\": 1}")),
            ("```\n{\"a\": 1}\n```", Some("{\"a\": 1}")),
            ("```{\"a\": 1}```", Some("{\"a\": 1}")),
            (
                "draft\n```json\n{\"a\": 1}\n```\nmended\n```json\n{\"a\": 2}\n```",
                Some("{\"a\": 2}"),
            ),
            ("```rust\nfn x() {}\n```\n```json\n3\n```", Some("3")),
            ("it is {\"a\": 1}, I think.", Some("{\"a\": 1}")),
            ("first [1], then {\"a\": [2]}.", Some("{\"a\": [2]}")),
            ("<think>{\"a\": 1}?</think>\n{\"a\": 2}", Some("{\"a\": 2}")),
            ("<think>hm</think>{\"a\": {", None),
            ("{\"a\": \"</think>\"}", Some("{\"a\": \"</think>\"}")),
            ("so: {\"a\": \"</think>\"}", Some("{\"a\": \"</think>\"}")),
            ("see {this} and [that]", None),
            ("", None),
            ("```json\n{\"a\": 1", None),
        ] {
            assert_eq!(find_json(answer).map(|(text, _)| text), found, "{answer:?}");
        }
    }

    #[test]
    fn values_of_an_answer_are_found_most_likely_first_and_bounded() {
        let answer = "For example {\"a\": 0}:\n```json\n{\"a\": 1}\n```\nor {\"a\": 2}.";
        let values: Vec<&str> = json_values(answer)
            .into_iter()
            .map(|found| found.text)
            .collect();
        assert_eq!(values, ["{\"a\": 1}", "{\"a\": 2}", "{\"a\": 0}"]);
        assert_eq!(json_values(&"[1] ".repeat(100)).len(), 16);
        assert!(json_values(&"[".repeat(100_000)).is_empty());
    }
}
