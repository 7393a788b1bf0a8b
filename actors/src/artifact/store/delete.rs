//! Deletion of artifacts, and of blobs that no row refers to: first the rows, then the file, then
//! the announcement (DUR-8).
//!
//! A crash in between leaves an announcement, never a file without any record. Deletions are
//! batched: each folder is synced once, and all announcements are removed in one append.

use soong_protocol::{
    Artifact, ArtifactEvent, ArtifactScope, ArtifactWrite, BlobWrite, ErrorInfo, EventDraft,
    TraceId, Write,
};

use crate::{
    artifact::{ArtifactStore, store::store_error},
    clock::now,
};

impl ArtifactStore {
    /// Deletes the files that were announced but never registered. Called when an owner opens the
    /// home.
    pub(crate) async fn delete_unregistered_blobs(&self) -> Result<usize, ErrorInfo> {
        let intents = self.reads.read(|reader| reader.blob_intents()).await?;
        for (path, outcome) in intents.iter().zip(self.delete_blobs(&intents).await?) {
            if let Err(error) = outcome {
                // The file is never read, and the next write to this path clears it, so this is no
                // reason to refuse to open the home.
                tracing::warn!(path, %error, "a file left over from a failed save could not be deleted");
            }
        }
        Ok(intents.len())
    }

    /// Deletes a blob that no row refers to, then its announcement.
    pub(in crate::artifact) async fn delete_blob(&self, path: &str) -> Result<(), ErrorInfo> {
        self.delete_blobs(&[path.to_owned()])
            .await?
            .pop()
            .unwrap_or(Ok(()))
    }

    /// Same as [`delete_blob`](Self::delete_blob) for several blobs. Returns the result for each.
    /// If the append fails, their announcements remain.
    pub(in crate::artifact) async fn delete_blobs(
        &self,
        paths: &[String],
    ) -> Result<Vec<Result<(), ErrorInfo>>, ErrorInfo> {
        let outcomes = self.blobs.delete_all(paths).await;
        let gone = paths
            .iter()
            .zip(&outcomes)
            .filter(|(_, outcome)| outcome.is_ok());
        let writes: Vec<Write> = gone
            .map(|(path, _)| Write::Blob(BlobWrite::Deleted { path: path.clone() }))
            .collect();
        if !writes.is_empty() {
            self.append(writes).await.map_err(store_error)?;
        }
        Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.map_err(store_error))
            .collect())
    }

    /// Deletes an artifact, rows first. Returns `false` if it does not exist or `is_allowed`
    /// rejects its current state. Files that cannot be deleted now are deleted when the home is
    /// opened next.
    pub(in crate::artifact) async fn delete_artifact(
        &self,
        artifact: &Artifact,
        is_allowed: impl Fn(&Artifact) -> bool,
    ) -> Result<bool, ErrorInfo> {
        let _name_guard = self.lock_name(&artifact.scope, artifact.label()).await;
        match self
            .row(&artifact.scope, artifact.artifact_id.as_str())
            .await?
        {
            Some(now) if is_allowed(&now) => {}
            _ => return Ok(false),
        }
        let id = artifact.artifact_id.clone();
        let paths = self
            .reads
            .read(move |reader| reader.blob_paths(&id))
            .await?;
        let mut writes = vec![Write::Artifact(ArtifactWrite::Deleted {
            artifact_id: artifact.artifact_id.clone(),
            at: now(),
        })];
        if let ArtifactScope::Session { session_id } = &artifact.scope {
            let event = ArtifactEvent::Deleted {
                name: artifact.name.clone(),
                artifact_id: artifact.artifact_id.clone(),
            };
            writes.push(Write::Event(EventDraft::new(
                TraceId::root(session_id),
                None,
                now(),
                event,
            )));
        }
        self.append(writes).await.map_err(store_error)?;
        self.inventories.invalidate(&artifact.scope);
        self.working_sets.invalidate(artifact);
        match self.delete_blobs(&paths).await {
            Ok(outcomes) => {
                for (path, error) in paths
                    .iter()
                    .zip(outcomes)
                    .filter_map(|(path, one)| Some((path, one.err()?)))
                {
                    tracing::warn!(path, %error, "a file of a deleted artifact could not be deleted; it is deleted when the home is opened next");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the deletion of an artifact's files could not be recorded; it is completed when the home is opened next")
            }
        }
        Ok(true)
    }
}
