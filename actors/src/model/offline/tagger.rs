//! The one who tags: says by the words of a task what it is about (MEM-3).
//!
//! Tags in use are taken where all their words stand in the task. Not here: what is asked for (`memory/recall.rs`).

use serde_json::json;

use super::{Turn, conversation::Conversation};
use crate::memory::{KNOWN_HEAD, TAGGER, TASK_HEAD, plain_tag};

/// Words that say what is wanted.
const VERBS: [&str; 14] = [
    "fix", "write", "add", "test", "review", "document", "explore", "explain", "refactor", "find", "count", "report",
    "compare", "describe",
];
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
    let task = plain_words(task);
    let has = |tag: &str| tag.split('-').all(|part| task.iter().any(|word| is_same(word, part)));
    let tags = |kind: &str, own: &[&str], otherwise: &str| {
        let line = known.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(':')).unwrap_or_default();
        let known = line.split(',').map(str::trim).filter(|tag| !tag.is_empty() && has(tag));
        let mut tags: Vec<String> = known.map(str::to_owned).collect();
        tags.extend(own.iter().filter(|tag| has(tag)).map(|tag| (*tag).to_owned()));
        tags.dedup();
        tags.truncate(5);
        if tags.is_empty() { vec![otherwise.to_owned()] } else { tags }
    };
    debug_assert!(known.is_empty() || known.starts_with(KNOWN_HEAD), "what comes first is known");
    Turn::answer(
        json!({"intent": tags("intent", &VERBS, "task"), "state": tags("state", &THINGS, "project")}).to_string(),
    )
}

/// Returns the words of a text, as tags are written.
pub(super) fn plain_words(text: &str) -> Vec<String> {
    text.split_whitespace().flat_map(|word| plain_tag(word).split('-').map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Returns whether two words are one, but for an ending: `test` and `tests`, `fix` and `fixed`.
fn is_same(word: &str, part: &str) -> bool {
    word.strip_prefix(part).is_some_and(|rest| matches!(rest, "" | "s" | "es" | "ed" | "ing"))
}
