//! Storing a version: receives the content, writes the file, and registers the version (ART-2,
//! DUR-8).

use std::{collections::HashSet, path::PathBuf};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use soong_protocol::{
    Artifact, ArtifactId, ArtifactName, ArtifactScope, ArtifactWrite, ErrorCode, ErrorInfo,
    EventDraft, NewVersion, TraceId, UpdateType, Write,
};
use soong_storage::{
    blob::version_path,
    store::{BlobError, StoreError},
};
use soong_tool::artifact::{Content, IfExists, Save, content::is_text};

use super::{saved_event, store_error, summary};
use crate::{
    artifact::{ArtifactStore, change::already_exists},
    clock::now,
};

/// Maximum number of attempts of a save that loses against concurrent edits.
const MAX_ATTEMPTS: usize = 100;
/// Maximum size of a streamed body that is kept in memory, in bytes. Larger ones are staged in a
/// blob.
const MAX_IN_MEMORY_BYTES: usize = 1024 * 1024;

/// Request to store a version under a name or without one.
pub(super) struct PutRequest {
    pub(super) scope: ArtifactScope,
    /// `None`: a captured product without a name.
    pub(super) name: Option<ArtifactName>,
    pub(super) save: Save,
    /// Recorded type of the change. `None`: `Create` for the first version, else `Rewrite`.
    pub(super) update_type: Option<UpdateType>,
}

/// Precondition of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precondition {
    /// No precondition.
    Any,
    /// The artifact is at this version; 0 if it must not exist.
    Version(u64),
}

/// Next step of a put, chosen from the artifact that has the name.
enum PutStep {
    /// Store the next version.
    StoreNext,
    /// Try again with a free name.
    Rename,
    /// Store nothing: the same tool call has already created the artifact.
    KeepExisting,
    /// Store nothing: the precondition is not met.
    Decline,
}

impl PutStep {
    /// Chooses the next step. Fails if the save must create the artifact, but something else has
    /// created it.
    fn choose(
        existing: Option<&Artifact>,
        save: &Save,
        expect: Precondition,
    ) -> Result<Self, ErrorInfo> {
        if let Precondition::Version(version) = expect
            && existing.map_or(0, |artifact| artifact.current_version) != version
        {
            return Ok(Self::Decline);
        }
        let label = save.key.as_deref().unwrap_or_default();
        save.condition
            .check(label, existing.map(|artifact| artifact.current_version))?;
        let Some(artifact) = existing else {
            return Ok(Self::StoreNext);
        };
        match save.if_exists {
            IfExists::NextVersion => Ok(Self::StoreNext),
            IfExists::Rename => Ok(Self::Rename),
            IfExists::Fail => {
                let is_repeated = artifact.provenance == save.provenance
                    && artifact.provenance.tool_call_id.is_some();
                if is_repeated && artifact.current_version == 1 {
                    Ok(Self::KeepExisting)
                } else {
                    Err(already_exists(&artifact.key()))
                }
            }
        }
    }
}

/// Content received for a save. Every attempt reuses it.
enum ReceivedContent {
    /// In memory.
    Bytes(Bytes),
    /// In a file of the producer.
    File(PathBuf),
    /// In a staging blob with this path.
    Staged(String),
}

impl ArtifactStore {
    /// Stores a version. Returns `None` if the precondition is not met.
    pub(super) async fn put(
        &self,
        put: PutRequest,
        expect: Precondition,
    ) -> Result<Option<Artifact>, ErrorInfo> {
        let scope = put.scope.clone();
        let outcome = self.receive_and_put(put, expect).await;
        if outcome.is_err()
            && let ArtifactScope::Session { session_id } = &scope
            && self
                .require_session(&scope)
                .await
                .is_err_and(|error| error.code == ErrorCode::SessionNotFound)
        {
            // The session was deleted meanwhile, and the save may have created its folders again.
            self.blobs.remove_empty_session_folders(session_id).await;
        }
        outcome
    }

    async fn receive_and_put(
        &self,
        mut put: PutRequest,
        expect: Precondition,
    ) -> Result<Option<Artifact>, ErrorInfo> {
        let label = put
            .name
            .as_ref()
            .map_or("the output", ArtifactName::as_str)
            .to_owned();
        let is_text = is_text(&put.save.content_type);
        if let Content::Bytes(bytes) = &put.save.content {
            self.check_size(&label, is_text, bytes.len() as u64)?;
        }
        let content = std::mem::replace(&mut put.save.content, Content::Bytes(Bytes::new()));
        // Receive the body before taking the lock, because its sender may be slow.
        let body = self.receive(&put.scope, &label, is_text, content).await?;
        let outcome = self.put_body(put, &body, expect).await;
        if let ReceivedContent::Staged(path) = &body
            && let Err(error) = self.delete_blob(path).await
        {
            tracing::warn!(path, %error, "a staged upload could not be deleted; it is deleted when the home is opened next");
        }
        outcome
    }

    /// Stores a version whose content has been received. Retries if a concurrent edit takes its
    /// number.
    async fn put_body(
        &self,
        put: PutRequest,
        body: &ReceivedContent,
        expect: Precondition,
    ) -> Result<Option<Artifact>, ErrorInfo> {
        let PutRequest {
            scope,
            name: wanted,
            save,
            update_type,
        } = put;
        let mut name = wanted.clone();
        let mut lost_races = 0;
        while lost_races < MAX_ATTEMPTS {
            // No other writer can use an artifact without a name, so no lock is needed.
            let (_name_guard, existing) = match &name {
                Some(name) => {
                    let name_guard = self.lock_name(&scope, name.as_str()).await;
                    (Some(name_guard), self.row(&scope, name.as_str()).await?)
                }
                None => (None, None),
            };
            match PutStep::choose(existing.as_ref(), &save, expect)? {
                PutStep::StoreNext => {}
                PutStep::Rename => {
                    name = self.free_name(&scope, wanted.as_ref()).await?;
                    continue;
                }
                PutStep::KeepExisting => return Ok(existing),
                PutStep::Decline => return Ok(None),
            }
            if let Some(artifact) = existing.as_ref().filter(|artifact| artifact.dirty) {
                self.flush_locked(artifact, None).await?;
            }
            let mut artifact = next_version(&scope, name.as_ref(), &save, existing.as_ref());
            if existing.is_none() {
                self.require_session(&scope).await?;
            }
            let path = version_path(
                &scope,
                &artifact.artifact_id,
                artifact.current_version,
                &artifact.filename,
            );
            self.write_content(&mut artifact, &path, body).await?;
            if self.register(&artifact, &path, update_type).await? {
                return Ok(Some(artifact));
            }
            lost_races += 1;
        }
        let label = name.as_ref().map_or("", ArtifactName::as_str);
        let message = format!(
            "{label:?} has too many concurrent changes, and this save conflicted with them: try again"
        );
        Err(ErrorInfo::retryable(ErrorCode::Overloaded, message))
    }

    /// Writes the file of a version, and sets its size and, if it has none, its summary.
    async fn write_content(
        &self,
        artifact: &mut Artifact,
        path: &str,
        body: &ReceivedContent,
    ) -> Result<(), ErrorInfo> {
        artifact.size = self.write_blob(path, body, artifact).await?;
        if artifact.summary.is_none() && is_text(&artifact.content_type) {
            artifact.summary = match body {
                ReceivedContent::Bytes(bytes) => summary(bytes),
                ReceivedContent::File(_) | ReceivedContent::Staged(_) => {
                    self.read_summary(path).await?
                }
            };
        }
        Ok(())
    }

    /// Registers a version whose file is written. Returns `false` if an edit has taken its number.
    ///
    /// The name must be locked.
    async fn register(
        &self,
        artifact: &Artifact,
        path: &str,
        update_type: Option<UpdateType>,
    ) -> Result<bool, ErrorInfo> {
        let first = if artifact.current_version == 1 {
            UpdateType::Create
        } else {
            UpdateType::Rewrite
        };
        let version = NewVersion {
            artifact: artifact.clone(),
            update_type: update_type.unwrap_or(first),
            path: path.to_owned(),
        };
        match self.append(registration_writes(version)).await {
            Ok(()) => {
                self.inventories.invalidate(&artifact.scope);
                self.working_sets.invalidate(artifact);
                Ok(true)
            }
            // The file must be deleted while the name is locked, because the file of the edit's
            // version will have the same path.
            Err(StoreError::AlreadyExists(_)) => {
                self.delete_blob(path).await?;
                Ok(false)
            }
            // It is unknown whether the registration was committed, so the file is kept. If it was
            // not committed, the next owner of the home finds the announcement and deletes the
            // file.
            Err(error) if error.is_transient() || error == StoreError::Closed => {
                Err(store_error(error))
            }
            Err(error) => {
                self.delete_blob(path).await?;
                Err(store_error(error))
            }
        }
    }

    /// Returns the first of `name_1`, `name_2`, … that is not in use.
    async fn free_name(
        &self,
        scope: &ArtifactScope,
        wanted: Option<&ArtifactName>,
    ) -> Result<Option<ArtifactName>, ErrorInfo> {
        let Some(wanted) = wanted else {
            return Ok(None);
        };
        let scope = scope.clone();
        let all = self
            .reads
            .read(move |reader| reader.artifacts(&scope))
            .await?;
        let used_names: HashSet<String> = all
            .into_iter()
            .filter_map(|artifact| artifact.name)
            .collect();
        Ok((1..)
            .map(|number| wanted.numbered(number))
            .find(|name| !used_names.contains(name.as_str())))
    }

    /// Receives the content to be stored. A large stream is staged in a blob of its own.
    async fn receive(
        &self,
        scope: &ArtifactScope,
        label: &str,
        is_text: bool,
        content: Content,
    ) -> Result<ReceivedContent, ErrorInfo> {
        let mut stream = match content {
            Content::Bytes(bytes) => return Ok(ReceivedContent::Bytes(bytes)),
            Content::File(file) => return Ok(ReceivedContent::File(file)),
            Content::Stream(stream) => stream,
        };
        let source_error =
            |error: ErrorInfo| store_error(BlobError::SourceUnreadable(error.message).into());
        let mut head = BytesMut::new();
        while head.len() <= MAX_IN_MEMORY_BYTES {
            match stream.next().await {
                Some(piece) => head.extend_from_slice(&piece.map_err(source_error)?),
                None => {
                    self.check_size(label, is_text, head.len() as u64)?;
                    return Ok(ReceivedContent::Bytes(head.freeze()));
                }
            }
        }
        let path = version_path(scope, &ArtifactId::generate(), 1, "body");
        self.record_write_intent(&path).await?;
        let rest = stream.map(|piece| piece.map_err(|error| std::io::Error::other(error.message)));
        let pieces = futures::stream::once(async move { Ok(head.freeze()) }).chain(rest);
        let written = self
            .blobs
            .put_stream(&path, self.limit(is_text).0, pieces.boxed())
            .await;
        self.finish_write(&path, label, is_text, written).await?;
        Ok(ReceivedContent::Staged(path))
    }

    /// Announces a blob and writes it. Returns its size.
    async fn write_blob(
        &self,
        path: &str,
        body: &ReceivedContent,
        artifact: &Artifact,
    ) -> Result<u64, ErrorInfo> {
        self.record_write_intent(path).await?;
        let is_text = is_text(&artifact.content_type);
        let (limit, _) = self.limit(is_text);
        let written = match body {
            ReceivedContent::Bytes(bytes) => self
                .blobs
                .put(path, bytes.clone())
                .await
                .map(|()| bytes.len() as u64),
            ReceivedContent::File(file) => self.blobs.put_file(path, limit, file).await,
            ReceivedContent::Staged(staged_path) => {
                let missing = || {
                    ErrorInfo::new(
                        ErrorCode::StorageError,
                        format!("the staged file {staged_path} is missing"),
                    )
                };
                let (_, pieces) = self
                    .blobs
                    .get_stream(staged_path)
                    .await
                    .map_err(store_error)?
                    .ok_or_else(missing)?;
                let pieces = pieces.map(|piece| piece.map_err(std::io::Error::other));
                self.blobs.put_stream(path, limit, pieces.boxed()).await
            }
        };
        self.finish_write(path, artifact.label(), is_text, written)
            .await
    }

    /// Returns the result of a write. If it failed, the blob is deleted.
    async fn finish_write(
        &self,
        path: &str,
        label: &str,
        is_text: bool,
        written: Result<u64, StoreError>,
    ) -> Result<u64, ErrorInfo> {
        let error = match written {
            Ok(size) => return Ok(size),
            Err(error) => error,
        };
        // If the disk rejects the deletion too, the announcement remains, and the next owner
        // deletes the blob.
        let _ = self.delete_blob(path).await;
        let mut info = store_error(error);
        if info.code == ErrorCode::PayloadTooLarge {
            let (limit, key) = self.limit(is_text);
            info.message = format!("{label:?} exceeds artifacts.{key} ({limit} bytes)");
        }
        Err(info)
    }

    /// Fails if the session of the scope does not exist, before anything is written.
    async fn require_session(&self, scope: &ArtifactScope) -> Result<(), ErrorInfo> {
        let ArtifactScope::Session { session_id } = scope else {
            return Ok(());
        };
        let id = session_id.clone();
        let known = self
            .reads
            .read(move |reader| reader.session(&id))
            .await?
            .is_some();
        let missing = || {
            ErrorInfo::new(
                ErrorCode::SessionNotFound,
                format!("there is no session {session_id}"),
            )
        };
        known.then_some(()).ok_or_else(missing)
    }
}

/// Returns the writes that register a version: its row, and the event in the trace of its producer.
fn registration_writes(version: NewVersion) -> Vec<Write> {
    let artifact = &version.artifact;
    let trace = artifact
        .provenance
        .trace_id
        .clone()
        .or_else(|| match &artifact.scope {
            ArtifactScope::Session { session_id } => Some(TraceId::root(session_id)),
            // Without a run, the artifact belongs to no trace.
            ArtifactScope::User { .. } => None,
        });
    let event = trace.map(|trace| {
        Write::Event(EventDraft::new(
            trace,
            artifact.provenance.run_id.clone(),
            artifact.updated_at,
            saved_event(artifact),
        ))
    });
    [Write::Artifact(ArtifactWrite::Version(Box::new(version)))]
        .into_iter()
        .chain(event)
        .collect()
}

/// Returns the artifact with its next version. Size and summary are filled in later.
fn next_version(
    scope: &ArtifactScope,
    name: Option<&ArtifactName>,
    save: &Save,
    existing: Option<&Artifact>,
) -> Artifact {
    let at = now();
    let version = existing.map_or(0, |artifact| artifact.current_version) + 1;
    let title = match (save.title.as_str(), name) {
        ("", Some(name)) => name.as_str().to_owned(),
        (title, _) => title.to_owned(),
    };
    let filename = match name {
        Some(name) => name.filename(&save.content_type),
        None => ArtifactName::from_filename("output").filename(&save.content_type),
    };
    Artifact {
        artifact_id: existing.map_or_else(ArtifactId::generate, |artifact| {
            artifact.artifact_id.clone()
        }),
        scope: scope.clone(),
        name: name.map(|name| name.as_str().to_owned()),
        withdrawn: None,
        title,
        filename,
        content_type: save.content_type.clone(),
        size: 0,
        current_version: version,
        stored_version: version,
        dirty: false,
        source: save.source,
        debug: save.debug,
        provenance: save.provenance.clone(),
        summary: save.summary.clone(),
        metadata: save.metadata.clone(),
        created_at: existing.map_or(at, |artifact| artifact.created_at),
        updated_at: at,
    }
}
