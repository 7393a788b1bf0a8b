//! The artifacts of one session and of its user.

use soong::protocol::{
    Artifact, ArtifactVersion, SessionId,
    api::{
        ArtifactView, ExportQuery, Format, VersionQuery,
        operation::{ExportArtifact, ListArtifacts, ListVersions, ReadArtifact, ReadContent},
    },
};
use soong_client::{Client, Download};

use crate::exit::Failure;

/// Access to the artifacts of a session and of its user.
pub(super) struct SessionArtifacts {
    pub(super) client: Client,
    pub(super) session_id: SessionId,
}

impl SessionArtifacts {
    /// Lists the artifacts by name, those of the session first.
    pub(super) async fn list(&self) -> Result<Vec<Artifact>, Failure> {
        let request = ListArtifacts {
            session_id: self.session_id.clone(),
        };
        Ok(self.client.call(request).await?.artifacts)
    }

    /// Reads an artifact, its current content and its stored versions.
    pub(super) async fn show(&self, name: &str) -> Result<ArtifactView, Failure> {
        let request = ReadArtifact {
            session_id: self.session_id.clone(),
            name: name.to_owned(),
        };
        Ok(self.client.call(request).await?)
    }

    /// Lists the stored versions of an artifact.
    pub(super) async fn versions(&self, name: &str) -> Result<Vec<ArtifactVersion>, Failure> {
        let request = ListVersions {
            session_id: self.session_id.clone(),
            name: name.to_owned(),
        };
        Ok(self.client.call(request).await?.versions)
    }

    /// Opens the bytes of an artifact: a stored version, or the current content if `version` is
    /// `None`.
    pub(super) async fn content(
        &self,
        name: &str,
        version: Option<u64>,
    ) -> Result<Download, Failure> {
        let request = ReadContent {
            session_id: self.session_id.clone(),
            name: name.to_owned(),
            query: VersionQuery { version },
        };
        Ok(self.client.open_content(request).await?)
    }

    /// Exports the last stored version of a text artifact as `.docx`.
    pub(super) async fn docx(&self, name: &str) -> Result<Download, Failure> {
        let format = Format::Docx;
        let request = ExportArtifact {
            session_id: self.session_id.clone(),
            name: name.to_owned(),
            query: ExportQuery { format },
        };
        Ok(self.client.open_content(request).await?)
    }
}
