//! Artifact bytes as local files: written aside, synced, put in place, synced; removed with what is
//! left of them.
//!
//! `object_store`'s own local writes are not used, although it has `with_fsync`. Where the folder
//! cannot be synced after the file was put in place, its `put_opts` fails and the file stays; a folder
//! that somebody else has just made, or that a crash left unsynced, it takes to be durable; its
//! multipart uploads replace what is there; and its removals are never synced. Its name for what is
//! not in place yet, `NAME#1`, `NAME#2` …, is kept: no version is called so.
//!
//! Invariants: a file that can be seen is whole and durable; what is given up leaves nothing behind; a
//! folder is removed only when it is empty.

use std::{
    collections::{BTreeSet, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    path::{Path as FilePath, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use object_store::{local::LocalFileSystem, path::Path};

use super::{
    body::{Body, Piece, blocking},
    turns::Turn,
};
use crate::store::StoreError;

/// How much is handed to the disk at a time.
const PIECE_BYTES: usize = 1024 * 1024;

/// How many folders below the home stay when they are empty: `sessions/ID/artifacts`.
const LASTING_FOLDERS: usize = 3;

/// How often a folder is made again that a removal nearby took away.
const TRIES: usize = 100;

/// How many lasting folders are remembered to be durable; beyond, all are looked at anew.
const KNOWN_FOLDERS: usize = 4_096;

/// The files below a home.
#[derive(Debug, Clone)]
pub(super) struct Files {
    home: PathBuf,
    names: LocalFileSystem,
    lasting: Arc<Lasting>,
}

/// Which folders `sessions/ID/artifacts` are durable, up to the home: nothing here removes them, so they need
/// no further sync.
#[derive(Debug, Default)]
struct Lasting(Mutex<HashSet<PathBuf>>);

impl Lasting {
    fn has(&self, folder: &FilePath) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(folder)
    }

    fn add(&self, folder: &FilePath) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_FOLDERS {
            known.clear();
        }
        known.insert(folder.to_owned());
    }

    /// For a folder that somebody else has removed.
    fn forget(&self, folder: &FilePath) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(folder);
    }
}

impl Files {
    /// Opens the folder `home`, making it if need be.
    pub(super) fn open(home: &FilePath) -> Result<Self, StoreError> {
        let failed = |error: io::Error| StoreError::Blob(format!("{}: {error}", home.display()));
        let is_new = !home.exists();
        fs::create_dir_all(home).map_err(failed)?;
        let home = fs::canonicalize(home).map_err(failed)?;
        if is_new {
            // Which of its parents are new as well is not known: one that cannot even be read is not.
            let _ = home.ancestors().skip(1).try_for_each(sync_folder);
        }
        let names = LocalFileSystem::new_with_prefix(&home).map_err(super::failed)?;
        Ok(Self { home, names, lasting: Arc::default() })
    }

    pub(super) fn home(&self) -> &FilePath {
        &self.home
    }

    /// The same files, for reading.
    pub(super) fn reader(&self) -> LocalFileSystem {
        self.names.clone()
    }

    /// Returns where a file lies, or would.
    pub(super) fn locate(&self, key: &Path) -> Result<PathBuf, StoreError> {
        self.names.path_to_filesystem(key).map_err(super::failed)
    }

    /// Writes a new file; [`StoreError::Exists`] where there is one.
    pub(super) async fn put(&self, key: &Path, body: &mut Body<'_>, turn: Turn) -> Result<(), StoreError> {
        let target = self.target(key)?;
        let mut writing = Writing { staged: None, _turn: turn };
        loop {
            let piece = match body.next(PIECE_BYTES).await {
                Ok(piece) => piece,
                Err(error) => {
                    // Unlinking may take its time.
                    blocking(move || {
                        drop(writing);
                        Ok(())
                    })
                    .await?;
                    return Err(error);
                }
            };
            let (target, is_last) = (target.clone(), piece.is_last);
            writing = blocking(move || writing.go_on(target, &piece)).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Makes sure that a file can be written: removes what is there. Durable only with the file that comes.
    pub(super) async fn clear(&self, key: &Path, turn: Turn) -> Result<(), StoreError> {
        let target = self.target(key)?;
        blocking(move || {
            let _turn = turn;
            target.unlink().map_err(|error| target.failed(&error))
        })
        .await
    }

    /// Removes files, what was written aside for them, and the folders that are empty then. Returns what came
    /// of each.
    pub(super) async fn delete(&self, keys: Vec<(Path, Turn)>) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let mut targets = Vec::with_capacity(keys.len());
        for (key, turn) in keys {
            targets.push((self.target(&key)?, turn));
        }
        blocking(move || {
            let removed: Vec<io::Result<()>> = targets.iter().map(|(target, _)| target.remove()).collect();
            let mut synced = BTreeSet::new();
            let outcome = |(removed, (target, _)): (io::Result<()>, &(Target, Turn))| {
                let durable = removed.and_then(|()| target.sync_lowest(&mut synced));
                durable.map_err(|error| target.failed(&error))
            };
            Ok(removed.into_iter().zip(&targets).map(outcome).collect())
        })
        .await
    }

    fn target(&self, key: &Path) -> Result<Target, StoreError> {
        Ok(Target { home: self.home.clone(), file: self.locate(key)?, lasting: Arc::clone(&self.lasting) })
    }
}

/// A file as it is being written. Where its asker leaves while the disk works, the work comes to its
/// end, and what it made is dropped with it.
struct Writing {
    // Dropped before the turn ends.
    staged: Option<Staged>,
    _turn: Turn,
}

impl Writing {
    /// Writes a piece, and puts the file in place after the last one.
    fn go_on(mut self, target: Target, piece: &Piece) -> Result<Self, StoreError> {
        let mut staged = match self.staged.take() {
            Some(staged) => staged,
            None => Staged::make(target)?,
        };
        for bytes in &piece.bytes {
            staged.file.write_all(bytes).map_err(|error| staged.target.failed(&error))?;
        }
        if piece.is_last {
            staged.publish()?;
        } else {
            self.staged = Some(staged);
        }
        Ok(self)
    }
}

/// Where a file is to lie.
#[derive(Debug, Clone)]
struct Target {
    home: PathBuf,
    file: PathBuf,
    lasting: Arc<Lasting>,
}

impl Target {
    fn failed(&self, error: &io::Error) -> StoreError {
        StoreError::Blob(format!("{}: {error}", self.file.display()))
    }

    fn folder(&self) -> &FilePath {
        self.file.parent().unwrap_or(&self.home)
    }

    /// The folder of the file and those above it, up to the home.
    fn folders(&self) -> impl Iterator<Item = &FilePath> {
        self.folder().ancestors().take_while(|folder| folder.starts_with(&self.home))
    }

    fn aside(&self, number: usize) -> PathBuf {
        let mut name = self.file.as_os_str().to_owned();
        name.push(format!("#{number}"));
        name.into()
    }

    /// What was written aside for the file, by whomever.
    fn all_aside(&self) -> io::Result<Vec<PathBuf>> {
        let Some(name) = self.file.file_name().and_then(|name| name.to_str()) else { return Ok(Vec::new()) };
        let entries = match fs::read_dir(self.folder()) {
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let number = entry
                .file_name()
                .to_str()
                .and_then(|other| other.strip_prefix(name)?.strip_prefix('#'))
                .map(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
            if number == Some(true) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    fn unlink(&self) -> io::Result<()> {
        for path in self.all_aside()?.iter().chain([&self.file]) {
            match fs::remove_file(path) {
                Err(error) if !is_absent(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the file with the folders that are empty then; durable once what is left is synced.
    fn remove(&self) -> io::Result<()> {
        self.unlink()?;
        self.remove_empty_folders()
    }

    /// Syncs the lowest folder that is left, the one that something was removed from, unless it is in `synced`
    /// already: many files lie below one folder.
    fn sync_lowest(&self, synced: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        for folder in self.folders() {
            if synced.contains(folder) {
                return Ok(());
            }
            match sync_folder(folder) {
                Err(error) if is_absent(&error) => {}
                done => {
                    done?;
                    synced.insert(folder.to_owned());
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The folder of all artifacts of a scope: it stays when it is empty.
    fn lasting_folder(&self) -> Option<&FilePath> {
        let above = self.folders().count().checked_sub(1 + LASTING_FOLDERS)?;
        self.folders().nth(above)
    }

    /// Makes durable that the file is there: its folders' entries, up to one that is known to be.
    ///
    /// All folders, not the new ones only: who made them may not have come to syncing them.
    fn sync_folders(&self) -> io::Result<()> {
        let lasting = self.lasting_folder();
        for folder in self.folders() {
            sync_folder(folder)?;
            if Some(folder) == lasting && self.lasting.has(folder) {
                return Ok(());
            }
        }
        if let Some(lasting) = lasting {
            self.lasting.add(lasting);
        }
        Ok(())
    }

    fn remove_empty_folders(&self) -> io::Result<()> {
        let count = self.folders().count().saturating_sub(1 + LASTING_FOLDERS);
        for folder in self.folders().take(count) {
            match fs::remove_dir(folder) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => break,
                Err(error) if !is_absent(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a file aside, with the folders that it needs.
    fn make_aside(&self) -> io::Result<(File, PathBuf)> {
        let mut number = 1;
        let mut tries = 0;
        loop {
            let path = self.aside(number);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                // The folder is not there yet, or a removal beside it has just found it empty.
                Err(error) if error.kind() == ErrorKind::NotFound && tries < TRIES => {
                    tries += 1;
                    if let Some(lasting) = self.lasting_folder().filter(|folder| !folder.is_dir()) {
                        self.lasting.forget(lasting);
                    }
                    match fs::create_dir_all(self.folder()) {
                        // Both mean that the folder, or one above it, was removed meanwhile.
                        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {
                            return Err(error);
                        }
                        _ => {}
                    }
                }
                opened => return Ok((opened?, path)),
            }
        }
    }
}

/// A file that is written aside, and gone when dropped.
#[derive(Debug)]
struct Staged {
    target: Target,
    file: File,
    aside: PathBuf,
}

impl Staged {
    fn make(target: Target) -> Result<Self, StoreError> {
        match target.make_aside() {
            Ok((file, aside)) => Ok(Self { target, file, aside }),
            Err(error) => {
                // Folders may have been made before it failed. That they stay is no second failure.
                let _ = target.remove_empty_folders();
                Err(target.failed(&error))
            }
        }
    }

    /// Puts the file in place: durable after this, or not there.
    fn publish(self) -> Result<(), StoreError> {
        let target = &self.target;
        let failed = |error: io::Error| target.failed(&error);
        self.file.sync_all().map_err(failed)?;
        // A link, unlike a renaming, never replaces what is there.
        match fs::hard_link(&self.aside, &target.file) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(StoreError::Exists(format!("the file {}", target.file.display())));
            }
            linked => linked.map_err(failed)?,
        }
        if let Err(error) = fs::remove_file(&self.aside).and_then(|()| target.sync_folders()) {
            let _ = fs::remove_file(&target.file);
            return Err(failed(error));
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let removed = fs::remove_file(&self.aside);
        let tidied = self.target.remove_empty_folders();
        for error in [removed.err().filter(|error| !is_absent(error)), tidied.err()].into_iter().flatten() {
            tracing::warn!(file = %self.aside.display(), %error, "what was written aside stays until its version is deleted");
        }
    }
}

/// Whether there is nothing of that name, because a folder of it is missing or a file.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Makes durable which entries a folder has.
#[cfg(unix)]
pub(super) fn sync_folder(folder: &FilePath) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Elsewhere folders cannot be opened as files, and their entries are durable with their files.
#[cfg(not(unix))]
pub(super) fn sync_folder(_: &FilePath) -> io::Result<()> {
    Ok(())
}
