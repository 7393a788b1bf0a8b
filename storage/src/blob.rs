//! Artifact bytes: whole or not there, in files under the home or in a bucket (ART-2).
//!
//! A path names one version and is never written twice. Names that people or models chose are
//! kept readable where they are safe as one path segment, and percent-encoded elsewhere; so no path
//! holds a `#`, which marks what is not in place yet. Large bodies pass in pieces, both ways; what
//! writes or removes a path waits for its turn (`turns.rs`).
//! Not here: which versions exist, and the intents by which orphans are found (`store.rs`).

mod body;
#[cfg(any(feature = "s3", feature = "gcs"))]
mod cloud;
pub mod contract;
mod files;
mod objects;
mod place;
mod session;
#[cfg(test)]
mod tests;
mod turns;

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{GetResult, GetResultPayload, ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};
use soong_protocol::{ArtifactId, ArtifactScope};

use self::{
    body::Body,
    files::Files,
    objects::Objects,
    turns::{Turn, Turns},
};
pub use self::{
    place::{BlobPlace, BlobPlaceError, Bucket},
    session::NotRemoved,
};
use crate::{
    fault::{FaultPlan, FaultPoint},
    store::StoreError,
};

/// How many files are removed before others get their turn.
const DELETED_AT_ONCE: usize = 256;
/// How many requests a removal of many sends to a bucket at once.
const REQUESTS_AT_ONCE: usize = 16;

/// The bytes of a version as they come.
pub type BlobStream = BoxStream<'static, Result<Bytes, StoreError>>;

/// The bytes of artifacts, one file or object per version; cloneable.
#[derive(Clone)]
pub struct Blobs {
    place: BlobPlace,
    store: Arc<dyn ObjectStore>,
    writing: Writing,
    turns: Arc<Turns>,
    faults: Option<FaultPlan>,
}

/// How versions are written and removed; reading is the same everywhere.
#[derive(Clone)]
enum Writing {
    Files(Files),
    Objects(Objects),
}

impl Blobs {
    /// Opens a place; for [`BlobPlace::File`] the folder `home`, making it if need be.
    ///
    /// What a bucket needs to be reached is looked up in `environment`, by the names that the tools of
    /// its provider use. No request is sent: whether it can be reached shows when it is used.
    ///
    /// # Errors
    /// [`StoreError::Blob`] where the folder can be neither found nor made, what the environment says
    /// cannot be used, or this build lacks the feature that the place needs.
    pub fn open(
        home: &FilePath,
        place: &BlobPlace,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, StoreError> {
        if let Some(feature) = place.missing_feature() {
            let error = BlobPlaceError::NotBuilt { place: place.to_string(), feature };
            return Err(StoreError::Blob(error.to_string()));
        }
        let writing = match place {
            BlobPlace::File => Writing::Files(Files::open(home)?),
            BlobPlace::Memory => Writing::Objects(Objects::new(InMemory::new())),
            #[cfg(feature = "s3")]
            BlobPlace::S3(bucket) => Writing::Objects(cloud::s3(bucket, environment)?),
            #[cfg(feature = "gcs")]
            BlobPlace::Gcs(bucket) => Writing::Objects(cloud::gcs(bucket, environment)?),
            #[cfg(not(all(feature = "s3", feature = "gcs")))]
            _ => {
                // Refused above.
                let _ = environment;
                return Err(StoreError::Blob(format!("{place} cannot be opened")));
            }
        };
        let store = match &writing {
            Writing::Files(files) => Arc::new(files.reader()),
            Writing::Objects(objects) => Arc::clone(&objects.store),
        };
        Ok(Self { place: place.clone(), store, writing, turns: Arc::default(), faults: None })
    }

    /// Lets what is stored from now on go wrong as a plan says.
    #[must_use]
    pub fn with_faults(mut self, plan: FaultPlan) -> Self {
        self.faults = Some(plan);
        self
    }

    /// Stores the bytes of a new version: after this they are durable, whole.
    ///
    /// # Errors
    /// [`StoreError::Exists`] where the path is taken, its file unchanged; [`StoreError::Blob`] where
    /// the disk or the bucket refuses, and then no file of that path is to be seen. Only where the
    /// bucket's answer to a small body was lost, the object may be there, whole, until it is deleted.
    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<(), StoreError> {
        self.write(path, &mut Body::whole(bytes)).await
    }

    /// Stores a new version as it comes, and returns its size in bytes.
    ///
    /// At most a few MiB are held at a time. Dropped before it is done, it leaves nothing behind: what
    /// was written is removed in the background, at the latest when the path is deleted.
    ///
    /// # Errors
    /// As [`Blobs::put`]; [`StoreError::TooLarge`] where more than `limit_bytes` come, and
    /// [`StoreError::Source`] where the stream fails. Nothing is stored then.
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

    /// Stores a file that somebody else made as a new version, and returns its size in bytes. The file
    /// stays where it is. Links are followed: whether it may be read is for the caller to say.
    ///
    /// # Errors
    /// As [`Blobs::put_stream`]; [`StoreError::Source`] where it is no ordinary file.
    pub async fn put_file(&self, path: &str, limit_bytes: u64, source: &FilePath) -> Result<u64, StoreError> {
        let file = body::open_source(source, limit_bytes).await?;
        self.put_stream(path, limit_bytes, body::pieces_of(file)).await
    }

    /// Reads the bytes of a version; `None` where there is no such file.
    pub async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        match self.find(path).await? {
            Some(found) => found.bytes().await.map(Some).map_err(failed),
            None => Ok(None),
        }
    }

    /// Reads the bytes of a version as they come, and says how many there are; `None` where there is no
    /// such file.
    pub async fn get_stream(&self, path: &str) -> Result<Option<(u64, BlobStream)>, StoreError> {
        let Some(found) = self.find(path).await? else { return Ok(None) };
        let size = found.meta.size;
        let stream = match found.payload {
            // Larger pieces than the store's own.
            GetResultPayload::File(file, _) => {
                body::pieces_of(file).map_err(|error| StoreError::Blob(error.to_string())).boxed()
            }
            GetResultPayload::Stream(stream) => stream.map_err(failed).boxed(),
        };
        Ok(Some((size, stream)))
    }

    /// Makes room for a new version: removes what an earlier write left at its path.
    ///
    /// Cheap where nothing is there. What is removed stays so once the new version is stored; whoever stores
    /// none deletes the path.
    pub async fn clear(&self, path: &str) -> Result<(), StoreError> {
        let (key, turn) = self.turn(path).await?;
        match &self.writing {
            Writing::Files(files) => files.clear(&key, turn).await,
            Writing::Objects(objects) => objects.delete(&key, turn).await,
        }
    }

    /// Removes the file of a version, what an interrupted write left of it, and the folders that are
    /// empty then, up to the folder of all artifacts. One that is gone already is fine.
    ///
    /// Waits for a write of the same path that is under way.
    pub async fn delete(&self, path: &str) -> Result<(), StoreError> {
        self.delete_all(&[path.to_owned()]).await.pop().unwrap_or(Ok(()))
    }

    /// The same for many versions, faster than one by one; returns what came of each, in the same order.
    pub async fn delete_all(&self, paths: &[String]) -> Vec<Result<(), StoreError>> {
        let mut outcomes = Vec::with_capacity(paths.len());
        for some in paths.chunks(DELETED_AT_ONCE) {
            match self.delete_some(some).await {
                Ok(some) => outcomes.extend(some),
                Err(error) => outcomes.extend(some.iter().map(|_| Err(error.clone()))),
            }
        }
        outcomes
    }

    async fn delete_some(&self, paths: &[String]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let files = match &self.writing {
            Writing::Files(files) => files,
            Writing::Objects(objects) => {
                let one = |path: String| async move {
                    let (key, turn) = self.turn(&path).await?;
                    objects.delete(&key, turn).await
                };
                let removing = futures::stream::iter(paths.to_vec()).map(one).buffered(REQUESTS_AT_ONCE);
                return Ok(removing.collect().await);
            }
        };
        // Turns are taken in the order of their paths: two removals never wait for each other.
        let mut order: Vec<usize> = (0..paths.len()).collect();
        order.sort_by_key(|place| &paths[*place]);
        order.dedup_by_key(|place| &paths[*place]);
        let mut keys = Vec::with_capacity(order.len());
        for place in &order {
            keys.push(self.turn(&paths[*place]).await?);
        }
        let removed: HashMap<&String, Result<(), StoreError>> =
            order.iter().map(|place| &paths[*place]).zip(files.delete(keys).await?).collect();
        Ok(paths.iter().map(|path| removed.get(path).cloned().unwrap_or(Ok(()))).collect())
    }

    /// Returns where the file of a version lies, or would; `None` where versions are no local files.
    pub fn local_path(&self, path: &str) -> Option<PathBuf> {
        match &self.writing {
            Writing::Files(files) => files.locate(&parsed(path).ok()?).ok(),
            Writing::Objects(_) => None,
        }
    }

    async fn write(&self, path: &str, body: &mut Body<'_>) -> Result<(), StoreError> {
        let (key, turn) = self.turn(path).await?;
        self.meet(FaultPoint::BeforeBlob)?;
        match &self.writing {
            Writing::Files(files) => files.put(&key, body, turn).await,
            Writing::Objects(objects) => objects.put(&key, body, turn).await,
        }?;
        self.meet(FaultPoint::AfterBlob)
    }

    fn meet(&self, point: FaultPoint) -> Result<(), StoreError> {
        match &self.faults {
            Some(plan) => Ok(plan.meet(point)?),
            None => Ok(()),
        }
    }

    async fn turn(&self, path: &str) -> Result<(Path, Turn), StoreError> {
        Ok((parsed(path)?, self.turns.take(path).await))
    }

    async fn find(&self, path: &str) -> Result<Option<GetResult>, StoreError> {
        match self.store.get(&parsed(path)?).await {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Names the place only: what a bucket is reached with holds secrets.
impl fmt::Debug for Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blobs({})", self.place)
    }
}

/// Returns where the bytes of a version lie, relative to the home.
///
/// Equal arguments give equal paths, different ones different paths; none leaves the home.
pub fn version_path(scope: &ArtifactScope, id: &ArtifactId, version: u64, filename: &str) -> String {
    let (kind, owner) = match scope {
        ArtifactScope::Session { session_id } => ("sessions", session_id.as_str()),
        ArtifactScope::User { uid } => ("users", uid.as_str()),
    };
    let (owner, id, filename) = (segment(owner), segment(id.as_str()), segment(filename));
    format!("{kind}/{owner}/artifacts/{id}/v{version}/{filename}")
}

/// Makes a text one path segment; equal texts give equal ones, different texts different ones. Letters of any script stay
/// as they are; `Path::from` would encode them all.
pub fn segment(text: &str) -> String {
    match text {
        // A lone '%' is what no other text encodes to.
        "" => return "%".to_owned(),
        "." => return "%2E".to_owned(),
        ".." => return "%2E%2E".to_owned(),
        _ => {}
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ' | '@' | '+' | '=' | ',' | '(' | ')') {
            safe.push(c);
        } else {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                safe.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    safe
}

/// Takes a path as it is: it was made by [`version_path`], and must not be encoded twice.
fn parsed(path: &str) -> Result<Path, StoreError> {
    if path.is_empty() || path.starts_with('/') || path.ends_with('/') || path.contains('#') {
        return Err(StoreError::Blob(format!("{path:?} is no path of a version")));
    }
    Path::parse(path).map_err(|error| StoreError::Blob(error.to_string()))
}

fn failed(error: object_store::Error) -> StoreError {
    StoreError::Blob(error.to_string())
}
