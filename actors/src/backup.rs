//! Backup of a home: a copy that is itself a complete home.
//!
//! A backup needs no owner of the home and does not block one. It first copies a snapshot of the
//! database, then the files of the versions in this snapshot, which do not change after their
//! registration. Files that are deleted meanwhile may be missing and are listed.
//!
//! Invariants:
//! - The target is complete or does not exist, and it is durable if it exists.
//! - Nothing in the home changes.
//!
//! Not included: objects in buckets, which stay there. There is no restore operation; a copy is
//! used by passing its path as the home.

mod tree;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::ErrorKind,
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::Serialize;
use soong_protocol::{ArtifactId, ErrorCode, ErrorInfo};
use soong_storage::{
    blob::{BlobLocation, BlobStore},
    sqlite::SqliteReader,
    store::{StoreError, StoredBlob},
};
use uuid::Uuid;

use crate::store_reader::DATABASE;

/// Files and folders that users put into a home, and task journals that are not in a project;
/// copied if they exist. The memory folders of other users are copied too. Keys, locks, sockets and
/// logs are not copied.
const USER_FILES: [&str; 8] = [
    "config.toml",
    "hooks.json",
    "models.json",
    "skills",
    "agents",
    "commands",
    "memory",
    "tasks",
];
/// Number of versions read from the database at a time.
const VERSIONS_PAGE: usize = 500;

/// Result of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackupReport {
    /// The home that was copied.
    pub home: PathBuf,
    /// The copy.
    pub dir: PathBuf,
    /// Number of sessions in the copy.
    pub sessions: u64,
    /// Number of artifacts, of sessions and users, with at least one stored version.
    pub artifacts: u64,
    /// Number of copied files of versions.
    pub files: u64,
    /// Total size of these files in bytes.
    pub bytes: u64,
    /// Size of the copied database in bytes.
    pub database_bytes: u64,
    /// Location of the artifact bytes, as in `artifacts.store`. They were copied only if it is
    /// `file`.
    pub store: String,
    /// Other copied files and folders, by their names in the home.
    pub also: Vec<String>,
    /// Entries of these folders that were skipped, because they are links to folders or neither
    /// files nor folders.
    pub left_out: Vec<String>,
    /// Versions whose files could not be copied. Everything else was copied.
    pub missing: Vec<MissingFile>,
}

/// A version whose file could not be copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingFile {
    /// The artifact.
    pub artifact_id: ArtifactId,
    /// The version number.
    pub version: u64,
    /// Expected path of the file, relative to the home.
    pub path: String,
    /// Reason why it could not be copied.
    pub reason: String,
}

/// Copies a home to `dir`, so that a runtime can be opened on the copy. `dir` must be empty or must
/// not exist. `store` is the configuration's `artifacts.store`.
///
/// Works whether or not a process owns the home. If the future is dropped, the partial copy is
/// removed.
///
/// # Errors
/// `validation_error` if `dir` is not empty or is in the home, `file_not_found` if the home does
/// not exist, `config_error` if `store` is invalid, and `storage_error` if the disk fails. Then
/// nothing of the copy remains.
pub async fn backup(home: &Path, dir: &Path, store: &str) -> Result<BackupReport, ErrorInfo> {
    let location = BlobLocation::parse(store).map_err(|error| {
        ErrorInfo::new(ErrorCode::ConfigError, format!("artifacts.store: {error}"))
    })?;
    let home = home.to_owned();
    let dir = dir.to_owned();
    let wanted = CancelOnDrop(Arc::new(AtomicBool::new(true)));
    let is_wanted = Arc::clone(&wanted.0);
    let copied =
        tokio::task::spawn_blocking(move || copy(&home, &dir, &location, &is_wanted)).await;
    drop(wanted);
    copied.map_err(|error| {
        ErrorInfo::new(
            ErrorCode::InternalError,
            format!("the backup did not finish: {error}"),
        )
    })?
}

/// Cancels the copying when dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn copy(
    home: &Path,
    dir: &Path,
    location: &BlobLocation,
    wanted: &AtomicBool,
) -> Result<BackupReport, ErrorInfo> {
    let reader = SqliteReader::open(home.join(DATABASE)).map_err(|error| match error {
        StoreError::NotFound(what) => ErrorInfo::new(
            ErrorCode::FileNotFound,
            format!("the home does not exist: {what} is missing"),
        ),
        error => ErrorInfo::from(&error),
    })?;
    let home = home
        .canonicalize()
        .map_err(|error| storage_error(home, &error))?;
    let dir = resolve_target(&home, dir)?;
    let partial = PartialCopy::create_next_to(&dir)?;
    let mut copying = BackupCopy {
        home,
        root: &partial.0,
        unsynced_folders: BTreeSet::from([partial.0.clone()]),
        buffer: tree::new_buffer(),
        is_wanted: wanted,
    };

    let database = partial.0.join(DATABASE);
    reader
        .copy_to(&database)
        .map_err(|error| ErrorInfo::from(&error))?;
    let copied = SqliteReader::open(&database).map_err(|error| ErrorInfo::from(&error))?;
    let mut report = BackupReport {
        home: copying.home.clone(),
        dir: dir.clone(),
        sessions: copied
            .session_count()
            .map_err(|error| ErrorInfo::from(&error))?,
        artifacts: 0,
        files: 0,
        bytes: 0,
        database_bytes: fs::metadata(&database)
            .map_err(|error| storage_error(&database, &error))?
            .len(),
        store: location.to_string(),
        also: Vec::new(),
        left_out: Vec::new(),
        missing: Vec::new(),
    };
    copying.copy_versions(&copied, location, &mut report)?;
    drop(copied);
    let of_users = user_memory_folders(&copying.home)?;
    for name in USER_FILES
        .into_iter()
        .chain(of_users.iter().map(String::as_str))
    {
        if copying.copy_entry(name, &mut report.left_out)? {
            report.also.push(name.to_owned());
        }
    }
    copying.sync_folders()?;
    partial.rename_to(&dir)?;
    Ok(report)
}

/// Returns the memory folders of users other than the home's own.
fn user_memory_folders(home: &Path) -> Result<Vec<String>, ErrorInfo> {
    let users = home.join("users");
    let refused = |error: &std::io::Error| storage_error(&users, error);
    let mut found = Vec::new();
    match fs::read_dir(&users) {
        Ok(entries) => {
            for entry in entries {
                let name = entry.map_err(|error| refused(&error))?.file_name();
                let memory = Path::new("users").join(name).join("memory");
                if home.join(&memory).is_dir() {
                    found.extend(memory.to_str().map(str::to_owned));
                }
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(refused(&error)),
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the error for a failed disk operation.
fn storage_error(path: &Path, error: &std::io::Error) -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::StorageError,
        format!("{}: {error}", path.display()),
    )
}

/// Resolves the path of the copy, which must be free and outside the home.
fn resolve_target(home: &Path, dir: &Path) -> Result<PathBuf, ErrorInfo> {
    let refuse = |why: &str| {
        ErrorInfo::new(
            ErrorCode::ValidationError,
            format!("{} {why}", dir.display()),
        )
    };
    match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(false) => {}
        Ok(true) => {
            return Err(refuse(
                "is not empty: choose an empty folder, or one that does not exist yet",
            ));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(refuse("is not a folder"));
        }
        Err(error) => return Err(storage_error(dir, &error)),
    }
    let full = std::path::absolute(dir).map_err(|error| storage_error(dir, &error))?;
    // Only the existing part of the path can contain links.
    let known = full
        .ancestors()
        .find_map(|known| Some((known, known.canonicalize().ok()?)));
    let (known, real) = known.ok_or_else(|| refuse("has no existing parent folder"))?;
    let rest = full.strip_prefix(known).unwrap_or(Path::new(""));
    if rest.components().any(|step| step == Component::ParentDir) {
        return Err(refuse("contains `..` below a folder that does not exist"));
    }
    let target = real.join(rest);
    if target.starts_with(home) {
        return Err(refuse("is inside the home to be copied"));
    }
    let parent = target
        .parent()
        .ok_or_else(|| refuse("cannot be the target of a backup"))?;
    fs::create_dir_all(parent).map_err(|error| storage_error(parent, &error))?;
    // Joining an empty path adds a trailing slash.
    Ok(target.components().collect())
}

/// An incomplete copy, in the parent folder of the target; removed when dropped, unless it was
/// moved into place.
struct PartialCopy(PathBuf);

impl PartialCopy {
    fn create_next_to(dir: &Path) -> Result<Self, ErrorInfo> {
        let mut path = dir.as_os_str().to_owned();
        path.push(format!(".partial-{}", Uuid::now_v7()));
        let partial = Self(path.into());
        // It contains conversations, so only its user may read it, as with the home.
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
            .create(&partial.0)
            .map_err(|error| storage_error(&partial.0, &error))?;
        Ok(partial)
    }

    fn rename_to(self, dir: &Path) -> Result<(), ErrorInfo> {
        fs::rename(&self.0, dir).map_err(|error| storage_error(dir, &error))?;
        let parent = dir.parent().unwrap_or(Path::new("/"));
        File::open(parent)
            .and_then(|above| above.sync_all())
            .map_err(|error| storage_error(parent, &error))
    }
}

impl Drop for PartialCopy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running backup.
struct BackupCopy<'a> {
    home: PathBuf,
    root: &'a Path,
    /// Folders that were created and are not synced yet.
    unsynced_folders: BTreeSet<PathBuf>,
    /// Read buffer.
    buffer: Vec<u8>,
    is_wanted: &'a AtomicBool,
}

impl BackupCopy<'_> {
    /// Copies the files of all versions in the copied database.
    fn copy_versions(
        &mut self,
        copied: &SqliteReader,
        location: &BlobLocation,
        report: &mut BackupReport,
    ) -> Result<(), ErrorInfo> {
        let storage = |error: StoreError| ErrorInfo::from(&error);
        // Only local files can be copied. The rows keep the location of the others.
        let blobs = match location {
            BlobLocation::File => {
                Some(BlobStore::open(&self.home, location, &|_| None).map_err(storage)?)
            }
            _ => None,
        };
        let mut last: Option<ArtifactId> = None;
        let mut cursor: Option<String> = None;
        loop {
            let page = copied
                .stored_blobs(VERSIONS_PAGE, cursor.as_deref())
                .map_err(storage)?;
            for blob in page.items {
                report.artifacts += u64::from(last.as_ref() != Some(&blob.artifact_id));
                last = Some(blob.artifact_id.clone());
                let Some(blobs) = &blobs else { continue };
                let source = blobs.local_path(&blob.path);
                match self.copy_version(&blob, source.as_deref())? {
                    Ok(()) => {
                        report.files += 1;
                        report.bytes += blob.size;
                    }
                    Err(reason) => {
                        let StoredBlob {
                            artifact_id,
                            version,
                            path,
                            ..
                        } = blob;
                        report.missing.push(MissingFile {
                            artifact_id,
                            version,
                            path,
                            reason,
                        });
                    }
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Copies the file of one version; the inner error is the reason why this one cannot be copied.
    fn copy_version(
        &mut self,
        blob: &StoredBlob,
        source: Option<&Path>,
    ) -> Result<Result<(), String>, ErrorInfo> {
        let Some(source) = source else {
            return Ok(Err("its path is not valid".to_owned()));
        };
        Ok(match self.copy_file(source, Path::new(&blob.path))? {
            Ok(size) if size == blob.size => Ok(()),
            Ok(size) => Err(format!(
                "it has {size} bytes, but {} were stored",
                blob.size
            )),
            Err(error) => Err(error.to_string()),
        })
    }
}
