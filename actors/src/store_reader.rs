//! Reading the store from async code: on blocking threads, independent of the writer's queue, with limited
//! concurrency.

use std::sync::Arc;

use soong_protocol::{ErrorCode, ErrorInfo};
use soong_storage::store::{Reader, StoreError};
use tokio::sync::Semaphore;

/// Name of the database in the home.
pub(crate) const DATABASE: &str = "sessions.sqlite";

/// Maximum number of concurrent reads: the number of connections that the store keeps open. Further reads wait, which
/// is cheaper than opening a connection.
const MAX_CONCURRENT_READS: usize = 4;

/// The reading side of the store for async callers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StoreReader {
    reader: Arc<dyn Reader>,
    permits: Arc<Semaphore>,
}

impl StoreReader {
    pub(crate) fn new(reader: Arc<dyn Reader>) -> Self {
        Self { reader, permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)) }
    }

    /// Runs a read on a blocking thread.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T, ErrorInfo>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
    {
        let reader = Arc::clone(&self.reader);
        // The semaphore is never closed. If the caller is dropped, the read continues and keeps its permit.
        let turn = Arc::clone(&self.permits).acquire_owned().await;
        let work = move || {
            let _turn = turn;
            read(reader.as_ref())
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(outcome) => outcome.map_err(|error| ErrorInfo::from(&error)),
            Err(error) => {
                Err(ErrorInfo::new(ErrorCode::InternalError, format!("a database read did not finish: {error}")))
            }
        }
    }
}
