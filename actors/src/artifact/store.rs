//! The artifact store: bytes first, then the registry (ART-2, DUR-8).
//!
//! A version is announced, its file written and synced, and only then registered; what a crash
//! leaves between is repaired from the announcements. Writers of one name go one after the other.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use soong_protocol::{
    Artifact, ArtifactEvent, ArtifactId, ArtifactScope, ArtifactVersion, ErrorCode, ErrorInfo, EventDraft, SessionId,
    UpdateType,
};
use soong_storage::{
    blob::Blobs,
    store::{Append, NewVersion, StoreError, Write},
};

use super::{ArtifactService, Save};
use crate::{journal::JournalHandle, observatory::now, reading::Reading};

/// Name of the plan that a model keeps for itself; shown whole in every turn (ART-8).
const PLAN: &str = "task_plan";
/// Longest preview of an artifact in the inventory, in characters.
const PREVIEW_CHARS: usize = 200;
/// Locks for names, shared by those that hash alike: their number is fixed, however many names there are.
const LOCKS: usize = 64;

/// The artifacts of a home.
pub(crate) struct ArtifactStore {
    journal: JournalHandle,
    reading: Reading,
    blobs: Arc<Blobs>,
    max_text_bytes: u64,
    hasher: RandomState,
    names: Vec<tokio::sync::Mutex<()>>,
    /// Inventories of scopes, until something is stored there.
    inventories: dashmap::DashMap<ArtifactScope, Option<Arc<str>>>,
    /// How often something was stored: an inventory that was read meanwhile is not kept.
    stored: AtomicU64,
}

/// Voids a scope's inventory when a save is over, also one that was dropped in the middle.
struct Void<'a>(&'a ArtifactStore, &'a ArtifactScope);

impl Drop for Void<'_> {
    fn drop(&mut self) {
        self.0.stored.fetch_add(1, Ordering::AcqRel);
        self.0.inventories.remove(self.1);
    }
}

impl ArtifactStore {
    pub(crate) fn new(journal: JournalHandle, reading: Reading, blobs: Arc<Blobs>, max_text_bytes: u64) -> Self {
        Self {
            journal,
            reading,
            blobs,
            max_text_bytes,
            hasher: RandomState::new(),
            names: (0..LOCKS).map(|_| tokio::sync::Mutex::new(())).collect(),
            inventories: dashmap::DashMap::new(),
            stored: AtomicU64::new(0),
        }
    }

    /// Removes what was announced and never registered; for an owner that opens the home.
    pub(crate) async fn repair(&self) -> Result<usize, ErrorInfo> {
        let intents = self.reading.read(|reader| reader.blob_intents()).await?;
        for path in &intents {
            self.blobs.delete(path).await.map_err(|error| ErrorInfo::from(&error))?;
            let gone = Append { fence: None, writes: vec![Write::BlobGone { path: path.clone() }] };
            self.journal.append_and_wait(gone).await.map_err(|error| ErrorInfo::from(&error))?;
        }
        Ok(intents.len())
    }

    /// Renders what a run may read: the plan whole, everything else as a line (ART-8).
    pub(crate) async fn inventory(&self, session: &SessionId, uid: &str) -> Result<Option<String>, ErrorInfo> {
        let mut text = String::new();
        let scopes =
            [ArtifactScope::Session { session_id: session.clone() }, ArtifactScope::User { uid: uid.to_owned() }];
        for scope in scopes {
            if let Some(part) = self.scope_inventory(&scope).await? {
                text.push_str(&part);
            }
        }
        Ok((!text.is_empty()).then(|| format!("## Artifacts\n{text}")))
    }

    async fn scope_inventory(&self, scope: &ArtifactScope) -> Result<Option<Arc<str>>, ErrorInfo> {
        if let Some(known) = self.inventories.get(scope) {
            return Ok(known.value().clone());
        }
        let before = self.stored.load(Ordering::Acquire);
        let mut text = String::new();
        for artifact in self.list(scope).await? {
            let content = self.load(scope, &artifact.name, None).await?.map(|(_, bytes)| bytes).unwrap_or_default();
            let content = std::str::from_utf8(&content).unwrap_or("");
            if artifact.name == PLAN {
                text.push_str(&format!("### {PLAN} (version {})\n{content}\n", artifact.current_version));
            } else {
                let preview = crate::run::shorten(&crate::run::one_line(content), PREVIEW_CHARS);
                text.push_str(&format!(
                    "- {} (version {}, {}, {} bytes): {preview}\n",
                    artifact.name, artifact.current_version, artifact.content_type, artifact.size
                ));
            }
        }
        let text: Option<Arc<str>> = (!text.is_empty()).then(|| text.into());
        self.inventories.insert(scope.clone(), text.clone());
        if self.stored.load(Ordering::Acquire) != before {
            self.inventories.remove(scope);
        }
        Ok(text)
    }

    /// Forgets a session's inventory: its actors are gone.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.inventories.remove(&ArtifactScope::Session { session_id: session.clone() });
    }

    async fn store(&self, save: Save) -> Result<Artifact, ErrorInfo> {
        let size = u64::try_from(save.content.len()).unwrap_or(u64::MAX);
        if save.content_type.starts_with("text/") && size > self.max_text_bytes {
            let message = format!("{size} bytes are more than artifacts.max_text_bytes ({})", self.max_text_bytes);
            return Err(ErrorInfo::new(ErrorCode::PayloadTooLarge, message));
        }
        let place = self.hasher.hash_one((&save.scope, &save.name)) as usize % LOCKS;
        let _alone = self.names[place].lock().await;
        let (scope, name) = (save.scope.clone(), save.name.as_str().to_owned());
        let existing = self.reading.read(move |reader| reader.artifact(&scope, &name)).await?;
        let existing = match existing {
            Some(artifact) if save.update_type == UpdateType::Create => {
                let again = artifact.provenance == save.provenance && artifact.provenance.tool_call_id.is_some();
                if again && artifact.current_version == 1 {
                    return Ok(artifact);
                }
                let message = format!("an artifact named {:?} exists: choose another name", save.name.as_str());
                return Err(ErrorInfo::new(ErrorCode::ArtifactExists, message));
            }
            existing => existing,
        };
        let artifact = next(save.clone(), existing, size);
        let _void = Void(self, &save.scope);
        self.write(&save, &artifact).await?;
        Ok(artifact)
    }

    async fn write(&self, save: &Save, artifact: &Artifact) -> Result<(), ErrorInfo> {
        let failed = |error: StoreError| ErrorInfo::from(&error);
        let path = soong_storage::blob::version_path(
            &artifact.scope,
            &artifact.artifact_id,
            artifact.current_version,
            &artifact.filename,
        );
        let intent = Write::BlobIntent { path: path.clone(), at: artifact.updated_at };
        self.journal.append_and_wait(Append { fence: None, writes: vec![intent] }).await.map_err(failed)?;
        self.blobs.put(&path, save.content.clone()).await.map_err(failed)?;
        let version = NewVersion { artifact: artifact.clone(), update_type: save.update_type, path };
        let mut writes = vec![Write::ArtifactVersion(Box::new(version))];
        if let Some(trace) = &save.provenance.trace_id {
            let event = ArtifactEvent::Saved {
                name: artifact.name.clone(),
                artifact_id: artifact.artifact_id.clone(),
                version: artifact.current_version,
                content_type: artifact.content_type.clone(),
                size: artifact.size,
                source: artifact.source,
            };
            let run = save.provenance.run_id.clone();
            writes.push(Write::Event(EventDraft::new(trace.clone(), run, artifact.updated_at, event)));
        }
        self.journal.append_and_wait(Append { fence: None, writes }).await.map_err(failed)?;
        Ok(())
    }
}

/// The artifact as it is with the version to be saved.
fn next(save: Save, existing: Option<Artifact>, size: u64) -> Artifact {
    let at = now();
    let filename = save.name.filename(&save.content_type);
    let title = if save.title.is_empty() { save.name.as_str().to_owned() } else { save.title };
    match existing {
        Some(artifact) => Artifact {
            title,
            content_type: save.content_type,
            size,
            current_version: artifact.current_version + 1,
            source: save.source,
            provenance: save.provenance,
            updated_at: at,
            ..artifact
        },
        None => Artifact {
            artifact_id: ArtifactId::generate(),
            scope: save.scope,
            name: save.name.as_str().to_owned(),
            title,
            filename,
            content_type: save.content_type,
            size,
            current_version: 1,
            source: save.source,
            provenance: save.provenance,
            created_at: at,
            updated_at: at,
        },
    }
}

impl ArtifactService for ArtifactStore {
    fn save(&self, save: Save) -> BoxFuture<'_, Result<Artifact, ErrorInfo>> {
        self.store(save).boxed()
    }

    fn load<'a>(
        &'a self,
        scope: &'a ArtifactScope,
        name: &'a str,
        version: Option<u64>,
    ) -> BoxFuture<'a, Result<Option<(Artifact, Bytes)>, ErrorInfo>> {
        async move {
            let (scope, name) = (scope.clone(), name.to_owned());
            let found = self
                .reading
                .read(move |reader| {
                    let Some(artifact) = reader.artifact(&scope, &name)? else { return Ok(None) };
                    let version = version.unwrap_or(artifact.current_version);
                    Ok(reader.blob_path(&artifact.artifact_id, version)?.map(|path| (artifact, path)))
                })
                .await?;
            let Some((artifact, path)) = found else { return Ok(None) };
            let bytes = self.blobs.get(&path).await.map_err(|error| ErrorInfo::from(&error))?;
            let missing = || {
                let message = format!("the file of artifact {:?} is missing: {path}", artifact.name);
                ErrorInfo::new(ErrorCode::StorageError, message)
            };
            let bytes = bytes.ok_or_else(missing)?;
            Ok(Some((artifact, bytes)))
        }
        .boxed()
    }

    fn list<'a>(&'a self, scope: &'a ArtifactScope) -> BoxFuture<'a, Result<Vec<Artifact>, ErrorInfo>> {
        let scope = scope.clone();
        async move { self.reading.read(move |reader| reader.artifacts(&scope)).await }.boxed()
    }

    fn versions<'a>(
        &'a self,
        scope: &'a ArtifactScope,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ArtifactVersion>, ErrorInfo>> {
        async move {
            let (scope, name) = (scope.clone(), name.to_owned());
            self.reading
                .read(move |reader| match reader.artifact(&scope, &name)? {
                    Some(artifact) => reader.versions(&artifact.artifact_id),
                    None => Ok(Vec::new()),
                })
                .await
        }
        .boxed()
    }
}
