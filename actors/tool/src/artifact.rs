//! The interface to artifacts: the trait [`ArtifactService`], and the types of its requests and
//! results (ART-14).
//!
//! Elsewhere: the implementation, which is the artifact store of `soong`.

mod condition;
pub mod content;
mod edit;
mod named;

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use serde_json::Value;
use soong_protocol::{
    Artifact, ArtifactName, ArtifactScope, ArtifactSource, ArtifactVersion, ErrorCode, ErrorInfo,
    Provenance, SessionId, USER_PREFIX,
};
use soong_text::Redactor;

pub use self::{
    condition::{ChangeCondition, VersionSet},
    content::{Content, is_text},
    edit::{Change, EditRequest, Edited},
    named::NamedArtifacts,
};

/// Namespace in which artifact names are resolved: a session, and for names with the prefix
/// `user:`, its user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ArtifactOwner {
    /// Session of the names without a prefix.
    pub session_id: SessionId,
    /// User of the names with the prefix `user:`.
    pub uid: String,
}

impl ArtifactOwner {
    /// Placeholder session id for a user without a session. No session can have this id.
    pub const NO_SESSION: &str = "-";

    /// Returns the namespace of a user without a session; only names with the prefix `user:` are
    /// meaningful in it.
    pub fn of_user(uid: impl Into<String>) -> Self {
        Self {
            session_id: SessionId::new(Self::NO_SESSION),
            uid: uid.into(),
        }
    }

    /// Splits a key into its scope and its normalized name. A name that is invalid is returned
    /// unchanged, because it may be an artifact id.
    pub fn split(&self, key: &str) -> (ArtifactScope, String) {
        let (scope, name) = self.scope(key);
        let spelled = ArtifactName::parse(name).map(|name| name.as_str().to_owned());
        (scope, spelled.unwrap_or_else(|_| name.to_owned()))
    }

    fn scope<'a>(&self, key: &'a str) -> (ArtifactScope, &'a str) {
        match key.strip_prefix(USER_PREFIX) {
            Some(name) => (
                ArtifactScope::User {
                    uid: self.uid.clone(),
                },
                name,
            ),
            None => (
                ArtifactScope::Session {
                    session_id: self.session_id.clone(),
                },
                key,
            ),
        }
    }

    /// Splits the key of an artifact to be written. Fails with `validation_error` if the name is
    /// invalid.
    pub fn parse(&self, key: &str) -> Result<(ArtifactScope, ArtifactName), ErrorInfo> {
        let (scope, name) = self.scope(key);
        let name = ArtifactName::parse(name)
            .map_err(|error| ErrorInfo::new(ErrorCode::ValidationError, error.to_string()))?;
        Ok((scope, name))
    }

    /// Returns both scopes, the session's first.
    pub fn scopes(&self) -> [ArtifactScope; 2] {
        [
            ArtifactScope::Session {
                session_id: self.session_id.clone(),
            },
            ArtifactScope::User {
                uid: self.uid.clone(),
            },
        ]
    }
}

/// Behavior of a save if the name already exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfExists {
    /// Store the next version.
    #[default]
    NextVersion,
    /// Fail with `artifact_exists`.
    Fail,
    /// Use a free name: `_1`, `_2`, … is inserted before the file extension (ART-11).
    Rename,
}

/// Request to store a version of an artifact.
#[derive(Debug)]
pub struct Save {
    /// Name, with the prefix `user:` for the user scope. `None`: a captured product without a name,
    /// known by its id only.
    pub key: Option<String>,
    /// Title for users. Empty: the name.
    pub title: String,
    /// MIME type. It alone decides how the artifact is treated; the name does not matter.
    pub content_type: String,
    /// The bytes.
    pub content: Content,
    /// Kind of producer.
    pub source: ArtifactSource,
    /// Run, call and trace that produced it.
    pub provenance: Provenance,
    /// One-line summary. `None`: the beginning of the text.
    pub summary: Option<String>,
    /// Metadata of the producer.
    pub metadata: serde_json::Map<String, Value>,
    /// Whether models cannot see the artifact, because it is only diagnostic or for the user.
    pub debug: bool,
    /// Behavior if the name already exists.
    pub if_exists: IfExists,
    /// Version that the artifact must have.
    pub condition: ChangeCondition,
}

impl Save {
    /// Redacts title, summary and metadata. For the content, see [`Content::redacted`].
    pub fn redact(&mut self, redactor: &Redactor) {
        redactor.redact(&mut self.title);
        redactor.redact_optional(&mut self.summary);
        self.metadata
            .values_mut()
            .for_each(|value| redactor.redact_json(value));
    }

    /// Creates a save of a tool's product under a name, with defaults for all other fields.
    pub fn new(
        key: impl Into<String>,
        content_type: impl Into<String>,
        content: impl Into<Content>,
    ) -> Self {
        Self {
            key: Some(key.into()),
            title: String::new(),
            content_type: content_type.into(),
            content: content.into(),
            source: ArtifactSource::Tool,
            provenance: Provenance::default(),
            summary: None,
            metadata: serde_json::Map::new(),
            debug: false,
            if_exists: IfExists::NextVersion,
            condition: ChangeCondition::default(),
        }
    }
}

/// An artifact with the content of its current or of a stored version.
pub struct Loaded {
    /// The artifact in its current state.
    pub artifact: Artifact,
    /// Number of the version that was read.
    pub version: u64,
    /// MIME type of that version.
    pub content_type: String,
    /// Size of that version, in bytes.
    pub size: u64,
    /// The content, in chunks.
    pub body: BoxStream<'static, Result<Bytes, ErrorInfo>>,
}

impl Loaded {
    /// Reads the content to the end.
    pub async fn bytes(self) -> Result<Bytes, ErrorInfo> {
        content::collect_stream(self.body, self.size).await
    }

    /// Reads the content to the end as text. Fails with `unsupported_media` if it is not text.
    pub async fn text(self) -> Result<String, ErrorInfo> {
        let label = self.artifact.key();
        let content_type = self.content_type.clone();
        let bytes = self.bytes().await?;
        content::text(&label, &content_type, bytes)
    }
}

/// The single interface to artifacts (ART-14).
///
/// A key is a name. The prefix `user:` selects the scope of the user, which all sessions of that
/// user share. An artifact without a name is addressed by its id. A change that has started is
/// completed even if the caller drops its future.
pub trait ArtifactService: Send + Sync + 'static {
    /// Stores a version. The version is durable when this returns.
    ///
    /// If the document has edits that are not yet a version, they are stored as a version first.
    /// With [`IfExists::Fail`], an existing name fails with `artifact_exists`, unless the same tool
    /// call saved it: then that version is returned.
    fn save<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        save: Save,
    ) -> BoxFuture<'a, Result<Artifact, ErrorInfo>>;

    /// Loads the current content of an artifact, including edits, or a stored version. Returns
    /// `None` if it does not exist.
    fn load<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        key: &'a str,
        version: Option<u64>,
    ) -> BoxFuture<'a, Result<Option<Loaded>, ErrorInfo>>;

    /// Lists the artifacts of both scopes, the session's first, each sorted by name.
    fn list<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
    ) -> BoxFuture<'a, Result<Vec<Artifact>, ErrorInfo>>;

    /// Lists the names of both scopes, sorted, including the prefix `user:`.
    fn list_keys<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
    ) -> BoxFuture<'a, Result<Vec<String>, ErrorInfo>>;

    /// Lists the stored versions of an artifact in order. The list is empty if the artifact does
    /// not exist.
    fn list_versions<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ArtifactVersion>, ErrorInfo>>;

    /// Returns the record of a stored version, or `None` if it does not exist.
    fn get_version<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        key: &'a str,
        version: u64,
    ) -> BoxFuture<'a, Result<Option<ArtifactVersion>, ErrorInfo>>;

    /// Deletes an artifact with all its versions. Returns `false` if it did not exist.
    fn delete<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<bool, ErrorInfo>>;

    /// Edits a text. If the request has an effect and the name belongs to the session, the edit is
    /// made in the working set and becomes a version when the run ends. Otherwise the next version
    /// is stored immediately (ART-4, ART-5).
    fn edit<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        request: EditRequest,
    ) -> BoxFuture<'a, Result<Edited, ErrorInfo>>;
}
