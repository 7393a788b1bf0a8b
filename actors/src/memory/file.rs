//! The experiences file on disk (MEM-2): reread when it has changed, and always written as a whole.
//!
//! Writers hold a lock, and replace the file atomically, so a crash leaves either the old or the
//! new content. Users edit the file without the lock: if it was saved in the meantime, it is read
//! again before it is written.
//!
//! All functions block; async callers run them on a blocking thread.

use std::{
    collections::HashSet,
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use soong_protocol::{Config, ErrorCode, ErrorInfo, ExperienceId};
use soong_text::Environment;
use soong_tool::{create_new, has_content, remove_drafts_in, replace_locked_if};

use super::experience_file::{Changes, ExperienceFault, ExperienceText, is_id};

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Maximum wait for the lock. Other processes hold it for milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of attempts to change a file that is modified at the same time.
const MAX_ATTEMPTS: usize = 20;

/// Experiences file of one user.
#[derive(Debug)]
pub struct MemoryFile {
    path: PathBuf,
    /// Temporary files from before are left over. Tools of this process may write others in the
    /// same folder.
    opened_at: SystemTime,
    /// Content that was read last, and the stamp of the file at that time.
    cache: Mutex<Option<(FileVersion, Arc<ExperienceText>)>>,
    /// Faults that have been logged.
    logged: Mutex<HashSet<ExperienceFault>>,
}

/// File metadata that tells whether the file has changed since it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    bytes: u64,
    inode: u64,
    modified: Option<SystemTime>,
    changed: (i64, i64),
}

impl FileVersion {
    fn of(metadata: &Metadata) -> Self {
        Self {
            bytes: metadata.len(),
            inode: metadata.ino(),
            modified: metadata.modified().ok(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl MemoryFile {
    /// Returns the file of a home: `memory/experiences.md`, or the path in the configuration. Reads
    /// nothing yet.
    pub fn of_home(home: &Path, config: &Config, environment: &Environment) -> Self {
        let path = match &config.memory.experiences_path {
            None => home.join("memory").join("experiences.md"),
            Some(path) => {
                let path = path.replace("${SOONG_AGENT_HOME}", &home.to_string_lossy());
                home.join(
                    environment
                        .expand_home(&path)
                        .unwrap_or_else(|| PathBuf::from(&path)),
                )
            }
        };
        Self::at(path)
    }

    pub(super) fn at(path: PathBuf) -> Self {
        Self {
            path,
            opened_at: SystemTime::now(),
            cache: Mutex::default(),
            logged: Mutex::default(),
        }
    }

    /// Returns the path of the file, which may not exist.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file exists and is not empty, after a single `stat` call.
    pub(crate) fn is_not_empty(&self) -> bool {
        self.path
            .metadata()
            .is_ok_and(|metadata| metadata.len() > 0)
    }

    /// Returns the content, read again only if the file has changed since the last read. A missing
    /// file is empty.
    ///
    /// # Errors
    /// `storage_error` if the file cannot be read.
    pub fn read(&self) -> Result<Arc<ExperienceText>, ErrorInfo> {
        let mut cached = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = match self.path.metadata() {
            Ok(metadata) => FileVersion::of(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                *cached = None;
                return Ok(Arc::default());
            }
            Err(error) => return Err(self.failed("read", &error)),
        };
        if let Some((_, book)) = cached.as_ref().filter(|(of, _)| *of == stamp) {
            return Ok(Arc::clone(book));
        }
        let book = Arc::new(ExperienceText::read(
            self.load().map_err(|error| self.failed("read", &error))?.1,
        ));
        *cached = Some((stamp, Arc::clone(&book)));
        Ok(book)
    }

    /// Reads the file as [`MemoryFile::read`] does, and logs each fault once.
    ///
    /// # Errors
    /// `storage_error` if the file cannot be read.
    pub(crate) fn read_and_log(&self) -> Result<Arc<ExperienceText>, ErrorInfo> {
        let book = self.read()?;
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        for fault in book.faults() {
            if logged.insert(fault.clone()) {
                tracing::warn!(file = %self.path.display(), "experiences: {fault}");
            }
        }
        Ok(book)
    }

    /// Changes the file. Returns an id for each new experience, and whether it was added.
    ///
    /// # Errors
    /// `validation_error` if a text is empty or the reflection id is invalid; `storage_error` if
    /// the file cannot be written or stays locked. The file is unchanged in either case.
    pub fn change(&self, changes: &Changes) -> Result<Vec<(ExperienceId, bool)>, ErrorInfo> {
        let refuse = |message: &str| Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        if !is_id(&changes.reflection) {
            return refuse(
                "reflection: must be 1 to 64 letters (a-z), digits, - or _, such as the id of a run",
            );
        }
        if changes.new.iter().any(|new| new.text.trim().is_empty()) {
            return refuse("text: must not be empty: describe what was learned");
        }
        self.try_change(changes)
            .map_err(|error| self.failed("written", &error))
    }

    fn try_change(&self, changes: &Changes) -> io::Result<Vec<(ExperienceId, bool)>> {
        // If the path is a symlink, replace its target and keep the link.
        let folder = self.path.parent().ok_or(io::ErrorKind::NotFound)?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let path = match self.path.canonicalize() {
            // It does not exist yet, or its target does not.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let target = fs::read_link(&self.path)
                    .map_or_else(|_| self.path.clone(), |target| folder.join(target));
                let parent = target
                    .parent()
                    .ok_or(io::ErrorKind::NotFound)?
                    .canonicalize()?;
                parent.join(target.file_name().ok_or(io::ErrorKind::NotFound)?)
            }
            path => path?,
        };
        let _lock = Lock::take(&path)?;
        remove_stale_temp_files(&path, self.opened_at);
        for _ in 0..MAX_ATTEMPTS {
            let (stamp, bytes) = self.load()?;
            let book = ExperienceText::read(bytes);
            let (after, added) = book.apply(changes);
            if after == book.bytes() {
                return Ok(added);
            }
            // An editor that saves the file in the meantime is not overwritten.
            let is_written = match stamp {
                None => create_new(&path, &after, 0o600)?,
                Some(_) => {
                    replace_locked_if(&path, &after, |file| has_content(file, book.bytes()))?
                }
            };
            if is_written {
                return Ok(added);
            }
        }
        Err(io::Error::other("it was modified during every attempt"))
    }

    /// Reads the current file. The stamp is `None` if the file does not exist.
    fn load(&self) -> io::Result<(Option<FileVersion>, Vec<u8>)> {
        let is_readable = |metadata: &Metadata| metadata.is_file() && metadata.len() <= MAX_BYTES;
        let not_readable = || {
            Err(io::Error::other(format!(
                "it is not a regular file of at most {MAX_BYTES} bytes"
            )))
        };
        // Check before opening: opening a named pipe would block until its other end is opened.
        let mut file = match self.path.metadata() {
            Ok(metadata) if is_readable(&metadata) => File::open(&self.path)?,
            Ok(_) => return not_readable(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, Vec::new())),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        if !is_readable(&metadata) {
            return not_readable();
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok((Some(FileVersion::of(&metadata)), bytes))
    }

    fn failed(&self, what: &str, error: &io::Error) -> ErrorInfo {
        let message = format!(
            "the experiences file {} cannot be {what}: {error}",
            self.path.display()
        );
        ErrorInfo::new(ErrorCode::StorageError, message)
    }
}

/// Lock of the file. The locked file is a separate one next to it, because the file itself is
/// replaced.
struct Lock(File);

impl Lock {
    fn take(path: &Path) -> io::Result<Self> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(sibling_path(path, ".lock"))?;
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(fs::TryLockError::Error(error)) => return Err(error),
                Err(fs::TryLockError::WouldBlock) if Instant::now() > until => {
                    return Err(io::Error::other("another process holds its lock"));
                }
                Err(fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL_INTERVAL),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that is being started holds the lock too,
        // for a moment.
        let _ = self.0.unlock();
    }
}

/// Removes copies left by a crash, also those of earlier versions, which were named after the file.
/// The caller holds the lock, so no other writer has one.
fn remove_stale_temp_files(path: &Path, opened_at: SystemTime) {
    let (Some(folder), Some(name)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return;
    };
    remove_drafts_in(folder, opened_at);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let other = entry.file_name();
        let is_draft = other.to_str().is_some_and(|other| {
            other
                .strip_prefix(&format!(".{name}."))
                .is_some_and(|rest| rest.ends_with(".tmp"))
        });
        if is_draft {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn sibling_path(path: &Path, ending: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{ending}"))
}

#[cfg(test)]
mod tests;
