//! Copying and syncing the files and folders of a backup.
//!
//! Read errors are reported separately from write errors: a read error leaves a gap in the copy, a
//! write error ends the backup.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use soong_protocol::{ErrorCode, ErrorInfo};

use super::{BackupCopy, storage_error};

/// Number of bytes read at a time; a cancelled backup ends after at most this much.
const BUFFER_BYTES: usize = 1024 * 1024;

impl BackupCopy<'_> {
    /// Copies the file or folder `name` of the home, if it exists.
    pub(super) fn copy_entry(
        &mut self,
        name: &str,
        left_out: &mut Vec<String>,
    ) -> Result<bool, ErrorInfo> {
        let path = self.home.join(name);
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => self
                .copy_folder(PathBuf::from(name), left_out)
                .map(|()| true),
            Ok(found) if found.is_file() => {
                let copied = self.copy_file(&path, Path::new(name))?;
                copied
                    .map(|_| true)
                    .map_err(|error| storage_error(&path, &error))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(storage_error(&path, &error)),
            Ok(_) => {
                left_out.push(name.to_owned());
                Ok(false)
            }
        }
    }

    /// Copies a folder of the home. Linked files are copied as files. Linked folders are skipped,
    /// because they may form a cycle.
    fn copy_folder(&mut self, top: PathBuf, left_out: &mut Vec<String>) -> Result<(), ErrorInfo> {
        let mut pending = vec![top];
        while let Some(relative) = pending.pop() {
            self.create_folder(&relative)?;
            let folder = self.home.join(&relative);
            for entry in fs::read_dir(&folder).map_err(|error| storage_error(&folder, &error))? {
                let entry = entry.map_err(|error| storage_error(&folder, &error))?;
                let path = entry.path();
                let name = relative.join(entry.file_name());
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                // Links are followed here.
                let is_file = fs::metadata(&path).is_ok_and(|known| known.is_file());
                match (is_folder, is_file) {
                    (true, _) => pending.push(name),
                    (false, true) => self
                        .copy_file(&path, &name)?
                        .map(|_| ())
                        .map_err(|error| storage_error(&path, &error))?,
                    (false, false) => left_out.push(name.display().to_string()),
                }
            }
        }
        Ok(())
    }

    /// Copies a file with its mode to its path in the copy; returns its size. The inner error is a
    /// read error; then no file remains at that path.
    pub(super) fn copy_file(
        &mut self,
        source: &Path,
        relative: &Path,
    ) -> Result<io::Result<u64>, ErrorInfo> {
        let mut from = match open_regular_file(source) {
            Ok(from) => from,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(above) = relative.parent() {
            self.create_folder(above)?;
        }
        let target = self.root.join(relative);
        let write_error = |error: io::Error| storage_error(&target, &error);
        let mut to = File::create_new(&target).map_err(write_error)?;
        let mut size = 0;
        loop {
            if !self.is_wanted.load(Ordering::Acquire) {
                return Err(ErrorInfo::new(
                    ErrorCode::Cancelled,
                    "the backup was cancelled",
                ));
            }
            match from.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(read) => {
                    to.write_all(&self.buffer[..read]).map_err(write_error)?;
                    size += read as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    fs::remove_file(&target).map_err(write_error)?;
                    return Ok(Err(error));
                }
            }
        }
        if let Ok(known) = from.metadata() {
            to.set_permissions(known.permissions())
                .map_err(write_error)?;
        }
        to.sync_all().map_err(write_error)?;
        Ok(Ok(size))
    }

    /// Creates a folder of the copy, and its parents.
    fn create_folder(&mut self, relative: &Path) -> Result<(), ErrorInfo> {
        let folder = self.root.join(relative);
        if self.unsynced_folders.contains(&folder) {
            return Ok(());
        }
        fs::create_dir_all(&folder).map_err(|error| storage_error(&folder, &error))?;
        self.unsynced_folders
            .extend(relative.ancestors().map(|above| self.root.join(above)));
        Ok(())
    }

    /// Makes the names of all copied files durable.
    pub(super) fn sync_folders(&self) -> Result<(), ErrorInfo> {
        let sync = |folder: &PathBuf| File::open(folder).and_then(|opened| opened.sync_all());
        self.unsynced_folders
            .iter()
            .try_for_each(|folder| sync(folder).map_err(|error| storage_error(folder, &error)))
    }
}

/// Allocates the read buffer.
pub(super) fn new_buffer() -> Vec<u8> {
    vec![0; BUFFER_BYTES]
}

/// Opens a regular file; opening another kind of file could block forever.
fn open_regular_file(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() {
        File::open(path)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}
