//! The context of a callback: the run that it is called for.

use std::sync::Arc;

use soong_protocol::{Collaborator, ErrorCode, ErrorInfo, RunId, SessionId, TraceId};
use soong_tool::{ChildSpec, RunControl, SpawnedChild, artifact::NamedArtifacts};
use tokio_util::sync::CancellationToken;

/// The run that a callback is called for, and what the callback can do with it.
#[derive(Clone)]
pub struct CallbackContext {
    /// The session.
    pub session_id: SessionId,
    /// The trace.
    pub trace_id: TraceId,
    /// The run.
    pub run_id: RunId,
    /// The run that started this one, if it is a sub-agent.
    pub parent_run_id: Option<RunId>,
    /// User that owns the run.
    pub uid: Arc<str>,
    /// Number of runs above this one; 0: a run of a user.
    pub depth: u32,
    /// Name of the run's preset.
    pub agent_type: String,
    /// Name of the run's model.
    pub model: String,
    /// Triggered when the run is cancelled. The future of the callback is dropped as well.
    pub cancel: CancellationToken,
    pub(crate) artifacts: NamedArtifacts,
    pub(crate) control: Arc<dyn RunControl>,
}

impl CallbackContext {
    /// Returns the artifacts by name: those of the session, and with the prefix `user:` those of
    /// the user.
    pub fn artifacts(&self) -> &NamedArtifacts {
        &self.artifacts
    }

    /// Starts a child of the run; see [`RunControl::spawn`].
    pub async fn spawn(&self, child: impl Into<ChildSpec>) -> Result<SpawnedChild, ErrorInfo> {
        let mut children = self.spawn_all([child.into()]).await?;
        // One child per specification, so there is exactly one.
        children
            .pop()
            .ok_or_else(|| ErrorInfo::new(ErrorCode::InternalError, "no child was started"))
    }

    /// Starts children of the run; see [`RunControl::spawn`].
    pub async fn spawn_all(
        &self,
        children: impl IntoIterator<Item = impl Into<ChildSpec>>,
    ) -> Result<Vec<SpawnedChild>, ErrorInfo> {
        self.control
            .spawn(children.into_iter().map(Into::into).collect())
            .await
    }

    /// Adds or replaces a person or another system among the collaborators; see
    /// [`RunControl::set_collaborator`].
    pub fn set_collaborator(&self, collaborator: Collaborator) {
        self.control.set_collaborator(collaborator);
    }

    /// Reads the collaborators; see [`RunControl::collaborators`].
    pub async fn collaborators(&self) -> Result<Vec<Collaborator>, ErrorInfo> {
        self.control.collaborators().await
    }
}
