//! Flush: stores edits as versions when the run that made them ends, and before a version is saved
//! over them (ART-4, ART-5).
//!
//! Each document is flushed in a separate transaction, which is retried while the disk rejects it.
//! If one fails, its edits are kept and the other documents are still stored. Flushing is
//! idempotent.

use std::time::Duration;

use futures::StreamExt;
use soong_protocol::{
    Artifact, ArtifactScope, ArtifactWrite, ErrorCode, ErrorInfo, EventDraft, FlushFailure,
    FlushReport, NewDocumentVersion, RunId, TraceId, UpdateType, Write,
};
use soong_storage::{blob::version_path, store::StoreError};

use crate::{
    artifact::{
        ArtifactStore,
        store::{saved_event, store_error},
    },
    clock::now,
};

/// Number of documents of a run that are flushed concurrently.
const MAX_CONCURRENT: usize = 8;
/// Maximum number of attempts to flush a document while the disk rejects it.
const MAX_ATTEMPTS: u32 = 5;
/// Delay before the second attempt; it doubles after each attempt.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// Run that flushes, for the event.
#[derive(Debug, Clone)]
pub(in crate::artifact) struct Flusher {
    pub(in crate::artifact) trace_id: TraceId,
    pub(in crate::artifact) run_id: RunId,
}

impl ArtifactStore {
    /// Stores the documents that a run has edited as versions. Returns the stored versions and the
    /// failures.
    ///
    /// # Errors
    /// If the edited documents cannot be determined.
    pub(crate) async fn flush_run(
        &self,
        trace_id: &TraceId,
        run_id: &RunId,
    ) -> Result<FlushReport, ErrorInfo> {
        let wanted = run_id.clone();
        let documents = self
            .reads
            .read(move |reader| reader.unflushed_documents(&wanted))
            .await?;
        let by = &Flusher {
            trace_id: trace_id.clone(),
            run_id: run_id.clone(),
        };
        let flush = |document: Artifact| async move {
            (document.label().to_owned(), self.flush(&document, by).await)
        };
        let mut outcomes = futures::stream::iter(documents)
            .map(flush)
            .buffer_unordered(MAX_CONCURRENT);
        let mut flushed = FlushReport::default();
        while let Some((name, outcome)) = outcomes.next().await {
            match outcome {
                Ok(Some(version)) => {
                    flushed.versions.insert(name, version);
                }
                Ok(None) => {} // it was deleted in the meantime
                Err(error) => {
                    tracing::error!(run = %run_id, document = name, %error, "a document could not be stored as a version");
                    flushed.failed.push(FlushFailure { name, error });
                }
            }
        }
        flushed.failed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(flushed)
    }

    /// Stores a document as a version. Returns its stored version, or `None` if the document was
    /// deleted.
    async fn flush(&self, document: &Artifact, by: &Flusher) -> Result<Option<u64>, ErrorInfo> {
        let mut wait = FIRST_BACKOFF;
        for tried in 1.. {
            let outcome = self.flush_attempt(document, by).await;
            match outcome {
                Err(error) if error.retryable && tried < MAX_ATTEMPTS => {
                    tracing::debug!(document = document.label(), %error, "flush failed, retrying");
                }
                outcome => return outcome,
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        Ok(None)
    }

    async fn flush_attempt(
        &self,
        document: &Artifact,
        by: &Flusher,
    ) -> Result<Option<u64>, ErrorInfo> {
        let _name_guard = self.lock_name(&document.scope, document.label()).await;
        // Another flush may have stored it already.
        match self
            .row(&document.scope, document.artifact_id.as_str())
            .await?
        {
            Some(artifact) if artifact.dirty => {
                self.flush_locked(&artifact, Some(by)).await.map(Some)
            }
            Some(artifact) => Ok(Some(artifact.stored_version)),
            None => Ok(None),
        }
    }

    /// Stores a document as a version. The caller holds the lock of its name. Edits may be recorded
    /// concurrently.
    pub(in crate::artifact) async fn flush_locked(
        &self,
        artifact: &Artifact,
        by: Option<&Flusher>,
    ) -> Result<u64, ErrorInfo> {
        let no_text = || {
            ErrorInfo::new(
                ErrorCode::InternalError,
                format!("{:?} is not text", artifact.label()),
            )
        };
        let text = self.text_of(artifact).await?.ok_or_else(no_text)?;
        let id = artifact.artifact_id.clone();
        let stored = artifact.stored_version;
        let current = artifact.current_version;
        let edits = self
            .reads
            .read(move |reader| reader.edits(&id, stored, current))
            .await?;
        let update_type = edits
            .iter()
            .map(|edit| edit.update_type)
            .max()
            .unwrap_or(UpdateType::Update);
        let path = version_path(
            &artifact.scope,
            &artifact.artifact_id,
            current,
            &artifact.filename,
        );
        self.record_write_intent(&path).await?;
        if let Err(error) = self
            .blobs
            .put(&path, bytes::Bytes::copy_from_slice(text.as_bytes()))
            .await
        {
            let _ = self.delete_blob(&path).await;
            return Err(store_error(error));
        }
        let flush = NewDocumentVersion {
            artifact_id: artifact.artifact_id.clone(),
            version: current,
            size: text.len() as u64,
            update_type,
            provenance: artifact.provenance.clone(),
            path: path.clone(),
            at: now(),
        };
        let mut writes = vec![Write::Artifact(ArtifactWrite::DocumentVersion(Box::new(
            flush,
        )))];
        if let Some(draft) = flush_event(artifact, by) {
            writes.push(Write::Event(draft));
        }
        match self.append(writes).await {
            Ok(()) => {
                self.inventories.invalidate(&artifact.scope);
                Ok(current)
            }
            Err(error @ (StoreError::AlreadyExists(_) | StoreError::NotFound(_))) => {
                self.delete_blob(&path).await?;
                Err(store_error(error))
            }
            Err(error) => Err(store_error(error)),
        }
    }
}

/// Returns the event of a flush: in the trace of the ending run, else in the session's root trace.
fn flush_event(artifact: &Artifact, by: Option<&Flusher>) -> Option<EventDraft> {
    let (trace, run) = match (by, &artifact.scope) {
        (Some(by), _) => (by.trace_id.clone(), Some(by.run_id.clone())),
        (None, ArtifactScope::Session { session_id }) => (TraceId::root(session_id), None),
        (None, ArtifactScope::User { .. }) => return None,
    };
    Some(EventDraft::new(trace, run, now(), saved_event(artifact)))
}
