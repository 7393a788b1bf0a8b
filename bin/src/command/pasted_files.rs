//! Paths of images and documents in a line that a user typed, pasted or dropped into the terminal.

use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use soong::protocol::InputKind;

use crate::file;

/// Returns the paths in a line that are images, PDF documents or audio and exist. A path is
/// absolute, or starts with `~/`, `./` or `../`; spaces in it are quoted or escaped, as terminals
/// paste them.
pub(super) fn pasted_files(line: &str, home: Option<&Path>) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for word in words(line) {
        let decoded = word
            .strip_prefix("file://")
            .map(|path| percent_decode_str(path).decode_utf8_lossy().into_owned());
        let word = decoded.as_deref().unwrap_or(&word);
        let path = match (word.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ if ["/", "./", "../"]
                .iter()
                .any(|start| word.starts_with(start)) =>
            {
                PathBuf::from(word)
            }
            _ => continue,
        };
        let is_media = file::content_type(&path)
            .is_some_and(|known| InputKind::of_content_type(known).is_some());
        if is_media && path.is_file() && !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

/// Splits a line at spaces that are neither quoted nor escaped. A quote starts only at the
/// beginning of a word, and only if it ends: an apostrophe is text.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let tail = &rest[c.len_utf8()..];
        let quoted = tail
            .split_once(c)
            .filter(|_| word.is_empty() && matches!(c, '\'' | '"'));
        rest = tail;
        if let Some((text, after)) = quoted {
            word.push_str(text);
            rest = after;
        } else if c == '\\' {
            let mut chars = rest.chars();
            word.extend(chars.next());
            rest = chars.as_str();
        } else if c.is_whitespace() {
            words.push(std::mem::take(&mut word));
        } else {
            word.push(c);
        }
    }
    words.push(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_images_and_documents_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a.png", "my plan.pdf", "notes.md"] {
            std::fs::write(at(name), "x").unwrap();
        }
        let root = dir.path().display();
        for (line, expected) in [
            (format!("what is {root}/a.png?"), vec![]),
            (format!("what is {root}/a.png ?"), vec!["a.png"]),
            (format!("{root}/my\\ plan.pdf"), vec!["my plan.pdf"]),
            (
                format!("compare '{root}/my plan.pdf' and \"{root}/a.png\""),
                vec!["my plan.pdf", "a.png"],
            ),
            (format!("{root}/a.png {root}/a.png"), vec!["a.png"]),
            (format!("file://{root}/a.png"), vec!["a.png"]),
            (format!("file://{root}/my%20plan.pdf"), vec!["my plan.pdf"]),
            (format!("what's wrong in {root}/a.png"), vec!["a.png"]),
            (format!("it's {root}/a.png and that's all"), vec!["a.png"]),
            ("~/a.png".to_owned(), vec!["a.png"]),
            (format!("{root}/notes.md {root}/none.png a.png"), vec![]),
        ] {
            let expected: Vec<PathBuf> = expected.into_iter().map(at).collect();
            assert_eq!(pasted_files(&line, Some(dir.path())), expected, "{line}");
        }
    }
}
