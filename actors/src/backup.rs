//! Backing a home up: a copy of it that is a home of its own.
//!
//! It needs no owner and holds none up. The database is copied first, as it is at one moment; then the files of
//! the versions that this copy knows, which nobody changes once they are registered. What is deleted meanwhile
//! may be missing then, and is named.
//! Invariants: the target is whole or not there; when it is there, it is on disk; nothing in the home changes.
//! Not here: objects in buckets, which stay where they are, and going back: a copy is used by naming it.

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
    blob::{BlobPlace, Blobs},
    sqlite::SqliteReader,
    store::{StoreError, StoredBlob},
};
use uuid::Uuid;

use crate::reading::DATABASE;

/// What people put into a home, as far as it is there; the memory of further users comes along as well. Keys, locks,
/// sockets and logs are no part of a copy.
const BY_HAND: [&str; 5] = ["config.toml", "hooks.json", "skills", "agents", "memory"];
/// How many versions are read from the registry at a time.
const PAGE: usize = 500;

/// What a backup copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackupReport {
    /// The home that was copied.
    pub home: PathBuf,
    /// The copy.
    pub dir: PathBuf,
    /// How many sessions it has.
    pub sessions: u64,
    /// How many artifacts, of sessions and users, with at least one stored version.
    pub artifacts: u64,
    /// How many files of versions were copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The size of its database.
    pub database_bytes: u64,
    /// Where the bytes of artifacts are, as `artifacts.store` says: anything but `file` was not copied.
    pub store: String,
    /// What else was copied, by its name in the home.
    pub also: Vec<String>,
    /// What was left out of that: it is neither a file nor a folder, or a link to a folder.
    pub left_out: Vec<String>,
    /// Versions whose files could not be copied. Everything else is there.
    pub missing: Vec<MissingFile>,
}

/// A version whose file could not be copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingFile {
    /// The artifact.
    pub artifact_id: ArtifactId,
    /// Which version of it.
    pub version: u64,
    /// Where the file lies, or should, relative to the home.
    pub path: String,
    /// Why it could not be copied.
    pub reason: String,
}

/// Copies a home to `dir`, which must be empty or not there, so that a runtime can be opened on it; `store` is
/// the configuration's `artifacts.store`.
///
/// Works beside an owner of the home and without one. Dropped before it is done, it removes what it has copied.
///
/// # Errors
/// `validation_error` where `dir` is not free or lies in the home, `file_not_found` where there is no home,
/// `storage_error` where the disk refuses: nothing is left of the copy then.
pub async fn backup(home: &Path, dir: &Path, store: &str) -> Result<BackupReport, ErrorInfo> {
    let place = BlobPlace::parse(store)
        .map_err(|error| ErrorInfo::new(ErrorCode::ConfigError, format!("artifacts.store: {error}")))?;
    let (home, dir) = (home.to_owned(), dir.to_owned());
    let wanted = Wanted(Arc::new(AtomicBool::new(true)));
    let still = Arc::clone(&wanted.0);
    let copied = tokio::task::spawn_blocking(move || copy(&home, &dir, &place, &still)).await;
    drop(wanted);
    copied.map_err(|error| ErrorInfo::new(ErrorCode::InternalError, format!("the backup did not finish: {error}")))?
}

/// Tells the copying when nobody waits for it any more.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn copy(home: &Path, dir: &Path, place: &BlobPlace, wanted: &AtomicBool) -> Result<BackupReport, ErrorInfo> {
    let reader = SqliteReader::open(home.join(DATABASE)).map_err(|error| match error {
        StoreError::Missing(what) => ErrorInfo::new(ErrorCode::FileNotFound, format!("there is no home: {what}")),
        error => ErrorInfo::from(&error),
    })?;
    let home = home.canonicalize().map_err(|error| failed(home, &error))?;
    let dir = free_place(&home, dir)?;
    let partial = Partial::beside(&dir)?;
    let mut copying =
        Copying { home, root: &partial.0, folders: BTreeSet::from([partial.0.clone()]), piece: tree::piece(), wanted };

    let database = partial.0.join(DATABASE);
    reader.copy_to(&database).map_err(|error| ErrorInfo::from(&error))?;
    let copied = SqliteReader::open(&database).map_err(|error| ErrorInfo::from(&error))?;
    let mut report = BackupReport {
        home: copying.home.clone(),
        dir: dir.clone(),
        sessions: copied.session_count().map_err(|error| ErrorInfo::from(&error))?,
        artifacts: 0,
        files: 0,
        bytes: 0,
        database_bytes: fs::metadata(&database).map_err(|error| failed(&database, &error))?.len(),
        store: place.to_string(),
        also: Vec::new(),
        left_out: Vec::new(),
        missing: Vec::new(),
    };
    copying.versions(&copied, place, &mut report)?;
    drop(copied);
    let of_users = memories(&copying.home)?;
    for name in BY_HAND.into_iter().chain(of_users.iter().map(String::as_str)) {
        if copying.by_hand(name, &mut report.left_out)? {
            report.also.push(name.to_owned());
        }
    }
    copying.sync_folders()?;
    partial.put_in_place(&dir)?;
    Ok(report)
}

/// Returns where users beside the home's own keep what was learned, as far as they do.
fn memories(home: &Path) -> Result<Vec<String>, ErrorInfo> {
    let users = home.join("users");
    let refused = |error: &std::io::Error| failed(&users, error);
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

/// Says that the disk refuses.
fn failed(path: &Path, error: &std::io::Error) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::StorageError, format!("{}: {error}", path.display()))
}

/// Resolves where the copy is to be: nothing may be there, and it may not lie in the home.
fn free_place(home: &Path, dir: &Path) -> Result<PathBuf, ErrorInfo> {
    let refuse = |why: &str| ErrorInfo::new(ErrorCode::ValidationError, format!("{} {why}", dir.display()));
    match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(false) => {}
        Ok(true) => return Err(refuse("is not empty: name a folder that is, or one that is not there yet")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Err(refuse("is no folder")),
        Err(error) => return Err(failed(dir, &error)),
    }
    let full = std::path::absolute(dir).map_err(|error| failed(dir, &error))?;
    // What is not there leads nowhere else; what is there may be a link.
    let known = full.ancestors().find_map(|known| Some((known, known.canonicalize().ok()?)));
    let (known, real) = known.ok_or_else(|| refuse("leads nowhere"))?;
    let rest = full.strip_prefix(known).unwrap_or(Path::new(""));
    if rest.components().any(|step| step == Component::ParentDir) {
        return Err(refuse("leads nowhere"));
    }
    let place = real.join(rest);
    if place.starts_with(home) {
        return Err(refuse("lies in the home that is to be copied"));
    }
    let above = place.parent().ok_or_else(|| refuse("cannot be the place of a copy"))?;
    fs::create_dir_all(above).map_err(|error| failed(above, &error))?;
    // Joining nothing leaves a slash behind the name.
    Ok(place.components().collect())
}

/// A copy that is not whole yet, beside its place; removed unless it gets there.
struct Partial(PathBuf);

impl Partial {
    fn beside(dir: &Path) -> Result<Self, ErrorInfo> {
        let mut path = dir.as_os_str().to_owned();
        path.push(format!(".partial-{}", Uuid::now_v7()));
        let partial = Self(path.into());
        // It holds conversations: its user's alone, as the home is.
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&partial.0).map_err(|error| failed(&partial.0, &error))?;
        Ok(partial)
    }

    fn put_in_place(self, dir: &Path) -> Result<(), ErrorInfo> {
        fs::rename(&self.0, dir).map_err(|error| failed(dir, &error))?;
        let above = dir.parent().unwrap_or(Path::new("/"));
        File::open(above).and_then(|above| above.sync_all()).map_err(|error| failed(above, &error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A copy on its way.
struct Copying<'a> {
    home: PathBuf,
    root: &'a Path,
    /// Folders that were made, and are not synced yet.
    folders: BTreeSet<PathBuf>,
    /// What was read last.
    piece: Vec<u8>,
    wanted: &'a AtomicBool,
}

impl Copying<'_> {
    /// Copies the files of all versions that the copied database knows.
    fn versions(
        &mut self,
        copied: &SqliteReader,
        place: &BlobPlace,
        report: &mut BackupReport,
    ) -> Result<(), ErrorInfo> {
        let storage = |error: StoreError| ErrorInfo::from(&error);
        // Files alone can be copied; of what lies elsewhere the rows say where.
        let blobs = match place {
            BlobPlace::File => Some(Blobs::open(&self.home, place, &|_| None).map_err(storage)?),
            _ => None,
        };
        let mut last: Option<ArtifactId> = None;
        let mut cursor: Option<String> = None;
        loop {
            let page = copied.stored_blobs(PAGE, cursor.as_deref()).map_err(storage)?;
            for blob in page.items {
                report.artifacts += u64::from(last.as_ref() != Some(&blob.artifact_id));
                last = Some(blob.artifact_id.clone());
                let Some(blobs) = &blobs else { continue };
                let source = blobs.local_path(&blob.path);
                match self.version(&blob, source.as_deref())? {
                    Ok(()) => {
                        report.files += 1;
                        report.bytes += blob.size;
                    }
                    Err(reason) => {
                        let StoredBlob { artifact_id, version, path, .. } = blob;
                        report.missing.push(MissingFile { artifact_id, version, path, reason });
                    }
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Copies the file of one version; the inner error says why that one cannot be copied.
    fn version(&mut self, blob: &StoredBlob, source: Option<&Path>) -> Result<Result<(), String>, ErrorInfo> {
        let Some(source) = source else { return Ok(Err("it has no path that can be read".to_owned())) };
        Ok(match self.file(source, Path::new(&blob.path))? {
            Ok(size) if size == blob.size => Ok(()),
            Ok(size) => Err(format!("it has {size} bytes, and {} were stored", blob.size)),
            Err(error) => Err(error.to_string()),
        })
    }
}
