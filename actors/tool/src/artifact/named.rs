//! Artifacts by name, for tools and callbacks.

use std::sync::Arc;

use bytes::Bytes;
use soong_protocol::{Artifact, ErrorInfo, Provenance};

use super::{ArtifactOwner, ArtifactService, Content, Save};

/// The artifacts of a session and its user, by name. A name with the prefix `user:` belongs to the
/// user.
#[derive(Clone)]
pub struct NamedArtifacts {
    /// The service.
    pub service: Arc<dyn ArtifactService>,
    /// Session and user of the names.
    pub owner: ArtifactOwner,
    /// Origin of the versions that are saved.
    pub provenance: Provenance,
}

impl NamedArtifacts {
    /// Saves content under a name, as the next version. Returns the number of the version, from 1.
    ///
    /// # Errors
    /// `validation_error` if the name is invalid; `payload_too_large` if the content is too large;
    /// `storage_error`.
    pub async fn save(
        &self,
        name: &str,
        content_type: &str,
        content: impl Into<Content>,
    ) -> Result<u64, ErrorInfo> {
        let save = Save {
            provenance: self.provenance.clone(),
            ..Save::new(name, content_type, content)
        };
        Ok(self.service.save(&self.owner, save).await?.stored_version)
    }

    /// Loads the bytes of an artifact: of this version, or of the current one. `None` if it does
    /// not exist.
    pub async fn load(&self, name: &str, version: Option<u64>) -> Result<Option<Bytes>, ErrorInfo> {
        match self.service.load(&self.owner, name, version).await? {
            Some(loaded) => Ok(Some(loaded.bytes().await?)),
            None => Ok(None),
        }
    }

    /// Lists the names of both scopes, sorted, those of the user with the prefix `user:`.
    pub async fn names(&self) -> Result<Vec<String>, ErrorInfo> {
        self.service.list_keys(&self.owner).await
    }

    /// Lists the artifacts of both scopes.
    pub async fn list(&self) -> Result<Vec<Artifact>, ErrorInfo> {
        self.service.list(&self.owner).await
    }
}
