//! The plain assistant: searches the project for the words of a question, and describes the best
//! match.

use serde_json::json;

use super::{NOTICE, Turn, conversation::Conversation, count, listing::Listing, plain_line};

const MAX_WORDS: usize = 3;
const MIN_WORD_CHARS: usize = 4;
const MAX_QUOTED_LINES: usize = 5;

/// Decides the next turn.
pub(super) fn next(conversation: &Conversation<'_>) -> Turn {
    let words = words(conversation.task);
    if !conversation.has_called("list_files") && !conversation.has_called("grep") {
        let mut calls = Vec::new();
        if conversation.offers("list_files") {
            calls.push((
                "list_files",
                json!({"path": ".", "recursive": true, "limit": 1000}),
            ));
        }
        if conversation.offers("grep") && !words.is_empty() {
            let pattern = format!(
                "(?i)({})",
                words
                    .iter()
                    .map(|word| escaped(word))
                    .collect::<Vec<_>>()
                    .join("|")
            );
            calls.push((
                "grep",
                json!({"pattern": pattern, "path": ".", "limit": 100}),
            ));
        }
        if !calls.is_empty() {
            return Turn::call_tools("Looking at the project.", calls);
        }
    }
    let best = best_hit(conversation);
    if let Some((path, line)) = &best
        && conversation.offers("read")
        && !conversation.has_called("read")
    {
        let start = line.saturating_sub(2).max(1);
        let read = json!({"path": path, "start_line": start, "max_lines": MAX_QUOTED_LINES});
        return Turn::call_tools("Reading the best hit.", vec![("read", read)]);
    }
    Turn::answer(answer(conversation, &words, best))
}

fn answer(
    conversation: &Conversation<'_>,
    words: &[String],
    best: Option<(String, u64)>,
) -> String {
    let mut text = format!("I am an {NOTICE}: I cannot answer a question, only look things up.\n");
    let Some(listing) = conversation
        .calls("list_files")
        .find_map(|exchange| exchange.ok())
        .map(Listing::parse)
    else {
        if conversation.exchanges.is_empty() {
            text.push_str("No tool that I could use is offered. Choose a model to get an answer.");
        } else {
            text.push_str("Looking at the project failed. Choose a model to get an answer.");
        }
        return text;
    };
    let files = count(listing.total_files, "file");
    let bytes = count(listing.total_bytes, "byte");
    text.push_str(&format!("\nThe project holds {files}, {bytes} in all.\n"));
    let sought = words.join(", ");
    match best {
        Some((path, line)) => {
            text.push_str(&format!(
                "The words \"{sought}\" come up most in `{path}`, first in line {line}"
            ));
            let page = conversation
                .calls("read")
                .find_map(|exchange| exchange.ok())
                .unwrap_or_default();
            let quoted = page
                .lines()
                .filter(|line| line.contains('\t'))
                .map(|line| format!("    {}", plain_line(line, 160)));
            let quoted: Vec<String> = quoted.collect();
            text.push_str(&if quoted.is_empty() {
                ".\n".to_owned()
            } else {
                format!(":\n\n{}\n", quoted.join("\n"))
            });
        }
        None if words.is_empty() => {}
        None => text.push_str(&format!(
            "The words \"{sought}\" come up in no text file.\n"
        )),
    }
    text
}

/// Returns the file with the most matches, and the line of its first match.
fn best_hit(conversation: &Conversation<'_>) -> Option<(String, u64)> {
    let result = conversation
        .calls("grep")
        .find_map(|exchange| exchange.ok())?;
    let mut hits: Vec<(&str, u64, usize)> = Vec::new();
    for line in result.lines() {
        let Some((path, rest)) = line.split_once(':') else {
            continue;
        };
        let Some(number) = rest
            .split_once(':')
            .and_then(|(number, _)| number.parse().ok())
        else {
            continue;
        };
        match hits.iter_mut().find(|(known, ..)| *known == path) {
            Some((.., found)) => *found += 1,
            None => hits.push((path, number, 1)),
        }
    }
    // The first one of several with the same number; `max_by_key` would return the last.
    let most = hits.iter().map(|(.., found)| *found).max()?;
    hits.into_iter()
        .find(|(.., found)| *found == most)
        .map(|(path, line, _)| (path.to_owned(), line))
}

/// Returns the search terms: quoted texts, else the longest words, in order.
fn words(question: &str) -> Vec<String> {
    let quoted = question.split(['"', '`', '“', '”']).skip(1).step_by(2);
    let quoted: Vec<String> = quoted
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .collect();
    if !quoted.is_empty() {
        return quoted
            .into_iter()
            .filter(|text| text.chars().count() <= 80)
            .take(MAX_WORDS)
            .collect();
    }
    let split = question.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut words: Vec<&str> = split
        .filter(|word| word.chars().count() >= MIN_WORD_CHARS)
        .collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
    words.dedup();
    words
        .into_iter()
        .take(MAX_WORDS)
        .map(|word| word.chars().take(40).collect())
        .collect()
}

/// Returns a regular expression that matches a text literally.
fn escaped(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        // `\<` and `\>` have another meaning, and `_` needs no escape.
        if c.is_ascii_punctuation() && !matches!(c, '<' | '>' | '_') {
            pattern.push('\\');
        }
        pattern.push(if c.is_whitespace() { ' ' } else { c });
    }
    pattern
}
