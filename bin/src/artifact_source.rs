//! Reads a session's artifacts from the owner process of the home, or from disk if no process owns
//! the home.
//!
//! Both ways return the same artifacts, including documents with edits that are not stored as a
//! version yet.
//!
//! Not in this module: printing the artifacts.

use bytes::Bytes;
use futures::StreamExt;
use soong::{
    Environment,
    artifact::{ArtifactOwner, ArtifactReader, Cleanup, CleanupReport},
    protocol::{
        Artifact, ArtifactVersion, SessionId,
        api::{
            ArtifactView, ExportQuery, Format, VersionQuery,
            operation::{
                CleanUpArtifacts, ExportArtifact, ListArtifacts, ListVersions, ReadArtifact,
                ReadContent,
            },
        },
    },
};
use soong_client::{Client, Download};

use crate::{config::Settings, exit::Failure, source::Source};

/// Access to the artifacts of a session and of its user.
pub(crate) struct ArtifactSource {
    session: SessionId,
    transport: Transport,
}

enum Transport {
    Owner(Client),
    Disk(ArtifactReader, ArtifactOwner),
}

fn reader(
    source: &Source,
    settings: &Settings,
    environment: &Environment,
) -> Result<Option<ArtifactReader>, Failure> {
    let Source::Disk(records) = source else {
        return Ok(None);
    };
    let store = &settings.config.artifacts.store;
    Ok(Some(ArtifactReader::open(
        records.home(),
        store,
        environment,
    )?))
}

/// Lists the artifacts that a cleanup would delete. `request.dry_run` must be set, because the
/// owner process deletes them otherwise.
pub(crate) async fn cleanup_candidates(
    source: &Source,
    settings: &Settings,
    environment: &Environment,
    request: &Cleanup,
) -> Result<CleanupReport, Failure> {
    match (source, reader(source, settings, environment)?) {
        (_, Some(reader)) => Ok(reader.cleanup_candidates(request).await?),
        (Source::Owner(client, _), None) => Ok(client
            .call(CleanUpArtifacts {
                body: request.clone(),
            })
            .await?),
        (Source::Disk(_), None) => unreachable!("a disk source always has a reader"),
    }
}

impl ArtifactSource {
    /// Selects the owner process or the disk as the source of the artifacts of `owner`.
    pub(crate) fn open(
        source: &Source,
        owner: ArtifactOwner,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let session = owner.session_id.clone();
        let transport = match (source, reader(source, settings, environment)?) {
            (_, Some(reader)) => Transport::Disk(reader, owner),
            (Source::Owner(client, _), None) => Transport::Owner(client.clone()),
            (Source::Disk(_), None) => unreachable!("a disk source always has a reader"),
        };
        Ok(Self { session, transport })
    }

    /// Lists the artifacts by name, those of the session first.
    pub(crate) async fn list(&self) -> Result<Vec<Artifact>, Failure> {
        match &self.transport {
            Transport::Owner(client) => {
                let request = ListArtifacts {
                    session_id: self.session.clone(),
                };
                Ok(client.call(request).await?.artifacts)
            }
            Transport::Disk(reader, owner) => Ok(reader.list(owner).await?),
        }
    }

    /// Reads an artifact, its current content and its stored versions.
    pub(crate) async fn show(&self, name: &str) -> Result<ArtifactView, Failure> {
        match &self.transport {
            Transport::Owner(client) => Ok(client
                .call(ReadArtifact {
                    session_id: self.session.clone(),
                    name: name.to_owned(),
                })
                .await?),
            Transport::Disk(reader, owner) => {
                let loaded = reader.find(owner, name, None).await?;
                Ok(soong_server::http::artifact_view(
                    loaded,
                    reader.versions_of(owner, name).await?,
                )
                .await?)
            }
        }
    }

    /// Lists the stored versions of an artifact.
    pub(crate) async fn versions(&self, name: &str) -> Result<Vec<ArtifactVersion>, Failure> {
        match &self.transport {
            Transport::Owner(client) => Ok(client
                .call(ListVersions {
                    session_id: self.session.clone(),
                    name: name.to_owned(),
                })
                .await?
                .versions),
            Transport::Disk(reader, owner) => Ok(reader.versions_of(owner, name).await?),
        }
    }

    /// Opens the bytes of an artifact: a stored version, or the current content if `version` is
    /// `None`.
    pub(crate) async fn content(
        &self,
        name: &str,
        version: Option<u64>,
    ) -> Result<Download, Failure> {
        match &self.transport {
            Transport::Owner(client) => {
                let request = ReadContent {
                    session_id: self.session.clone(),
                    name: name.to_owned(),
                    query: VersionQuery { version },
                };
                Ok(client.open(&request).await?)
            }
            Transport::Disk(reader, owner) => {
                let loaded = reader.find(owner, name, version).await?;
                Ok(Download {
                    content_type: loaded.content_type,
                    body: loaded.body,
                })
            }
        }
    }

    /// Exports the last stored version of a text artifact as `.docx`.
    pub(crate) async fn docx(&self, name: &str) -> Result<Download, Failure> {
        match &self.transport {
            Transport::Owner(client) => {
                let request = ExportArtifact {
                    session_id: self.session.clone(),
                    name: name.to_owned(),
                    query: ExportQuery {
                        format: Format::Docx,
                    },
                };
                Ok(client.open(&request).await?)
            }
            Transport::Disk(reader, owner) => {
                let bytes = Bytes::from(
                    soong_server::http::docx(reader.last_version(owner, name).await?).await?,
                );
                let body = futures::stream::once(async move { Ok(bytes) }).boxed();
                Ok(Download {
                    content_type: String::new(),
                    body,
                })
            }
        }
    }
}
