//! Paths of images and documents in a line that a user typed, pasted or dropped into the terminal.

use std::path::{Path, PathBuf};

use soong::protocol::InputKind;

use crate::file;

/// Returns the paths in a line that are images, PDF documents or audio and exist. A path is absolute, or starts with
/// `~/`, `./` or `../`; spaces in it are quoted or escaped, as terminals paste them.
pub(super) fn pasted_files(line: &str, home: Option<&Path>) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for word in words(line) {
        let word = word.strip_prefix("file://").unwrap_or(&word);
        let path = match (word.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ if ["/", "./", "../"].iter().any(|start| word.starts_with(start)) => PathBuf::from(word),
            _ => continue,
        };
        let is_media = file::content_type(&path).is_some_and(|known| InputKind::of_content_type(known).is_some());
        if is_media && path.is_file() && !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

/// Splits a line at spaces that are neither quoted nor escaped.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let word = words.last_mut();
        match (c, quote, word) {
            ('\\', None, Some(word)) => word.extend(chars.next()),
            ('\'' | '"', None, _) => quote = Some(c),
            (_, Some(end), _) if c == end => quote = None,
            (_, None, _) if c.is_whitespace() => words.push(String::new()),
            (_, _, Some(word)) => word.push(c),
            (_, _, None) => {}
        }
    }
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
            (format!("compare '{root}/my plan.pdf' and \"{root}/a.png\""), vec!["my plan.pdf", "a.png"]),
            (format!("{root}/a.png {root}/a.png"), vec!["a.png"]),
            (format!("file://{root}/a.png"), vec!["a.png"]),
            ("~/a.png".to_owned(), vec!["a.png"]),
            (format!("{root}/notes.md {root}/none.png a.png"), vec![]),
        ] {
            let expected: Vec<PathBuf> = expected.into_iter().map(at).collect();
            assert_eq!(pasted_files(&line, Some(dir.path())), expected, "{line}");
        }
    }
}
