//! Artifact bytes as objects of a store that supports multipart uploads: memory, S3, GCS.
//!
//! A body that fits into one part is one request, which the store rejects if the object exists. A
//! larger body is a multipart upload, of which nothing is visible until it is completed. Its upload
//! id is stored in a small note object, `NAME#upload`, until the upload has ended. So an upload
//! that a crash interrupted is found and aborted when its version is deleted.
//!
//! Invariants:
//! - An abandoned upload is removed, in the background if the caller was dropped.
//! - Writers of one process never replace an object.
//!
//! Not guaranteed: if several processes write the same path at the same time, the last large body
//! wins. Versions have a single writer, the owner of their home.

use std::sync::Arc;

use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    multipart::{MultipartStore, PartId},
    path::Path,
};
use tokio::runtime::Handle;

use super::{
    blob_error,
    body::{Body, Piece},
    path_locks::PathLock,
};
use crate::store::{BlobError, StoreError};

/// Size of a part. S3 requires at least 5 MiB for all parts except the last, and allows at most 10
/// 000 parts. Some S3-compatible services require parts of equal size.
pub(super) const PART_BYTES: usize = 5 * 1024 * 1024;

/// The objects of a bucket.
#[derive(Clone)]
pub(super) struct Objects {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) parts: Arc<dyn MultipartStore>,
}

impl Objects {
    /// Creates the objects from a store that supports single and multipart requests.
    pub(super) fn new<S: ObjectStore + MultipartStore>(store: S) -> Self {
        let store = Arc::new(store);
        Self {
            store: Arc::<S>::clone(&store),
            parts: store,
        }
    }

    /// Writes a new object; [`StoreError::AlreadyExists`] if it already exists.
    pub(super) async fn put(
        &self,
        key: &Path,
        body: &mut Body<'_>,
        turn: PathLock,
    ) -> Result<(), StoreError> {
        let first = body.next_piece(PART_BYTES).await?;
        if first.is_last {
            let payload: PutPayload = first.bytes.into_iter().collect();
            return match self
                .store
                .put_opts(key, payload, PutOptions::from(PutMode::Create))
                .await
            {
                Ok(_) => Ok(()),
                Err(Error::AlreadyExists { .. }) => Err(already_exists(key)),
                Err(error) => Err(blob_error(error)),
            };
        }
        match self.store.head(key).await {
            Ok(_) => return Err(already_exists(key)),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(blob_error(error)),
        }
        let upload = Upload::begin(self.clone(), key.clone(), turn).await?;
        match upload.send(first, body).await {
            Ok(parts) => upload.complete(parts).await,
            Err(error) => {
                upload.abort().await;
                Err(error)
            }
        }
    }

    /// Deletes an object, and the parts of an unfinished upload.
    pub(super) async fn delete(&self, key: &Path, _turn: PathLock) -> Result<(), StoreError> {
        self.abort_unfinished_upload(key)
            .await
            .map_err(blob_error)?;
        ignore_not_found(self.store.delete(key).await).map_err(blob_error)
    }

    /// Aborts an upload that was neither completed nor abandoned.
    async fn abort_unfinished_upload(&self, key: &Path) -> object_store::Result<()> {
        let note = upload_note_path(key)?;
        let id = match self.store.get(&note).await {
            Ok(found) => found.bytes().await?,
            Err(Error::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        ignore_not_found(
            self.parts
                .abort_multipart(key, &String::from_utf8_lossy(&id).into_owned())
                .await,
        )?;
        ignore_not_found(self.store.delete(&note).await)
    }
}

/// A multipart upload. If it is dropped before its end, it is aborted in the background.
struct Upload {
    state: Option<UploadState>,
    runtime: Handle,
}

/// State that is needed to abort an upload.
struct UploadState {
    objects: Objects,
    key: Path,
    id: String,
    // Held until everything is removed, so that the next operation on the path does not meet
    // remains of this one.
    _turn: PathLock,
    /// Whether the store was asked to complete the upload, and may have done so.
    is_completing: bool,
}

impl Upload {
    /// Begins an upload and stores its note. This runs to its end even if the caller is dropped,
    /// because an upload with an unknown id could not be aborted.
    async fn begin(objects: Objects, key: Path, turn: PathLock) -> Result<Self, StoreError> {
        let begun = tokio::spawn(async move {
            objects.abort_unfinished_upload(&key).await?;
            let id = objects.parts.create_multipart(&key).await?;
            let store = Arc::clone(&objects.store);
            let note = upload_note_path(&key)?;
            let number = id.clone().into_bytes();
            let open = UploadState {
                objects,
                key,
                id,
                _turn: turn,
                is_completing: false,
            };
            let upload = Self {
                state: Some(open),
                runtime: Handle::current(),
            };
            match store.put(&note, number.into()).await {
                Ok(_) => Ok(upload),
                Err(error) => {
                    upload.abort().await;
                    Err(error)
                }
            }
        });
        begun
            .await
            .map_err(|error| BlobError::Io(error.to_string()))?
            .map_err(blob_error)
    }

    async fn send(&self, first: Piece, body: &mut Body<'_>) -> Result<Vec<PartId>, StoreError> {
        let Some(open) = &self.state else {
            return Ok(Vec::new());
        };
        let mut sent = Vec::new();
        let mut piece = first;
        loop {
            let is_last = piece.is_last;
            let payload: PutPayload = piece.bytes.into_iter().collect();
            let part = open
                .objects
                .parts
                .put_part(&open.key, &open.id, sent.len(), payload)
                .await;
            sent.push(part.map_err(blob_error)?);
            if is_last {
                return Ok(sent);
            }
            piece = body.next_piece(PART_BYTES).await?;
        }
    }

    async fn complete(mut self, sent: Vec<PartId>) -> Result<(), StoreError> {
        let Some(open) = &mut self.state else {
            return Ok(());
        };
        open.is_completing = true;
        match open
            .objects
            .parts
            .complete_multipart(&open.key, &open.id, sent)
            .await
        {
            Ok(_) => {
                let Some(open) = self.state.take() else {
                    return Ok(());
                };
                if let Err(error) = open.delete_note().await {
                    tracing::debug!(object = %open.key, %error, "could not delete the note of a completed upload; it is kept until its version is deleted");
                }
                Ok(())
            }
            Err(error) => {
                self.abort().await;
                Err(blob_error(error))
            }
        }
    }

    async fn abort(mut self) {
        if let Some(open) = &self.state {
            open.clean_up().await;
            self.state = None;
        }
    }
}

impl UploadState {
    /// Removes everything that was sent. If this fails, a later deletion finds the upload by its
    /// note.
    async fn clean_up(&self) {
        let cleared = async {
            ignore_not_found(
                self.objects
                    .parts
                    .abort_multipart(&self.key, &self.id)
                    .await,
            )?;
            if self.is_completing {
                ignore_not_found(self.objects.store.delete(&self.key).await)?;
            }
            self.delete_note().await
        };
        if let Err(error) = cleared.await {
            tracing::warn!(object = %self.key, %error, "could not remove an unfinished upload; it is kept until its version is deleted");
        }
    }

    async fn delete_note(&self) -> object_store::Result<()> {
        ignore_not_found(
            self.objects
                .store
                .delete(&upload_note_path(&self.key)?)
                .await,
        )
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(open) = self.state.take() {
            drop(self.runtime.spawn(async move { open.clean_up().await }));
        }
    }
}

/// Returns the path of the note with a path's upload id; no version has such a name.
fn upload_note_path(key: &Path) -> object_store::Result<Path> {
    Ok(Path::parse(format!("{key}#upload"))?)
}

fn already_exists(key: &Path) -> StoreError {
    StoreError::AlreadyExists(format!("the file {key}"))
}

/// Treats a missing object as deleted.
fn ignore_not_found(removed: object_store::Result<()>) -> object_store::Result<()> {
    match removed {
        Err(Error::NotFound { .. }) => Ok(()),
        removed => removed,
    }
}
