//! Words: comments and documents use the standard terms of the field.

use super::{Source, assert_none, rust_files, text_files};

/// Phrases that hide the subject or the fact of a sentence. Each entry: the phrase, and a usual replacement.
const BANNED: [(&str, &str); 17] = [
    ("told", "notified, sent, reported"),
    ("goes on", "continues, resumes"),
    ("go on", "continue, resume"),
    ("going on", "continuing"),
    ("went on", "continued"),
    ("at work", "active, running"),
    ("in vain", "without success"),
    ("stands for", "replaces, means"),
    ("stand for", "replace, mean"),
    ("somebody", "a user, a caller, a client"),
    ("whoever", "the caller, the client"),
    ("whomever", "the caller, the client"),
    ("asks for leave", "requests permission"),
    ("needs leave", "requires permission"),
    ("gives leave", "grants permission"),
    ("without leave", "without permission"),
    ("leave to act", "permission"),
];

/// First words of a doc comment that has no subject.
const NO_SUBJECT: [&str; 4] = ["What", "Whose", "Whom", "Whoever"];

/// Phrases that contain a banned one and are common English.
const ALLOWED: [&str; 2] = ["told apart", "going on the"];

/// Files with descriptions that models read, which are written for them.
const FOR_MODELS: [&str; 4] = [
    "actors/src/tool/edit.rs",
    "actors/src/tool/web_search.rs",
    "actors/src/builtin_tools/experience.rs",
    "actors/src/tool/schema.rs",
];

/// Returns the lines of a Rust file that are comments, with their numbers.
fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_start())).filter(|(_, line)| line.starts_with("//"))
}

/// Returns whether `phrase` is in the text as whole words.
fn has(text: &str, phrase: &str) -> bool {
    let is_letter = |part: Option<char>| part.is_some_and(|char| char.is_alphanumeric() || char == '_');
    text.match_indices(phrase).any(|(at, _)| {
        !is_letter(text[..at].chars().next_back()) && !is_letter(text[at + phrase.len()..].chars().next())
    })
}

fn banned_in(line: &str) -> Option<&'static (&'static str, &'static str)> {
    let mut line = line.to_lowercase();
    for allowed in ALLOWED {
        line = line.replace(allowed, "");
    }
    BANNED.iter().find(|(phrase, _)| has(&line, phrase))
}

fn phrases<'a>(path: &str, lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<String> {
    let found = lines.filter_map(|(number, line)| Some((number, banned_in(line)?)));
    found
        .map(|(number, (phrase, better))| format!("{path}:{number}: {phrase:?}: write the sentence anew ({better})"))
        .collect()
}

fn without_subject(file: &Source) -> Vec<String> {
    let mut before = (0, "");
    let mut findings = Vec::new();
    for (number, line) in comments(&file.text) {
        let Some(mark) = ["///", "//!"].into_iter().find(|mark| line.starts_with(mark)) else { continue };
        let is_first = before != (number - 1, mark);
        before = (number, mark);
        let first = line[mark.len()..].split_whitespace().next().unwrap_or_default();
        if is_first && NO_SUBJECT.contains(&first) {
            findings.push(format!("{}:{number}: begins with {first:?}: begin with the subject or a verb", file.path));
        }
    }
    findings
}

#[test]
fn comments_and_documents_use_standard_terms() {
    let sources = ["protocol", "storage", "actors", "bin", "tests", "examples"].into_iter().flat_map(rust_files);
    let mut findings = Vec::new();
    for file in sources.filter(|file| file.path != "tests/architecture/words.rs") {
        if FOR_MODELS.contains(&file.path.as_str()) {
            continue;
        }
        findings.extend(phrases(&file.path, comments(&file.text)));
        findings.extend(without_subject(&file));
    }
    let is_for_models = |path: &str| path.starts_with("tests/") || path.contains("/skill/builtin/");
    for file in text_files(&["md"]).into_iter().filter(|file| !is_for_models(&file.path)) {
        findings.extend(phrases(&file.path, file.text.lines().enumerate().map(|(at, line)| (at + 1, line))));
    }
    assert_none(findings);
}

#[test]
fn banned_phrases_are_found_as_whole_words() {
    for (line, want) in [
        ("The caller is told so.", Some("told")),
        ("Told", Some("told")),
        ("two runs can be told apart", None),
        ("untold", None),
        ("The run goes on.", Some("goes on")),
        ("cargo on disk", None),
        ("Asks for leave.", Some("asks for leave")),
    ] {
        assert_eq!(banned_in(line).map(|(phrase, _)| *phrase), want, "{line}");
    }
    let file = Source { path: "a.rs".into(), text: "/// What it is.\n/// What else.\nfn f() {}".into() };
    assert_eq!(without_subject(&file).len(), 1);
}
