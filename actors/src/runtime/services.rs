//! Handles shared by the methods of `Runtime` and `RunHandle`.

use std::{path::PathBuf, sync::Arc};

use soong_model::tokens::TokenDeviations;
use soong_protocol::{Config, api::SettingsDigests};
use tokio_util::task::TaskTracker;

use crate::{
    actor_base::Lifetime,
    actor_tree::ActorTree,
    artifact::{ArtifactHandle, ArtifactStore},
    disk::DiskChecks,
    events::EventBus,
    journal::JournalHandle,
    run::{Approvals, ChildStarter, Finalizer, RunRegistry, RunResolver},
    session::SessionRegistry,
    store_reader::StoreReader,
    task_journal::TaskJournals,
};

/// Handles shared by the methods of `Runtime` and `RunHandle`.
pub(super) struct Services {
    pub(super) config: Arc<Config>,
    pub(super) home: PathBuf,
    pub(super) disk_checks: DiskChecks,
    pub(super) settings_digests: SettingsDigests,
    pub(super) reader: StoreReader,
    pub(super) journal: JournalHandle,
    pub(super) bus: Arc<EventBus>,
    pub(super) artifacts: Arc<ArtifactStore>,
    pub(super) runs: Arc<RunRegistry>,
    pub(super) approvals: Arc<Approvals>,
    pub(super) finalizer: Arc<Finalizer>,
    pub(super) task_journals: Arc<TaskJournals>,
    pub(super) sessions: Arc<SessionRegistry>,
    pub(super) resolver: Arc<RunResolver>,
    pub(super) actor_tree: Arc<ActorTree>,
    pub(super) token_deviations: Arc<TokenDeviations>,
    /// The jobs that have outlived their runs, such as calls for names of traces.
    pub(super) detached_jobs: TaskTracker,
    pub(super) lifetime: Lifetime,
}

impl Services {
    /// Returns what starts children of live runs.
    pub(super) fn child_starter(&self) -> ChildStarter {
        ChildStarter {
            runs: Arc::clone(&self.runs),
            reader: self.reader.clone(),
            models: Arc::clone(&self.resolver.models),
            artifacts: self.artifact_handle(),
            finalizer: Arc::clone(&self.finalizer),
        }
    }

    /// Returns a handle to the artifacts whose changes are completed before the runtime closes.
    pub(super) fn artifact_handle(&self) -> ArtifactHandle {
        ArtifactHandle::new(&self.artifacts, self.lifetime.tasks())
    }
}
