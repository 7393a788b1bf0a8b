//! The one who tags: says by the words of a task what it is about (MEM-3).
//!
//! Tags in use are taken where all their words stand in the task. Not here: what is asked for (`memory/recall.rs`).

use serde_json::{Value, json};

use super::{Turn, conversation::Conversation};
use crate::memory::{KNOWN_HEAD, TAGGER, TASK_HEAD, plain_tag};

/// Words that say what is wanted.
const VERBS: [&str; 14] = [
    "fix", "write", "add", "test", "review", "document", "explore", "explain", "refactor", "find", "count", "report",
    "compare", "describe",
];
/// Most tags of a kind.
const MAX_TAGS: usize = 5;
/// Words that say how things stand.
const THINGS: [&str; 12] = [
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

/// Returns whether tags are asked for.
pub(super) fn is_asked(conversation: &Conversation<'_>) -> bool {
    conversation.is_told(TAGGER)
}

/// Answers with tags.
pub(super) fn next(conversation: &Conversation<'_>) -> Turn {
    let (known, task) = conversation.task.split_once(&format!("\n{TASK_HEAD}\n")).unwrap_or(("", conversation.task));
    Turn::answer(tags(known.trim_start_matches(KNOWN_HEAD), task).to_string())
}

/// Finds tags for a task: those in use that fit, `intent: a, b` and `state: c` in lines, and our own.
pub(super) fn tags(in_use: &str, task: &str) -> Value {
    let words = plain_words(task);
    let has = |tag: &str| tag.split('-').all(|part| words.iter().any(|word| is_same(word, part)));
    let tags = |kind: &str, own: &[&str], otherwise: &str| {
        let line = in_use.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(':')).unwrap_or_default();
        let in_use = line.split(',').map(str::trim).filter(|tag| !tag.is_empty());
        let mut tags: Vec<&str> = in_use.chain(own.iter().copied()).filter(|tag| has(tag)).collect();
        tags.dedup();
        tags.truncate(MAX_TAGS);
        if tags.is_empty() { vec![otherwise.to_owned()] } else { tags.into_iter().map(str::to_owned).collect() }
    };
    json!({"intent": tags("intent", &VERBS, "task"), "state": tags("state", &THINGS, "project")})
}

/// Returns the words of a text, as tags are written.
fn plain_words(text: &str) -> Vec<String> {
    text.split_whitespace().flat_map(|word| plain_tag(word).split('-').map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Returns whether two words are one, but for an ending: `test` and `tests`, `fix` and `fixed`.
fn is_same(word: &str, part: &str) -> bool {
    word.strip_prefix(part).is_some_and(|rest| matches!(rest, "" | "s" | "es" | "ed" | "ing"))
}
