//! Files of the project that a message mentions as `@PATH`.
//!
//! Elsewhere: paths of images and documents without `@` (`pasted_files.rs`), completion of names
//! (`input`).

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use soong::protocol::InputKind;

use crate::{command::pasted_files::words, file};

/// Maximum size of the part of a text that a message includes, in bytes.
const MAX_TEXT_BYTES: u64 = 16 * 1024;

/// Content of the files that a message mentions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Mentions {
    /// Images and documents, to be attached.
    pub(super) media: Vec<PathBuf>,
    /// Texts, to be added to the message.
    pub(super) texts: Vec<String>,
}

impl Mentions {
    /// Reads the files. A word that names no file of the project is text of the message.
    pub(super) fn of(message: &str, project: &Path) -> Self {
        let mut found = Self::default();
        let mut seen = Vec::new();
        for word in words(message) {
            let Some(name) = word.strip_prefix('@').filter(|name| !name.is_empty()) else {
                continue;
            };
            let Ok(path) = project.join(name).canonicalize() else {
                continue;
            };
            if !path.is_file() || !path.starts_with(project) || seen.contains(&path) {
                continue;
            }
            let is_media = file::content_type(&path)
                .is_some_and(|known| InputKind::of_content_type(known).is_some());
            if is_media {
                found.media.push(path.clone());
            } else if let Ok((beginning, size)) = beginning(&path) {
                found.texts.push(included(name, &beginning, size));
            }
            seen.push(path);
        }
        found
    }
}

/// Reads the beginning of a file, and its size.
fn beginning(path: &Path) -> std::io::Result<(Vec<u8>, u64)> {
    let file = std::fs::File::open(path)?;
    let size = file.metadata()?.len();
    let mut beginning = Vec::new();
    file.take(MAX_TEXT_BYTES).read_to_end(&mut beginning)?;
    Ok((beginning, size))
}

/// Returns the text of a file for a message: its beginning if it is long.
fn included(name: &str, beginning: &[u8], size: u64) -> String {
    let text = match std::str::from_utf8(beginning) {
        Ok(text) => text,
        // The last character may be cut.
        Err(error) if error.error_len().is_none() && (beginning.len() as u64) < size => {
            std::str::from_utf8(&beginning[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return format!("`{name}` has {size} bytes and is not text."),
    };
    let rest = if (text.len() as u64) < size {
        format!(
            "\n[the first {} of {size} bytes; `read` shows the rest]",
            text.len()
        )
    } else {
        String::new()
    };
    format!("`{name}`:\n```\n{}{rest}\n```", text.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_project_are_included() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("project")).unwrap();
        let project = dir.path().join("project").canonicalize().unwrap();
        std::fs::write(project.join("a.txt"), "one\ntwo\n").unwrap();
        std::fs::write(project.join("long.txt"), "é".repeat(16 * 1024)).unwrap();
        std::fs::write(project.join("b.bin"), [0xff, 0xfe, 0]).unwrap();
        std::fs::write(project.join("c.png"), "x").unwrap();
        std::fs::write(dir.path().join("outside.txt"), "secret").unwrap();
        let message = "compare @a.txt and '@a.txt' with @c.png, ada@example.org @missing.txt @../outside.txt @c.png @";
        let found = Mentions::of(message, &project);
        assert_eq!(found.texts, ["`a.txt`:\n```\none\ntwo\n```"]);
        assert_eq!(found.media, [project.join("c.png")]);
        let long = Mentions::of("@long.txt", &project).texts.remove(0);
        assert!(
            long.contains("[the first 16384 of 32768 bytes; `read` shows the rest]"),
            "{}",
            &long[16_000..]
        );
        assert_eq!(
            Mentions::of("@b.bin", &project).texts,
            ["`b.bin` has 3 bytes and is not text."]
        );
    }
}
