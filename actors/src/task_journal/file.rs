//! A task journal as a file: opening, repair, catching up, syncing (TASK-1).
//!
//! Blocking. Lines are only appended, in batches. An incomplete line after a crash is dropped when
//! the file is next opened.
//!
//! Invariant: after [`JournalFile::open`] the file has the complete lines 1 to n of its run, and
//! [`JournalFile::append`] continues with n + 1.
//!
//! Elsewhere: the location of the file (`location.rs`).

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use soong_protocol::RunId;

use super::line::{LineIdentity, TaskLine};

/// A journal that is being written.
pub(super) struct JournalFile {
    path: PathBuf,
    file: File,
    /// Existing lines that have not been compared with those of the database yet.
    unverified_lines: VecDeque<LineIdentity>,
    size: u64,
}

/// Content of a file.
#[derive(Debug, PartialEq)]
struct ParsedFile {
    lines: VecDeque<LineIdentity>,
    /// Total size of these lines in bytes.
    valid_bytes: u64,
    /// State of the rest of the file.
    tail: FileTail,
}

#[derive(Debug, PartialEq)]
enum FileTail {
    Complete,
    /// One broken line at the end, as left by a crash.
    Truncated,
    /// A broken line, or one out of sequence, with more lines after it.
    Corrupt,
}

/// Parses the content of a run's journal.
fn parse(bytes: &[u8], run: &RunId) -> ParsedFile {
    let mut lines = VecDeque::new();
    let mut good_bytes = 0;
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let (line, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
        let next = lines.len() as u64 + 1;
        let mark = end.and_then(|end| LineIdentity::parse(&line[..end]));
        match mark.filter(|mark| mark.wal_seq == next && mark.run_id == *run) {
            Some(mark) => lines.push_back(mark),
            None => {
                let ending = if after.is_empty() {
                    FileTail::Truncated
                } else {
                    FileTail::Corrupt
                };
                return ParsedFile {
                    lines,
                    valid_bytes: good_bytes,
                    tail: ending,
                };
            }
        }
        good_bytes += line.len() as u64;
        rest = after;
    }
    ParsedFile {
        lines,
        valid_bytes: good_bytes,
        tail: FileTail::Complete,
    }
}

impl JournalFile {
    /// Opens or creates the journal of a run. An incomplete last line is dropped. A file that is
    /// damaged before its last line is renamed, and a new one is created.
    pub(super) fn open(path: PathBuf, run: &RunId) -> io::Result<Self> {
        let before = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => Some(fs::read(&path)?),
            Ok(_) => {
                let message = format!("{} is not a regular file", path.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, message));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut found = parse(before.as_deref().unwrap_or_default(), run);
        if found.tail == FileTail::Corrupt {
            rename_damaged(&path)?;
            found = parse(&[], run);
        }
        let file = File::options().append(true).create(true).open(&path)?;
        if found.tail == FileTail::Truncated {
            let torn = before.map_or(0, |bytes| bytes.len() as u64 - found.valid_bytes);
            tracing::warn!(path = %path.display(), bytes = torn, "dropped the incomplete last line of a task journal");
            file.set_len(found.valid_bytes)?;
        }
        Ok(Self {
            path,
            file,
            unverified_lines: found.lines,
            size: found.valid_bytes,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends lines in one write; lines that already exist are compared instead.
    ///
    /// If the file has lines that the database does not have, for example after a backup was
    /// restored, it is renamed and an error is returned. The next [`JournalFile::open`] creates a
    /// new file.
    pub(super) fn append(&mut self, lines: &[TaskLine]) -> io::Result<()> {
        let mut text = Vec::new();
        for line in lines {
            match self.unverified_lines.pop_front() {
                Some(known) if known.matches(line) => {}
                Some(_) => return Err(self.reject_foreign_lines()),
                None => {
                    serde_json::to_writer(&mut text, line)?;
                    text.push(b'\n');
                }
            }
        }
        self.file.write_all(&text)?;
        self.size += text.len() as u64;
        Ok(())
    }

    /// Makes the complete file durable, including its name.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if !self.unverified_lines.is_empty() {
            return Err(self.reject_foreign_lines());
        }
        self.file.sync_all()?;
        // Other systems cannot sync a folder.
        #[cfg(unix)]
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        // The file may have been moved or changed by another process.
        let bytes = fs::metadata(&self.path)?.len();
        if bytes == self.size {
            Ok(())
        } else {
            Err(io::Error::other(
                "another process changed the file while it was written",
            ))
        }
    }

    fn reject_foreign_lines(&self) -> io::Error {
        match rename_damaged(&self.path) {
            Ok(()) => io::Error::other("the file contained lines that are not in the database"),
            Err(error) => error,
        }
    }
}

/// Renames a file to a free name.
fn rename_damaged(path: &Path) -> io::Result<()> {
    let damaged_name = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        PathBuf::from(name)
    };
    let free = (1..=u32::MAX)
        .map(damaged_name)
        .find(|name| fs::symlink_metadata(name).is_err());
    let free = free.ok_or_else(|| io::Error::other("too many damaged files"))?;
    fs::rename(path, &free)?;
    tracing::warn!(path = %path.display(), aside = %free.display(), "a task journal is damaged; it was renamed and is written again");
    Ok(())
}

#[cfg(test)]
mod tests;
