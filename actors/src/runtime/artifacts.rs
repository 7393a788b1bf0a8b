//! Artifacts for programs and clients (RT-5, ART-6, ART-11 … ART-13).
//!
//! A thin layer over `artifact`; a server needs no other interface to artifacts.

use std::sync::Arc;

use soong_protocol::{
    Artifact, ArtifactName, ArtifactSource, ArtifactVersion, ErrorInfo, SessionId,
};
use soong_tool::artifact::{
    ArtifactOwner, ArtifactService, Change, ChangeCondition, Content, EditRequest, Edited,
    IfExists, Loaded, Save,
};

use super::Runtime;
use crate::artifact::{ArtifactHandle, Cleanup, CleanupReport, not_found};

/// Artifacts of a home: see [`Runtime::artifacts`].
#[derive(Debug, Clone, Copy)]
pub struct Artifacts<'a> {
    pub(super) runtime: &'a Runtime,
    /// Condition of the next change.
    pub(super) condition: Option<&'a ChangeCondition>,
}

impl<'a> Artifacts<'a> {
    /// Makes the next change (put, edit or delete) only if the artifact meets this condition;
    /// otherwise it fails with `precondition_failed` and changes nothing. `details.version` is the
    /// current version then.
    #[must_use]
    pub fn only_if(self, condition: &'a ChangeCondition) -> Self {
        Self {
            condition: Some(condition),
            ..self
        }
    }
}

impl Artifacts<'_> {
    /// Returns the artifact service: save, load, list, versions, delete (ART-14).
    pub fn service(self) -> Arc<dyn ArtifactService> {
        Arc::new(self.access())
    }

    /// Returns the owner of a session's artifact names. Fails with `session_not_found` if the
    /// session does not exist.
    pub async fn owner(self, session_id: &SessionId) -> Result<ArtifactOwner, ErrorInfo> {
        let session = self.runtime.sessions().get(session_id).await?;
        Ok(ArtifactOwner {
            session_id: session.session_id,
            uid: session.uid,
        })
    }

    /// Lists the current artifacts of a session and of its user, including unsaved edits (ART-6).
    pub async fn list(self, owner: &ArtifactOwner) -> Result<Vec<Artifact>, ErrorInfo> {
        self.access().list(owner).await
    }

    /// Loads the current content of an artifact, or a stored version. Errors: `artifact_not_found`,
    /// `version_not_found`.
    pub async fn load(
        self,
        owner: &ArtifactOwner,
        key: &str,
        version: Option<u64>,
    ) -> Result<Loaded, ErrorInfo> {
        let handle = self.access();
        if let Some(loaded) = handle.load(owner, key, version).await? {
            return Ok(loaded);
        }
        Err(handle.reader().not_found_error(owner, key, version).await?)
    }

    /// Lists the stored versions of an artifact in order. Error: `artifact_not_found`.
    pub async fn versions(
        self,
        owner: &ArtifactOwner,
        key: &str,
    ) -> Result<Vec<ArtifactVersion>, ErrorInfo> {
        self.access().reader().versions_of(owner, key).await
    }

    /// Reads the record of a stored version. Errors: `artifact_not_found`, `version_not_found`.
    pub async fn version(
        self,
        owner: &ArtifactOwner,
        key: &str,
        version: u64,
    ) -> Result<ArtifactVersion, ErrorInfo> {
        let handle = self.access();
        let found = handle.get_version(owner, key, version).await?;
        match found {
            Some(found) => Ok(found),
            None => Err(handle
                .reader()
                .not_found_error(owner, key, Some(version))
                .await?),
        }
    }

    /// Stores a client's content as the next version immediately (ART-5).
    pub async fn put(
        self,
        owner: &ArtifactOwner,
        key: &str,
        content_type: &str,
        content: Content,
    ) -> Result<Artifact, ErrorInfo> {
        let condition = self.condition.cloned().unwrap_or_default();
        let save = Save {
            source: ArtifactSource::Api,
            condition,
            ..Save::new(key, content_type, content)
        };
        self.access().save(owner, save).await
    }

    /// Stores a user's file immediately, under a name derived from the file name. If the name is
    /// taken, `_1`, `_2`, … is inserted before the extension (ART-11).
    pub async fn upload(
        self,
        owner: &ArtifactOwner,
        filename: &str,
        content_type: &str,
        content: Content,
    ) -> Result<Artifact, ErrorInfo> {
        let name = ArtifactName::from_filename(filename);
        let save = Save {
            source: ArtifactSource::UserUpload,
            if_exists: IfExists::Rename,
            title: filename.to_owned(),
            ..Save::new(name.as_str(), content_type, content)
        };
        self.access().save(owner, save).await
    }

    /// Replaces one passage of an artifact's text, matched as defined by ART-7. Stores the next
    /// version immediately.
    pub async fn edit(
        self,
        owner: &ArtifactOwner,
        key: &str,
        old: &str,
        new: &str,
    ) -> Result<Edited, ErrorInfo> {
        let request = EditRequest {
            key: key.to_owned(),
            change: Change::Update {
                old: old.to_owned(),
                new: new.to_owned(),
            },
            source: ArtifactSource::Api,
            provenance: Default::default(),
            effect: None,
            condition: self.condition.cloned().unwrap_or_default(),
        };
        self.access().edit(owner, request).await
    }

    /// Deletes an artifact with all its versions. Error: `artifact_not_found`.
    pub async fn delete(self, owner: &ArtifactOwner, key: &str) -> Result<(), ErrorInfo> {
        let condition = self.condition.cloned().unwrap_or_default();
        if self.access().delete_if(owner, key, &condition).await? {
            Ok(())
        } else {
            Err(not_found(key))
        }
    }

    /// Loads the last stored version of an artifact. Fails with `artifact_not_found`, or with
    /// `version_not_found` if it has none.
    pub async fn last_version(self, owner: &ArtifactOwner, key: &str) -> Result<Loaded, ErrorInfo> {
        self.access().reader().last_version(owner, key).await
    }

    /// Lists the artifacts that can be deleted, with the reason, and deletes them unless it is a
    /// dry run (ART-13).
    pub async fn clean_up(self, request: Cleanup) -> Result<CleanupReport, ErrorInfo> {
        self.access().clean_up(request).await
    }

    fn access(self) -> ArtifactHandle {
        self.runtime.inner.services.core.artifacts.clone()
    }
}
