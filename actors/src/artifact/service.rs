//! The handle to the artifacts of a home, used by tools, programs and commands.
//!
//! Elsewhere: the implementation (`store.rs`, `store/`).

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use soong_protocol::{
    Artifact, ArtifactVersion, ErrorCode, ErrorInfo, FlushReport, RunId, SessionId, TraceId,
};
use soong_tool::artifact::{
    ArtifactOwner, ArtifactService, ChangeCondition, EditRequest, Edited, Loaded, Save,
};
use tokio_util::task::TaskTracker;

use super::{ArtifactReader, ArtifactStore, Cleanup, CleanupReport, RestorePlan};

/// Handle to the artifacts of a home. A change that has started runs in `tasks` and is completed
/// even if the caller drops its future.
#[derive(Clone)]
pub(crate) struct ArtifactHandle {
    store: Arc<ArtifactStore>,
    tasks: TaskTracker,
}

impl ArtifactHandle {
    pub(crate) fn new(store: &Arc<ArtifactStore>, tasks: &TaskTracker) -> Self {
        Self {
            store: Arc::clone(store),
            tasks: tasks.clone(),
        }
    }

    /// Returns a handle whose changes run in `tasks`.
    pub(crate) fn with_tasks(&self, tasks: &TaskTracker) -> Self {
        Self::new(&self.store, tasks)
    }

    /// Returns the store. A change that is requested there ends with the caller's future.
    pub(crate) fn store(&self) -> &Arc<ArtifactStore> {
        &self.store
    }

    /// Returns the part of the store that reads.
    pub(crate) fn reader(&self) -> &ArtifactReader {
        &self.store.reader
    }

    /// Runs work that must be completed once it has started.
    async fn run_to_completion<T, F>(&self, work: F) -> Result<T, ErrorInfo>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ErrorInfo>> + Send + 'static,
    {
        match self.tasks.spawn(work).await {
            Ok(outcome) => outcome,
            Err(error) => Err(ErrorInfo::new(
                ErrorCode::InternalError,
                format!("the artifact operation did not finish: {error}"),
            )),
        }
    }

    /// Deletes an artifact that meets the condition. Returns `false` if it does not exist.
    pub(crate) async fn delete_if(
        &self,
        owner: &ArtifactOwner,
        key: &str,
        condition: &ChangeCondition,
    ) -> Result<bool, ErrorInfo> {
        let store = Arc::clone(&self.store);
        let owner = owner.clone();
        let key = key.to_owned();
        let condition = condition.clone();
        self.run_to_completion(async move { store.delete(&owner, &key, &condition).await })
            .await
    }

    /// Lists the artifacts that may be deleted, and deletes them unless the request is a dry run
    /// (ART-13).
    pub(crate) async fn clean_up(&self, request: Cleanup) -> Result<CleanupReport, ErrorInfo> {
        let store = Arc::clone(&self.store);
        self.run_to_completion(async move { store.clean_up(request).await })
            .await
    }
}

/// Methods that only runs use. They run in the task of the caller.
impl ArtifactHandle {
    /// Stores the documents that a run edited as versions (ART-3).
    pub(crate) async fn flush_run(
        &self,
        trace: &TraceId,
        run: &RunId,
    ) -> Result<FlushReport, ErrorInfo> {
        self.store.flush_run(trace, run).await
    }

    /// Returns the text that lists the artifacts for a model; `None` if there are none.
    pub(crate) async fn inventory(
        &self,
        owner: &ArtifactOwner,
    ) -> Result<Option<String>, ErrorInfo> {
        self.store.inventory(owner).await
    }

    /// Plans how the documents of a trace get the text again that they had at `lsn`: see
    /// [`ArtifactStore::plan_restore`].
    pub(crate) async fn plan_restore(
        &self,
        trace: &TraceId,
        run: &RunId,
        reported_by: Option<&RunId>,
        lsn: u64,
    ) -> Result<RestorePlan, ErrorInfo> {
        self.store.plan_restore(trace, run, reported_by, lsn).await
    }

    /// Forgets what is held in memory of documents that were restored.
    pub(crate) fn evict_restored(&self, session: &SessionId, names: &[String]) {
        self.store.evict_restored(session, names);
    }
}

impl ArtifactService for ArtifactHandle {
    fn save<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        save: Save,
    ) -> BoxFuture<'a, Result<Artifact, ErrorInfo>> {
        let store = Arc::clone(&self.store);
        let owner = owner.clone();
        self.run_to_completion(async move { store.save(&owner, save).await })
            .boxed()
    }

    fn load<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        key: &'a str,
        version: Option<u64>,
    ) -> BoxFuture<'a, Result<Option<Loaded>, ErrorInfo>> {
        self.store.load(owner, key, version).boxed()
    }

    fn list<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
    ) -> BoxFuture<'a, Result<Vec<Artifact>, ErrorInfo>> {
        self.store.reader.list(owner).boxed()
    }

    fn list_keys<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
    ) -> BoxFuture<'a, Result<Vec<String>, ErrorInfo>> {
        async move {
            let all = self.store.reader.list(owner).await?;
            let mut keys: Vec<String> = all
                .iter()
                .filter(|one| one.name.is_some())
                .map(Artifact::key)
                .collect();
            keys.sort_unstable();
            Ok(keys)
        }
        .boxed()
    }

    fn list_versions<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ArtifactVersion>, ErrorInfo>> {
        self.store.reader.versions(owner, key).boxed()
    }

    fn get_version<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        key: &'a str,
        version: u64,
    ) -> BoxFuture<'a, Result<Option<ArtifactVersion>, ErrorInfo>> {
        async move {
            let versions = self.store.reader.versions(owner, key).await?;
            Ok(versions.into_iter().find(|one| one.version == version))
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<bool, ErrorInfo>> {
        async {
            self.delete_if(owner, key, &ChangeCondition::default())
                .await
        }
        .boxed()
    }

    fn edit<'a>(
        &'a self,
        owner: &'a ArtifactOwner,
        request: EditRequest,
    ) -> BoxFuture<'a, Result<Edited, ErrorInfo>> {
        let store = Arc::clone(&self.store);
        let owner = owner.clone();
        self.run_to_completion(async move { store.edit(&owner, request).await })
            .boxed()
    }
}
