//! Artifacts for programs and clients (RT-5, ART-6, ART-11 … ART-13).
//!
//! A thin layer over `artifact`; a server needs no other interface to artifacts.

use std::{path::PathBuf, sync::Arc};

use soong_protocol::{
    Artifact, ArtifactName, ArtifactSource, ArtifactVersion, ErrorCode, ErrorInfo, NewSession, NewTrace, RunMode,
    Session, SessionId, TraceId, Write,
};
use soong_storage::store::Append;

use super::{Runtime, builder, fork::session_exists};
use crate::{
    actor_base::closing,
    artifact::{
        ArtifactHandle, ArtifactOwner, ArtifactService, Change, Cleanup, CleanupReport, Content, EditRequest, Edited,
        IfExists, Loaded, Save, not_found,
    },
    clock::now,
};

/// Session to create before its first run, for example to upload files first.
#[derive(Debug, Clone, Default)]
pub struct NewSessionSpec {
    /// Session id. Default: generated.
    pub session_id: Option<String>,
    /// Display name. Default: derived from the first task.
    pub name: Option<String>,
    /// User that owns the session. Default: `local`.
    pub uid: Option<String>,
    /// Project directory of its runs. Default: that of the runtime.
    pub project_dir: Option<PathBuf>,
    /// Allows the user's home folder or one of its parents as the project, if the runtime rejects that by default.
    pub allow_home_project: bool,
}

impl Runtime {
    /// Creates a session without a run. Fails with `validation_error` if a session with that id exists.
    pub async fn create_session(&self, new_session: NewSessionSpec) -> Result<Session, ErrorInfo> {
        let services = &self.inner.services;
        if services.lifetime.is_closing() {
            return Err(closing());
        }
        let session_id = match &new_session.session_id {
            None => SessionId::generate(),
            Some(text) => {
                SessionId::parse(text).map_err(|error| ErrorInfo::new(ErrorCode::ValidationError, error.to_string()))?
            }
        };
        if self.session(&session_id).await.is_ok() {
            return Err(session_exists(&session_id));
        }
        let project_dir = match &new_session.project_dir {
            Some(dir) => builder::resolve_project(dir)?,
            None => self.inner.project_dir.to_path_buf(),
        };
        self.check_project(&project_dir, new_session.project_dir.is_some(), new_session.allow_home_project)?;
        let (at, uid) = (now(), new_session.uid.unwrap_or_else(|| "local".to_owned()));
        let session = NewSession {
            session_id: session_id.clone(),
            name: new_session.name.clone(),
            uid: uid.clone(),
            project_dir: project_dir.display().to_string(),
            created_at: at,
        };
        let trace = NewTrace {
            trace_id: TraceId::root(&session_id),
            session_id: session_id.clone(),
            run_mode: RunMode::default(),
            task: String::new(),
            name: new_session.name.unwrap_or_default(),
            agent_type: "default".to_owned(),
            parent_trace_id: None,
            parent_goal_id: None,
            uid,
            model: String::new(),
            created_at: at,
        };
        let writes = vec![Write::Session(session), Write::Trace(trace)];
        let appended = services.journal.append_and_wait(Append { fence: None, writes }).await;
        appended.map_err(|error| ErrorInfo::from(&error))?;
        self.session(&session_id).await
    }

    /// Returns the artifact service: save, load, list, versions, delete (ART-14).
    pub fn artifact_service(&self) -> Arc<dyn ArtifactService> {
        Arc::new(self.artifact_access())
    }

    fn artifact_access(&self) -> ArtifactHandle {
        let services = &self.inner.services;
        ArtifactHandle { store: Arc::clone(&services.artifacts), tasks: services.lifetime.tasks().clone() }
    }

    /// Returns the owner of a session's artifact names. Fails with `session_not_found` if the session does not exist.
    pub async fn artifact_owner(&self, session_id: &SessionId) -> Result<ArtifactOwner, ErrorInfo> {
        let session = self.session(session_id).await?;
        Ok(ArtifactOwner { session_id: session.session_id, uid: session.uid })
    }

    /// Lists the current artifacts of a session and of its user, including unsaved edits (ART-6).
    pub async fn artifacts(&self, place: &ArtifactOwner) -> Result<Vec<Artifact>, ErrorInfo> {
        self.artifact_access().list(place).await
    }

    /// Loads the current content of an artifact, or a stored version. Errors: `artifact_not_found`,
    /// `version_not_found`.
    pub async fn artifact(&self, place: &ArtifactOwner, key: &str, version: Option<u64>) -> Result<Loaded, ErrorInfo> {
        let handle = self.artifact_access();
        if let Some(loaded) = handle.load(place, key, version).await? {
            return Ok(loaded);
        }
        Err(handle.store.reader.not_found_error(place, key, version).await?)
    }

    /// Lists the stored versions of an artifact in order. Error: `artifact_not_found`.
    pub async fn artifact_versions(&self, place: &ArtifactOwner, key: &str) -> Result<Vec<ArtifactVersion>, ErrorInfo> {
        self.artifact_access().store.reader.versions_of(place, key).await
    }

    /// Reads the record of a stored version. Errors: `artifact_not_found`, `version_not_found`.
    pub async fn artifact_version(
        &self,
        place: &ArtifactOwner,
        key: &str,
        version: u64,
    ) -> Result<ArtifactVersion, ErrorInfo> {
        let handle = self.artifact_access();
        let found = handle.get_version(place, key, version).await?;
        match found {
            Some(found) => Ok(found),
            None => Err(handle.store.reader.not_found_error(place, key, Some(version)).await?),
        }
    }

    /// Stores a client's content as the next version immediately (ART-5).
    pub async fn put_artifact(
        &self,
        place: &ArtifactOwner,
        key: &str,
        content_type: &str,
        content: Content,
    ) -> Result<Artifact, ErrorInfo> {
        let save = Save { source: ArtifactSource::Api, ..Save::new(key, content_type, content) };
        self.artifact_access().save(place, save).await
    }

    /// Stores a user's file immediately, under a name derived from the file name. If the name is taken, `_1`, `_2`, …
    /// is inserted before the extension (ART-11).
    pub async fn upload_artifact(
        &self,
        place: &ArtifactOwner,
        filename: &str,
        content_type: &str,
        content: Content,
    ) -> Result<Artifact, ErrorInfo> {
        let name = ArtifactName::from_filename(filename);
        let save = Save {
            source: ArtifactSource::UserUpload,
            if_exists: IfExists::Rename,
            title: filename.to_owned(),
            ..Save::new(name.as_str(), content_type, content)
        };
        self.artifact_access().save(place, save).await
    }

    /// Replaces one passage of an artifact's text, matched as defined by ART-7. Stores the next version immediately.
    pub async fn edit_artifact(
        &self,
        place: &ArtifactOwner,
        key: &str,
        old: &str,
        new: &str,
    ) -> Result<Edited, ErrorInfo> {
        let request = EditRequest {
            key: key.to_owned(),
            change: Change::Update { old: old.to_owned(), new: new.to_owned() },
            source: ArtifactSource::Api,
            provenance: Default::default(),
            effect: None,
        };
        self.artifact_access().edit(place, request).await
    }

    /// Deletes an artifact with all its versions. Error: `artifact_not_found`.
    pub async fn delete_artifact(&self, place: &ArtifactOwner, key: &str) -> Result<(), ErrorInfo> {
        match self.artifact_access().delete(place, key).await? {
            true => Ok(()),
            false => Err(not_found(key)),
        }
    }

    /// Exports the last stored version of a text as a `.docx` file (ART-12).
    #[cfg(feature = "docx")]
    pub async fn export_docx(&self, place: &ArtifactOwner, key: &str) -> Result<Vec<u8>, ErrorInfo> {
        self.artifact_access().store.reader.export_docx(place, key).await
    }

    /// Lists the artifacts that can be deleted, with the reason, and deletes them unless it is a dry run (ART-13).
    pub async fn cleanup_artifacts(&self, new_session: Cleanup) -> Result<CleanupReport, ErrorInfo> {
        self.artifact_access().clean_up(new_session).await
    }
}
