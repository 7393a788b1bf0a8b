//! The artifact store: writes the file first, then registers it (ART-2, DUR-8).
//!
//! Before a version is registered, a durable intent row announces it, and its file is written and
//! synced; the registration ends the announcement in its own append. After a crash, the next owner of
//! the home deletes each announced file that is not registered (`store/delete.rs`). Writers of the
//! same name are serialized by a lock. Concurrent edits do not take that lock: the store
//! detects them by compare-and-swap, and rejects a version number that is taken.
//!
//! Elsewhere: saves (`store/put.rs`), edits (`store/edit.rs`), documents at the end of a run
//! (`store/flush.rs`).

pub(super) mod copy;
pub(super) mod delete;
pub(super) mod edit;
pub(super) mod flush;
mod inventory;
mod put;
mod read;
pub(super) mod restore;
pub(super) mod session_cleanup;

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hash},
    sync::Arc,
};

use futures::StreamExt;
use put::{Precondition, PutRequest};
use soong_protocol::{
    Artifact, ArtifactEvent, ArtifactScope, ArtifactsConfig, BlobWrite, ErrorCode, ErrorInfo, Write,
};
use soong_storage::{
    blob::BlobStore,
    store::{Append, StoreError},
};
use soong_text::Redactor;
use soong_tool::artifact::{
    ArtifactOwner, Change, ChangeCondition, EditRequest, Edited, Loaded, Save, content,
};

use super::{
    ArtifactReader,
    inventory::Inventories,
    working_set::{DocumentAccess, WorkingSets},
};

/// Maximum number of attempts of a conditional deletion. In each round, another writer has changed
/// the artifact.
const MAX_DELETE_ATTEMPTS: usize = 100;

use crate::{clock::now, journal::JournalHandle, store_reader::StoreReader};

/// Number of locks for names. Names with the same hash share a lock, so the number does not depend
/// on the number of names.
const LOCKS: usize = 64;
/// Length of the beginning of a text that is read for its summary, in bytes.
const SUMMARY_INPUT_BYTES: usize = 4_096;

/// All artifacts of a home.
pub(crate) struct ArtifactStore {
    pub(super) journal: JournalHandle,
    pub(super) reads: StoreReader,
    pub(crate) blobs: BlobStore,
    pub(crate) reader: ArtifactReader,
    limits: ArtifactsConfig,
    hasher: RandomState,
    name_locks: Vec<tokio::sync::Mutex<()>>,
    pub(crate) working_sets: Arc<WorkingSets>,
    pub(super) inventories: Arc<Inventories>,
    redactor: Redactor,
}

pub(super) fn store_error(error: StoreError) -> ErrorInfo {
    ErrorInfo::from(&error)
}

impl ArtifactStore {
    pub(crate) fn new(
        journal: JournalHandle,
        reading: StoreReader,
        blobs: BlobStore,
        limits: ArtifactsConfig,
        redactor: Redactor,
    ) -> Self {
        let reader = ArtifactReader::new(reading.clone(), blobs.clone());
        Self {
            journal,
            reads: reading,
            blobs,
            reader,
            limits,
            hasher: RandomState::new(),
            name_locks: (0..LOCKS).map(|_| tokio::sync::Mutex::new(())).collect(),
            working_sets: Arc::default(),
            inventories: Arc::default(),
            redactor,
        }
    }

    /// Returns the handles that working sets need.
    pub(crate) fn documents(&self) -> DocumentAccess {
        let journal = self.journal.clone();
        let reader = self.reader.clone();
        let inventories = Arc::clone(&self.inventories);
        DocumentAccess {
            journal,
            reader,
            inventories,
        }
    }

    pub(super) async fn append(&self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.journal
            .append_and_wait(Append {
                fence: None,
                writes,
            })
            .await
            .map(|_| ())
    }

    /// Waits for exclusive write access to the name.
    pub(super) async fn lock_name(
        &self,
        scope: &ArtifactScope,
        name: impl Hash,
    ) -> tokio::sync::MutexGuard<'_, ()> {
        let index = self.hasher.hash_one((scope, name)) as usize % LOCKS;
        self.name_locks[index].lock().await
    }

    /// Fails with `payload_too_large` if the content exceeds the limit for its kind.
    pub(super) fn check_size(
        &self,
        label: &str,
        is_text: bool,
        size: u64,
    ) -> Result<(), ErrorInfo> {
        let (limit, key) = self.limit(is_text);
        if size <= limit {
            return Ok(());
        }
        let message =
            format!("{label:?} would be {size} bytes, which exceeds artifacts.{key} ({limit})");
        Err(ErrorInfo::new(ErrorCode::PayloadTooLarge, message))
    }

    fn limit(&self, is_text: bool) -> (u64, &'static str) {
        if is_text {
            (self.limits.max_text_bytes, "max_text_bytes")
        } else {
            (self.limits.max_blob_bytes, "max_blob_bytes")
        }
    }

    /// Announces a blob, and deletes an unregistered file with the same path. That file is left
    /// over from a failed save, because no other writer uses this path now.
    pub(super) async fn record_write_intent(&self, path: &str) -> Result<(), ErrorInfo> {
        self.append(vec![Write::Blob(BlobWrite::Intent {
            path: path.to_owned(),
            at: now(),
        })])
        .await
        .map_err(store_error)?;
        self.blobs.prepare(path).await.map_err(store_error)
    }

    pub(super) async fn read_summary(&self, path: &str) -> Result<Option<String>, ErrorInfo> {
        let Some((_, mut pieces)) = self.blobs.get_stream(path).await.map_err(store_error)? else {
            return Ok(None);
        };
        let mut head: Vec<u8> = Vec::new();
        while head.len() < SUMMARY_INPUT_BYTES
            && let Some(piece) = pieces.next().await
        {
            head.extend_from_slice(&piece.map_err(store_error)?);
        }
        Ok(summary(&head))
    }

    /// Edits a text. A session document is edited in the working set if the request has an effect;
    /// otherwise the next version is stored immediately.
    pub(super) async fn edit(
        &self,
        owner: &ArtifactOwner,
        mut request: EditRequest,
    ) -> Result<Edited, ErrorInfo> {
        match &mut request.change {
            Change::Create { content, title, .. } => {
                self.redactor.redact(content);
                self.redactor.redact(title);
            }
            Change::Update { new, .. } => self.redactor.redact(new),
            Change::Rewrite { content } => self.redactor.redact(content),
        }
        let (scope, name) = owner.parse(&request.key)?;
        match (scope, request.effect.clone()) {
            (ArtifactScope::Session { session_id }, Some(effect)) => {
                self.edit_document(&session_id, name, request, effect).await
            }
            (scope, _) => self.edit_directly(scope, name, request).await,
        }
    }

    pub(crate) async fn save(
        &self,
        owner: &ArtifactOwner,
        mut save: Save,
    ) -> Result<Artifact, ErrorInfo> {
        if content::is_text(&save.content_type) {
            save.content = save
                .content
                .redacted(&self.redactor, self.limits.max_text_bytes)
                .await?;
        }
        save.redact(&self.redactor);
        let (scope, name) = match &save.key {
            Some(key) => {
                let (scope, name) = owner.parse(key)?;
                (scope, Some(name))
            }
            None => (
                ArtifactScope::Session {
                    session_id: owner.session_id.clone(),
                },
                None,
            ),
        };
        let stored = self
            .put(
                PutRequest {
                    scope,
                    name,
                    save,
                    update_type: None,
                },
                Precondition::Any,
            )
            .await?;
        stored.ok_or_else(|| {
            ErrorInfo::new(
                ErrorCode::InternalError,
                "a save without a precondition was rejected",
            )
        })
    }

    pub(super) async fn load(
        &self,
        owner: &ArtifactOwner,
        key: &str,
        version: Option<u64>,
    ) -> Result<Option<Loaded>, ErrorInfo> {
        self.reader
            .load_with_cache(owner, key, version, |artifact| self.cached_text(artifact))
            .await
    }

    pub(super) async fn delete(
        &self,
        owner: &ArtifactOwner,
        key: &str,
        condition: &ChangeCondition,
    ) -> Result<bool, ErrorInfo> {
        let (scope, name) = owner.split(key);
        for _ in 0..MAX_DELETE_ATTEMPTS {
            let found = self.row(&scope, &name).await?;
            condition.check(key, found.as_ref().map(|artifact| artifact.current_version))?;
            let Some(artifact) = found else {
                return Ok(false);
            };
            // A version that was stored meanwhile is checked again.
            let is_unchanged = |now: &Artifact| {
                *condition == ChangeCondition::default()
                    || now.current_version == artifact.current_version
            };
            if self.delete_artifact(&artifact, is_unchanged).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn summary(bytes: &[u8]) -> Option<String> {
    content::summary(&String::from_utf8_lossy(
        &bytes[..bytes.len().min(SUMMARY_INPUT_BYTES)],
    ))
}

/// Returns the event for the current version of an artifact.
pub(super) fn saved_event(artifact: &Artifact) -> ArtifactEvent {
    ArtifactEvent::Saved {
        name: artifact.name.as_ref().map(|_| artifact.key()),
        artifact_id: artifact.artifact_id.clone(),
        version: artifact.current_version,
        content_type: artifact.content_type.clone(),
        size: artifact.size,
        source: artifact.source,
        debug: artifact.debug,
    }
}
