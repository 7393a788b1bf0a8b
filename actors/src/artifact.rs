//! Artifacts: the one door for tools, programs and commands (ART-14).
//!
//! Products are stored at once; documents are edited in their session's working set, and become versions
//! when the run that edited them ends. Behind the door: `store.rs` (bytes and registry), `change.rs`
//! and `working_set/` (edits), `store/flush.rs` (edits become versions), `reader.rs` (reading, which needs no owner of the home).
//! Not here: what models see of it (`builtin_tools/artifact.rs`), HTTP, the command line.

mod change;
mod cleanup;
mod content;
mod document;
#[cfg(feature = "docx")]
mod docx;
mod door;
mod inventory;
pub mod matcher;
mod reader;
mod store;
mod supervisor;
mod working_set;

pub use change::{Change, EditRequest, Edited};
pub use cleanup::{BusySession, Candidate, Cleanup, CleanupFailure, CleanupReport};
pub use content::{Content, is_text};
#[cfg(feature = "docx")]
pub use docx::docx;
pub(crate) use door::ArtifactDoor;
pub use reader::ArtifactReader;
pub(crate) use store::ArtifactStore;
pub(crate) use store::copy::registered;
pub(crate) use store::go_back::Moved;
pub(crate) use supervisor::ArtifactStoreSupervisorActor;
pub(crate) use working_set::ArtifactStoreSupervisorMsg;

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use serde_json::Value;
use soong_protocol::{
    Artifact, ArtifactName, ArtifactScope, ArtifactSource, ArtifactVersion, ErrorCode, ErrorInfo, Provenance,
    SessionId, USER_PREFIX,
};

use crate::redaction::Redactor;

/// Name of the plan that a model keeps for itself; shown whole in every turn (ART-8).
pub const PLAN: &str = "task_plan";

/// Whose names are meant: those of a session, and with `user:` in front those of its user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The session.
    pub session_id: SessionId,
    /// Whose it is.
    pub uid: String,
}

impl Place {
    /// Stands for the session where there is none. No session can be called so.
    pub const NO_SESSION: &str = "-";

    /// The names of a user without any session: those with `user:` in front alone.
    pub fn of_user(uid: impl Into<String>) -> Self {
        Self { session_id: SessionId::new(Self::NO_SESSION), uid: uid.into() }
    }

    /// Splits a key into its scope and the name there, as it is spelled there; what cannot be a name stays as
    /// it is, for it may be an id.
    pub fn split(&self, key: &str) -> (ArtifactScope, String) {
        let (scope, name) = self.scope(key);
        let spelled = ArtifactName::parse(name).map(|name| name.as_str().to_owned());
        (scope, spelled.unwrap_or_else(|_| name.to_owned()))
    }

    fn scope<'a>(&self, key: &'a str) -> (ArtifactScope, &'a str) {
        match key.strip_prefix(USER_PREFIX) {
            Some(name) => (ArtifactScope::User { uid: self.uid.clone() }, name),
            None => (ArtifactScope::Session { session_id: self.session_id.clone() }, key),
        }
    }

    /// Splits the key of something that is to be written; refuses what cannot be a name.
    pub fn parse(&self, key: &str) -> Result<(ArtifactScope, ArtifactName), ErrorInfo> {
        let (scope, name) = self.scope(key);
        let name =
            ArtifactName::parse(name).map_err(|error| ErrorInfo::new(ErrorCode::ValidationError, error.to_string()))?;
        Ok((scope, name))
    }

    /// Returns both scopes, the session's first.
    pub fn scopes(&self) -> [ArtifactScope; 2] {
        [ArtifactScope::Session { session_id: self.session_id.clone() }, ArtifactScope::User { uid: self.uid.clone() }]
    }
}

/// What to do where a name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfExists {
    /// Make the next version.
    #[default]
    NextVersion,
    /// Refuse with `artifact_exists`.
    Refuse,
    /// Take another name: `_1`, `_2`, … before the ending (ART-11).
    Rename,
}

/// A version to be stored.
#[derive(Debug)]
pub struct Save {
    /// Its name, `user:` in front of a user's; `None` = a captured product, known by its id alone.
    pub key: Option<String>,
    /// What people call it; empty = the name.
    pub title: String,
    /// MIME type; decides how it is treated, never the name.
    pub content_type: String,
    /// The bytes.
    pub content: Content,
    /// Who makes it.
    pub source: ArtifactSource,
    /// Where it comes from.
    pub provenance: Provenance,
    /// One line about it; `None` = how its text begins.
    pub summary: Option<String>,
    /// What its maker wants to remember.
    pub metadata: serde_json::Map<String, Value>,
    /// Whether it only helps to find defects.
    pub debug: bool,
    /// What to do where the name exists.
    pub if_exists: IfExists,
}

impl Save {
    /// Takes the secrets out of what is said about the artifact; its content is redacted as it is read.
    fn redact(&mut self, redactor: &Redactor) {
        redactor.redact(&mut self.title);
        redactor.redact_some(&mut self.summary);
        self.metadata.values_mut().for_each(|value| redactor.value(value));
    }
}

impl Save {
    /// Makes a save of a tool's or program's product under a name; the rest is for the caller to change.
    pub fn new(key: impl Into<String>, content_type: impl Into<String>, content: impl Into<Content>) -> Self {
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
        }
    }
}

/// An artifact with what it holds, or held in one version.
pub struct Loaded {
    /// The artifact as it is now.
    pub artifact: Artifact,
    /// Which number was read.
    pub version: u64,
    /// MIME type of what was read.
    pub content_type: String,
    /// Size of what was read, in bytes.
    pub size: u64,
    /// The bytes, in pieces.
    pub body: BoxStream<'static, Result<Bytes, ErrorInfo>>,
}

impl Loaded {
    /// Reads it to the end.
    pub async fn bytes(self) -> Result<Bytes, ErrorInfo> {
        content::collect(self.body, self.size).await
    }

    /// Reads it to the end, as text; `unsupported_media` where it is none.
    pub async fn text(self) -> Result<String, ErrorInfo> {
        let (label, content_type) = (self.artifact.key(), self.content_type.clone());
        let bytes = self.bytes().await?;
        content::text(&label, &content_type, bytes)
    }
}

/// The one door to artifacts (ART-14).
///
/// Keys are names; `user:` in front means the user's own, seen from all sessions of that user. What has no
/// name is called by its id. Once begun, a change is finished even if the caller drops its future.
pub trait ArtifactService: Send + Sync + 'static {
    /// Stores a version; it is durable when this returns.
    ///
    /// Edits of the same document that are no version yet become one first. With [`IfExists::Refuse`] a name
    /// that exists is `artifact_exists`, unless the same tool call saved it: then that version is the answer.
    fn save<'a>(&'a self, place: &'a Place, save: Save) -> BoxFuture<'a, Result<Artifact, ErrorInfo>>;

    /// Loads what an artifact holds now, edits included, or a stored version; `None` = there is none.
    fn load<'a>(
        &'a self,
        place: &'a Place,
        key: &'a str,
        version: Option<u64>,
    ) -> BoxFuture<'a, Result<Option<Loaded>, ErrorInfo>>;

    /// Lists the artifacts of both scopes, by name; the session's first.
    fn list<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Vec<Artifact>, ErrorInfo>>;

    /// Lists the names of both scopes, sorted, `user:` kept.
    fn list_keys<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Vec<String>, ErrorInfo>>;

    /// Lists the stored versions of an artifact in order; none where there is no such artifact.
    fn list_versions<'a>(
        &'a self,
        place: &'a Place,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ArtifactVersion>, ErrorInfo>>;

    /// Reads what is recorded of a stored version; `None` = there is none.
    fn get_version<'a>(
        &'a self,
        place: &'a Place,
        key: &'a str,
        version: u64,
    ) -> BoxFuture<'a, Result<Option<ArtifactVersion>, ErrorInfo>>;

    /// Deletes an artifact with all its versions; `false` = there was none.
    fn delete<'a>(&'a self, place: &'a Place, key: &'a str) -> BoxFuture<'a, Result<bool, ErrorInfo>>;

    /// Edits a text. With an effect in the request and a name of the session it is a document's edit, which
    /// becomes a version when the run ends; otherwise the next version is stored at once (ART-4, ART-5).
    fn edit<'a>(&'a self, place: &'a Place, request: EditRequest) -> BoxFuture<'a, Result<Edited, ErrorInfo>>;
}

/// Says that there is no artifact of a key.
pub(crate) fn not_found(key: &str) -> ErrorInfo {
    let message = format!("there is no artifact {key:?}: see the list of artifacts for what there is");
    ErrorInfo::new(ErrorCode::ArtifactNotFound, message)
}
