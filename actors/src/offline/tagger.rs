//! The tagger: derives tags from the words of a task (MEM-3).
//!
//! Existing tags are used if all their words occur in the task. Elsewhere: the request
//! (`memory/recall.rs`).

use serde_json::{Value, json};

use super::{Turn, conversation::Conversation};
use crate::memory::{KNOWN_TAGS_HEADING, TAGGER_PROMPT, TASK_HEADING, normalize_tag};

/// Words that indicate the intent of a task.
const INTENT_WORDS: [&str; 14] = [
    "fix", "write", "add", "test", "review", "document", "explore", "explain", "refactor", "find",
    "count", "report", "compare", "describe",
];
/// Maximum number of tags of a kind.
const MAX_TAGS: usize = 5;
/// Words that describe the subject of a task.
const SUBJECT_WORDS: [&str; 12] = [
    "rust",
    "python",
    "javascript",
    "typescript",
    "java",
    "go",
    "docker",
    "database",
    "network",
    "git",
    "markdown",
    "project",
];

/// Returns whether the request asks for tags.
pub(super) fn is_asked(conversation: &Conversation<'_>) -> bool {
    conversation.system_contains(TAGGER_PROMPT)
}

/// Answers with tags.
pub(super) fn next(conversation: &Conversation<'_>) -> Turn {
    let (known, task) = conversation
        .task
        .split_once(&format!("\n{TASK_HEADING}\n"))
        .unwrap_or(("", conversation.task));
    Turn::answer(tags(known.trim_start_matches(KNOWN_TAGS_HEADING), task).to_string())
}

/// Returns tags for a task: existing ones that fit (`in_use`: lines `intent: a, b` and `state: c`),
/// and built-in ones.
pub(super) fn tags(in_use: &str, task: &str) -> Value {
    let words = plain_words(task);
    let has = |tag: &str| {
        tag.split('-')
            .all(|part| words.iter().any(|word| is_same(word, part)))
    };
    let tags = |kind: &str, own: &[&str], otherwise: &str| {
        let line = in_use
            .lines()
            .find_map(|line| line.strip_prefix(kind)?.strip_prefix(':'))
            .unwrap_or_default();
        let in_use = line.split(',').map(str::trim).filter(|tag| !tag.is_empty());
        let mut tags: Vec<&str> = in_use
            .chain(own.iter().copied())
            .filter(|tag| has(tag))
            .collect();
        tags.dedup();
        tags.truncate(MAX_TAGS);
        if tags.is_empty() {
            vec![otherwise.to_owned()]
        } else {
            tags.into_iter().map(str::to_owned).collect()
        }
    };
    json!({"intent": tags("intent", &INTENT_WORDS, "task"), "state": tags("state", &SUBJECT_WORDS, "project")})
}

/// Returns the words of a text in the form of tags.
fn plain_words(text: &str) -> Vec<String> {
    text.split_whitespace()
        .flat_map(|word| {
            normalize_tag(word)
                .split('-')
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Returns whether a word equals `part` except for an ending: `tests` and `test`, `fixed` and
/// `fix`.
fn is_same(word: &str, part: &str) -> bool {
    word.strip_prefix(part)
        .is_some_and(|rest| matches!(rest, "" | "s" | "es" | "ed" | "ing"))
}
