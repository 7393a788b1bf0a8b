//! The lifetime of a runtime: its background tasks, and the reason why it takes no new work.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use soong_protocol::ErrorInfo;
use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::actor_base::{closing, keep_trying};

/// The lifetime of a runtime. Cheap to clone; clones share one state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lifetime {
    closing: CancellationToken,
    tasks: TaskTracker,
    failure: Arc<OnceLock<ErrorInfo>>,
}

impl Lifetime {
    /// Returns whether the runtime is closing or has closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Returns the token that is cancelled when the runtime closes.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Returns the background tasks, which closing waits for.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Spawns a background task.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        // Boxed, so that the executor is compiled once for each type of result, and not for each
        // task.
        let task: BoxFuture<'static, T> = Box::pin(task);
        self.tasks.spawn(task)
    }

    /// Records that the runtime has lost a part that it cannot work without. The first reason
    /// counts.
    pub(crate) fn fail(&self, failure: ErrorInfo) {
        let _ = self.failure.set(failure);
    }

    /// Returns why the runtime takes no new work, if it has failed.
    pub(crate) fn failure(&self) -> Option<&ErrorInfo> {
        self.failure.get()
    }

    /// Returns whether the runtime takes new work.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closing() && self.failure().is_none()
    }

    /// Returns the error of runs that are interrupted because the runtime has failed or is closing.
    pub(crate) fn interruption(&self) -> ErrorInfo {
        self.failure().cloned().unwrap_or_else(closing)
    }

    /// Retries like [`keep_trying`], until the runtime closes.
    pub(crate) async fn keep_trying<T, F>(
        &self,
        what: &str,
        attempt: impl FnMut() -> F,
    ) -> Result<T, ErrorInfo>
    where
        F: Future<Output = Result<T, ErrorInfo>>,
    {
        keep_trying(&self.closing, what, attempt).await
    }
}
