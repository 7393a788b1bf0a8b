//! Artifacts by program and by clients: the library's doors (RT-5, ART-6, ART-11 … ART-13).
//!
//! Thin: what is done lies behind `artifact`. A server needs nothing more than these doors.

use std::{path::PathBuf, sync::Arc};

use soong_protocol::{
    Artifact, ArtifactName, ArtifactSource, ArtifactVersion, ErrorCode, ErrorInfo, NewSession, NewTrace, RunMode,
    Session, SessionId, TraceId, Write,
};
use soong_storage::store::Append;

use super::{Runtime, builder, fork::taken};
use crate::{
    actor_base::closing,
    artifact::{
        ArtifactDoor, ArtifactService, Change, Cleanup, CleanupReport, Content, EditRequest, Edited, IfExists, Loaded,
        Place, Save, not_found,
    },
    clock::now,
};

/// A session to be made before its first run, so that files can come first.
#[derive(Debug, Clone, Default)]
pub struct NewSessionSpec {
    /// Its id; made if absent.
    pub session_id: Option<String>,
    /// What people call it; absent = after its first task.
    pub name: Option<String>,
    /// Whose it is; absent = `local`.
    pub uid: Option<String>,
    /// The project that its runs work in; absent = the runtime's.
    pub project_dir: Option<PathBuf>,
    /// Allows the user's home folder or a folder above it as the project, if the runtime refuses that.
    pub allow_home_project: bool,
}

impl Runtime {
    /// Makes a session without a run. `validation_error` where one of that id exists.
    pub async fn create_session(&self, wish: NewSessionSpec) -> Result<Session, ErrorInfo> {
        let services = &self.inner.services;
        if services.lifetime.is_closing() {
            return Err(closing());
        }
        let session_id = match &wish.session_id {
            None => SessionId::generate(),
            Some(text) => {
                SessionId::parse(text).map_err(|error| ErrorInfo::new(ErrorCode::ValidationError, error.to_string()))?
            }
        };
        if self.session(&session_id).await.is_ok() {
            return Err(taken(&session_id));
        }
        let project_dir = match &wish.project_dir {
            Some(dir) => builder::resolve_project(dir)?,
            None => self.inner.project_dir.to_path_buf(),
        };
        self.check_project(&project_dir, wish.project_dir.is_some(), wish.allow_home_project)?;
        let (at, uid) = (now(), wish.uid.unwrap_or_else(|| "local".to_owned()));
        let session = NewSession {
            session_id: session_id.clone(),
            name: wish.name.clone(),
            uid: uid.clone(),
            project_dir: project_dir.display().to_string(),
            created_at: at,
        };
        let trace = NewTrace {
            trace_id: TraceId::root(&session_id),
            session_id: session_id.clone(),
            run_mode: RunMode::default(),
            task: String::new(),
            name: wish.name.unwrap_or_default(),
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

    /// Returns the door to artifacts: save, load, list, versions, delete (ART-14).
    pub fn artifact_service(&self) -> Arc<dyn ArtifactService> {
        Arc::new(self.door())
    }

    fn door(&self) -> ArtifactDoor {
        let services = &self.inner.services;
        ArtifactDoor { store: Arc::clone(&services.artifacts), tasks: services.lifetime.tasks().clone() }
    }

    /// Returns whose names a session's are; `session_not_found` where there is none.
    pub async fn artifact_place(&self, session_id: &SessionId) -> Result<Place, ErrorInfo> {
        let session = self.session(session_id).await?;
        Ok(Place { session_id: session.session_id, uid: session.uid })
    }

    /// Lists the artifacts of a session and of its user as they are now, edits included (ART-6).
    pub async fn artifacts(&self, place: &Place) -> Result<Vec<Artifact>, ErrorInfo> {
        self.door().list(place).await
    }

    /// Loads what an artifact holds now, or a stored version; `artifact_not_found`, `version_not_found`.
    pub async fn artifact(&self, place: &Place, key: &str, version: Option<u64>) -> Result<Loaded, ErrorInfo> {
        let door = self.door();
        if let Some(loaded) = door.load(place, key, version).await? {
            return Ok(loaded);
        }
        Err(door.store.reader.missing(place, key, version).await?)
    }

    /// Lists the stored versions of an artifact in order; `artifact_not_found`.
    pub async fn artifact_versions(&self, place: &Place, key: &str) -> Result<Vec<ArtifactVersion>, ErrorInfo> {
        self.door().store.reader.versions_of(place, key).await
    }

    /// Reads what is recorded of a stored version; `artifact_not_found`, `version_not_found`.
    pub async fn artifact_version(&self, place: &Place, key: &str, version: u64) -> Result<ArtifactVersion, ErrorInfo> {
        let door = self.door();
        let found = door.get_version(place, key, version).await?;
        match found {
            Some(found) => Ok(found),
            None => Err(door.store.reader.missing(place, key, Some(version)).await?),
        }
    }

    /// Stores what a client writes as the next version, at once (ART-5).
    pub async fn put_artifact(
        &self,
        place: &Place,
        key: &str,
        content_type: &str,
        content: Content,
    ) -> Result<Artifact, ErrorInfo> {
        let save = Save { source: ArtifactSource::Api, ..Save::new(key, content_type, content) };
        self.door().save(place, save).await
    }

    /// Takes in a file of a user: stored at once, under a name made from the file's; where that is taken,
    /// `_1`, `_2` come before the ending (ART-11).
    pub async fn upload_artifact(
        &self,
        place: &Place,
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
        self.door().save(place, save).await
    }

    /// Replaces one part of an artifact's text, found as ART-7 says; the next version is stored at once.
    pub async fn edit_artifact(&self, place: &Place, key: &str, old: &str, new: &str) -> Result<Edited, ErrorInfo> {
        let request = EditRequest {
            key: key.to_owned(),
            change: Change::Update { old: old.to_owned(), new: new.to_owned() },
            source: ArtifactSource::Api,
            provenance: Default::default(),
            effect: None,
        };
        self.door().edit(place, request).await
    }

    /// Deletes an artifact with all its versions; `artifact_not_found`.
    pub async fn delete_artifact(&self, place: &Place, key: &str) -> Result<(), ErrorInfo> {
        match self.door().delete(place, key).await? {
            true => Ok(()),
            false => Err(not_found(key)),
        }
    }

    /// Writes the last stored version of a text as a `.docx` file (ART-12).
    #[cfg(feature = "docx")]
    pub async fn export_docx(&self, place: &Place, key: &str) -> Result<Vec<u8>, ErrorInfo> {
        self.door().store.reader.export_docx(place, key).await
    }

    /// Lists which artifacts may go and why, and deletes them unless it is a dry run (ART-13).
    pub async fn cleanup_artifacts(&self, wish: Cleanup) -> Result<CleanupReport, ErrorInfo> {
        self.door().clean_up(wish).await
    }
}
