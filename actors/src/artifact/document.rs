//! Current texts of artifacts: as cached by a working set, else as stored.
//!
//! Elsewhere: how a text is computed from a version and the edits after it (`reader.rs`).

use std::sync::Arc;

use soong_protocol::{Artifact, ArtifactScope, ErrorCode, ErrorInfo, SessionId};
use soong_tool::artifact::content;

use super::ArtifactReader;

/// An artifact with its current text.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) artifact: Artifact,
    /// `None`: the content is not text.
    text: Option<Arc<str>>,
}

impl Document {
    pub(super) fn new(artifact: Artifact, text: Option<Arc<str>>) -> Self {
        Self { artifact, text }
    }

    /// Returns the text. Fails with `unsupported_media` if the content is not text.
    pub(crate) fn text(&self) -> Result<Arc<str>, ErrorInfo> {
        self.text.clone().ok_or_else(|| {
            let artifact = &self.artifact;
            let message = format!(
                "{:?} is not text: {}, {} bytes",
                artifact.key(),
                artifact.content_type,
                artifact.size
            );
            ErrorInfo::new(ErrorCode::UnsupportedMedia, message)
        })
    }

    /// Reads a document of a session from the store. Returns `None` if no document has this name.
    pub(super) async fn read(
        reader: &ArtifactReader,
        session: &SessionId,
        name: &str,
    ) -> Result<Option<Arc<Self>>, ErrorInfo> {
        let scope = ArtifactScope::Session {
            session_id: session.clone(),
        };
        let Some(artifact) = reader.row(&scope, name).await? else {
            return Ok(None);
        };
        let text = if content::is_text(&artifact.content_type) {
            reader.text(&artifact).await?
        } else {
            None
        };
        Ok(Some(Arc::new(Self::new(artifact, text))))
    }

    /// Returns the text if this is the same version of the same artifact.
    pub(super) fn text_of(&self, artifact: &Artifact) -> Option<Arc<str>> {
        let is_same = self.artifact.artifact_id == artifact.artifact_id
            && self.artifact.current_version == artifact.current_version;
        if is_same { self.text.clone() } else { None }
    }

    /// Returns the size of the text, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.len())
    }
}
