//! Reads artifacts: the registry, stored versions, and documents including the edits after their
//! last version.
//!
//! No actor is needed: the owner of the home reads through this module, and so do commands that
//! find a home without an owner. Nothing is written.
//!
//! Elsewhere: the texts that a working set has cached (`document.rs`).

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use futures::StreamExt;
use soong_protocol::{
    Artifact, ArtifactScope, ArtifactVersion, DocumentEdit, ErrorCode, ErrorInfo,
};
use soong_storage::{
    blob::{BlobLocation, BlobStore},
    sqlite::SqliteReader,
    store::StoreError,
};
use soong_text::Environment;
use soong_tool::artifact::{ArtifactOwner, Loaded};

use super::not_found;
use crate::store_reader::{DATABASE, StoreReader};

/// Reads the artifacts of a home, with or without an owner. Cheap to clone.
#[derive(Clone)]
pub struct ArtifactReader {
    pub(super) reads: StoreReader,
    blobs: BlobStore,
}

fn store_error(error: StoreError) -> ErrorInfo {
    ErrorInfo::from(&error)
}

impl ArtifactReader {
    pub(crate) fn new(reading: StoreReader, blobs: BlobStore) -> Self {
        Self {
            reads: reading,
            blobs,
        }
    }

    /// Opens a home without becoming its owner. `store` is the value of `artifacts.store` in the
    /// configuration.
    pub fn open(home: &Path, store: &str, environment: &Environment) -> Result<Self, ErrorInfo> {
        let location = BlobLocation::parse(store).map_err(|error| {
            ErrorInfo::new(ErrorCode::ConfigError, format!("artifacts.store: {error}"))
        })?;
        let reader = SqliteReader::open(home.join(DATABASE)).map_err(store_error)?;
        let blobs = BlobStore::open(home, &location, &|name| {
            environment.get(name).map(str::to_owned)
        })
        .map_err(store_error)?;
        Ok(Self::new(StoreReader::new(Arc::new(reader)), blobs))
    }

    /// Lists the artifacts of both scopes, the session's first, each sorted by name.
    pub async fn list(&self, owner: &ArtifactOwner) -> Result<Vec<Artifact>, ErrorInfo> {
        let [session, user] = owner.scopes();
        self.reads
            .read(move |reader| {
                let mut all = reader.artifacts(&session)?;
                all.extend(reader.artifacts(&user)?);
                Ok(all)
            })
            .await
    }

    /// Loads the current content of an artifact, including edits, or a stored version. Fails with
    /// `artifact_not_found` or `version_not_found`.
    pub async fn find(
        &self,
        owner: &ArtifactOwner,
        key: &str,
        version: Option<u64>,
    ) -> Result<Loaded, ErrorInfo> {
        match self.load_with_cache(owner, key, version, |_| None).await? {
            Some(loaded) => Ok(loaded),
            None => Err(self.not_found_error(owner, key, version).await?),
        }
    }

    /// Lists the stored versions of an artifact in order. Fails with `artifact_not_found`.
    pub async fn versions_of(
        &self,
        owner: &ArtifactOwner,
        key: &str,
    ) -> Result<Vec<ArtifactVersion>, ErrorInfo> {
        let (scope, name) = owner.split(key);
        match self.row(&scope, &name).await? {
            Some(_) => self.versions(owner, key).await,
            None => Err(not_found(key)),
        }
    }

    /// Loads the last stored version of an artifact. Fails with `artifact_not_found`, or with
    /// `version_not_found` if it has none.
    pub async fn last_version(
        &self,
        owner: &ArtifactOwner,
        key: &str,
    ) -> Result<Loaded, ErrorInfo> {
        let Some(last) = self.versions_of(owner, key).await?.pop() else {
            let message = format!(
                "{key:?} has no stored version yet: a version is stored when its run ends. \
                 The current content can be read"
            );
            return Err(ErrorInfo::new(ErrorCode::VersionNotFound, message));
        };
        self.find(owner, key, Some(last.version)).await
    }

    /// Returns an artifact of a scope by name or id, or `None` if it does not exist.
    pub(super) async fn row(
        &self,
        scope: &ArtifactScope,
        name: &str,
    ) -> Result<Option<Artifact>, ErrorInfo> {
        let scope = scope.clone();
        let name = name.to_owned();
        self.reads
            .read(move |reader| reader.artifact(&scope, &name))
            .await
    }

    /// Lists the stored versions of an artifact in order. The list is empty if the artifact does
    /// not exist.
    pub(super) async fn versions(
        &self,
        owner: &ArtifactOwner,
        key: &str,
    ) -> Result<Vec<ArtifactVersion>, ErrorInfo> {
        let (scope, name) = owner.split(key);
        self.reads
            .read(move |reader| match reader.artifact(&scope, &name)? {
                Some(artifact) => reader.versions(&artifact.artifact_id),
                None => Ok(Vec::new()),
            })
            .await
    }

    /// Returns the error for a load that found nothing: the artifact or the version is missing.
    pub(crate) async fn not_found_error(
        &self,
        owner: &ArtifactOwner,
        key: &str,
        version: Option<u64>,
    ) -> Result<ErrorInfo, ErrorInfo> {
        let (scope, name) = owner.split(key);
        let (Some(version), Some(_)) = (version, self.row(&scope, &name).await?) else {
            return Ok(not_found(key));
        };
        let known: Vec<String> = self
            .versions(owner, key)
            .await?
            .iter()
            .map(|one| one.version.to_string())
            .collect();
        let known = if known.is_empty() {
            "none yet".to_owned()
        } else {
            known.join(", ")
        };
        let message = format!("{key:?} has no stored version {version}; stored versions: {known}");
        Ok(ErrorInfo::new(ErrorCode::VersionNotFound, message))
    }

    /// Loads the current content of an artifact or a stored version. `known` returns the current
    /// text if it is cached.
    pub(super) async fn load_with_cache(
        &self,
        owner: &ArtifactOwner,
        key: &str,
        version: Option<u64>,
        cached: impl Fn(&Artifact) -> Option<Arc<str>> + Send,
    ) -> Result<Option<Loaded>, ErrorInfo> {
        let (scope, name) = owner.split(key);
        let Some(artifact) = self.row(&scope, &name).await? else {
            return Ok(None);
        };
        if version.is_none() && artifact.dirty {
            let text = match cached(&artifact) {
                Some(text) => Some(text),
                None => self.text(&artifact).await?,
            };
            if let Some(text) = text {
                let bytes = Bytes::copy_from_slice(text.as_bytes());
                let body = futures::stream::once(async move { Ok(bytes) }).boxed();
                let version = artifact.current_version;
                let content_type = artifact.content_type.clone();
                return Ok(Some(Loaded {
                    version,
                    content_type,
                    size: text.len() as u64,
                    body,
                    artifact,
                }));
            }
        }
        let version = version.unwrap_or(artifact.stored_version);
        let id = artifact.artifact_id.clone();
        let found = self
            .reads
            .read(move |reader| reader.blob_path_and_type(&id, version))
            .await?;
        let Some((path, content_type)) = found else {
            return Ok(None);
        };
        let opened = self.blobs.get_stream(&path).await.map_err(store_error)?;
        let (size, pieces) = opened.ok_or_else(|| file_is_missing(&artifact, &path))?;
        let body = pieces.map(|piece| piece.map_err(store_error)).boxed();
        Ok(Some(Loaded {
            version,
            content_type,
            size,
            body,
            artifact,
        }))
    }

    /// Returns the text of an artifact in its current version: the last stored version with the
    /// edits after it. Returns `None` if it is not text.
    pub(super) async fn text(&self, artifact: &Artifact) -> Result<Option<Arc<str>>, ErrorInfo> {
        let id = artifact.artifact_id.clone();
        let stored = artifact.stored_version;
        let current = artifact.current_version;
        let (path, edits) = self
            .reads
            .read(move |reader| {
                let path = if stored == 0 {
                    None
                } else {
                    reader.blob_path(&id, stored)?
                };
                Ok((
                    path,
                    if current > stored {
                        reader.edits(&id, stored, current)?
                    } else {
                        Vec::new()
                    },
                ))
            })
            .await?;
        if edits.len() as u64 != current - stored {
            return Err(unreadable(artifact, "it was deleted in the meantime"));
        }
        let base = match path {
            None if stored == 0 => String::new(),
            None => {
                return Err(unreadable(
                    artifact,
                    &format!("version {stored} is not registered"),
                ));
            }
            Some(path) => {
                let missing = || file_is_missing(artifact, &path);
                let bytes = self
                    .blobs
                    .get(&path)
                    .await
                    .map_err(store_error)?
                    .ok_or_else(missing)?;
                match String::from_utf8(bytes.into()) {
                    Ok(text) => text,
                    Err(_) if edits.is_empty() => return Ok(None),
                    Err(error) => return Err(unreadable(artifact, &error.to_string())),
                }
            }
        };
        Ok(Some(replay(artifact, base, &edits)?.into()))
    }
}

impl ArtifactReader {
    /// Returns the text of an artifact at an earlier version or revision, or `None` if it is not
    /// text.
    pub(super) async fn text_at(
        &self,
        artifact: &Artifact,
        revision: u64,
    ) -> Result<Option<Arc<str>>, ErrorInfo> {
        let id = artifact.artifact_id.clone();
        let versions = self.reads.read(move |reader| reader.versions(&id)).await?;
        let stored = versions
            .iter()
            .map(|version| version.version)
            .filter(|version| *version <= revision)
            .max();
        let at_revision = Artifact {
            stored_version: stored.unwrap_or(0),
            current_version: revision,
            ..artifact.clone()
        };
        self.text(&at_revision).await
    }
}

/// Applies edits to the text they were made for.
fn replay(
    artifact: &Artifact,
    mut text: String,
    edits: &[DocumentEdit],
) -> Result<String, ErrorInfo> {
    for edit in edits {
        text = edit.splice.apply(&text).ok_or_else(|| {
            unreadable(
                artifact,
                &format!("edit {} does not apply to its text", edit.revision),
            )
        })?;
    }
    Ok(text)
}

pub(super) fn unreadable(artifact: &Artifact, why: &str) -> ErrorInfo {
    let message = format!(
        "the content of artifact {:?} cannot be read: {why}",
        artifact.key()
    );
    ErrorInfo::new(ErrorCode::StorageError, message)
}

pub(super) fn file_is_missing(artifact: &Artifact, path: &str) -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::StorageError,
        format!(
            "the file of artifact {:?} is missing: {path}",
            artifact.label()
        ),
    )
}
