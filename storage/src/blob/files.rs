//! Artifact bytes as local files: written to a staging file, synced, moved into place, synced;
//! deleted with all remains.
//!
//! The local writes of `object_store` are not used, although it has `with_fsync`:
//! - If the folder cannot be synced after the file was put in place, its `put_opts` fails and the
//!   file stays.
//! - It assumes that a folder is durable that another task has just created, or that a crash left
//!   unsynced.
//! - Its multipart uploads replace existing files.
//! - Its deletions are never synced.
//!
//! The names of its staging files, `NAME#1`, `NAME#2` …, are kept: no version has such a name.
//!
//! Invariants:
//! - A visible file is complete and durable.
//! - An abandoned write leaves nothing.
//! - A folder is removed only if it is empty.

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
    path_locks::PathLock,
};
use crate::store::{BlobError, StoreError};

/// Number of bytes written to the disk at a time.
const PIECE_BYTES: usize = 1024 * 1024;

/// Number of folder levels below the home that are kept even if they are empty:
/// `sessions/ID/artifacts`.
const KEPT_FOLDER_LEVELS: usize = 3;

/// Maximum number of attempts to create a folder that a concurrent deletion keeps removing.
const MAX_ATTEMPTS: usize = 100;

/// Maximum number of lasting folders remembered as durable; above it, all of them are forgotten.
const MAX_DURABLE_FOLDERS: usize = 4_096;

/// The files below a home.
#[derive(Debug, Clone)]
pub(super) struct Files {
    home: PathBuf,
    names: LocalFileSystem,
    durable_folders: Arc<DurableFolders>,
}

/// Folders `sessions/ID/artifacts` that are durable up to the home. Nothing in this module removes
/// them, so they need no further sync.
#[derive(Debug, Default)]
struct DurableFolders(Mutex<HashSet<PathBuf>>);

impl DurableFolders {
    fn contains(&self, folder: &FilePath) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(folder)
    }

    fn add(&self, folder: &FilePath) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_DURABLE_FOLDERS {
            known.clear();
        }
        known.insert(folder.to_owned());
    }

    /// Forgets a folder that was removed from outside.
    fn forget(&self, folder: &FilePath) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(folder);
    }
}

impl Files {
    /// Opens the folder `home`; creates it if necessary.
    pub(super) fn open(home: &FilePath) -> Result<Self, StoreError> {
        let failed = |error: io::Error| BlobError::Io(format!("{}: {error}", home.display()));
        let is_new = !home.exists();
        fs::create_dir_all(home).map_err(failed)?;
        let home = fs::canonicalize(home).map_err(failed)?;
        if is_new {
            // It is unknown which parent folders are new. Errors are ignored: a folder that cannot
            // be read is not new.
            let _ = home.ancestors().skip(1).try_for_each(sync_folder);
        }
        let names = LocalFileSystem::new_with_prefix(&home).map_err(super::blob_error)?;
        Ok(Self {
            home,
            names,
            durable_folders: Arc::default(),
        })
    }

    pub(super) fn home(&self) -> &FilePath {
        &self.home
    }

    /// Returns a store for reading the same files.
    pub(super) fn reader(&self) -> LocalFileSystem {
        self.names.clone()
    }

    /// Returns the path of a file, whether or not it exists.
    pub(super) fn local_path(&self, key: &Path) -> Result<PathBuf, StoreError> {
        self.names
            .path_to_filesystem(key)
            .map_err(super::blob_error)
    }

    /// Writes a new file; [`StoreError::AlreadyExists`] if it already exists.
    pub(super) async fn put(
        &self,
        key: &Path,
        body: &mut Body<'_>,
        turn: PathLock,
    ) -> Result<(), StoreError> {
        let target = self.target(key)?;
        let mut writing = FileWrite {
            staged: None,
            _turn: turn,
        };
        loop {
            let piece = match body.next_piece(PIECE_BYTES).await {
                Ok(piece) => piece,
                Err(error) => {
                    // Unlinking may block.
                    blocking(move || {
                        drop(writing);
                        Ok(())
                    })
                    .await?;
                    return Err(error.into());
                }
            };
            let target = target.clone();
            let is_last = piece.is_last;
            writing = blocking(move || writing.write_piece(target, &piece)).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Prepares the path of a new file: removes the existing file and its staging files. The
    /// removal is durable only after the new file is written.
    pub(super) async fn clear(&self, key: &Path, turn: PathLock) -> Result<(), StoreError> {
        let target = self.target(key)?;
        blocking(move || {
            let _turn = turn;
            target.unlink().map_err(|error| target.failed(&error))
        })
        .await
    }

    /// Deletes files, their staging files, and the folders that become empty. Returns the result of
    /// each.
    pub(super) async fn delete(
        &self,
        keys: Vec<(Path, PathLock)>,
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let mut targets = Vec::with_capacity(keys.len());
        for (key, turn) in keys {
            targets.push((self.target(&key)?, turn));
        }
        blocking(move || {
            let removed: Vec<io::Result<()>> =
                targets.iter().map(|(target, _)| target.remove()).collect();
            let mut synced = BTreeSet::new();
            let outcome = |(removed, (target, _)): (io::Result<()>, &(Target, PathLock))| {
                let durable = removed.and_then(|()| target.sync_lowest(&mut synced));
                durable.map_err(|error| target.failed(&error))
            };
            Ok(removed.into_iter().zip(&targets).map(outcome).collect())
        })
        .await
    }

    fn target(&self, key: &Path) -> Result<Target, StoreError> {
        Ok(Target {
            home: self.home.clone(),
            file: self.local_path(key)?,
            lasting: Arc::clone(&self.durable_folders),
        })
    }
}

/// A file that is being written. If the caller is dropped during a disk operation, the operation is
/// finished and the staging file is then removed.
struct FileWrite {
    // Declared first, so that it is dropped before the turn ends.
    staged: Option<StagingFile>,
    _turn: PathLock,
}

impl FileWrite {
    /// Writes a piece; after the last one it moves the file into place.
    fn write_piece(mut self, target: Target, piece: &Piece) -> Result<Self, StoreError> {
        let mut staged = match self.staged.take() {
            Some(staged) => staged,
            None => StagingFile::create(target)?,
        };
        for bytes in &piece.bytes {
            staged
                .file
                .write_all(bytes)
                .map_err(|error| staged.target.failed(&error))?;
        }
        if piece.is_last {
            staged.publish()?;
        } else {
            self.staged = Some(staged);
        }
        Ok(self)
    }
}

/// Destination of a file.
#[derive(Debug, Clone)]
struct Target {
    home: PathBuf,
    file: PathBuf,
    lasting: Arc<DurableFolders>,
}

impl Target {
    fn failed(&self, error: &io::Error) -> StoreError {
        BlobError::Io(format!("{}: {error}", self.file.display())).into()
    }

    fn folder(&self) -> &FilePath {
        self.file.parent().unwrap_or(&self.home)
    }

    /// Returns the folder of the file and the folders above it, up to the home.
    fn folders(&self) -> impl Iterator<Item = &FilePath> {
        self.folder()
            .ancestors()
            .take_while(|folder| folder.starts_with(&self.home))
    }

    fn staging_path(&self, number: usize) -> PathBuf {
        let mut name = self.file.as_os_str().to_owned();
        name.push(format!("#{number}"));
        name.into()
    }

    /// Returns all staging files of the file, including those of other writers.
    fn staging_files(&self) -> io::Result<Vec<PathBuf>> {
        let Some(name) = self.file.file_name().and_then(|name| name.to_str()) else {
            return Ok(Vec::new());
        };
        let entries = match fs::read_dir(self.folder()) {
            Err(error) if is_not_found(&error) => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let number = entry
                .file_name()
                .to_str()
                .and_then(|other| other.strip_prefix(name)?.strip_prefix('#'))
                .map(|number| {
                    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
                });
            if number == Some(true) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    fn unlink(&self) -> io::Result<()> {
        for path in self.staging_files()?.iter().chain([&self.file]) {
            match fs::remove_file(path) {
                Err(error) if !is_not_found(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Deletes the file and the folders that become empty. Durable after [`Target::sync_lowest`].
    fn remove(&self) -> io::Result<()> {
        self.unlink()?;
        self.remove_empty_folders()
    }

    /// Syncs the lowest remaining folder, from which something was removed. Skips it if it is
    /// already in `synced`, because many files share a folder.
    fn sync_lowest(&self, synced: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        for folder in self.folders() {
            if synced.contains(folder) {
                return Ok(());
            }
            match sync_folder(folder) {
                Err(error) if is_not_found(&error) => {}
                done => {
                    done?;
                    synced.insert(folder.to_owned());
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the folder of all artifacts of a scope, which is kept even if it is empty.
    fn artifacts_folder(&self) -> Option<&FilePath> {
        let above = self.folders().count().checked_sub(1 + KEPT_FOLDER_LEVELS)?;
        self.folders().nth(above)
    }

    /// Makes the file's existence durable: syncs its folders up to one that is known to be durable.
    ///
    /// Syncs existing folders as well as new ones, because their creator may not have synced them
    /// yet.
    fn sync_folders(&self) -> io::Result<()> {
        let lasting = self.artifacts_folder();
        for folder in self.folders() {
            sync_folder(folder)?;
            if Some(folder) == lasting && self.lasting.contains(folder) {
                return Ok(());
            }
        }
        if let Some(lasting) = lasting {
            self.lasting.add(lasting);
        }
        Ok(())
    }

    fn remove_empty_folders(&self) -> io::Result<()> {
        let count = self
            .folders()
            .count()
            .saturating_sub(1 + KEPT_FOLDER_LEVELS);
        for folder in self.folders().take(count) {
            match fs::remove_dir(folder) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => break,
                Err(error) if !is_not_found(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Creates a staging file and the folders that it needs.
    fn create_staging_file(&self) -> io::Result<(File, PathBuf)> {
        let mut number = 1;
        let mut tries = 0;
        loop {
            let path = self.staging_path(number);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                // The folder does not exist yet, or a concurrent deletion has removed it because it
                // was empty.
                Err(error) if error.kind() == ErrorKind::NotFound && tries < MAX_ATTEMPTS => {
                    tries += 1;
                    if let Some(lasting) = self.artifacts_folder().filter(|folder| !folder.is_dir())
                    {
                        self.lasting.forget(lasting);
                    }
                    match fs::create_dir_all(self.folder()) {
                        // Both errors mean that the folder, or one above it, was removed
                        // concurrently.
                        Err(error)
                            if !matches!(
                                error.kind(),
                                ErrorKind::NotFound | ErrorKind::AlreadyExists
                            ) =>
                        {
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

/// A staging file; removed when dropped.
#[derive(Debug)]
struct StagingFile {
    target: Target,
    file: File,
    path: PathBuf,
}

impl StagingFile {
    fn create(target: Target) -> Result<Self, StoreError> {
        match target.create_staging_file() {
            Ok((file, path)) => Ok(Self { target, file, path }),
            Err(error) => {
                // The failed attempt may have created folders. It is not reported if they cannot be
                // removed.
                let _ = target.remove_empty_folders();
                Err(target.failed(&error))
            }
        }
    }

    /// Moves the file into place: it is durable after this, or does not exist.
    fn publish(self) -> Result<(), StoreError> {
        let target = &self.target;
        let failed = |error: io::Error| target.failed(&error);
        self.file.sync_all().map_err(failed)?;
        // Unlike a rename, a hard link never replaces an existing file.
        match fs::hard_link(&self.path, &target.file) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(StoreError::AlreadyExists(format!(
                    "the file {}",
                    target.file.display()
                )));
            }
            linked => linked.map_err(failed)?,
        }
        if let Err(error) = fs::remove_file(&self.path).and_then(|()| target.sync_folders()) {
            let _ = fs::remove_file(&target.file);
            return Err(failed(error));
        }
        Ok(())
    }
}

impl Drop for StagingFile {
    fn drop(&mut self) {
        let removed = fs::remove_file(&self.path);
        let tidied = self.target.remove_empty_folders();
        for error in [
            removed.err().filter(|error| !is_not_found(error)),
            tidied.err(),
        ]
        .into_iter()
        .flatten()
        {
            tracing::warn!(file = %self.path.display(), %error, "could not remove a staging file; it is kept until its version is deleted");
        }
    }
}

/// Returns whether the path does not exist, because its file or a folder on the way is missing or
/// is not a folder.
pub(super) fn is_not_found(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Makes the entries of a folder durable.
#[cfg(unix)]
pub(super) fn sync_folder(folder: &FilePath) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Does nothing: on other systems folders cannot be opened as files, and their entries are durable
/// with their files.
#[cfg(not(unix))]
pub(super) fn sync_folder(_: &FilePath) -> io::Result<()> {
    Ok(())
}
