//! Copies artifacts of a session for another session: the content of each at one of its revisions
//! becomes version 1.
//!
//! As for every version, the bytes are announced and written first. The code that creates the other
//! session registers them.
//!
//! Elsewhere: the choice of artifacts, and the commit.

use futures::{StreamExt, TryStreamExt};
use soong_protocol::{
    Artifact, ArtifactId, ArtifactScope, ArtifactWrite, BlobWrite, ErrorInfo, EventDraft,
    NewArtifactCopy, NewVersion, SessionId, TraceId, UpdateType, Write,
};
use soong_storage::blob::version_path;
use soong_tool::artifact::content::{self, is_text};

use crate::{
    artifact::{
        ArtifactStore,
        reader::{file_is_missing, unreadable},
        store::{saved_event, store_error},
    },
    clock::now,
};

/// Number of artifacts that are copied concurrently.
const MAX_CONCURRENT: usize = 16;

impl ArtifactStore {
    /// Writes the files of copies for a session that does not exist yet. Each artifact is paired
    /// with the revision to copy. Diagnostic artifacts are skipped. If one copy fails, all are
    /// deleted.
    pub(crate) async fn copy_all(
        &self,
        session: &SessionId,
        all: Vec<(Artifact, u64)>,
    ) -> Result<Vec<NewArtifactCopy>, ErrorInfo> {
        let planned: Vec<(Artifact, u64, NewArtifactCopy)> = all
            .into_iter()
            .filter(|(artifact, _)| !artifact.debug)
            .map(|(artifact, number)| {
                let copy = plan_copy(session, &artifact);
                (artifact, number, copy)
            })
            .collect();
        let paths: Vec<String> = planned
            .iter()
            .map(|(_, _, copy)| copy.version.path.clone())
            .collect();
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let announced = paths
            .iter()
            .map(|path| {
                Write::Blob(BlobWrite::Intent {
                    path: path.clone(),
                    at: now(),
                })
            })
            .collect();
        self.append(announced).await.map_err(store_error)?;
        let copied = futures::stream::iter(planned)
            .map(|(artifact, number, copy)| self.copy(artifact, number, copy))
            .buffered(MAX_CONCURRENT)
            .try_collect()
            .await;
        if copied.is_err() {
            self.discard_copies(&paths).await;
        }
        copied
    }

    async fn copy(
        &self,
        artifact: Artifact,
        number: u64,
        mut copy: NewArtifactCopy,
    ) -> Result<NewArtifactCopy, ErrorInfo> {
        let id = artifact.artifact_id.clone();
        let stored = self
            .reads
            .read(move |reader| reader.blob_path_and_type(&id, number))
            .await?;
        let is_current = number == artifact.current_version;
        let NewVersion {
            artifact: made,
            path,
            ..
        } = &mut copy.version;
        match stored {
            Some((from, content_type)) => {
                let (_, pieces) = self
                    .blobs
                    .get_stream(&from)
                    .await
                    .map_err(store_error)?
                    .ok_or_else(|| file_is_missing(&artifact, &from))?;
                let pieces = pieces
                    .map(|piece| piece.map_err(std::io::Error::other))
                    .boxed();
                made.size = self
                    .blobs
                    .put_stream(path, u64::MAX, pieces)
                    .await
                    .map_err(store_error)?;
                made.content_type = content_type;
                if !is_current {
                    made.summary = if is_text(&made.content_type) {
                        self.read_summary(path).await?
                    } else {
                        None
                    };
                }
            }
            // The revision is an edit that had not been stored as a version.
            None => {
                let text = self.reader.text_at(&artifact, number).await?;
                let text = text.ok_or_else(|| {
                    unreadable(&artifact, &format!("revision {number} has no text"))
                })?;
                made.size = text.len() as u64;
                self.blobs
                    .put(path, bytes::Bytes::copy_from_slice(text.as_bytes()))
                    .await
                    .map_err(store_error)?;
                if !is_current {
                    made.summary = content::summary(&text);
                }
            }
        }
        Ok(copy)
    }

    /// Deletes the files of copies that are not used.
    pub(crate) async fn discard_copies(&self, paths: &[String]) {
        if let Err(error) = self.delete_blobs(paths).await {
            // The announcements remain: the next owner deletes the files.
            tracing::warn!(%error, "unused copies could not be deleted; they are deleted when the home is opened next");
        }
    }
}

/// Returns the writes that register copies, and the events for them in the given trace.
pub(crate) fn registration_writes(
    copies: Vec<NewArtifactCopy>,
    trace: &TraceId,
) -> (Vec<Write>, Vec<Write>) {
    let events = copies.iter().map(|copy| {
        let artifact = &copy.version.artifact;
        Write::Event(EventDraft::new(
            trace.clone(),
            None,
            artifact.updated_at,
            saved_event(artifact),
        ))
    });
    let announcements = events.collect();
    (
        copies
            .into_iter()
            .map(|copy| Write::Artifact(ArtifactWrite::Copy(Box::new(copy))))
            .collect(),
        announcements,
    )
}

/// Returns the planned copy. Its size is not known yet.
fn plan_copy(session: &SessionId, artifact: &Artifact) -> NewArtifactCopy {
    let scope = ArtifactScope::Session {
        session_id: session.clone(),
    };
    let id = ArtifactId::generate();
    let at = now();
    let path = version_path(&scope, &id, 1, &artifact.filename);
    let target = Artifact {
        artifact_id: id,
        scope,
        // An artifact that is withdrawn now had its name at the copied revision.
        name: artifact.name.clone().or_else(|| artifact.withdrawn.clone()),
        withdrawn: None,
        current_version: 1,
        stored_version: 1,
        dirty: false,
        created_at: at,
        updated_at: at,
        ..artifact.clone()
    };
    NewArtifactCopy {
        version: NewVersion {
            artifact: target,
            update_type: UpdateType::Create,
            path,
        },
        source_artifact: artifact.artifact_id.clone(),
    }
}
