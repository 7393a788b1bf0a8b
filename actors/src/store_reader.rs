//! Reading the store from async code: on blocking threads, independent of the writer's queue, with
//! limited concurrency.

use std::{fmt::Display, sync::Arc};

use futures::future::BoxFuture;
use soong_protocol::{ErrorCode, ErrorInfo};
use soong_storage::store::{Reader, StoreError};
use tokio::sync::{Semaphore, oneshot};

/// Name of the database in the home.
pub(crate) const DATABASE: &str = "sessions.sqlite";

/// Maximum number of concurrent reads: the number of connections that the store keeps open. Further
/// reads wait, which is cheaper than opening a connection.
const MAX_CONCURRENT_READS: usize = 4;

/// The reading side of the store for async callers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StoreReader {
    reader: Arc<dyn Reader>,
    permits: Arc<Semaphore>,
}

impl StoreReader {
    pub(crate) fn new(reader: Arc<dyn Reader>) -> Self {
        Self {
            reader,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
        }
    }

    /// Runs a read on a blocking thread.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T, ErrorInfo>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
    {
        let reader = Arc::clone(&self.reader);
        // The semaphore is never closed. If the caller is dropped, the read continues and keeps its
        // permit.
        let turn = Arc::clone(&self.permits).acquire_owned().await;
        let (reply, outcome) = oneshot::channel();
        let work = move || {
            let _turn = turn;
            let _ = reply.send(read(reader.as_ref())); // fails if the caller was dropped
        };
        run_blocking(Box::new(work)).await?;
        match outcome.await {
            Ok(outcome) => outcome.map_err(|error| ErrorInfo::from(&error)),
            // Unreachable: a read that did not panic has sent its outcome.
            Err(_) => Err(did_not_finish(&"no result")),
        }
    }
}

/// Runs a read on a blocking thread. Not generic, so that it is compiled once, and not for each
/// kind of read.
fn run_blocking(work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, Result<(), ErrorInfo>> {
    Box::pin(async {
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| did_not_finish(&error))
    })
}

fn did_not_finish(why: &dyn Display) -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::InternalError,
        format!("a database read did not finish: {why}"),
    )
}
