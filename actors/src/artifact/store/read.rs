//! Reading artifacts as they are now, with the edits that a working set holds.

use std::sync::Arc;

use soong_protocol::{Artifact, ArtifactScope, ErrorInfo};

use crate::artifact::{ArtifactStore, content, document::Document};

impl ArtifactStore {
    /// Reads an artifact of a scope by name or id; `None` = there is none.
    pub(in crate::artifact) async fn row(
        &self,
        scope: &ArtifactScope,
        name: &str,
    ) -> Result<Option<Artifact>, ErrorInfo> {
        self.reader.row(scope, name).await
    }

    /// Reads what an artifact holds now; `None` = there is none of that name or id.
    pub(in crate::artifact) async fn current(
        &self,
        scope: &ArtifactScope,
        name: &str,
    ) -> Result<Option<Document>, ErrorInfo> {
        let Some(artifact) = self.row(scope, name).await? else { return Ok(None) };
        if !content::is_text(&artifact.content_type) {
            return Ok(Some(Document::new(artifact, None)));
        }
        let text = self.text_of(&artifact).await?;
        Ok(Some(Document::new(artifact, text)))
    }

    /// Reads the text that an artifact has in its current version; `None` = it is none.
    pub(in crate::artifact) async fn text_of(&self, artifact: &Artifact) -> Result<Option<Arc<str>>, ErrorInfo> {
        match self.working_text(artifact) {
            Some(known) => Ok(Some(known)),
            None => self.reader.text(artifact).await,
        }
    }

    /// Finds a text that its session's working set holds, if it is this very version.
    pub(in crate::artifact) fn working_text(&self, artifact: &Artifact) -> Option<Arc<str>> {
        let ArtifactScope::Session { session_id } = &artifact.scope else { return None };
        self.working.known(session_id, artifact.name.as_deref()?)?.text_of(artifact)
    }
}
