//! Texts of artifacts as they are at work: what a working set has at hand, else what is stored.
//!
//! Not here: how a text comes out of a version and the edits after it (`reader.rs`).

use std::sync::Arc;

use soong_protocol::{Artifact, ArtifactScope, ErrorCode, ErrorInfo, SessionId};

use super::{ArtifactStore, content};

/// An artifact with the text that it holds now.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) artifact: Artifact,
    /// `None` = what it holds is no text.
    text: Option<Arc<str>>,
}

impl Document {
    pub(super) fn new(artifact: Artifact, text: Option<Arc<str>>) -> Self {
        Self { artifact, text }
    }

    /// Returns the text; `unsupported_media` where it is none.
    pub(crate) fn text(&self) -> Result<Arc<str>, ErrorInfo> {
        self.text.clone().ok_or_else(|| {
            let artifact = &self.artifact;
            let message =
                format!("{:?} is no text: {}, {} bytes", artifact.key(), artifact.content_type, artifact.size);
            ErrorInfo::new(ErrorCode::UnsupportedMedia, message)
        })
    }

    /// Returns how much memory the text takes, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.len())
    }
}

impl ArtifactStore {
    /// Reads an artifact of a scope by name or id; `None` = there is none.
    pub(super) async fn row(&self, scope: &ArtifactScope, name: &str) -> Result<Option<Artifact>, ErrorInfo> {
        self.reader.row(scope, name).await
    }

    /// Reads what an artifact holds now; `None` = there is none of that name or id.
    pub(super) async fn current(&self, scope: &ArtifactScope, name: &str) -> Result<Option<Document>, ErrorInfo> {
        let Some(artifact) = self.row(scope, name).await? else { return Ok(None) };
        if !content::is_text(&artifact.content_type) {
            return Ok(Some(Document::new(artifact, None)));
        }
        let text = self.text_of(&artifact).await?;
        Ok(Some(Document::new(artifact, text)))
    }

    /// Reads the text that an artifact has in its current version; `None` = it is none.
    pub(super) async fn text_of(&self, artifact: &Artifact) -> Result<Option<Arc<str>>, ErrorInfo> {
        match self.working_text(artifact) {
            Some(known) => Ok(Some(known)),
            None => self.reader.text(artifact).await,
        }
    }

    /// Finds a text that its session's working set holds, if it is this very version.
    pub(super) fn working_text(&self, artifact: &Artifact) -> Option<Arc<str>> {
        let ArtifactScope::Session { session_id } = &artifact.scope else { return None };
        let known = self.working.known(session_id, artifact.name.as_deref()?)?;
        let is_same = known.artifact.artifact_id == artifact.artifact_id
            && known.artifact.current_version == artifact.current_version;
        if is_same { known.text.clone() } else { None }
    }

    /// Reads a document of a session for its working set.
    pub(super) async fn open_document(
        &self,
        session: &SessionId,
        name: &str,
    ) -> Result<Option<Arc<Document>>, ErrorInfo> {
        let scope = ArtifactScope::Session { session_id: session.clone() };
        Ok(self.current(&scope, name).await?.map(Arc::new))
    }
}
