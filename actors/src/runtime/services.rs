//! Handles shared by the methods of `Runtime` and `RunHandle`.

use std::{path::PathBuf, sync::Arc};

use soong_model::tokens::TokenDeviations;
use soong_protocol::api::SettingsDigests;
use tokio_util::task::TaskTracker;

use crate::{
    actor_tree::ActorTree,
    disk::DiskChecks,
    run::{Approvals, ChildStarter, Core, Finalizer, RunResolver},
    session::SessionRegistry,
    task_journal::TaskJournals,
};

/// Handles shared by the methods of `Runtime` and `RunHandle`.
pub(super) struct Services {
    pub(super) core: Arc<Core>,
    pub(super) home: PathBuf,
    pub(super) disk_checks: DiskChecks,
    pub(super) settings_digests: SettingsDigests,
    pub(super) approvals: Arc<Approvals>,
    pub(super) finalizer: Arc<Finalizer>,
    pub(super) task_journals: Arc<TaskJournals>,
    pub(super) sessions: Arc<SessionRegistry>,
    pub(super) resolver: Arc<RunResolver>,
    pub(super) actor_tree: Arc<ActorTree>,
    pub(super) token_deviations: Arc<TokenDeviations>,
    /// The jobs that have outlived their runs, such as calls for names of traces.
    pub(super) detached_jobs: TaskTracker,
}

impl Services {
    /// Returns what starts children of live runs.
    pub(super) fn child_starter(&self) -> ChildStarter {
        ChildStarter {
            core: Arc::clone(&self.core),
            models: Arc::clone(&self.resolver.models),
            finalizer: Arc::clone(&self.finalizer),
        }
    }
}
