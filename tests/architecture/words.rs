//! Words: names, messages, help, comments and documents use the standard terms of the field.

use proc_macro2::{TokenStream, TokenTree};

use super::{Source, assert_none, code, crate_files, rust_files, text_files};

/// Phrases that hide the subject or the fact of a sentence. Each entry: the phrase, and a usual
/// replacement.
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
    "actors/tool/src/edit.rs",
    "actors/web/src/web_search.rs",
    "actors/src/builtin_tools/experience.rs",
    "actors/tool/src/schema.rs",
];

/// Folders and files whose strings are mainly prompts, tool descriptions and tool results.
const PROMPTS: [&str; 14] = [
    "actors/tool/src",
    "actors/web/src",
    "actors/src/builtin_tools",
    "actors/src/context",
    "actors/src/memory",
    "actors/src/offline",
    "actors/src/skill",
    "actors/src/run/machine/inline.rs",
    "actors/src/run/machine/outcome.rs",
    "actors/src/run/machine/output_schema.rs",
    "actors/src/run/machine/sub_agents",
    "actors/src/run/machine/tool_calls",
    "actors/src/run/machine/turn.rs",
    "protocol/src/agent.rs",
];

/// Metaphors that no name contains as a part.
const METAPHORS: [&str; 22] = [
    "told",
    "wish",
    "leave",
    "leaving",
    "somebody",
    "whoever",
    "purse",
    "bury",
    "burial",
    "keeper",
    "seat",
    "desk",
    "observatory",
    "farewell",
    "leash",
    "door",
    "standstill",
    "shelf",
    "ink",
    "patience",
    "ruling",
    "surroundings",
];

/// Names of other crates and English compounds that contain a metaphor.
const ALLOWED_NAMES: [&str; 1] = ["LeaveAlternateScreen"];

fn all_rust_files() -> impl Iterator<Item = Source> {
    ["protocol", "storage", "actors", "bin", "tests", "examples"]
        .into_iter()
        .flat_map(rust_files)
}

/// Returns the lines of a Rust file that are comments, with their numbers.
fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim_start()))
        .filter(|(_, line)| line.starts_with("//"))
}

/// Returns whether `phrase` is in the text as whole words.
fn has(text: &str, phrase: &str) -> bool {
    let is_letter =
        |part: Option<char>| part.is_some_and(|char| char.is_alphanumeric() || char == '_');
    text.match_indices(phrase).any(|(at, _)| {
        !is_letter(text[..at].chars().next_back())
            && !is_letter(text[at + phrase.len()..].chars().next())
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
        .map(|(number, (phrase, better))| {
            format!("{path}:{number}: {phrase:?}: write the sentence anew ({better})")
        })
        .collect()
}

fn without_subject(file: &Source) -> Vec<String> {
    let mut before = (0, "");
    let mut findings = Vec::new();
    for (number, line) in comments(&file.text) {
        let Some(mark) = ["///", "//!"]
            .into_iter()
            .find(|mark| line.starts_with(mark))
        else {
            continue;
        };
        let is_first = before != (number - 1, mark);
        before = (number, mark);
        let first = line[mark.len()..]
            .split_whitespace()
            .next()
            .unwrap_or_default();
        if is_first && NO_SUBJECT.contains(&first) {
            findings.push(format!(
                "{}:{number}: begins with {first:?}: begin with the subject or a verb",
                file.path
            ));
        }
    }
    findings
}

#[test]
fn comments_and_documents_use_standard_terms() {
    let mut findings = Vec::new();
    for file in all_rust_files().filter(|file| file.path != "tests/architecture/words.rs") {
        if FOR_MODELS.contains(&file.path.as_str()) {
            continue;
        }
        findings.extend(phrases(&file.path, comments(&file.text)));
        findings.extend(without_subject(&file));
    }
    let is_for_models = |path: &str| path.starts_with("tests/") || path.contains("/skill/builtin/");
    for file in text_files(&["md"])
        .into_iter()
        .filter(|file| !is_for_models(&file.path))
    {
        findings.extend(phrases(
            &file.path,
            file.text
                .lines()
                .enumerate()
                .map(|(at, line)| (at + 1, line)),
        ));
    }
    assert_none(findings);
}

/// Returns the names in a piece of code that contain a metaphor.
fn metaphors(code: TokenStream) -> Vec<String> {
    let is_metaphor = |name: &str| {
        let split = |char: char| {
            if char.is_uppercase() {
                format!("_{char}")
            } else {
                char.to_string()
            }
        };
        let snake = name.chars().map(split).collect::<String>().to_lowercase();
        !ALLOWED_NAMES.contains(&name) && snake.split('_').any(|word| METAPHORS.contains(&word))
    };
    code.into_iter()
        .flat_map(|token| match token {
            TokenTree::Group(group) => metaphors(group.stream()),
            TokenTree::Ident(name) if is_metaphor(&name.to_string()) => vec![name.to_string()],
            _ => Vec::new(),
        })
        .collect()
}

#[test]
fn names_and_messages_use_standard_terms() {
    let mut findings = Vec::new();
    for file in all_rust_files() {
        let names = metaphors(file.text.parse().unwrap());
        let advice = "use the term of the field";
        findings.extend(
            names
                .into_iter()
                .map(|name| format!("{}: names `{name}`: {advice}", file.path)),
        );
    }
    for file in crate_files() {
        if !PROMPTS.iter().any(|prefix| file.path.starts_with(prefix)) {
            findings.extend(phrases(&file.path, code(&file).into_iter()));
        }
    }
    for help in text_files(&["snap"])
        .into_iter()
        .filter(|file| file.path.contains("snapshots/help_"))
    {
        findings.extend(phrases(
            &help.path,
            help.text
                .lines()
                .enumerate()
                .map(|(at, line)| (at + 1, line)),
        ));
    }
    assert_none(findings);
}

#[test]
fn metaphors_are_found_in_names_only() {
    for (line, want) in [
        ("let wish = 1;", vec!["wish"]),
        (
            "fn ask_leave(desk: OldDesk) {}",
            vec!["ask_leave", "desk", "OldDesk"],
        ),
        ("print(\"leave it\", sink, link, linked);", vec![]),
        ("execute(LeaveAlternateScreen)", vec![]),
    ] {
        assert_eq!(metaphors(line.parse().unwrap()), want, "{line}");
    }
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
    let file = Source {
        path: "a.rs".into(),
        text: "/// What it is.\n/// What else.\nfn f() {}".into(),
    };
    assert_eq!(without_subject(&file).len(), 1);
}
