//! A task journal as a file: opened, repaired, caught up, synced (TASK-1).
//!
//! Blocking. Lines are only ever appended, whole batches at a time; what a crash tore is dropped when the file
//! is opened next. Invariant: after [`JournalFile::open`] the file holds whole lines 1 … n of its run, and
//! [`JournalFile::append`] adds n + 1 next. Not here: where the file lies (`place.rs`).

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use soong_protocol::RunId;

use super::line::{Mark, TaskLine};

/// A journal that is being written.
pub(super) struct JournalFile {
    path: PathBuf,
    file: File,
    /// Lines that were there and have not been compared with the database's.
    known: VecDeque<Mark>,
    bytes: u64,
}

/// What stands in a file.
#[derive(Debug, PartialEq)]
struct Found {
    lines: VecDeque<Mark>,
    /// How many bytes those lines have.
    good_bytes: u64,
    /// Whether something follows that is no line.
    ending: Ending,
}

#[derive(Debug, PartialEq)]
enum Ending {
    Whole,
    /// One broken line, the last: what a crash leaves.
    Torn,
    /// A broken line, or one that does not follow the one before it, with lines after it.
    Damaged,
}

/// Reads what stands in the journal of a run.
fn look(bytes: &[u8], run: &RunId) -> Found {
    let (mut lines, mut good_bytes) = (VecDeque::new(), 0);
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let (line, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
        let next = lines.len() as u64 + 1;
        let mark = end.and_then(|end| Mark::parse(&line[..end]));
        match mark.filter(|mark| mark.wal_seq == next && mark.run_id == *run) {
            Some(mark) => lines.push_back(mark),
            None => {
                let ending = if after.is_empty() { Ending::Torn } else { Ending::Damaged };
                return Found { lines, good_bytes, ending };
            }
        }
        good_bytes += line.len() as u64;
        rest = after;
    }
    Found { lines, good_bytes, ending: Ending::Whole }
}

impl JournalFile {
    /// Opens the journal of a run, or begins it. A torn last line is dropped; a file that is damaged before its
    /// last line is set aside, and a new one begun.
    pub(super) fn open(path: PathBuf, run: &RunId) -> io::Result<Self> {
        let before = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => Some(fs::read(&path)?),
            Ok(_) => {
                let message = format!("{} is no plain file", path.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, message));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut found = look(before.as_deref().unwrap_or_default(), run);
        if found.ending == Ending::Damaged {
            set_aside(&path)?;
            found = look(&[], run);
        }
        let file = File::options().append(true).create(true).open(&path)?;
        if found.ending == Ending::Torn {
            let torn = before.map_or(0, |bytes| bytes.len() as u64 - found.good_bytes);
            tracing::warn!(path = %path.display(), bytes = torn, "the last line of a task journal was torn: dropped");
            file.set_len(found.good_bytes)?;
        }
        Ok(Self { path, file, known: found.lines, bytes: found.good_bytes })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds lines in one write; those that are there already are compared instead.
    ///
    /// Lines that the database does not know, a backup's say, make the file another's: it is set aside, and the
    /// error says so; whoever opens it again begins anew.
    pub(super) fn append(&mut self, lines: &[TaskLine]) -> io::Result<()> {
        let mut text = Vec::new();
        for line in lines {
            match self.known.pop_front() {
                Some(known) if known.is_of(line) => {}
                Some(_) => return Err(self.foreign()),
                None => {
                    serde_json::to_writer(&mut text, line)?;
                    text.push(b'\n');
                }
            }
        }
        self.file.write_all(&text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Makes the complete file durable, its name too.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if !self.known.is_empty() {
            return Err(self.foreign());
        }
        self.file.sync_all()?;
        // Elsewhere a folder cannot be synced.
        #[cfg(unix)]
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        // Somebody may have moved it away meanwhile, or written to it.
        let bytes = fs::metadata(&self.path)?.len();
        if bytes == self.bytes { Ok(()) } else { Err(io::Error::other("it was changed while it was written")) }
    }

    fn foreign(&self) -> io::Error {
        match set_aside(&self.path) {
            Ok(()) => io::Error::other("it held lines that the database does not know"),
            Err(error) => error,
        }
    }
}

/// Moves a file out of the way, to a name that is free.
fn set_aside(path: &Path) -> io::Result<()> {
    let aside = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        PathBuf::from(name)
    };
    let free = (1..=u32::MAX).map(aside).find(|name| fs::symlink_metadata(name).is_err());
    let free = free.ok_or_else(|| io::Error::other("too many damaged files"))?;
    fs::rename(path, &free)?;
    tracing::warn!(path = %path.display(), aside = %free.display(), "a task journal is damaged: set aside, and written anew");
    Ok(())
}

#[cfg(test)]
mod tests;
