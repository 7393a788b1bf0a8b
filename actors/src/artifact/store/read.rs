//! Reads artifacts in their current state, including edits in a working set.

use std::sync::Arc;

use soong_protocol::{Artifact, ArtifactScope, ErrorInfo};
use soong_tool::artifact::content;

use crate::artifact::{ArtifactStore, document::Document};

impl ArtifactStore {
    /// Returns an artifact of a scope by name or id, or `None` if it does not exist.
    pub(in crate::artifact) async fn row(
        &self,
        scope: &ArtifactScope,
        name: &str,
    ) -> Result<Option<Artifact>, ErrorInfo> {
        self.reader.row(scope, name).await
    }

    /// Returns an artifact with its current text, by name or id, or `None` if it does not exist.
    pub(in crate::artifact) async fn current_document(
        &self,
        scope: &ArtifactScope,
        name: &str,
    ) -> Result<Option<Document>, ErrorInfo> {
        let Some(artifact) = self.row(scope, name).await? else {
            return Ok(None);
        };
        if !content::is_text(&artifact.content_type) {
            return Ok(Some(Document::new(artifact, None)));
        }
        let text = self.text_of(&artifact).await?;
        Ok(Some(Document::new(artifact, text)))
    }

    /// Returns the text of an artifact in its current version, or `None` if it is not text.
    pub(in crate::artifact) async fn text_of(
        &self,
        artifact: &Artifact,
    ) -> Result<Option<Arc<str>>, ErrorInfo> {
        match self.cached_text(artifact) {
            Some(known) => Ok(Some(known)),
            None => self.reader.text(artifact).await,
        }
    }

    /// Returns the text that the working set of the session has cached, if it is of this version.
    pub(in crate::artifact) fn cached_text(&self, artifact: &Artifact) -> Option<Arc<str>> {
        let ArtifactScope::Session { session_id } = &artifact.scope else {
            return None;
        };
        self.working_sets
            .cached(session_id, artifact.name.as_deref()?)?
            .text_of(artifact)
    }
}
