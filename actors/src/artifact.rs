//! Artifacts: the one door for tools, programs and commands (ART-14).

pub mod matcher;
mod store;

pub(crate) use store::ArtifactStore;

use bytes::Bytes;
use futures::future::BoxFuture;
use soong_protocol::{
    Artifact, ArtifactName, ArtifactScope, ArtifactSource, ArtifactVersion, ErrorInfo, Provenance, UpdateType,
};

/// A version to be stored.
#[derive(Debug, Clone)]
pub struct Save {
    /// Whose it is.
    pub scope: ArtifactScope,
    /// Its name.
    pub name: ArtifactName,
    /// What people call it; empty = the name.
    pub title: String,
    /// MIME type.
    pub content_type: String,
    /// The bytes.
    pub content: Bytes,
    /// Who makes it.
    pub source: ArtifactSource,
    /// Where it comes from.
    pub provenance: Provenance,
    /// `Create` refuses a name that exists; `Rewrite` makes the next version, or the first.
    pub update_type: UpdateType,
}

/// The one door to artifacts.
pub trait ArtifactService: Send + Sync + 'static {
    /// Stores a version; it is durable when this returns.
    ///
    /// Saving a name anew with `UpdateType::Create` is refused with `artifact_exists`, unless it is
    /// the same tool call of the same run again: then the stored version is the answer.
    fn save(&self, save: Save) -> BoxFuture<'_, Result<Artifact, ErrorInfo>>;

    /// Loads a version, the current one by default; `None` = there is no such artifact or version.
    fn load<'a>(
        &'a self,
        scope: &'a ArtifactScope,
        name: &'a str,
        version: Option<u64>,
    ) -> BoxFuture<'a, Result<Option<(Artifact, Bytes)>, ErrorInfo>>;

    /// Lists a scope's artifacts by name.
    fn list<'a>(&'a self, scope: &'a ArtifactScope) -> BoxFuture<'a, Result<Vec<Artifact>, ErrorInfo>>;

    /// Lists the stored versions of an artifact.
    fn versions<'a>(
        &'a self,
        scope: &'a ArtifactScope,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ArtifactVersion>, ErrorInfo>>;
}
