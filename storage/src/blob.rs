//! Artifact bytes, stored atomically in files under the home or in a bucket (ART-2).
//!
//! A path belongs to one version, and an existing file is never overwritten. Names that users or
//! models have chosen are part of the path; characters that are not safe in a path segment are
//! percent-encoded. So no path of a version contains a `#`, which marks the files of unfinished
//! writes. Large bodies are streamed when they are written and when they are read. Writes and
//! deletions of the same path run one after the other (`path_locks.rs`).
//!
//! Elsewhere: which versions exist, and the intents that make orphaned files findable (`store.rs`).

mod body;
#[cfg(any(feature = "s3", feature = "gcs"))]
mod cloud;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
mod files;
mod location;
mod objects;
mod path_locks;
mod session_folder;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path as FilePath, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    GetResult, GetResultPayload, ObjectStore, ObjectStoreExt, memory::InMemory, path::Path,
};
use soong_protocol::{ArtifactId, ArtifactScope};
use uuid::Uuid;

use self::{
    body::Body,
    files::Files,
    objects::Objects,
    path_locks::{PathLock, PathLocks},
};
pub use self::{
    location::{BlobLocation, BlobLocationError, Bucket},
    session_folder::UndeletedFile,
};
use crate::{
    fault::{FaultPlan, FaultPoint},
    store::{BlobError, StoreError},
};

/// Maximum number of versions that are deleted in one batch.
const DELETE_BATCH: usize = 256;
/// Maximum number of concurrent requests of a batch deletion in a bucket.
const MAX_CONCURRENT_DELETES: usize = 16;

/// Folder of the versions of sessions.
const SESSIONS: &str = "sessions";
/// Folder of the artifacts of a session or user, below its own folder.
const ARTIFACTS: &str = "artifacts";
/// Folder of the versions of users.
const USERS: &str = "users";

/// The bytes of a version as a stream.
pub type BlobStream = BoxStream<'static, Result<Bytes, StoreError>>;

/// Store of artifact bytes, with one file or object per version. Clones share the same store.
#[derive(Clone)]
pub struct BlobStore {
    location: BlobLocation,
    store: Arc<dyn ObjectStore>,
    backend: Backend,
    locks: Arc<PathLocks>,
    faults: Option<FaultPlan>,
    /// The error of the last write, if the disk or the bucket rejected it.
    last_error: Arc<Mutex<Option<StoreError>>>,
}

/// Backend that writes and deletes versions. Reads of all backends use [`ObjectStore`].
#[derive(Clone)]
enum Backend {
    Files(Files),
    Objects(Objects),
}

impl BlobStore {
    /// Opens the store at `location`. [`BlobLocation::File`] is the folder `home`, which is created
    /// if necessary.
    ///
    /// The settings of a bucket are read from `environment`, which looks up the variables that the
    /// provider's own tools use. No request is sent, so the first operation reports an unreachable
    /// bucket.
    ///
    /// # Errors
    /// [`BlobError::Io`] if the folder can be neither found nor created, if a setting of the
    /// environment is invalid, or if this build lacks the cargo feature that the location needs.
    pub fn open(
        home: &FilePath,
        location: &BlobLocation,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, StoreError> {
        if let Some(feature) = location.missing_feature() {
            let error = BlobLocationError::FeatureMissing {
                location: location.to_string(),
                feature,
            };
            return Err(BlobError::Io(error.to_string()).into());
        }
        let writing = match location {
            BlobLocation::File => Backend::Files(Files::open(home)?),
            BlobLocation::Memory => Backend::Objects(Objects::new(InMemory::new())),
            #[cfg(feature = "s3")]
            BlobLocation::S3(bucket) => Backend::Objects(cloud::s3(bucket, environment)?),
            #[cfg(feature = "gcs")]
            BlobLocation::Gcs(bucket) => Backend::Objects(cloud::gcs(bucket, environment)?),
            #[cfg(not(all(feature = "s3", feature = "gcs")))]
            _ => {
                // Rejected above.
                let _ = environment;
                return Err(BlobError::Io(format!("{location} cannot be opened")).into());
            }
        };
        let store = match &writing {
            Backend::Files(files) => Arc::new(files.reader()),
            Backend::Objects(objects) => Arc::clone(&objects.store),
        };
        Ok(Self {
            location: location.clone(),
            store,
            backend: writing,
            locks: Arc::default(),
            faults: None,
            last_error: Arc::default(),
        })
    }

    /// Applies a fault plan to all later writes.
    #[must_use]
    pub fn with_faults(mut self, plan: FaultPlan) -> Self {
        self.faults = Some(plan);
        self
    }

    /// Stores the bytes of a new version. When this returns successfully, the version is complete
    /// and durable.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`] if the path has a file; that file is not changed.
    /// [`BlobError::Io`] if the disk or the bucket fails; then the path has no file. Exception: if
    /// a body was sent in one request and the answer of the bucket was lost, the complete object
    /// may exist until the path is deleted.
    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<(), StoreError> {
        self.write(path, &mut Body::from_bytes(bytes)).await
    }

    /// Stores a new version from a stream, and returns its size in bytes.
    ///
    /// At most a few MiB are held in memory. If the future is dropped before it completes, the
    /// written parts are removed in the background, or at the latest when the path is deleted.
    ///
    /// # Errors
    /// As for [`BlobStore::put`]. [`BlobError::TooLarge`] if the stream has more than `limit_bytes`
    /// bytes, and [`BlobError::SourceUnreadable`] if the stream fails; in both cases nothing is
    /// stored.
    pub async fn put_stream(
        &self,
        path: &str,
        limit_bytes: u64,
        stream: BoxStream<'_, io::Result<Bytes>>,
    ) -> Result<u64, StoreError> {
        let mut body = Body::new(stream, limit_bytes);
        self.write(path, &mut body).await?;
        Ok(body.size())
    }

    /// Stores a copy of the file `source` as a new version, and returns its size in bytes. Symlinks
    /// are followed, so the caller must check whether the file may be read.
    ///
    /// # Errors
    /// As for [`BlobStore::put_stream`]. [`BlobError::SourceUnreadable`] also if `source` is not a
    /// regular file.
    pub async fn put_file(
        &self,
        path: &str,
        limit_bytes: u64,
        source: &FilePath,
    ) -> Result<u64, StoreError> {
        let file = body::open_source(source, limit_bytes).await?;
        self.put_stream(path, limit_bytes, body::stream_file(file))
            .await
    }

    /// Reads the bytes of a version. Returns `None` if the path has no file.
    pub async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        match self.open_object(path).await? {
            Some(found) => found.bytes().await.map(Some).map_err(blob_error),
            None => Ok(None),
        }
    }

    /// Opens a version for reading, and returns its size in bytes and a stream of its bytes.
    /// Returns `None` if the path has no file.
    pub async fn get_stream(&self, path: &str) -> Result<Option<(u64, BlobStream)>, StoreError> {
        let Some(found) = self.open_object(path).await? else {
            return Ok(None);
        };
        let size = found.meta.size;
        let stream = match found.payload {
            // `stream_file` reads larger chunks than `object_store` does.
            GetResultPayload::File(file, _) => body::stream_file(file)
                .map_err(|error| BlobError::Io(error.to_string()).into())
                .boxed(),
            GetResultPayload::Stream(stream) => stream.map_err(blob_error).boxed(),
        };
        Ok(Some((size, stream)))
    }

    /// Prepares the path for a new version: removes a file and unfinished writes that an earlier
    /// attempt has left there.
    ///
    /// This is cheap if nothing has to be removed. The removal is durable only after a new version
    /// is stored, so a caller that stores none must call [`BlobStore::delete`].
    pub async fn prepare(&self, path: &str) -> Result<(), StoreError> {
        let (key, turn) = self.lock(path).await?;
        match &self.backend {
            Backend::Files(files) => files.clear(&key, turn).await,
            Backend::Objects(objects) => objects.delete(&key, turn).await,
        }
    }

    /// Deletes the file of a version, the files of unfinished writes of it, and the parent folders
    /// that become empty, up to the folder of all artifacts. Succeeds if the file does not exist.
    ///
    /// Waits for a running write of the same path.
    pub async fn delete(&self, path: &str) -> Result<(), StoreError> {
        self.delete_all(&[path.to_owned()])
            .await
            .pop()
            .unwrap_or(Ok(()))
    }

    /// Deletes many versions, faster than with a call for each. Returns the results in the order of
    /// `paths`.
    pub async fn delete_all(&self, paths: &[String]) -> Vec<Result<(), StoreError>> {
        let mut outcomes = Vec::with_capacity(paths.len());
        for batch in paths.chunks(DELETE_BATCH) {
            match self.delete_some(batch).await {
                Ok(some) => outcomes.extend(some),
                Err(error) => outcomes.extend(batch.iter().map(|_| Err(error.clone()))),
            }
        }
        outcomes
    }

    async fn delete_some(
        &self,
        paths: &[String],
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let files = match &self.backend {
            Backend::Files(files) => files,
            Backend::Objects(objects) => {
                let one = |path: String| async move {
                    let (key, turn) = self.lock(&path).await?;
                    objects.delete(&key, turn).await
                };
                let removing = futures::stream::iter(paths.to_vec())
                    .map(one)
                    .buffered(MAX_CONCURRENT_DELETES);
                return Ok(removing.collect().await);
            }
        };
        // Locks are taken in sorted order, so that two concurrent deletions cannot deadlock.
        let mut sorted: Vec<usize> = (0..paths.len()).collect();
        sorted.sort_by_key(|index| &paths[*index]);
        sorted.dedup_by_key(|index| &paths[*index]);
        let mut keys = Vec::with_capacity(sorted.len());
        for index in &sorted {
            keys.push(self.lock(&paths[*index]).await?);
        }
        let removed: HashMap<&String, Result<(), StoreError>> = sorted
            .iter()
            .map(|index| &paths[*index])
            .zip(files.delete(keys).await?)
            .collect();
        Ok(paths
            .iter()
            .map(|path| removed.get(path).cloned().unwrap_or(Ok(())))
            .collect())
    }

    /// Checks that the store can be written, read and deleted, with a small object of its own.
    ///
    /// # Errors
    /// The error of the first operation that failed.
    pub async fn check(&self) -> Result<(), StoreError> {
        let path = format!("checks/{}", Uuid::now_v7());
        let bytes = Bytes::from_static(b"check");
        self.put(&path, bytes.clone()).await?;
        let read = self.get(&path).await;
        let deleted = self.delete(&path).await;
        match read? {
            Some(found) if found == bytes => deleted,
            _ => Err(BlobError::Io(
                "an object that was written a moment ago cannot be read".to_owned(),
            )
            .into()),
        }
    }

    /// Returns the existing local folders below which versions are stored; none if the store does
    /// not use local files.
    pub fn local_folders(&self) -> Vec<PathBuf> {
        let Backend::Files(files) = &self.backend else {
            return Vec::new();
        };
        let folders = [SESSIONS, USERS].map(|kind| files.home().join(kind));
        folders
            .into_iter()
            .filter(|folder| folder.is_dir())
            .collect()
    }

    /// Returns the local path of a version's file, even if the file does not exist. Returns `None`
    /// if `path` is invalid, or if the store does not use local files.
    pub fn local_path(&self, path: &str) -> Option<PathBuf> {
        match &self.backend {
            Backend::Files(files) => files.local_path(&parse_path(path).ok()?).ok(),
            Backend::Objects(_) => None,
        }
    }

    /// Returns the error of the last write if the disk or the bucket rejected it.
    pub fn last_error(&self) -> Option<StoreError> {
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn write(&self, path: &str, body: &mut Body<'_>) -> Result<(), StoreError> {
        let written = self.write_unrecorded(path, body).await;
        let refusal = match &written {
            Ok(()) => None,
            Err(error) if error.is_transient() => Some(error.clone()),
            // The error says nothing about whether the disk has room.
            Err(_) => return written,
        };
        *self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = refusal;
        written
    }

    async fn write_unrecorded(&self, path: &str, body: &mut Body<'_>) -> Result<(), StoreError> {
        let (key, turn) = self.lock(path).await?;
        self.hit_fault_point(FaultPoint::BeforeBlob)?;
        match &self.backend {
            Backend::Files(files) => files.put(&key, body, turn).await,
            Backend::Objects(objects) => objects.put(&key, body, turn).await,
        }?;
        self.hit_fault_point(FaultPoint::AfterBlob)
    }

    fn hit_fault_point(&self, point: FaultPoint) -> Result<(), StoreError> {
        match &self.faults {
            Some(plan) => Ok(plan.hit(point)?),
            None => Ok(()),
        }
    }

    async fn lock(&self, path: &str) -> Result<(Path, PathLock), StoreError> {
        Ok((parse_path(path)?, self.locks.lock(path).await))
    }

    async fn open_object(&self, path: &str) -> Result<Option<GetResult>, StoreError> {
        match self.store.get(&parse_path(path)?).await {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(blob_error(error)),
        }
    }
}

/// Formats only the location, because the other fields contain the credentials of a bucket.
impl fmt::Debug for BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blobs({})", self.location)
    }
}

/// Returns the path of a version's bytes, relative to the home.
///
/// Different arguments always have different paths. No path leads out of the home.
pub fn version_path(
    scope: &ArtifactScope,
    id: &ArtifactId,
    version: u64,
    filename: &str,
) -> String {
    let (kind, owner) = match scope {
        ArtifactScope::Session { session_id } => (SESSIONS, session_id.as_str()),
        ArtifactScope::User { uid } => (USERS, uid.as_str()),
    };
    let owner = path_segment(owner);
    let id = path_segment(id.as_str());
    let filename = path_segment(filename);
    format!("{kind}/{owner}/{ARTIFACTS}/{id}/v{version}/{filename}")
}

/// Converts a text to one path segment. Different texts always have different segments. Letters of
/// all scripts are kept, whereas `Path::from` encodes all characters outside ASCII.
pub fn path_segment(text: &str) -> String {
    match text {
        // The segment `%` is unique: in all other segments, two hex digits follow a `%`.
        "" => return "%".to_owned(),
        "." => return "%2E".to_owned(),
        ".." => return "%2E%2E".to_owned(),
        _ => {}
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_alphanumeric()
            || matches!(c, '_' | '-' | '.' | ' ' | '@' | '+' | '=' | ',' | '(' | ')')
        {
            safe.push(c);
        } else {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                safe.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    safe
}

/// Parses a path that [`version_path`] returned. Does not encode it again.
fn parse_path(path: &str) -> Result<Path, StoreError> {
    if path.is_empty() || path.starts_with('/') || path.ends_with('/') || path.contains('#') {
        return Err(BlobError::Io(format!("{path:?} is not a valid path of a version")).into());
    }
    Path::parse(path).map_err(|error| BlobError::Io(error.to_string()).into())
}

fn blob_error(error: object_store::Error) -> StoreError {
    BlobError::Io(error.to_string()).into()
}
