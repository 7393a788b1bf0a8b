//! Parser of the text output of `list_files`. Tolerates truncated text.

use std::collections::{BTreeMap, BTreeSet};

use super::purpose::{ending, language};

/// A listing, or several merged ones.
#[derive(Debug, Default, Clone)]
pub(super) struct Listing {
    /// Files with their sizes in bytes.
    pub(super) files: BTreeMap<String, u64>,
    /// Folders, each with a trailing slash.
    pub(super) folders: BTreeSet<String>,
    /// Total number of files, including those not shown.
    pub(super) total_files: u64,
    /// Total size of these files in bytes.
    pub(super) total_bytes: u64,
    /// Whether some entries are not shown.
    pub(super) is_truncated: bool,
    /// Paths that could not be read, in the tool's words.
    pub(super) unreadable: Vec<String>,
}

impl Listing {
    /// Parses one listing.
    pub(super) fn parse(text: &str) -> Self {
        let mut listing = Self {
            is_truncated: true,
            ..Self::default()
        };
        let mut totals_line = None;
        for line in text.lines() {
            if let Some((path, size)) = line.rsplit_once('\t') {
                // Symlinks and files of unknown size exist, but have no size to count.
                listing
                    .files
                    .insert(path.to_owned(), size.parse().unwrap_or(0));
            } else if let Some(note) = line
                .strip_prefix('[')
                .and_then(|note| note.strip_suffix(']'))
            {
                totals_line = totals(note);
                listing.is_truncated = note.contains(" shown: ") || note.contains("stopped after");
                let lost = note
                    .split_once("could not be read")
                    .map(|(_, rest)| rest.trim_start_matches([' ', ':']));
                listing
                    .unreadable
                    .extend(lost.map(|rest| rest.replace('`', "'")));
            } else if line.ends_with('/') {
                listing.folders.insert(line.to_owned());
            }
        }
        let seen = (listing.files.len() as u64, listing.files.values().sum());
        (listing.total_files, listing.total_bytes) = totals_line.unwrap_or(seen);
        listing
    }

    /// Adds a listing of another folder.
    pub(super) fn merge(&mut self, other: Self) {
        self.files.extend(other.files);
        self.folders.extend(other.folders);
        self.total_files += other.total_files;
        self.total_bytes += other.total_bytes;
        self.is_truncated |= other.is_truncated;
        self.unreadable.extend(other.unreadable);
    }

    /// Returns the files below a folder with their sizes. `./` is the project.
    pub(super) fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let prefix = folder.strip_prefix("./").unwrap_or(folder);
        self.files
            .iter()
            .filter(move |(path, _)| path.starts_with(prefix))
            .map(|(path, size)| (path.as_str(), *size))
    }

    /// Returns the files directly in a folder.
    pub(super) fn directly_in<'a>(
        &'a self,
        folder: &'a str,
    ) -> impl Iterator<Item = (&'a str, u64)> {
        let depth = folder.strip_prefix("./").unwrap_or(folder).len();
        self.below(folder)
            .filter(move |(path, _)| !path[depth..].contains('/'))
    }

    /// Returns the folders directly in a folder.
    pub(super) fn folders_in<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a str> {
        let prefix = folder.strip_prefix("./").unwrap_or(folder);
        let is_child = move |path: &&String| {
            let rest = path.strip_prefix(prefix).unwrap_or_default();
            !rest.is_empty() && rest.find('/') == Some(rest.len() - 1)
        };
        self.folders.iter().filter(is_child).map(String::as_str)
    }
}

/// Parses `N files, M folders, B bytes` in a note.
fn totals(note: &str) -> Option<(u64, u64)> {
    let counts = note.split_once(" files,")?;
    let files = counts
        .0
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()?;
    let bytes = counts
        .1
        .split_once(" bytes")?
        .0
        .rsplit(' ')
        .next()?
        .parse()
        .ok()?;
    Some((files, bytes))
}

/// Returns the most common languages among files, by bytes, then by name: `Rust (3 files, 1200
/// bytes)`.
pub(super) fn languages<'a>(files: impl Iterator<Item = (&'a str, u64)>, most: usize) -> String {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (path, size) in files {
        let ending = ending(path);
        let language = match language(&ending) {
            Some(language) => language.to_owned(),
            None if ending.is_empty() => "no ending".to_owned(),
            None => super::plain_line(&format!(".{ending}"), 24),
        };
        let sum = sums.entry(language).or_default();
        *sum = (sum.0 + 1, sum.1 + size);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(a_name, a), (b_name, b)| b.1.cmp(&a.1).then_with(|| a_name.cmp(b_name)));
    let shown = sums.iter().take(most).map(|(language, (files, bytes))| {
        format!(
            "{language} ({}, {})",
            super::count(*files, "file"),
            super::count(*bytes, "byte")
        )
    });
    shown.collect::<Vec<_>>().join(", ")
}
