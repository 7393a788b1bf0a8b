//! The handle to the artifacts of a home, used by tools, programs and commands.
//!
//! Elsewhere: the implementation (`store.rs`, `store/`).

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use soong_protocol::{Artifact, ArtifactVersion, ErrorCode, ErrorInfo};
use soong_tool::artifact::{ArtifactOwner, ArtifactService, EditRequest, Edited, Loaded, Save};
use tokio_util::task::TaskTracker;

use super::{ArtifactStore, Cleanup, CleanupReport};

/// Handle to the artifacts of a home. A change that has started runs in `tasks` and is completed even if the caller
/// drops its future.
#[derive(Clone)]
pub(crate) struct ArtifactHandle {
    pub(crate) store: Arc<ArtifactStore>,
    pub(crate) tasks: TaskTracker,
}

impl ArtifactHandle {
    /// Runs work that must be completed once it has started.
    async fn run_to_completion<T, F>(&self, work: F) -> Result<T, ErrorInfo>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ErrorInfo>> + Send + 'static,
    {
        match self.tasks.spawn(work).await {
            Ok(outcome) => outcome,
            Err(error) => {
                Err(ErrorInfo::new(ErrorCode::InternalError, format!("the artifact operation did not finish: {error}")))
            }
        }
    }
}

impl ArtifactHandle {
    /// Lists the artifacts that may be deleted, and deletes them unless the request is a dry run (ART-13).
    pub(crate) async fn clean_up(&self, request: Cleanup) -> Result<CleanupReport, ErrorInfo> {
        let store = Arc::clone(&self.store);
        self.run_to_completion(async move { store.clean_up(request).await }).await
    }
}

impl ArtifactService for ArtifactHandle {
    fn save<'a>(&'a self, place: &'a ArtifactOwner, save: Save) -> BoxFuture<'a, Result<Artifact, ErrorInfo>> {
        let (store, place) = (Arc::clone(&self.store), place.clone());
        self.run_to_completion(async move { store.save(&place, save).await }).boxed()
    }

    fn load<'a>(
        &'a self,
        place: &'a ArtifactOwner,
        key: &'a str,
        version: Option<u64>,
    ) -> BoxFuture<'a, Result<Option<Loaded>, ErrorInfo>> {
        self.store.load(place, key, version).boxed()
    }

    fn list<'a>(&'a self, place: &'a ArtifactOwner) -> BoxFuture<'a, Result<Vec<Artifact>, ErrorInfo>> {
        self.store.reader.list(place).boxed()
    }

    fn list_keys<'a>(&'a self, place: &'a ArtifactOwner) -> BoxFuture<'a, Result<Vec<String>, ErrorInfo>> {
        async move {
            let all = self.store.reader.list(place).await?;
            let mut keys: Vec<String> = all.iter().filter(|one| one.name.is_some()).map(Artifact::key).collect();
            keys.sort_unstable();
            Ok(keys)
        }
        .boxed()
    }

    fn list_versions<'a>(
        &'a self,
        place: &'a ArtifactOwner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ArtifactVersion>, ErrorInfo>> {
        self.store.reader.versions(place, key).boxed()
    }

    fn get_version<'a>(
        &'a self,
        place: &'a ArtifactOwner,
        key: &'a str,
        version: u64,
    ) -> BoxFuture<'a, Result<Option<ArtifactVersion>, ErrorInfo>> {
        async move {
            let versions = self.store.reader.versions(place, key).await?;
            Ok(versions.into_iter().find(|one| one.version == version))
        }
        .boxed()
    }

    fn delete<'a>(&'a self, place: &'a ArtifactOwner, key: &'a str) -> BoxFuture<'a, Result<bool, ErrorInfo>> {
        let (store, place, key) = (Arc::clone(&self.store), place.clone(), key.to_owned());
        self.run_to_completion(async move { store.delete(&place, &key).await }).boxed()
    }

    fn edit<'a>(&'a self, place: &'a ArtifactOwner, request: EditRequest) -> BoxFuture<'a, Result<Edited, ErrorInfo>> {
        let (store, place) = (Arc::clone(&self.store), place.clone());
        self.run_to_completion(async move { store.edit(&place, request).await }).boxed()
    }
}
